package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// Source is what a Pool is put together from: objects as the API server has them.
type Source struct {
	Pool *v1alpha1.GPUNodePool
	// Class is nil where it does not exist; Layouts are those of the class that do.
	Class   *v1alpha1.GPUNodeClass
	Layouts map[string]*v1alpha1.MIGLayout
	// Claims, Nodes and GPUNodes are the pool's.
	Claims   []Claim
	Nodes    []*corev1.Node
	GPUNodes []*v1alpha1.GPUNode
	// Bound are the pods that hold something of each node, by its name, Leaving those that are about to give it back.
	Bound, Leaving func(node string) []*corev1.Pod
	// Now is when all of this was read.
	Now time.Time
	// Usage is the ledger's; nil where nobody can ask it: then the pool's status says what it said last.
	Usage *ledger.Usage
}

// Assemble puts a pool together.
func Assemble(s Source) (Pool, error) {
	p := Pool{Name: s.Pool.Name, Workload: s.Pool.Spec.Workload, Trouble: troubleOf(s)}
	if s.Class != nil && s.Pool.DeletionTimestamp.IsZero() {
		var err error
		if p.Offers, err = offersOf(s); err != nil && p.Trouble == "" {
			p.Trouble = err.Error()
		}
		if p.Trouble == "" && len(zonesOf(s)) == 0 {
			p.Trouble = fmt.Sprintf("no subnet of GPUNodeClass %s is known in the pool's zones", s.Class.Name)
		}
	}
	for _, b := range s.Pool.Status.Unavailable {
		p.Blocked = append(p.Blocked, Blocked{
			InstanceType: b.InstanceType, Zone: b.Zone, CapacityType: b.CapacityType,
			Reason: b.Reason, Message: b.Message, Until: b.Until.Time,
		})
	}
	var err error
	if s.Usage != nil {
		p.Usage = *s.Usage
	} else if p.Usage, err = usageOf(s.Pool, p.Offers); err != nil {
		return Pool{}, err
	}
	p.Places = placesOf(s, p.Offers)
	return p, nil
}

// troubleOf is why the pool launches nothing, in the words of its conditions.
func troubleOf(s Source) string {
	if !s.Pool.DeletionTimestamp.IsZero() {
		return "it is being deleted"
	}
	if s.Class == nil {
		return blueprint.MissingClass(s.Pool.Name, s.Pool.Spec.NodeClassRef.Name).Message
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		condition := meta.FindStatusCondition(s.Pool.Status.Conditions, kind)
		if condition != nil && condition.Status == metav1.ConditionFalse && condition.ObservedGeneration == s.Pool.Generation {
			return fmt.Sprintf("%s is False (%s): %s", kind, condition.Reason, condition.Message)
		}
	}
	return ""
}

// offersOf are what the pool may launch. The error is of the first Blueprint that cannot be.
func offersOf(s Source) ([]Offer, error) {
	zones, capacityTypes := zonesOf(s), blueprint.Defaults(s.Pool).CapacityTypes
	var offers []Offer
	for _, machine := range s.Pool.Spec.Machines {
		for _, instanceType := range machine.InstanceTypes {
			if slices.ContainsFunc(offers, func(o Offer) bool { return o.Blueprint.InstanceType == instanceType }) {
				continue
			}
			bp, err := blueprint.Compile(s.Pool, s.Class, s.Layouts, instanceType)
			if err != nil {
				return nil, err
			}
			offers = append(offers, NewOffer(bp, rootVolumeGiB(s.Class), zones, capacityTypes))
		}
	}
	return offers, nil
}

// rootVolumeGiB is the disk of the class's machines, of which pods' ephemeral storage is a part.
func rootVolumeGiB(class *v1alpha1.GPUNodeClass) int64 {
	if class.Spec.Cloud.AWS == nil {
		return v1alpha1.DefaultRootVolumeGiB
	}
	return int64(cmp.Or(class.Spec.Cloud.AWS.RootVolume.SizeGiB, v1alpha1.DefaultRootVolumeGiB))
}

// zonesOf are the zones of the class's subnets, within the pool's.
func zonesOf(s Source) []string {
	var zones []string
	for _, subnet := range s.Class.Status.Subnets {
		if len(s.Pool.Spec.Zones) == 0 || slices.Contains(s.Pool.Spec.Zones, subnet.Zone) {
			zones = append(zones, subnet.Zone)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// placesOf are the pool's machines, those that can be expected to take pods: not those that are going.
func placesOf(s Source, offers []Offer) []*Place {
	joined, verdicts := map[string]*corev1.Node{}, map[string]*v1alpha1.GPUNode{}
	for _, node := range s.Nodes {
		joined[node.Spec.ProviderID] = node
	}
	for _, gpuNode := range s.GPUNodes {
		verdicts[gpuNode.Name] = gpuNode
	}
	var places []*Place
	for _, claim := range s.Claims {
		var node *corev1.Node
		if claim.ProviderID != "" {
			node = joined[claim.ProviderID]
		}
		switch {
		case claim.Leaving:
		case node == nil:
			places = append(places, OnItsWay(claim, offers, s.Now))
		case !node.DeletionTimestamp.IsZero() || node.Spec.Unschedulable:
		default:
			place := Joined(claim, node, verdicts[node.Name], s.Bound(node.Name), offers)
			place.Leaving = s.Leaving(node.Name)
			places = append(places, place)
		}
	}
	return places
}

// usageOf reads back what the pool's status says of its limits: the sums as the controller wrote them last.
func usageOf(pool *v1alpha1.GPUNodePool, offers []Offer) (ledger.Usage, error) {
	blueprints := make([]v1alpha1.Blueprint, len(offers))
	for i := range offers {
		blueprints[i] = offers[i].Blueprint
	}
	limits, err := blueprint.Limits(pool, blueprints)
	if err != nil {
		return ledger.Usage{}, err
	}
	usage := ledger.Usage{Pool: pool.Name, Ready: true, Limits: limits}
	for _, status := range pool.Status.Limits {
		used, errUsed := amountOf(status.Used)
		outstanding, errOutstanding := amountOf(status.Outstanding)
		if errUsed != nil || errOutstanding != nil {
			return ledger.Usage{}, fmt.Errorf("pool %s: its status says of limit %s: used %q, outstanding %q", pool.Name, status.Name, status.Used, status.Outstanding)
		}
		switch ledger.Limit(status.Name) {
		case ledger.GPUs:
			usage.Steady.GPUs, usage.Outstanding.GPUs = int64(used), int64(outstanding)
		case ledger.Nodes:
			usage.Steady.Nodes, usage.Outstanding.Nodes = int64(used), int64(outstanding)
		case ledger.HourlyCost:
			usage.Steady.HourlyCost, usage.Outstanding.HourlyCost = ledger.Dollars(used), ledger.Dollars(outstanding)
		}
	}
	return usage, nil
}

// amountOf is the number of 8 or of $55.04/h.
func amountOf(text string) (float64, error) {
	return strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(text, "$"), "/h"), 64)
}
