package diagnose

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// annotationDoNotDisrupt keeps a pod where it is: "true", or for a while (sigs.k8s.io/karpenter/pkg/apis/v1).
const annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"

// PlanMoves is the dry run with the fewest moves that makes room for the pod on one verified node of the pool: pods of that
// node move to other verified nodes of the pool, and the pod, which asks for requests, takes their place. It is nil where
// there is none, and where none is needed, since a node has room as it is.
//
// Only what the pool's workload class lets us move moves: replicated services, in pools of class Inference. A job would lose
// its work. See movable for the pods that stay there too.
//
// Each pod that moves fits where it goes beside the others that go there: everything that it asks, taints, node selector,
// required node affinity, required anti-affinity by host. What is not looked at may still stand in the way: disruption
// budgets, volumes, pod affinity, topology spread, host ports. Devices of resource claims are not in a node's amounts, so a
// pod that has claims neither moves nor gets a plan.
//
// Of plans with as few moves it is the one of the first node by name, then of the first pods by namespace and name. It does
// not depend on the order of places and pods.
//
// The fewest means the fewest among pods of the one node. Plans that first move pods between other nodes, to make room for
// those of this one, are not looked for: every step of them would have to wait for the one before. And it is nil where the
// search takes more than maxSteps: 64 nodes with 8 pods each are within.
func PlanMoves(p Pool, pod *corev1.Pod, requests corev1.ResourceList) *Plan {
	if p.Workload != v1alpha1.WorkloadInference || len(pod.Spec.ResourceClaims) > 0 {
		return nil
	}
	asked := demandOf(pod)
	asked.requests = requests
	return newSearch(p.Places, asked).fewest()
}

// plan writes down where the chosen pods go, by namespace and name.
func (s *search) plan(t *target) *Plan {
	plan := &Plan{Node: s.places[t.at].Name}
	for _, m := range s.chosen {
		plan.Moves = append(plan.Moves, Move{
			Namespace: m.pod.Namespace, Pod: m.pod.Name, From: plan.Node, To: s.places[m.home].Name,
		})
	}
	return plan
}

// movable says whether a pod may be moved off the node: it is bound there, and somebody makes it anew elsewhere. That is
// nobody for a bare pod, and the node itself for a static pod or one of a DaemonSet.
func movable(pod *corev1.Pod, node string) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "DaemonSet" || owner.Kind == "Node" {
		return false
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return pod.Spec.NodeName == node && !mirror && !Ending(pod) && !protected(pod) && len(pod.Spec.ResourceClaims) == 0
}

// protected says whether the pod asks to be left alone, for good or for a while. That the while may be over is not looked at.
func protected(pod *corev1.Pod) bool {
	value := pod.Annotations[annotationDoNotDisrupt]
	while, err := time.ParseDuration(value)
	return value == "true" || (err == nil && while > 0)
}
