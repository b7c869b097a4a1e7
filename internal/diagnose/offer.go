package diagnose

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// labelCapacityType is Karpenter's (sigs.k8s.io/karpenter/pkg/apis/v1).
const labelCapacityType = "karpenter.sh/capacity-type"

// NewOffer is the machine of a Blueprint with a disk of so many GiB, bought in one of the zones by one of the capacity types.
// A pod can have of it what a launch is simulated with: for one that asks for more, nothing is launched.
func NewOffer(bp v1alpha1.Blueprint, diskGiB int64, zones []string, capacityTypes []v1alpha1.CapacityType) Offer {
	most := bp.Resources.DeepCopy()
	kind, known := machine.Lookup(bp.InstanceType)
	if known {
		maps.Copy(most, kind.NodeAllocatable(diskGiB))
	}
	made := Offer{Blueprint: bp, Machine: blueprint.Machine(bp), Most: most}
	for _, capacityType := range capacityTypes {
		for _, zone := range zones {
			labels := map[string]string{
				corev1.LabelInstanceTypeStable: bp.InstanceType,
				corev1.LabelOSStable:           string(corev1.Linux),
				corev1.LabelArchStable:         kind.Arch,
				corev1.LabelTopologyZone:       zone,
				labelCapacityType:              string(capacityType),
			}
			for key, value := range bp.Labels {
				labels[key] = value
			}
			made.Ways = append(made.Ways, Way{Zone: zone, CapacityType: capacityType, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}})
		}
	}
	return made
}

// waysFor are the ways to buy the machine that the pod's selectors admit.
func (o *Offer) waysFor(asked demand) []Way {
	var ways []Way
	for _, way := range o.Ways {
		if asked.selects(way.Node) {
			ways = append(ways, way)
		}
	}
	return ways
}

// Share is the physical GPUs behind an amount of the machine's resources: as much of the machine as the scarcest of them
// takes, rounded up to whole GPUs. 60 slices of a machine that cuts 8 GPUs into 56 are 9 GPUs.
func (o *Offer) Share(amount corev1.ResourceList) int64 {
	var gpus int64
	for name, has := range o.Blueprint.Resources {
		sum := amount[name]
		if each := has.Value(); each > 0 {
			gpus = max(gpus, (sum.Value()*int64(o.Blueprint.GPU.Count)+each-1)/each)
		}
	}
	return gpus
}

// open says whether a place has anything left of what pods of the pool ask for.
func (p *Pool) open(place *Place) bool {
	return slices.ContainsFunc(p.Offers, func(o Offer) bool { return hasAny(place.Free, o.Blueprint.Resources) })
}
