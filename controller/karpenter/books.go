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
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
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
	// counted is when the pools were last counted.
	counted time.Time
	// orphans are the instances that the last count found without a claim.
	orphans map[string]bool
}

// NewBooks returns the keeper of one ledger.
func NewBooks(c client.Client, live client.Reader, provider cloud.Cloud, cluster string, clk clock.PassiveClock, l *ledger.Ledger) *Books {
	return &Books{client: c, live: live, cloud: provider, cluster: cluster, clock: clk, ledger: l, orphans: map[string]bool{}}
}

// Register adds the reconciler to a manager. It reconciles pools. What a change of a claim means for the ledger is noted
// at once, and not when its pool's turn comes.
func (b *Books) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("ledger").
		For(&v1alpha1.GPUNodePool{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(b.claimChanged)).
		Complete(reconcile.AsReconciler(m.GetClient(), b))
}

// Reconcile counts a pool that has not been counted, and all of them once a minute, and ends claims that were replaced.
func (b *Books) Reconcile(ctx context.Context, pool *v1alpha1.GPUNodePool) (reconcile.Result, error) {
	if !b.fresh(pool.Name) {
		if err := b.count(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: countAgain}, b.endReplaced(ctx, pool.Name)
}

func (b *Books) claimChanged(ctx context.Context, claim client.Object) []reconcile.Request {
	pool := claim.GetLabels()[v1alpha1.LabelPool]
	if pool == "" {
		return nil
	}
	if err := b.note(ctx, b.client, pool); err != nil {
		log.FromContext(ctx).Error(err, "the ledger is not told of a change until it counts anew")
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pool}}}
}

// fresh says whether the pool was counted lately.
func (b *Books) fresh(pool string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Counted(pool) && b.clock.Since(b.counted) < countAgain
}

// note tells the ledger which claims of a pool are leaving.
func (b *Books) note(ctx context.Context, reader client.Reader, pool string) error {
	claims, err := claimsOf(ctx, reader, pool)
	if err != nil {
		return err
	}
	for i := range claims {
		b.ledger.SetLeaving(pool, string(claims[i].UID), leaving(&claims[i]))
	}
	return nil
}

// reserve asks the ledger, and where the steady sum refuses, once more after a look past the cache: the node that a launch
// replaces may have been marked since the watch last told.
func (b *Books) reserve(ctx context.Context, pool string, claim ledger.Claim) error {
	err := b.ledger.Reserve(pool, claim)
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) || refusal.Sum != ledger.Steady {
		return err
	}
	if err := b.note(ctx, b.live, pool); err != nil {
		return err
	}
	return b.ledger.Reserve(pool, claim)
}

// count counts every pool anew and ends orphans. A pool that cannot be counted stays as it was, and launches nothing if it
// never was; the others are not held up by it.
func (b *Books) count(ctx context.Context) error {
	var instances []cloud.Instance
	var claims *karpv1.NodeClaimList
	var unreadable error
	err := b.ledger.Rebuild(func() (map[string]ledger.World, error) {
		var err error
		if instances, claims, err = b.read(ctx); err != nil {
			return nil, err
		}
		var worlds map[string]ledger.World
		worlds, unreadable, err = b.worlds(ctx, claims, instances)
		return worlds, err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.counted = b.clock.Now()
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
	byClaim := map[string][]cloud.Instance{}
	for _, instance := range instances {
		byClaim[instance.Claim.UID] = append(byClaim[instance.Claim.UID], instance)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		name := claim.Labels[v1alpha1.LabelPool]
		world, ours := worlds[name]
		if !ours {
			continue
		}
		entry, err := entryOf(claim, byClaim[string(claim.UID)])
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

// entryOf is a claim as the ledger counts it. instances are those that carry its UID.
func entryOf(claim *karpv1.NodeClaim, instances []cloud.Instance) (ledger.Claim, error) {
	entry := ledger.Claim{UID: string(claim.UID), Leaving: leaving(claim)}
	journal, err := readJournal(claim)
	switch {
	case err != nil && len(instances) == 0:
		return entry, err
	case err == nil && journal.open():
		entry.Attempt, entry.Machine, entry.State = journal.Token, machineOf(journal.InstanceType), ledger.Reserved
		if claim.Status.ProviderID != "" {
			entry.State = ledger.Launched
		}
	case len(instances) > 0 && (err != nil || claim.Status.ProviderID != ""):
		// Somebody spoiled the journal, or took it away. What runs for the claim counts as what stays all the same.
		entry.Attempt, entry.Machine, entry.State = instances[0].Token, machineOf(instances[0].InstanceType), ledger.Launched
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
	return blueprint.MachineOf(kind)
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
