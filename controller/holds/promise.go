package holds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// onItsWay is a machine that has not joined: what its Blueprint promises.
func onItsWay(claim *karpv1.NodeClaim, offers []offer) *place {
	p := &place{taints: claim.Spec.Taints, free: promise(claim, offers)}
	if claim.Status.ProviderID != "" {
		// The launch has decided its labels.
		p.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: claim.Labels}}
	}
	return p
}

// joinedPlace is a node. Until it is verified it offers nothing to anybody, and what its Blueprint promises is what can be
// expected of it; once it is, what it has is what it says.
func joinedPlace(claim *karpv1.NodeClaim, node *corev1.Node, there []*corev1.Pod, offers []offer) *place {
	p := &place{node: node, taints: node.Spec.Taints, pods: there}
	if verified(node) {
		p.free = node.Status.Allocatable.DeepCopy()
	} else {
		p.free = promise(claim, offers)
		p.taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), passes)
	}
	for _, pod := range there {
		subtract(p.free, requestsOf(pod))
	}
	return p
}

// verified is the verdict as the node carries it: the startup taint goes when the node is proved and comes back when it
// no longer is.
func verified(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintUnverified })
}

// taintUninitialized is of a node that the cloud controller manager has not seen yet (k8s.io/cloud-provider/api).
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// passes says whether a taint goes by itself while a node comes up. Karpenter core looks past the same ones
// (pkg/scheduling/taints.go, KnownEphemeralTaints).
func passes(t corev1.Taint) bool {
	return slices.Contains([]string{
		v1alpha1.TaintUnverified, karpv1.UnregisteredTaintKey, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, taintUninitialized,
	}, t.Key)
}

// promise is what a machine on its way will offer. The launch writes it into the claim. Before that it is the least of
// the types that the claim may become: Karpenter has made sure that the pods that the claim is for fit each of them. Of
// types that the pool no longer offers only that is known.
func promise(claim *karpv1.NodeClaim, offers []offer) corev1.ResourceList {
	if len(claim.Status.Allocatable) > 0 {
		return claim.Status.Allocatable.DeepCopy()
	}
	var least corev1.ResourceList
	for _, instanceType := range instanceTypes(claim) {
		at := slices.IndexFunc(offers, func(o offer) bool { return o.blueprint.InstanceType == instanceType })
		if at < 0 {
			continue
		}
		if least == nil {
			least = offers[at].most.DeepCopy()
			continue
		}
		least = smaller(least, offers[at].most)
	}
	if least == nil {
		return claim.Spec.Resources.Requests.DeepCopy()
	}
	return least
}

// instanceTypes are what a claim may become, or has become.
func instanceTypes(claim *karpv1.NodeClaim) []string {
	if chosen := claim.Labels[corev1.LabelInstanceTypeStable]; chosen != "" {
		return []string{chosen}
	}
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable && requirement.Operator == corev1.NodeSelectorOpIn {
			return requirement.Values
		}
	}
	return nil
}

// smaller is the smaller quantity of each resource; what only one of the two has is not there.
func smaller(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, quantity := range a {
		other, both := b[name]
		switch {
		case !both:
			out[name] = resource.Quantity{}
		case other.Cmp(quantity) < 0:
			out[name] = other.DeepCopy()
		default:
			out[name] = quantity.DeepCopy()
		}
	}
	return out
}
