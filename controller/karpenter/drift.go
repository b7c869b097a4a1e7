package karpenter

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
)

// BlueprintDrift says that a node was launched by a Blueprint that its pool no longer has, or on an instance type that it
// no longer names.
const BlueprintDrift cloudprovider.DriftReason = "BlueprintDrift"

// IsDrifted says which nodes are not what would be launched today. Inference nodes roll; Batch and Research nodes only when
// empty, to which their NodePools' budgets hold core's own drift too. A
// pool that does not compile is not drift: nothing could replace the node. Nor is a hash of another version.
func (c *CloudProvider) IsDrifted(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	pool, err := fleet.Read(ctx, c.client, claim.Labels[v1alpha1.LabelPool])
	if fleet.Unusable(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	bp, err := pool.Blueprint(claim.Labels[corev1.LabelInstanceTypeStable])
	if fleet.Unusable(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	same := claim.Annotations[v1alpha1.AnnotationBlueprintHashVersion] != bp.HashVersion || claim.Annotations[v1alpha1.AnnotationBlueprintHash] == bp.Hash
	if same && slices.Contains(pool.InstanceTypes(), claim.Labels[corev1.LabelInstanceTypeStable]) {
		return "", nil
	}
	if pool.Pool.Spec.Workload != v1alpha1.WorkloadInference {
		empty, err := c.empty(ctx, claim.Status.NodeName)
		if err != nil || !empty {
			return "", err
		}
	}
	return BlueprintDrift, nil
}

// empty says whether only DaemonSets run on a node.
func (c *CloudProvider) empty(ctx context.Context, node string) (bool, error) {
	if node == "" {
		return true, nil
	}
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return false, fmt.Errorf("listing pods of node %q: %w", node, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		done := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if owner := metav1.GetControllerOf(pod); !done && (owner == nil || owner.Kind != "DaemonSet") {
			return false, nil
		}
	}
	return true, nil
}
