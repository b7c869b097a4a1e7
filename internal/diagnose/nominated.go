package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// beingEvicted says whether the scheduler has only just named the node on which it makes room for the pod, and may still be
// about to delete the pods there.
func (d *decision) beingEvicted(pod *corev1.Pod) bool {
	return d.node(pod.Status.NominatedNodeName) != nil && d.cluster.Now.Sub(WaitingSince(pod)) <= evictionPatience
}

// staying are pods on the node that the scheduler keeps for a pod: they were deleted, are past their grace period, and still
// hold GPUs of a kind that the pod asks for.
func (d *decision) staying(asked demand) []string {
	node := d.node(asked.pod.Status.NominatedNodeName)
	if node == nil {
		return nil
	}
	var names []string
	for _, there := range node.Pods {
		if there.DeletionTimestamp != nil && hasAny(requestsOf(there), asked.gpuRequests()) {
			names = append(names, there.Namespace+"/"+there.Name)
		}
	}
	slices.Sort(names)
	return names
}

// stuck is of a pod that a machine could be launched for, and is not: Karpenter leaves a pod alone that others are evicted for
// (pkg/utils/pod/scheduling.go, IsProvisionable).
func (d *decision) stuck(asked demand) []Cause {
	names := d.staying(asked)
	if len(names) == 0 {
		return nil
	}
	node := asked.pod.Status.NominatedNodeName
	c := d.cause(v1alpha1.HoldOther, "the scheduler keeps node %s for the pod, and what it needs there is still held, after their grace period, by %s; no machine is launched meanwhile",
		node, few(names))
	c.Remedy = remedyOfStaying(node, names)
	return []Cause{c}
}

// nominated adds to what holds a pod that others are evicted for which node is kept for it, and who does not leave that node. A
// machine would not be launched for it even if one might be, so what would free it is that they go.
func (d *decision) nominated(causes []Cause, asked demand) {
	node := asked.pod.Status.NominatedNodeName
	if node == "" {
		return
	}
	facts := []Fact{{"nominatedNode", node}}
	names := d.staying(asked)
	if len(names) > 0 {
		facts = append(facts, Fact{"stillThere", strings.Join(names, ", ") + ": deleted, and there after their grace period"})
	}
	for i, c := range causes {
		causes[i].Evidence = append(c.Evidence, facts...)
		if len(names) > 0 && ofSupply(c) {
			causes[i].Remedy = remedyOfStaying(node, names)
		}
	}
}

// ofSupply says whether a cause keeps a machine from being launched.
func ofSupply(c Cause) bool {
	at := v1alpha1.PrecedenceOf(c.Reason)
	return at > v1alpha1.PrecedenceOf(v1alpha1.HoldFragmented) && at < v1alpha1.PrecedenceOf(v1alpha1.HoldOther)
}

func remedyOfStaying(node string, names []string) string {
	return fmt.Sprintf("look at the finalizers of %s and at the kubelet of node %s: what was deleted there is not gone, and until it is the scheduler keeps the node, and no machine is launched", few(names), node)
}

// few are the first of some names, and how many more there are.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// emptied says whether a pod that was put on the place has room there only once others are gone that are leaving it.
func (p *Place) emptied(asked demand) bool {
	back := corev1.ResourceList{}
	for _, leaving := range p.Leaving {
		if avoids(leaving, asked.pod) || avoids(asked.pod, leaving) {
			return true
		}
		for name, quantity := range requestsOf(leaving) {
			sum := back[name]
			sum.Add(quantity)
			back[name] = sum
		}
	}
	for name := range asked.requests {
		left, listed := p.Free[name]
		if gives := back[name]; listed && left.Cmp(gives) < 0 {
			return true
		}
	}
	return false
}
