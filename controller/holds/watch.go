package holds

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// gather is how long changes are gathered before a pool is looked at. The queue holds a pool once, at the earliest time
// that was asked for, so 5,000 pods that begin to wait are at most four looks a second.
const gather = 250 * time.Millisecond

// Register adds the reconciler to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	itself := func(o client.Object) []string { return []string{o.GetName()} }
	ofClaim := func(o client.Object) []string { return []string{o.GetLabels()[v1alpha1.LabelPool]} }
	ofPod := func(o client.Object) []string { return namedPools(o.(*corev1.Pod)) }
	return ctrl.NewControllerManagedBy(m).
		Named("holds").
		Watches(&v1alpha1.GPUNodePool{}, gathered(itself)).
		Watches(&karpv1.NodeClaim{}, gathered(ofClaim)).
		Watches(&corev1.Pod{}, gathered(ofPod), builder.WithPredicates(podChanges())).
		Complete(c)
}

// gathered asks for a look at the pools of an object, a little later.
func gathered(pools func(client.Object) []string) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	ask := func(q queue, objects ...client.Object) {
		for _, object := range objects {
			for _, name := range pools(object) {
				if name != "" {
					q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, gather)
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { ask(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { ask(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { ask(q, e.Object) },
	}
}

// podChanges lets through what changes a verdict: a pod begins or ceases to wait, or gives back what it holds of a node.
func podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return waits(e.Object.(*corev1.Pod)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			return waits(before) != waits(after) || ending(before) != ending(after)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// waits says whether the scheduler has found no node for a pod. A pod that others are evicted for has been found one; one
// with a scheduling gate has not been looked at.
func waits(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" || ending(pod) {
		return false
	}
	scheduled := podScheduled(pod)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable
}

func podScheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// ending says whether a pod has run its course or is on its way out.
func ending(pod *corev1.Pod) bool { return finished(pod) || !pod.DeletionTimestamp.IsZero() }

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// namedPools are the pools that a pod asks for, by its node selector or a required node affinity.
func namedPools(pod *corev1.Pod) []string {
	var pools []string
	if name := pod.Spec.NodeSelector[v1alpha1.LabelPool]; name != "" {
		pools = append(pools, name)
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pools
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == v1alpha1.LabelPool && expression.Operator == corev1.NodeSelectorOpIn {
				pools = append(pools, expression.Values...)
			}
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}
