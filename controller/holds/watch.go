package holds

import (
	"context"
	"fmt"
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
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// gather is how long changes are gathered before a pool is looked at. The queue holds a pool once, at the earliest time
// that was asked for, so 5,000 pods that begin to wait are at most four looks a second.
const gather = 250 * time.Millisecond

// waitsFor is an index of pods that wait: by each pool that one names, and all that are ours to explain by anyPool.
const (
	waitsFor = "gpufleet.dev/waits-for"
	anyPool  = "*"
)

// waitsForPools are a pod's values in the index. Thousands may wait, and a look at one pool should not pass over the pods of
// all others.
func waitsForPools(o client.Object) []string {
	if pod, is := o.(*corev1.Pod); !is || !diagnose.Waits(pod) {
		return nil
	}
	pools := poolsOf(o)
	if len(pools) == 0 {
		return nil
	}
	return append(slices.Clone(pools), anyPool)
}

// Register adds the reconciler to a manager.
func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	if err := m.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, waitsFor, waitsForPools); err != nil {
		return fmt.Errorf("indexing pods that wait: %w", err)
	}
	// A pool that comes or goes decides of pods that name it.
	itself := func(o client.Object) []string { return []string{o.GetName(), ""} }
	ofClaim := func(o client.Object) []string { return ofOne(o.GetLabels()[v1alpha1.LabelPool]) }
	ofGPUNode := func(o client.Object) []string { return ofOne(o.(*v1alpha1.GPUNode).Spec.Pool) }
	return ctrl.NewControllerManagedBy(m).
		Named("holds").
		Watches(&v1alpha1.GPUNodePool{}, gathered(itself)).
		Watches(&karpv1.NodeClaim{}, gathered(ofClaim)).
		Watches(&v1alpha1.GPUNode{}, gathered(ofGPUNode)).
		Watches(&corev1.Pod{}, gathered(poolsOf), builder.WithPredicates(podChanges())).
		Complete(c)
}

// ofOne is the pool of an object; none of an object that is not ours.
func ofOne(pool string) []string {
	if pool == "" {
		return nil
	}
	return []string{pool}
}

// poolsOf are the pools that a pod names. One that names none is for the request of no name, if it asks for GPUs.
func poolsOf(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if named := diagnose.NamedPools(pod); len(named) > 0 {
		return named
	}
	if diagnose.AsksGPUs(diagnose.Cluster{}, pod) || diagnose.Meant(pod) {
		return []string{""}
	}
	return nil
}

// gathered asks for a look at the pools of an object, a little later.
func gathered(pools func(client.Object) []string) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	ask := func(q queue, objects ...client.Object) {
		for _, object := range objects {
			for _, name := range pools(object) {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, gather)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { ask(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { ask(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { ask(q, e.Object) },
	}
}

// podChanges lets through what changes a verdict: a pod begins or ceases to wait, others are evicted for it, or it gives back
// what it holds of a node.
func podChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return diagnose.Waits(e.Object.(*corev1.Pod)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			return diagnose.Waits(before) != diagnose.Waits(after) || diagnose.Ending(before) != diagnose.Ending(after) ||
				before.Status.NominatedNodeName != after.Status.NominatedNodeName
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
