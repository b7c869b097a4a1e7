package diagnose

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// demand is what one pod asks of a node.
type demand struct {
	pod      *corev1.Pod
	requests corev1.ResourceList
	affinity nodeaffinity.RequiredNodeAffinity
}

func demandOf(pod *corev1.Pod) demand {
	return demand{pod: pod, requests: requestsOf(pod), affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// requestsOf counts a pod as the scheduler does: init containers, sidecars, overhead, and the pod itself.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// tolerates looks at the taints that keep a pod from being placed.
func (d demand) tolerates(taints []corev1.Taint) bool {
	keepsAway := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, d.pod.Spec.Tolerations, keepsAway, false)
	return !untolerated
}

// selects looks at the pod's node selector and required node affinity. One that cannot be read selects nothing.
func (d demand) selects(node *corev1.Node) bool {
	matches, err := d.affinity.Match(node)
	return err == nil && matches
}

// gpus are the resources that the pod asks for and that look like GPUs or parts of them, by name.
func (d demand) gpus() []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, asked := range d.requests {
		if asked.Sign() > 0 && isGPU(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isGPU says whether an extended resource is a GPU, a share of one or a MIG instance: nvidia.com/gpu, nvidia.com/gpu.shared,
// nvidia.com/mig-1g.10gb, amd.com/gpu.
func isGPU(name corev1.ResourceName) bool {
	_, kind, extended := strings.Cut(string(name), "/")
	return extended && (kind == "gpu" || strings.HasPrefix(kind, "gpu.") || strings.HasPrefix(kind, "mig-"))
}

// Waits says whether a pod has no node and waits for one: the scheduler has found none, a gate holds it back, a scheduler
// that is not the default one has not looked at it, or a claim that it needs is not made. So does a pod that others are
// evicted for: they may never go.
func Waits(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || Ending(pod) {
		return false
	}
	return gated(pod) || unschedulable(pod) || withoutClaims(pod)
}

// withoutClaims says whether a claim is not made yet that the pod has a template for. The scheduler does not look at such a
// pod, and does not say so in its status either (k8s.io/kubernetes, plugins/dynamicresources, PreEnqueue).
func withoutClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(ref corev1.PodResourceClaim) bool {
		return ref.ResourceClaimTemplateName != nil && !slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(made corev1.PodResourceClaimStatus) bool {
			return made.Name == ref.Name
		})
	})
}

// gated says whether the pod was held back before a node was sought for it.
func gated(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) > 0 || (!unschedulable(pod) && foreignScheduler(pod))
}

func foreignScheduler(pod *corev1.Pod) bool {
	return pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName
}

func unschedulable(pod *corev1.Pod) bool {
	scheduled := PodScheduled(pod)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable
}

// PodScheduled is the condition in which the scheduler speaks; nil where it has not.
func PodScheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ending says whether a pod has run its course or is on its way out.
func Ending(pod *corev1.Pod) bool { return finished(pod) || !pod.DeletionTimestamp.IsZero() }

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Occupies says whether a bound pod holds something of its node. One that is on its way out gives it back within its grace
// period; one that stays longer holds it after all. The API server puts the end of that period into the deletion timestamp.
func Occupies(pod *corev1.Pod, now time.Time) bool {
	return !finished(pod) && !Leaves(pod, now)
}

// Leaves says whether a bound pod is on its way out and within its grace period.
func Leaves(pod *corev1.Pod, now time.Time) bool {
	return !finished(pod) && pod.DeletionTimestamp != nil && !now.After(pod.DeletionTimestamp.Time)
}

// WaitingSince is when the scheduler first found no node for the pod, or when it was made.
func WaitingSince(pod *corev1.Pod) time.Time {
	if scheduled := PodScheduled(pod); scheduled != nil && !scheduled.LastTransitionTime.IsZero() {
		return scheduled.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// NamedPools are the pools that a pod asks for, by its node selector or a required node affinity. Of the affinity's terms one is
// enough: where one of them names no pool, the pod may go to any, and names none.
func NamedPools(pod *corev1.Pod) []string {
	if name := pod.Spec.NodeSelector[v1alpha1.LabelPool]; name != "" {
		return []string{name}
	}
	var pools []string
	for _, term := range requiredTerms(pod) {
		before := len(pools)
		for _, expression := range term.MatchExpressions {
			if expression.Key == v1alpha1.LabelPool && expression.Operator == corev1.NodeSelectorOpIn {
				pools = append(pools, expression.Values...)
			}
		}
		if len(pools) == before {
			return nil
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// requiredTerms are the terms of the pod's required node affinity: a node must match one of them.
func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// inTurn is the scheduler's order: priority, then age. Of equal priority those come first that a node is kept for, since it
// lets no other have what they need there. Names make it the same each time.
func inTurn(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(corehelpers.PodPriority(b), corehelpers.PodPriority(a)),
			cmp.Compare(turn(a), turn(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// turn is 0 for pods that a node is kept for, else 1.
func turn(pod *corev1.Pod) int {
	if pod.Status.NominatedNodeName != "" {
		return 0
	}
	return 1
}

// HasGPUs says whether there is a GPU or a part of one in a list.
func HasGPUs(list corev1.ResourceList) bool {
	for name, quantity := range list {
		if quantity.Sign() > 0 && isGPU(name) {
			return true
		}
	}
	return false
}
