package karpenter

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// GetInstanceTypes returns the Blueprints of a pool as core's instance types, and none for NodePools of other node
// classes. A pool that is not accepted is an error: core then leaves the NodePool out and its nodes alone. An empty list
// would mean that their instance types are gone, which is drift.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	ref := nodePool.Spec.Template.Spec.NodeClassRef
	name := nodePool.Labels[v1alpha1.LabelPool]
	if ref == nil || ref.Group != v1alpha1.Group || ref.Kind != v1alpha1.KindGPUNodeClass || name == "" {
		return nil, nil
	}
	pool, err := fleet.Read(ctx, c.client, name)
	if err != nil {
		return nil, err
	}
	return c.instanceTypes(ctx, pool)
}

// option is an instance type as core sees it, with the Blueprint that it came from.
type option struct {
	*cloudprovider.InstanceType
	blueprint v1alpha1.Blueprint
}

func (c *CloudProvider) instanceTypes(ctx context.Context, pool fleet.Pool) ([]*cloudprovider.InstanceType, error) {
	options, err := c.options(ctx, pool)
	if err != nil {
		return nil, err
	}
	claims, err := claimsOf(ctx, c.client, pool.Pool.Name)
	if err != nil {
		return nil, err
	}
	usage, replaced, err := c.usage(ctx, pool.Pool.Name, claims)
	if err != nil {
		return nil, err
	}
	types := make([]*cloudprovider.InstanceType, 0, len(options))
	for _, option := range options {
		if err := c.narrow(ctx, option, claims); err != nil {
			return nil, err
		}
		// No claim is made only to be refused: what the ledger has no room for is closed. So is everything where it has none
		// for as much as the node to be replaced, which several smaller ones would need together.
		if usage.Fits(blueprint.Machine(option.blueprint)) != nil || replaced != nil && usage.Fits(*replaced) != nil {
			for _, offering := range option.Offerings {
				offering.Available = false
			}
		}
		types = append(types, option.InstanceType)
	}
	return types, nil
}

// narrow holds an instance type to what nodes of the same Blueprint have turned out to have for pods. Figures of machines that
// do not exist yet are estimates: where one was too high, core would launch for a pod that no such node takes, and, since the
// pod still waits, again and again.
func (c *CloudProvider) narrow(ctx context.Context, option option, claims []karpv1.NodeClaim) error {
	promised := resources.Subtract(option.Capacity, option.Overhead.Total())
	lacks := corev1.ResourceList{}
	for i := range claims {
		claim := &claims[i]
		if claim.Annotations[v1alpha1.AnnotationBlueprintHash] != option.blueprint.Hash || !is(claim, karpv1.ConditionTypeInitialized) ||
			claim.Labels[corev1.LabelInstanceTypeStable] != option.Name {
			continue
		}
		node := &corev1.Node{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading node %q: %w", claim.Status.NodeName, err)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			lack := promised[name].DeepCopy()
			has, listed := node.Status.Allocatable[name]
			lack.Sub(has)
			if most := lacks[name]; listed && lack.Cmp(most) > 0 {
				lacks[name] = lack
			}
		}
	}
	option.Overhead.SystemReserved = lacks
	return nil
}

// options compiles the pool's instance types.
func (c *CloudProvider) options(ctx context.Context, pool fleet.Pool) ([]option, error) {
	blueprints, err := c.blueprints(ctx, pool)
	if err != nil || len(blueprints) == 0 {
		return nil, err
	}
	options := make([]option, 0, len(blueprints))
	for _, bp := range blueprints {
		kind, known := machine.Lookup(bp.InstanceType)
		if !known {
			return nil, fmt.Errorf("instance type %q compiled, but is not in the table", bp.InstanceType)
		}
		options = append(options, option{InstanceType: c.instanceType(pool, kind, bp), blueprint: bp})
	}
	return options, nil
}

