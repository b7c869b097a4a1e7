package karpenter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// createTimeout bounds one Create: a claim without a provider id stops core's provisioning of every pool.
const createTimeout = 20 * time.Second

// Create starts the one instance of a claim, or finds the one that an earlier try started.
func (c *CloudProvider) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()

	current := &karpv1.NodeClaim{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(claim), current); err != nil {
		return nil, fmt.Errorf("reading NodeClaim %s before its launch: %w", claim.Name, err)
	}
	if current.UID != claim.UID || !current.DeletionTimestamp.IsZero() {
		return nil, fmt.Errorf("NodeClaim %s is going or was replaced: nothing is launched for it", claim.Name)
	}
	pool, err := c.poolOf(ctx, claim)
	if err != nil {
		return nil, err
	}
	options, err := c.options(ctx, pool)
	if fleet.Unusable(err) {
		options, err = nil, nil // nothing fits the claim then; what an earlier try started is still looked for
	}
	if err != nil {
		return nil, err
	}
	entry, err := readJournal(current)
	if err != nil {
		// Nobody knows what was asked for it. Core ends the claim, and the finalizer whatever runs for it: a claim that is kept
		// without a provider id would stop the provisioning of every pool.
		return nil, cloudprovider.NewInsufficientCapacityError(err)
	}
	launch := &launch{provider: c, claim: current, pool: pool, options: options, journal: entry}
	if entry.open() {
		return launch.resume(ctx)
	}
	return launch.fresh(ctx)
}

// poolOf reads the pool of a claim. What is not there, or not ready, is an error that core ends the claim on.
func (c *CloudProvider) poolOf(ctx context.Context, claim *karpv1.NodeClaim) (fleet.Pool, error) {
	pool, err := fleet.Read(ctx, c.client, claim.Labels[v1alpha1.LabelPool])
	if fleet.Unusable(err) {
		return fleet.Pool{}, cloudprovider.NewInsufficientCapacityError(err)
	}
	if err != nil {
		return fleet.Pool{}, err
	}
	ready := meta.FindStatusCondition(pool.Class.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != pool.Class.Generation {
		return fleet.Pool{}, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("GPUNodeClass %s is not ready", pool.Class.Name))
	}
	return pool, nil
}

// launch is one Create under way.
type launch struct {
	provider *CloudProvider
	claim    *karpv1.NodeClaim
	pool     fleet.Pool
	options  []option
	journal  *journal
}

// choice is an option and the offering to buy it by.
type choice struct {
	option
	zone         string
	subnet       string
	capacityType v1alpha1.CapacityType
	price        float64
}

// resume settles an attempt whose outcome nobody has read: adopt what it started, or ask again with the same token.
func (l *launch) resume(ctx context.Context) (*karpv1.NodeClaim, error) {
	entry := l.journal
	chosen, found := lo.Find(l.options, func(o option) bool { return o.Name == entry.InstanceType })
	instance, err := l.provider.cloud.FindByToken(ctx, entry.Token)
	switch {
	case err == nil && !instance.State.Ending():
		log.FromContext(ctx).Info("adopting the instance of an earlier try", "instance", instance.ID)
		if err := l.settle(); err != nil {
			return nil, err
		}
		if !found {
			// Nothing is unknown here, so core ends the claim, and its finalizer the instance: a claim that is kept without
			// a provider id would stop the provisioning of every pool.
			return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("instance %s runs for instance type %s, which pool %s no longer offers: it is ended", instance.ID, entry.InstanceType, l.pool.Pool.Name))
		}
		return launched(instance, chosen.InstanceType, chosen.blueprint), nil
	case err == nil:
		// It started and ended again: this token is spent.
		return l.next(ctx, l.ended(instance))
	case !errors.Is(err, cloud.ErrNotFound):
		return nil, l.unresolved(err)
	case !found:
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("pool %s no longer offers %s", l.pool.Pool.Name, entry.InstanceType))
	}
	if err := l.reserve(ctx, entry.Token, entry.InstanceType); err != nil {
		return nil, err
	}
	again := choice{option: chosen, zone: entry.Zone, subnet: entry.Subnet, capacityType: entry.CapacityType}
	if hash, err := l.provider.cloud.RequestHash(l.request(again, entry.Image, entry.Token)); err == nil && hash != entry.RequestHash {
		// Harmless, since the token is the same: if the first call took effect, the cloud says so and it is adopted.
		log.FromContext(ctx).Info("the class changed since the launch was asked for", "NodeClaim", l.claim.Name)
	}
	// The time of asking is written anew: from it on the cloud may not know yet what it has started.
	renewed := *entry
	renewed.AskedAt = metav1.NewTime(l.provider.clock.Now())
	if err := l.record(ctx, &renewed); err != nil {
		return nil, err
	}
	return l.ask(ctx, again, entry.Image)
}

