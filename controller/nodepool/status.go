package nodepool

import (
	"context"
	"fmt"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

func summaries(blueprints []v1alpha1.Blueprint) []v1alpha1.BlueprintSummary {
	out := make([]v1alpha1.BlueprintSummary, 0, len(blueprints))
	for _, bp := range blueprints {
		out = append(out, v1alpha1.BlueprintSummary{
			InstanceType: bp.InstanceType,
			GPUModel:     bp.GPU.Model,
			GPUs:         bp.GPU.Count,
			Resources:    bp.Resources,
			PricePerHour: bp.PricePerHour,
			PriceAsOf:    bp.PriceAsOf,
			Hash:         bp.Hash,
		})
	}
	return out
}

// accepted says in a sentence what a node of the pool offers.
func accepted(blueprints []v1alpha1.Blueprint, doubtful []v1alpha1.Violation) string {
	parts := make([]string, 0, len(blueprints)+len(doubtful))
	for _, bp := range blueprints {
		parts = append(parts, fmt.Sprintf("%s offers %s", bp.InstanceType, fleet.Words(bp.Resources)))
	}
	for _, v := range doubtful {
		parts = append(parts, v.Path+": "+v.Message)
	}
	return strings.Join(parts, "; ")
}

// claims are the pool's, as the cache has them: they are not to be written.
func (c *Controller) claims(ctx context.Context, pool *v1alpha1.GPUNodePool) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelPool: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims of pool %q: %w", pool.Name, err)
	}
	return list.Items, nil
}

// count sets the pool's node counts from its NodeClaims and GPUNodes. The latter are read without a copy: a fleet's are large,
// and every pool reads them all.
func (c *Controller) count(ctx context.Context, pool *v1alpha1.GPUNodePool, claims []karpv1.NodeClaim) error {
	nodes := &v1alpha1.GPUNodeList{}
	if err := c.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing GPUNodes: %w", err)
	}
	var counts v1alpha1.NodeCounts
	var verifiedGPUs int32
	launched := map[types.UID]bool{}
	for i := range claims {
		if claims[i].Status.ProviderID == "" {
			continue
		}
		launched[claims[i].UID] = true
		counts.Total++
		if instanceType, known := machine.Lookup(claims[i].Labels[corev1.LabelInstanceTypeStable]); known {
			counts.GPUs += int32(instanceType.GPU.Count)
		}
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		// A GPUNode outlives its NodeClaim until the garbage collector has seen that.
		ours := lo.SomeBy(node.OwnerReferences, func(owner metav1.OwnerReference) bool { return launched[owner.UID] })
		if ours && meta.IsStatusConditionTrue(node.Status.Conditions, v1alpha1.ConditionVerified) {
			counts.Verified++
			verifiedGPUs += node.Spec.GPU.Count
		}
	}
	pool.Status.Nodes = &counts
	metrics.SetPoolGPUs(pool.Name, int(verifiedGPUs), int(counts.GPUs-verifiedGPUs))
	return nil
}