// usage is what the simulation under way is held to. Where core looks for a replacement, the node to be replaced still
// counts as one that stays, and does not once it is chosen, so it is left out. Core does not say which it looks at: it is one
// that drifted or broke, and the smallest of these is left out, so that what is planned for any of them is not refused. The
// larger ones follow when the smaller are done. Pods that wait do not get that room: coreClient keeps them from core. The machine
// that is left out is returned too, nil where there is none.
func (c *CloudProvider) usage(ctx context.Context, pool string, claims []karpv1.NodeClaim) (usage ledger.Usage, smallest *ledger.Machine, err error) {
	usage = c.ledger.Usage(pool)
	if !disrupting(ctx) {
		return usage, nil, nil
	}
	for i := range claims {
		claim := &claims[i]
		toReplace, err := replaceable(ctx, c.client, claim)
		if err != nil {
			return usage, nil, err
		}
		if leaving(claim) || !toReplace {
			continue
		}
		m := machineOf(claim.Labels[corev1.LabelInstanceTypeStable])
		if smallest == nil {
			smallest = &m
		}
		smallest.GPUs, smallest.Price = min(smallest.GPUs, m.GPUs), min(smallest.Price, m.Price)
	}
	if smallest != nil {
		usage.Steady.GPUs -= smallest.GPUs
		usage.Steady.Nodes--
		usage.Steady.HourlyCost -= smallest.Price
	}
	return usage, smallest, nil
}

// blueprints compiles the pool's, in order of preference; none where the pool is not accepted.
func (c *CloudProvider) blueprints(ctx context.Context, pool fleet.Pool) ([]v1alpha1.Blueprint, error) {
	var blueprints []v1alpha1.Blueprint
	for _, name := range pool.InstanceTypes() {
		bp, err := pool.Blueprint(name)
		if err != nil {
			return nil, fmt.Errorf("pool %q is not accepted: %w", pool.Pool.Name, err)
		}
		blueprints = append(blueprints, bp)
	}
	return blueprints, nil
}

func (c *CloudProvider) instanceType(pool fleet.Pool, kind machine.Type, bp v1alpha1.Blueprint) *cloudprovider.InstanceType {
	offerings, diskGiB := c.offerings(pool, kind), int64(pool.Class.Spec.Cloud.AWS.RootVolume.SizeGiB)
	return &cloudprovider.InstanceType{
		Name:         kind.Name,
		Requirements: instanceRequirements(kind, bp, offerings),
		Offerings:    offerings,
		Capacity:     capacity(kind, bp, diskGiB),
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: kind.KubeReserved(), EvictionThreshold: kind.EvictionThreshold(diskGiB)},
	}
}

// offerings are the pool's zones times its capacity types. Those that the cloud refused lately are closed.
func (c *CloudProvider) offerings(pool fleet.Pool, kind machine.Type) cloudprovider.Offerings {
	var offerings cloudprovider.Offerings
	for _, capacityType := range blueprint.Defaults(pool.Pool).CapacityTypes {
		for _, subnet := range pool.Zones() {
			offerings = append(offerings, &cloudprovider.Offering{
				Requirements: scheduling.NewRequirements(
					scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, string(capacityType)),
					scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, subnet.Zone),
				),
				Price:     price(kind),
				Available: !c.refused.has(offeringKey{pool.Class.Name, kind.Name, subnet.Zone, capacityType}),
			})
		}
	}
	return offerings
}

// unknownPrice stands for a price that no table has. It only orders: an unknown price must come last, and not first as 0.
const unknownPrice = 1e6

func price(kind machine.Type) float64 {
	if !kind.HasPrice {
		return unknownPrice
	}
	return kind.PricePerHour
}

func instanceRequirements(kind machine.Type, bp v1alpha1.Blueprint, offerings cloudprovider.Offerings) scheduling.Requirements {
	var zones, capacityTypes []string
	for _, offering := range offerings.Available() {
		zones = append(zones, offering.Zone())
		capacityTypes = append(capacityTypes, offering.CapacityType())
	}
	in := func(key string, values ...string) *scheduling.Requirement {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	requirements := scheduling.NewRequirements(
		in(corev1.LabelInstanceTypeStable, kind.Name),
		in(corev1.LabelArchStable, kind.Arch),
		in(corev1.LabelOSStable, string(corev1.Linux)),
		in(corev1.LabelTopologyZone, zones...),
		in(karpv1.CapacityTypeLabelKey, capacityTypes...),
	)
	for _, key := range wellKnownLabels() {
		if value, set := bp.Labels[key]; set {
			requirements.Add(in(key, value))
		} else {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	return requirements
}

func capacity(kind machine.Type, bp v1alpha1.Blueprint, diskGiB int64) corev1.ResourceList {
	list := kind.NodeCapacity(diskGiB)
	for _, beside := range []corev1.ResourceList{bp.Resources, blueprint.PseudoResources(bp)} {
		for name, quantity := range beside {
			list[name] = quantity
		}
	}
	return list
}