// record writes the journal.
func (l *launch) record(ctx context.Context, entry *journal) error {
	written, err := writeJournal(ctx, l.provider.client, l.provider.live, l.claim, entry)
	if err != nil {
		return err
	}
	l.claim, l.journal = written, entry
	return nil
}

// fresh makes the first or next attempt of a claim that nothing is open for.
func (l *launch) fresh(ctx context.Context) (*karpv1.NodeClaim, error) {
	return l.next(ctx, nil)
}

// next tries the choices in order until one is launched. last is why the one before was refused.
func (l *launch) next(ctx context.Context, last error) (*karpv1.NodeClaim, error) {
	if last != nil {
		if err := l.refuse(ctx, last); err != nil {
			return nil, err
		}
	}
	choices := l.choices()
	if len(choices) == 0 {
		l.release()
		return nil, l.exhausted(last)
	}
	chosen := choices[0]
	attempt := 1
	if l.journal != nil {
		attempt = l.journal.Attempt + 1
	}
	if err := l.reserve(ctx, token(l.claim, attempt, chosen), chosen.Name); err != nil {
		return nil, err
	}
	if err := l.write(ctx, chosen, attempt); err != nil {
		return nil, err
	}
	return l.ask(ctx, chosen, l.journal.Image)
}

// write puts the attempt into the journal, before it is made.
func (l *launch) write(ctx context.Context, chosen choice, attempt int) error {
	req := l.request(chosen, l.pool.Class.Status.AMI, token(l.claim, attempt, chosen))
	hash, err := l.provider.cloud.RequestHash(req)
	if err != nil {
		return cloudprovider.NewCreateError(err, "LaunchRejected", err.Error())
	}
	return l.record(ctx, &journal{
		Attempt: attempt, Token: req.Token, InstanceType: req.InstanceType, Zone: req.Zone, Subnet: req.Subnet,
		CapacityType: req.CapacityType, Image: req.Image, RequestHash: hash, AskedAt: metav1.NewTime(l.provider.clock.Now()),
	})
}

// ask makes the attempt that the journal holds.
func (l *launch) ask(ctx context.Context, chosen choice, image string) (*karpv1.NodeClaim, error) {
	req := l.request(chosen, image, l.journal.Token)
	instance, err := l.provider.cloud.Launch(ctx, req)
	if err != nil && cloud.ClassOf(err) == cloud.ClassTokenReused {
		// An earlier call took effect, with other bytes since the class changed between the two, or its instance has
		// ended since.
		instance, err = l.provider.cloud.FindByToken(ctx, req.Token)
	}
	if err == nil && instance.State.Ending() {
		err = l.ended(instance)
	}
	if err == nil {
		metrics.CountLaunch(l.pool.Pool.Name, req.InstanceType, string(req.CapacityType), metrics.ReasonLaunched)
		if err := l.settle(); err != nil {
			return nil, err
		}
		return launched(instance, chosen.InstanceType, chosen.blueprint), nil
	}
	class := cloud.ClassOf(err)
	metrics.CountLaunch(l.pool.Pool.Name, req.InstanceType, string(req.CapacityType), string(class))
	if undecided(class, err) {
		return nil, l.unresolved(err)
	}
	l.provider.refused.add(offeringKey{req.Class.Name, req.InstanceType, req.Zone, req.CapacityType}, err)
	return l.next(ctx, err)
}

// ended says that a token is spent: its instance started and is gone again, as when a cloud finds no host after all. Until
// it is gone for good it counts.
func (l *launch) ended(instance cloud.Instance) error {
	if !instance.State.Gone() {
		seen := ledger.Instance{ID: instance.ID, Claim: string(l.claim.UID), Attempt: instance.Token, Machine: machineOf(instance.InstanceType)}
		if err := l.provider.ledger.Observe(l.pool.Pool.Name, seen); err != nil {
			return err
		}
	}
	return &cloud.Error{
		Class: cloud.ClassCapacity, Operation: "launch", Code: instance.StateReason,
		Message: fmt.Sprintf("instance %s ended before its node joined", instance.ID),
	}
}

// reserve holds the machine in the ledger before it is written down or asked for. A refusal ends the claim: its pods wait
// for the limit, and no other try of this claim could do better.
func (l *launch) reserve(ctx context.Context, token, instanceType string) error {
	pool := l.pool.Pool.Name
	err := l.provider.books.reserve(ctx, pool, ledger.Claim{
		UID: string(l.claim.UID), Admission: l.claim.Annotations[v1alpha1.AnnotationAdmission], Attempt: token, Machine: machineOf(instanceType),
	})
	var refusal *ledger.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		l.release()
		metrics.CountLaunch(pool, instanceType, "", v1alpha1.HoldLimitReached)
		return cloudprovider.NewInsufficientCapacityError(refusal)
	default:
		return cloudprovider.NewCreateError(err, "LedgerNotReady", err.Error())
	}
}

