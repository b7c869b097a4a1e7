package karpenter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

const (
	// countAgain is how often the ledger is counted anew from what exists: it heals whatever was missed.
	countAgain = time.Minute
	// orphanGrace is how old an instance without a claim must be before it is ended: its claim may be younger in the
	// lists than it is.
	orphanGrace = 2 * time.Minute
)

// Books keeps the ledger true: it counts claims and instances at the start and from time to time, marks claims that are
// leaving, and ends instances that carry our tags and belong to no claim.
type Books struct {
	client  client.Client
	live    client.Reader
	cloud   cloud.Cloud
	cluster string
	clock   clock.PassiveClock
	ledger  *ledger.Ledger

	mu sync.Mutex // guards what follows
	// counted is when pools were last counted, and pools which.
	counted time.Time
	pools   map[string]bool
	// orphans are the instances that the last count found without a claim.
	orphans map[string]bool
}

// NewBooks returns the keeper of one ledger.
func NewBooks(c client.Client, live client.Reader, provider cloud.Cloud, cluster string, clk clock.PassiveClock, l *ledger.Ledger) *Books {
	return &Books{client: c, live: live, cloud: provider, cluster: cluster, clock: clk, ledger: l, orphans: map[string]bool{}}
}

// Register adds the reconciler to a manager. It reconciles pools; a claim that changes wakes nothing, but is noted.
func (b *Books) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("ledger").
		For(&v1alpha1.GPUNodePool{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			b.note(o.(*karpv1.NodeClaim))
			return nil
		})).
		Complete(reconcile.AsReconciler(m.GetClient(), b))
}

// Reconcile counts a pool that has not been counted, and all of them once a minute.
func (b *Books) Reconcile(ctx context.Context, pool *v1alpha1.GPUNodePool) (reconcile.Result, error) {
	if b.fresh(pool.Name) {
		return reconcile.Result{RequeueAfter: countAgain}, nil
	}
	if err := b.count(ctx); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: countAgain}, nil
}

// fresh says whether the pool was counted lately.
func (b *Books) fresh(pool string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pools[pool] && b.clock.Since(b.counted) < countAgain
}

// note tells the ledger whether a claim is leaving.
func (b *Books) note(claim *karpv1.NodeClaim) {
	if pool := claim.Labels[v1alpha1.LabelPool]; pool != "" {
		b.ledger.SetLeaving(pool, string(claim.UID), leaving(claim))
	}
}

// leaving says whether a claim is being deleted or was chosen by core to be replaced: core sets DisruptionReason on the
// old claim before it creates the new one (pkg/controllers/disruption/queue.go).
func leaving(claim *karpv1.NodeClaim) bool {
	return !claim.DeletionTimestamp.IsZero() || claim.StatusConditions().IsTrue(karpv1.ConditionTypeDisruptionReason)
}

// refresh notes all claims of a pool, past the cache: a launch that replaces a node may be faster than the watch.
func (b *Books) refresh(ctx context.Context, pool string) error {
	claims := &karpv1.NodeClaimList{}
	if err := b.live.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelPool: pool}); err != nil {
		return fmt.Errorf("listing NodeClaims of pool %q: %w", pool, err)
	}
	for i := range claims.Items {
		b.note(&claims.Items[i])
	}
	return nil
}

