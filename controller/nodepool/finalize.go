package nodepool

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// finalize drains a pool that is going and lets it go when the cloud says that its last instance has.
func (c *Controller) finalize(ctx context.Context, pool *v1alpha1.GPUNodePool) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pool, v1alpha1.FinalizerPool) {
		return reconcile.Result{}, nil
	}
	if err := c.deleteNodePools(ctx, pool); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.deleteClaims(ctx, pool); err != nil {
		return reconcile.Result{}, err
	}
	remaining, err := c.remaining(ctx, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(remaining) > 0 {
		return reconcile.Result{RequeueAfter: drainCheck}, c.sayDraining(ctx, pool, remaining)
	}
	if err := c.removeDevicePluginConfig(ctx, pool.Name); err != nil {
		return reconcile.Result{}, err
	}
	metrics.ForgetPool(pool.Name)
	c.ledger.Drop(pool.Name)
	stored := pool.DeepCopy()
	controllerutil.RemoveFinalizer(pool, v1alpha1.FinalizerPool)
	err = c.client.Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// deleteNodePools asks for the end of the pool's NodePools, in the foreground: core looks claims' NodePools up, so a
// NodePool must outlive its claims.
func (c *Controller) deleteNodePools(ctx context.Context, pool *v1alpha1.GPUNodePool) error {
	owned, err := c.nodePools(ctx, pool)
	if err != nil {
		return err
	}
	for i := range owned {
		if !owned[i].DeletionTimestamp.IsZero() {
			continue
		}
		if err := c.client.Delete(ctx, &owned[i], client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NodePool %q: %w", owned[i].Name, err)
		}
	}
	return nil
}

// deleteClaims asks for the end of the pool's NodeClaims. The garbage collector would too, once it has noticed that kind:
// it looks for new kinds twice a minute, and each machine costs money meanwhile.
func (c *Controller) deleteClaims(ctx context.Context, pool *v1alpha1.GPUNodePool) error {
	claims := &karpv1.NodeClaimList{}
	if err := c.client.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelPool: pool.Name}); err != nil {
		return fmt.Errorf("listing NodeClaims of pool %q: %w", pool.Name, err)
	}
	for i := range claims.Items {
		if !claims.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		if err := c.client.Delete(ctx, &claims.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NodeClaim %q: %w", claims.Items[i].Name, err)
		}
	}
	return nil
}

func (c *Controller) sayDraining(ctx context.Context, pool *v1alpha1.GPUNodePool, remaining []string) error {
	stored := pool.DeepCopy()
	claims, err := c.claims(ctx, pool)
	if err != nil {
		return err
	}
	if err := c.count(ctx, pool, claims); err != nil {
		return err
	}
	setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDraining,
		"waiting for "+strings.Join(remaining, "; "))
	return c.patchStatus(ctx, stored, pool)
}

// remaining names what is left of a pool: NodePools, NodeClaims and, asked of the cloud itself, instances.
func (c *Controller) remaining(ctx context.Context, pool *v1alpha1.GPUNodePool) ([]string, error) {
	var remaining []string
	nodePools, err := c.nodePools(ctx, pool)
	if err != nil {
		return nil, err
	}
	for i := range nodePools {
		remaining = append(remaining, "NodePool "+nodePools[i].Name)
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.client.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelPool: pool.Name}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims of pool %q: %w", pool.Name, err)
	}
	for i := range claims.Items {
		remaining = append(remaining, "NodeClaim "+describe(&claims.Items[i]))
	}
	instances, err := c.lister.List(ctx, c.cluster)
	if err != nil {
		return nil, fmt.Errorf("asking the cloud which instances of pool %q are left: %w", pool.Name, err)
	}
	for _, instance := range lo.Filter(instances, func(i cloud.Instance, _ int) bool { return i.Claim.Pool == pool.Name }) {
		remaining = append(remaining, fmt.Sprintf("instance %s (%s)", instance.ID, instance.State))
	}
	sort.Strings(remaining)
	return remaining, nil
}

// describe says what keeps a claim: core's Drained condition names what its node waits for.
func describe(claim *karpv1.NodeClaim) string {
	words := claim.Name
	if claim.Status.NodeName != "" {
		words += " on node " + claim.Status.NodeName
	}
	if drained := claim.StatusConditions().Get(karpv1.ConditionTypeDrained); drained != nil && !drained.IsTrue() && drained.Message != "" {
		words += " (" + drained.Message + ")"
	}
	return words
}