// release gives back what is held for the claim, of which nothing comes.
func (l *launch) release() {
	l.provider.ledger.Release(l.pool.Pool.Name, l.claim.Annotations[v1alpha1.AnnotationAdmission])
	l.provider.ledger.Release(l.pool.Pool.Name, string(l.claim.UID))
}

// settle records that the machine of the journal's attempt runs.
func (l *launch) settle() error {
	return l.provider.ledger.Settle(l.pool.Pool.Name, ledger.Claim{
		UID: string(l.claim.UID), Attempt: l.journal.Token, Machine: machineOf(l.journal.InstanceType),
	})
}

// undecided says whether the call may have started an instance all the same.
func undecided(class cloud.Class, err error) bool {
	return class == cloud.ClassTransient || class == cloud.ClassThrottled || errors.Is(err, cloud.ErrNotFound)
}

// unresolved keeps the claim: only its journal can say whether a machine runs for it.
func (l *launch) unresolved(err error) error {
	return cloudprovider.NewCreateError(err, "LaunchUnresolved", err.Error())
}

// refuse closes the open attempt in the journal.
func (l *launch) refuse(ctx context.Context, reason error) error {
	entry := *l.journal
	entry.Refused = reason.Error()
	return l.record(ctx, &entry)
}

func (l *launch) exhausted(last error) error {
	asked := strings.Join(instanceTypes(l.claim), ", ")
	if last == nil {
		last = fmt.Errorf("no offering of pool %s fits the claim (%s)", l.pool.Pool.Name, asked)
	}
	return cloudprovider.NewInsufficientCapacityError(fmt.Errorf("launching %s for pool %s: %w", asked, l.pool.Pool.Name, last))
}

// request is the same for the same choice, to the byte.
func (l *launch) request(chosen choice, image, token string) cloud.LaunchRequest {
	// Which of them a kubelet may set is the adapter's to know.
	labels := lo.Assign(nodeLabels(chosen.InstanceType, chosen.blueprint, chosen.zone, chosen.capacityType), l.claim.Labels)
	taints := slices.Concat(l.claim.Spec.Taints, l.claim.Spec.StartupTaints, []corev1.Taint{karpv1.UnregisteredNoExecuteTaint})
	return cloud.LaunchRequest{
		Token: token,
		Claim: cloud.Claim{
			Name: l.claim.Name, UID: string(l.claim.UID),
			NodePool: l.claim.Labels[karpv1.NodePoolLabelKey], Pool: l.pool.Pool.Name,
		},
		Class:        &l.pool.Class.GPUNodeClass,
		InstanceType: chosen.Name,
		Zone:         chosen.zone,
		Subnet:       chosen.subnet,
		CapacityType: chosen.capacityType,
		Image:        image,
		Labels:       labels,
		Taints:       taints,
	}
}

// choices are the offerings that the claim may have, best first: by the pool's order of capacity types, then by price,
// then by zone.
func (l *launch) choices() []choice {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(l.claim.Spec.Requirements...)
	subnets := lo.SliceToMap(l.pool.Zones(), func(s v1alpha1.SubnetStatus) (string, string) { return s.Zone, s.ID })
	var choices []choice
	for _, option := range l.options {
		if !requirements.IsCompatible(option.Requirements, scheduling.AllowUndefinedWellKnownLabels) ||
			!resources.Fits(l.claim.Spec.Resources.Requests, option.Allocatable()) {
			continue
		}
		for _, offering := range option.Offerings {
			key := offeringKey{l.pool.Class.Name, option.Name, offering.Zone(), v1alpha1.CapacityType(offering.CapacityType())}
			if l.provider.refused.has(key) || !requirements.IsCompatible(offering.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
				continue
			}
			choices = append(choices, choice{
				option: option, zone: key.zone, subnet: subnets[key.zone], capacityType: key.capacityType, price: offering.Price,
			})
		}
	}
	order := blueprint.Defaults(l.pool.Pool).CapacityTypes
	sort.SliceStable(choices, func(i, j int) bool {
		a, b := choices[i], choices[j]
		if a.capacityType != b.capacityType {
			return slices.Index(order, a.capacityType) < slices.Index(order, b.capacityType)
		}
		if a.price != b.price {
			return a.price < b.price
		}
		return a.zone < b.zone
	})
	return choices
}
