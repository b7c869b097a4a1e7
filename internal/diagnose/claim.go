package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Claim is what matters of a Karpenter NodeClaim: a machine that was asked for.
type Claim struct {
	Name   string
	Labels map[string]string
	// Types are the instance types that it may become, or the one that it has become.
	Types []string
	// ProviderID is the instance's; empty while none was started.
	ProviderID string
	Taints     []corev1.Taint
	// Requests are what the pods that it was made for ask, Allocatable what its machine will offer, once launched.
	Requests, Allocatable corev1.ResourceList
	// Created is when it was asked for.
	Created time.Time
	// Leaving says that it is being deleted.
	Leaving bool
}

// InstanceOf is the instance's id in a provider id: i-0abc of aws:///us-east-1a/i-0abc.
func InstanceOf(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}

// inWords is the claim with its instance: "NodeClaim inf-0-x (instance i-0abc)".
func (c Claim) inWords() string {
	if c.ProviderID == "" {
		return "NodeClaim " + c.Name
	}
	return fmt.Sprintf("NodeClaim %s (instance %s)", c.Name, InstanceOf(c.ProviderID))
}

// remedy is what to do of a machine that does not join.
func (c Claim) remedy() string {
	if c.ProviderID == "" {
		return fmt.Sprintf("look at the events of NodeClaim %s; Karpenter gives it up and asks for another", c.Name)
	}
	return fmt.Sprintf("look at the console output of instance %s and at what its kubelet says as it boots; Karpenter replaces it 15 minutes after its launch",
		InstanceOf(c.ProviderID))
}

// OnItsWay is a machine that has not joined: what its Blueprint promises, as long as it may still come.
func OnItsWay(claim Claim, offers []Offer, now time.Time) *Place {
	p := &Place{Name: claim.Name, Machine: &claim, Taints: claim.Taints, Free: promise(claim, offers)}
	p.Has = p.Free.DeepCopy()
	if !claim.Created.IsZero() && now.Sub(claim.Created) > JoinPatience {
		p.State, p.Awaited = Refused, true
		p.Finding = fmt.Sprintf("%s has no node since %s UTC, when it was asked for", claim.inWords(), claim.Created.UTC().Format(time.TimeOnly))
	}
	for _, offer := range offers {
		if slices.Contains(claim.Types, offer.Blueprint.InstanceType) {
			for _, way := range offer.Ways {
				p.MayBe = append(p.MayBe, way.Node)
			}
		}
	}
	if claim.ProviderID != "" {
		// The launch has decided its labels.
		p.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: claim.Labels}}
	}
	return p
}

// Joined is a node with the pods that hold something of it. Until it is verified it offers nothing to anybody, and what its
// Blueprint promises is what can be expected of it; once it is, what it has is what it says. gpuNode is the verdict on it,
// nil while there is none.
func Joined(claim Claim, node *corev1.Node, gpuNode *v1alpha1.GPUNode, there []*corev1.Pod, offers []Offer) *Place {
	p := &Place{Name: node.Name, Node: node, Taints: node.Spec.Taints, Pods: there}
	switch {
	case verified(node):
		p.State, p.Free = Verified, node.Status.Allocatable.DeepCopy()
	default:
		p.Free = promise(claim, offers)
		p.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), passes)
		if finding := findingOf(gpuNode); finding != "" {
			p.State, p.Finding, p.Awaited = Refused, finding, gpuNode.Status.VerifiedAt == nil
		}
	}
	p.Has = p.Free.DeepCopy()
	for _, pod := range there {
		subtract(p.Free, requestsOf(pod))
	}
	return p
}

// findingOf is what is wrong with a node that was judged; empty while it is not judged.
func findingOf(node *v1alpha1.GPUNode) string {
	if node == nil {
		return ""
	}
	verdict := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionVerified)
	if verdict == nil || verdict.Status != metav1.ConditionFalse {
		return ""
	}
	return verdict.Reason + ": " + verdict.Message
}

// verified is the verdict as the node carries it: the startup taint goes when the node is proved and comes back when it
// no longer is.
func verified(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintUnverified })
}

// Taints of others that go by themselves.
const (
	// taintUninitialized is of a node that the cloud controller manager has not seen yet (k8s.io/cloud-provider/api).
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// taintUnregistered is of a node that Karpenter has not registered yet (sigs.k8s.io/karpenter/pkg/apis/v1).
	taintUnregistered = "karpenter.sh/unregistered"
)

// passes says whether a taint goes by itself while a node comes up. Karpenter core looks past the same ones
// (pkg/scheduling/taints.go, KnownEphemeralTaints).
func passes(t corev1.Taint) bool {
	return slices.Contains([]string{
		v1alpha1.TaintUnverified, taintUnregistered, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, taintUninitialized,
	}, t.Key)
}

// promise is what a machine on its way will offer. The launch writes it into the claim. Before that it is the least of
// the types that the claim may become: Karpenter has made sure that the pods that the claim is for fit each of them. Of
// types that the pool no longer offers only that is known.
func promise(claim Claim, offers []Offer) corev1.ResourceList {
	if len(claim.Allocatable) > 0 {
		return claim.Allocatable.DeepCopy()
	}
	var least corev1.ResourceList
	for _, instanceType := range claim.Types {
		at := slices.IndexFunc(offers, func(o Offer) bool { return o.Blueprint.InstanceType == instanceType })
		if at < 0 {
			continue
		}
		if least == nil {
			least = offers[at].Most.DeepCopy()
			continue
		}
		least = smaller(least, offers[at].Most)
	}
	if least == nil {
		return claim.Requests.DeepCopy()
	}
	return least
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
