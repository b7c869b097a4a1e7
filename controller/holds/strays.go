package holds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// strays says what holds the pods that ask for GPUs and name no pool that exists. There is no pool to say it on: events on
// the pods do, and metrics with an empty pool.
func (c *Controller) strays(ctx context.Context) (reconcile.Result, error) {
	pools, offered, err := c.offered(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods, err := c.waiting(ctx, anyPool)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(diagnose.NamedPools(pod), func(name string) bool { return pools[name] })
	})
	cluster, err := c.claimsOf(ctx, pods)
	if err != nil {
		return reconcile.Result{}, err
	}
	cluster.Now = c.clock.Now()
	elsewhere, err := c.elsewhere(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	served, err := c.byAnyPool(ctx, pods, pools)
	if err != nil {
		return reconcile.Result{}, err
	}
	var verdicts, all []diagnose.Verdict
	later := false
	for _, pod := range pods {
		ofOthers := diagnose.PinnedTo(pod) != "" && len(served[pod.UID]) == 0
		if ofOthers || !diagnose.AsksGPUs(cluster, pod) {
			continue
		}
		verdict := diagnose.Unnamed(diagnose.Stray(pod, offered), served[pod.UID])
		all = append(all, verdict)
		if verdict.Expected {
			later = true
			continue
		}
		// A pod that does not say that it is meant for us may be meant for others. That of a DaemonSet is for a node of ours.
		meant := diagnose.Meant(pod) || diagnose.PinnedTo(pod) != ""
		if !meant && (elsewhere || cluster.Now.Sub(verdict.Since) < diagnose.Patience) {
			later = later || !elsewhere
			continue
		}
		verdicts = append(verdicts, verdict)
	}
	c.expected.keep("", all, cluster.Now)
	h := held(diagnose.Holds(verdicts))
	metrics.SetPoolHolds("", h.metrics(cluster.Now)...)
	switch told := c.events.tellPods("", h); {
	case !told:
		return reconcile.Result{RequeueAfter: eventsAgain}, nil
	case later || len(verdicts) > 0:
		return reconcile.Result{RequeueAfter: waitingAgain}, nil
	}
	return reconcile.Result{RequeueAfter: idleAgain}, nil
}

// byAnyPool are the verdicts of every pool on the pods that name none.
func (c *Controller) byAnyPool(ctx context.Context, pods []*corev1.Pod, pools map[string]bool) (map[types.UID][]diagnose.Verdict, error) {
	unnamed := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return len(diagnose.NamedPools(pod)) > 0 })
	verdicts := map[types.UID][]diagnose.Verdict{}
	if len(unnamed) == 0 {
		return verdicts, nil
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		of, err := c.verdictsOf(ctx, name, unnamed...)
		if err != nil {
			return nil, err
		}
		for uid, v := range of {
			verdicts[uid] = append(verdicts[uid], v)
		}
	}
	return verdicts, nil
}

// offered are the pools that exist, and what each offers as its status has it.
func (c *Controller) offered(ctx context.Context) (map[string]bool, map[string]corev1.ResourceList, error) {
	pools := &v1alpha1.GPUNodePoolList{}
	if err := c.client.List(ctx, pools, shared); err != nil {
		return nil, nil, fmt.Errorf("listing GPUNodePools: %w", err)
	}
	exist, offered := map[string]bool{}, map[string]corev1.ResourceList{}
	for i := range pools.Items {
		pool := &pools.Items[i]
		exist[pool.Name], offered[pool.Name] = true, corev1.ResourceList{}
		for _, summary := range pool.Status.Blueprints {
			for name, quantity := range summary.Resources {
				offered[pool.Name][name] = quantity
			}
		}
	}
	return exist, offered, nil
}

// elsewhere says whether others may serve GPU pods in this cluster: another Karpenter, or nodes that have GPUs and are not
// of our pools.
func (c *Controller) elsewhere(ctx context.Context) (bool, error) {
	nodePools, nodes := &karpv1.NodePoolList{}, &corev1.NodeList{}
	if err := c.client.List(ctx, nodePools, shared); err != nil {
		return false, fmt.Errorf("listing NodePools: %w", err)
	}
	for i := range nodePools.Items {
		if ref := nodePools.Items[i].Spec.Template.Spec.NodeClassRef; ref != nil && ref.Group != v1alpha1.Group {
			return true, nil
		}
	}
	if err := c.client.List(ctx, nodes, shared); err != nil {
		return false, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelPool] == "" && diagnose.HasGPUs(nodes.Items[i].Status.Allocatable) {
			return true, nil
		}
	}
	return false, nil
}
