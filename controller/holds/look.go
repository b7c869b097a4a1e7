package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// shared reads what the cache holds without a copy: thousands of pods are read at each look, and none is written.
const shared = client.UnsafeDisableDeepCopy

// look reads a pool at one moment.
func (c *Controller) look(ctx context.Context, pool *v1alpha1.GPUNodePool, usage ledger.Usage) (seen, error) {
	offers, err := c.offers(ctx, pool)
	if err != nil {
		return seen{}, err
	}
	pods, err := c.waiting(ctx, pool.Name)
	if err != nil || len(pods) == 0 || len(offers) == 0 {
		return seen{usage: usage, offers: offers}, err
	}
	places, err := c.places(ctx, pool.Name, offers)
	return seen{usage: usage, offers: offers, places: places, pods: pods}, err
}

// offers are what the pool may launch: nothing while it is going, or is not accepted, or its class has no zone.
func (c *Controller) offers(ctx context.Context, pool *v1alpha1.GPUNodePool) ([]offer, error) {
	if !pool.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	inputs, err := fleet.Of(ctx, c.client, pool)
	if fleet.Unusable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var offers []offer
	for _, instanceType := range inputs.InstanceTypes() {
		bp, err := inputs.Blueprint(instanceType)
		if fleet.Unusable(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		offers = append(offers, newOffer(inputs, bp))
	}
	return offers, nil
}

func newOffer(inputs fleet.Pool, bp v1alpha1.Blueprint) offer {
	most := bp.Resources.DeepCopy()
	made := offer{blueprint: bp, machine: blueprint.Machine(bp), most: most}
	kind, known := machine.Lookup(bp.InstanceType)
	if known {
		// All of the machine: a little of it is the kubelet's, so these are bounds from above.
		most[corev1.ResourceCPU] = *resource.NewQuantity(int64(kind.VCPU), resource.DecimalSI)
		most[corev1.ResourceMemory] = *resource.NewQuantity(kind.MemoryMiB<<20, resource.BinarySI)
	}
	for _, subnet := range inputs.Zones() {
		for _, capacityType := range blueprint.Defaults(inputs.Pool).CapacityTypes {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				corev1.LabelInstanceTypeStable: bp.InstanceType,
				corev1.LabelOSStable:           string(corev1.Linux),
				corev1.LabelArchStable:         kind.Arch,
				corev1.LabelTopologyZone:       subnet.Zone,
				karpv1.CapacityTypeLabelKey:    string(capacityType),
			}}}
			for key, value := range bp.Labels {
				node.Labels[key] = value
			}
			made.nodes = append(made.nodes, node)
		}
	}
	return made
}

// waiting are the pods that name the pool and that the scheduler has found no node for.
func (c *Controller) waiting(ctx context.Context, pool string) ([]*corev1.Pod, error) {
	unbound := &corev1.PodList{}
	if err := c.client.List(ctx, unbound, client.MatchingFields{"spec.nodeName": ""}, shared); err != nil {
		return nil, fmt.Errorf("listing pods that no node is found for: %w", err)
	}
	var pods []*corev1.Pod
	for i := range unbound.Items {
		pod := &unbound.Items[i]
		if waits(pod) && slices.Contains(namedPools(pod), pool) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// places are the pool's machines, those that can be expected to take pods: not those that are going.
func (c *Controller) places(ctx context.Context, pool string, offers []offer) ([]*place, error) {
	claims, nodes := &karpv1.NodeClaimList{}, &corev1.NodeList{}
	ofPool := client.MatchingLabels{v1alpha1.LabelPool: pool}
	if err := c.client.List(ctx, claims, ofPool); err != nil {
		return nil, fmt.Errorf("listing NodeClaims of pool %q: %w", pool, err)
	}
	if err := c.client.List(ctx, nodes, ofPool, shared); err != nil {
		return nil, fmt.Errorf("listing nodes of pool %q: %w", pool, err)
	}
	joined := map[string]*corev1.Node{}
	for i := range nodes.Items {
		joined[nodes.Items[i].Spec.ProviderID] = &nodes.Items[i]
	}
	var places []*place
	for i := range claims.Items {
		claim := &claims.Items[i]
		var node *corev1.Node
		if id := claim.Status.ProviderID; id != "" {
			node = joined[id]
		}
		switch {
		case !claim.DeletionTimestamp.IsZero():
		case node == nil:
			places = append(places, onItsWay(claim, offers))
		case !node.DeletionTimestamp.IsZero() || node.Spec.Unschedulable:
		default:
			there, err := c.podsOn(ctx, node.Name)
			if err != nil {
				return nil, err
			}
			places = append(places, joinedPlace(claim, node, there, offers))
		}
	}
	return places, nil
}

// podsOn are the pods that hold something of a node. A pod that is on its way out gives it back within its grace period;
// one that stays longer holds it after all.
func (c *Controller) podsOn(ctx context.Context, node string) ([]*corev1.Pod, error) {
	bound := &corev1.PodList{}
	if err := c.client.List(ctx, bound, client.MatchingFields{"spec.nodeName": node}, shared); err != nil {
		return nil, fmt.Errorf("listing pods on node %q: %w", node, err)
	}
	var pods []*corev1.Pod
	for i := range bound.Items {
		pod := &bound.Items[i]
		if !finished(pod) && !leavesInTime(pod, c.clock.Now()) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// leavesInTime: the API server puts the end of the grace period into the deletion timestamp.
func leavesInTime(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && !now.After(pod.DeletionTimestamp.Time)
}