// count counts every pool anew and ends orphans. A pool that cannot be counted stays as it was, and launches nothing if it
// never was; the others are not held up by it.
func (b *Books) count(ctx context.Context) error {
	var instances []cloud.Instance
	var claims *karpv1.NodeClaimList
	var unreadable error
	pools := map[string]bool{}
	err := b.ledger.Rebuild(func() (map[string]ledger.World, error) {
		var err error
		if instances, claims, err = b.read(ctx); err != nil {
			return nil, err
		}
		var worlds map[string]ledger.World
		worlds, unreadable, err = b.worlds(ctx, claims, instances)
		for name := range worlds {
			pools[name] = true
		}
		return worlds, err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.counted, b.pools = b.clock.Now(), pools
	b.mu.Unlock()
	return errors.Join(unreadable, b.endOrphans(ctx, claims, instances))
}

// read looks at the API server and the cloud themselves, claims last: an instance whose claim came after the cloud was
// asked then is not taken for an orphan.
func (b *Books) read(ctx context.Context) ([]cloud.Instance, *karpv1.NodeClaimList, error) {
	instances, err := b.cloud.List(ctx, b.cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("listing instances: %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := b.live.List(ctx, claims); err != nil {
		return nil, nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return instances, claims, nil
}

// worlds are what exists of each pool. The first error is of pools with a claim whose journal cannot be read: they are not
// among the worlds.
func (b *Books) worlds(ctx context.Context, claims *karpv1.NodeClaimList, instances []cloud.Instance) (worlds map[string]ledger.World, unreadable, err error) {
	pools := &v1alpha1.GPUNodePoolList{}
	if err := b.live.List(ctx, pools); err != nil {
		return nil, nil, fmt.Errorf("listing pools: %w", err)
	}
	worlds = map[string]ledger.World{}
	for i := range pools.Items {
		worlds[pools.Items[i].Name] = ledger.World{}
	}
	for i := range claims.Items {
		name := claims.Items[i].Labels[v1alpha1.LabelPool]
		world, ours := worlds[name]
		if !ours {
			continue
		}
		entry, err := entryOf(&claims.Items[i])
		if err != nil {
			unreadable = errors.Join(unreadable, fmt.Errorf("pool %s cannot be counted: %w", name, err))
			delete(worlds, name)
			continue
		}
		world.Claims = append(world.Claims, entry)
		worlds[name] = world
	}
	for _, instance := range instances {
		if world, ours := worlds[instance.Claim.Pool]; ours {
			world.Instances = append(world.Instances, ledger.Instance{
				ID: instance.ID, Claim: instance.Claim.UID, Attempt: instance.Token, Machine: machineOf(instance.InstanceType),
			})
			worlds[instance.Claim.Pool] = world
		}
	}
	return worlds, unreadable, nil
}

// entryOf is a claim as the ledger counts it.
func entryOf(claim *karpv1.NodeClaim) (ledger.Claim, error) {
	entry := ledger.Claim{UID: string(claim.UID), Leaving: leaving(claim)}
	journal, err := readJournal(claim)
	if err != nil {
		return entry, err
	}
	if !journal.open() {
		return entry, nil
	}
	entry.Attempt, entry.Machine, entry.State = journal.Token, machineOf(journal.InstanceType), ledger.Reserved
	if claim.Status.ProviderID != "" {
		entry.State = ledger.Launched
	}
	return entry, nil
}

// unknownGPUs stands for the boards of an instance type that is not in the table, as many as any has: what nobody knows
// must not count as nothing.
const unknownGPUs = 8

// machineOf is what one machine of an instance type counts. Every launch is of a type in the table; an instance of
// another has no price, so that nothing is added to it under a limit in dollars.
func machineOf(instanceType string) ledger.Machine {
	kind, known := machine.Lookup(instanceType)
	if !known {
		return ledger.NewMachine(unknownGPUs, 0, false)
	}
	return ledger.NewMachine(int64(kind.GPU.Count), kind.PricePerHour, kind.HasPrice)
}

// endOrphans ends instances that carry our tags, whose claim does not exist, and that the last count found so too. One
// without a claim's UID is somebody's who borrowed the cluster's tag.
func (b *Books) endOrphans(ctx context.Context, claims *karpv1.NodeClaimList, instances []cloud.Instance) error {
	known := map[string]bool{}
	for i := range claims.Items {
		known[string(claims.Items[i].UID)] = true
	}
	b.mu.Lock()
	before := b.orphans
	b.orphans = map[string]bool{}
	b.mu.Unlock()
	var errs []error
	for _, instance := range instances {
		if instance.Claim.UID == "" || known[instance.Claim.UID] || instance.State.Ending() || b.clock.Since(instance.LaunchedAt) < orphanGrace {
			continue
		}
		b.mu.Lock()
		b.orphans[instance.ID] = true
		b.mu.Unlock()
		if !before[instance.ID] {
			continue
		}
		log.FromContext(ctx).Info("ending an instance that belongs to no NodeClaim", "instance", instance.ID,
			"pool", instance.Claim.Pool, "NodeClaim", instance.Claim.Name, "instance-type", instance.InstanceType)
		if err := b.cloud.Terminate(ctx, instance.ID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
			errs = append(errs, fmt.Errorf("ending orphan %s: %w", instance.ID, err))
		}
	}
	return errors.Join(errs...)
}
