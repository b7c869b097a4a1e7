package nodepool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// apply writes everything that follows from the pool's Blueprints.
func (c *Controller) apply(ctx context.Context, pool *v1alpha1.GPUNodePool, blueprints []v1alpha1.Blueprint, effective v1alpha1.EffectiveSettings) error {
	if err := c.applyPriorityClasses(ctx); err != nil {
		return err
	}
	if err := c.applyDevicePluginConfig(ctx, pool, blueprints); err != nil {
		return err
	}
	byType := lo.SliceToMap(blueprints, func(bp v1alpha1.Blueprint) (string, v1alpha1.Blueprint) { return bp.InstanceType, bp })
	wanted := map[string]bool{}
	for i := range pool.Spec.Machines {
		nodePool := NodePool(pool, i, byType[pool.Spec.Machines[i].InstanceTypes[0]], effective)
		wanted[nodePool.Name] = true
		if err := c.applyNodePool(ctx, pool, nodePool); err != nil {
			return err
		}
	}
	return c.retire(ctx, pool, wanted)
}

// NodePool is the Karpenter NodePool of one entry of a pool's machines. Each entry gets its own, weighted by its place:
// within one NodePool core packs until only the biggest type is left, and the preference is lost.
func NodePool(pool *v1alpha1.GPUNodePool, entry int, bp v1alpha1.Blueprint, effective v1alpha1.EffectiveSettings) *karpv1.NodePool {
	labels := maps.Clone(pool.Spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	// Only what is the same on every instance type stands in the template: the rest are requirements of the types, so
	// that a change of layout is our drift and not core's.
	for _, key := range []string{v1alpha1.LabelPool, v1alpha1.LabelWorkload, v1alpha1.LabelDevicePluginConfig, v1alpha1.LabelDeployMIGManager} {
		labels[key] = bp.Labels[key]
	}
	nodePool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{
			Name:   nodePoolName(pool.Name, pool.Spec.Machines[entry].InstanceTypes),
			Labels: map[string]string{v1alpha1.LabelPool: pool.Name},
		},
		Spec: karpv1.NodePoolSpec{
			Weight: ptr.To(int32(100 - entry)),
			// Pseudo-resources stand in the capacity of every instance type: what pods ask for may be called otherwise on each
			// node, or be shares of a GPU. They keep one simulation of core inside the pool's limits.
			Limits: karpv1.Limits(blueprint.PseudoLimits(pool)),
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
				ConsolidateAfter:    karpv1.MustParseNillableDuration(effective.ConsolidateAfter.Duration.String()),
				Budgets:             budgets(pool.Spec.Workload),
			},
			Template: karpv1.NodeClaimTemplate{
				ObjectMeta: karpv1.ObjectMeta{Labels: labels},
				Spec: karpv1.NodeClaimTemplateSpec{
					NodeClassRef:  &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: v1alpha1.KindGPUNodeClass, Name: pool.Spec.NodeClassRef.Name},
					Requirements:  requirements(pool, entry, effective),
					Taints:        bp.Taints,
					StartupTaints: bp.StartupTaints,
					// A GPU node lives until it is empty, drifted or broken; core's default of 30 days would end jobs.
					ExpireAfter: karpv1.MustParseNillableDuration("Never"),
				},
			},
		},
	}
	return nodePool
}

// nodePoolName goes by what the entry may launch and not by its place, so that an entry that moves keeps its nodes.
func nodePoolName(pool string, instanceTypes []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(instanceTypes)), ",")))
	return pool + "-" + hex.EncodeToString(sum[:4])
}

// budgets bound how many nodes core may disrupt at once. Batch and Research jobs are not moved: their nodes never roll,
// neither for a drift of ours nor for one that core sees itself (labels, taints, zones), but go when they are empty, and
// come back as what is declared then.
func budgets(workload v1alpha1.Workload) []karpv1.Budget {
	budgets := []karpv1.Budget{{Nodes: "10%"}}
	if workload != v1alpha1.WorkloadInference {
		budgets = append(budgets, karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}})
	}
	return budgets
}

func requirements(pool *v1alpha1.GPUNodePool, entry int, effective v1alpha1.EffectiveSettings) []karpv1.NodeSelectorRequirementWithMinValues {
	in := func(key string, values []string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	reqs := []karpv1.NodeSelectorRequirementWithMinValues{
		in(corev1.LabelInstanceTypeStable, pool.Spec.Machines[entry].InstanceTypes),
		in(karpv1.CapacityTypeLabelKey, lo.Map(effective.CapacityTypes, func(t v1alpha1.CapacityType, _ int) string { return string(t) })),
	}
	if len(pool.Spec.Zones) > 0 {
		reqs = append(reqs, in(corev1.LabelTopologyZone, pool.Spec.Zones))
	}
	return reqs
}

// conflictError says that the name of a NodePool is taken.
type conflictError struct{ nodePool, pool string }

func (e *conflictError) Error() string {
	return fmt.Sprintf("NodePool %q exists and is not owned by GPUNodePool %q: rename the pool or remove that NodePool", e.nodePool, e.pool)
}

func (c *Controller) applyNodePool(ctx context.Context, pool *v1alpha1.GPUNodePool, wanted *karpv1.NodePool) error {
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: wanted.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.client, nodePool, func() error {
		if owner := metav1.GetControllerOf(nodePool); nodePool.UID != "" && (owner == nil || owner.UID != pool.UID) {
			return &conflictError{nodePool: wanted.Name, pool: pool.Name}
		}
		nodePool.Labels = lo.Assign(nodePool.Labels, wanted.Labels)
		if !equality.Semantic.DeepEqual(nodePool.Spec, wanted.Spec) {
			nodePool.Spec = wanted.Spec
		}
		return controllerutil.SetControllerReference(pool, nodePool, c.client.Scheme())
	})
	if err != nil {
		return fmt.Errorf("writing NodePool %q: %w", wanted.Name, err)
	}
	return nil
}

// retire closes the NodePools of entries that are no longer declared and deletes them once they have no claims. Their
// nodes stay as long as they are of use: deleting a NodePool would end them at once, jobs and all.
func (c *Controller) retire(ctx context.Context, pool *v1alpha1.GPUNodePool, wanted map[string]bool) error {
	owned, err := c.nodePools(ctx, pool)
	if err != nil {
		return err
	}
	for i := range owned {
		if wanted[owned[i].Name] || !owned[i].DeletionTimestamp.IsZero() {
			continue
		}
		claims := &karpv1.NodeClaimList{}
		if err := c.client.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: owned[i].Name}); err != nil {
			return fmt.Errorf("listing NodeClaims of NodePool %q: %w", owned[i].Name, err)
		}
		if len(claims.Items) > 0 {
			err = c.closeNodePool(ctx, &owned[i])
		} else {
			err = client.IgnoreNotFound(c.client.Delete(ctx, &owned[i]))
		}
		if err != nil {
			return fmt.Errorf("retiring NodePool %q: %w", owned[i].Name, err)
		}
	}
	return nil
}

// closeNodePool leaves no room for a machine. Limits stand outside of the template, so closing is no drift.
func (c *Controller) closeNodePool(ctx context.Context, nodePool *karpv1.NodePool) error {
	closed := karpv1.Limits{corev1.ResourceCPU: resource.MustParse("0")}
	if equality.Semantic.DeepEqual(nodePool.Spec.Limits, closed) {
		return nil
	}
	stored := nodePool.DeepCopy()
	nodePool.Spec.Limits = closed
	return client.IgnoreNotFound(c.client.Patch(ctx, nodePool, client.MergeFrom(stored)))
}

func (c *Controller) nodePools(ctx context.Context, pool *v1alpha1.GPUNodePool) ([]karpv1.NodePool, error) {
	list := &karpv1.NodePoolList{}
	if err := c.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelPool: pool.Name}); err != nil {
		return nil, fmt.Errorf("listing NodePools of pool %q: %w", pool.Name, err)
	}
	return lo.Filter(list.Items, func(np karpv1.NodePool, _ int) bool { return metav1.IsControlledBy(&np, pool) }), nil
}

// applyDevicePluginConfig writes the pool's key of the shared ConfigMap. One key is patched, so pools do not race.
func (c *Controller) applyDevicePluginConfig(ctx context.Context, pool *v1alpha1.GPUNodePool, blueprints []v1alpha1.Blueprint) error {
	config, err := blueprint.DevicePluginConfig(blueprints...)
	if err != nil {
		return fmt.Errorf("generating the device plugin's configuration of pool %q: %w", pool.Name, err)
	}
	key := client.ObjectKey{Namespace: v1alpha1.Namespace, Name: v1alpha1.DevicePluginConfigMap}
	configMap := &corev1.ConfigMap{}
	err = c.client.Get(ctx, key, configMap)
	if apierrors.IsNotFound(err) {
		configMap = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data:       map[string]string{pool.Name: string(config)},
		}
		if err := c.client.Create(ctx, configMap); err != nil {
			return fmt.Errorf("creating ConfigMap %s: %w", key, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if configMap.Data[pool.Name] == string(config) {
		return nil
	}
	stored := configMap.DeepCopy()
	configMap.Data = lo.Assign(configMap.Data, map[string]string{pool.Name: string(config)})
	if err := c.client.Patch(ctx, configMap, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("writing key %s of ConfigMap %s: %w", pool.Name, key, err)
	}
	return nil
}

func (c *Controller) removeDevicePluginConfig(ctx context.Context, pool string) error {
	configMap := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.Namespace, Name: v1alpha1.DevicePluginConfigMap}
	if err := c.client.Get(ctx, key, configMap); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, found := configMap.Data[pool]; !found {
		return nil
	}
	stored := configMap.DeepCopy()
	delete(configMap.Data, pool)
	return client.IgnoreNotFound(c.client.Patch(ctx, configMap, client.MergeFrom(stored)))
}

// priorities are far apart, so that a user's own classes fit between, and below the system's (2e9).
var priorities = map[v1alpha1.Workload]int32{
	v1alpha1.WorkloadInference: 300_000,
	v1alpha1.WorkloadBatch:     200_000,
	v1alpha1.WorkloadResearch:  100_000,
}

// applyPriorityClasses creates the priority classes that are missing. A class that exists is left as it is: its value
// cannot be changed.
func (c *Controller) applyPriorityClasses(ctx context.Context) error {
	for _, workload := range v1alpha1.Workloads {
		class := &schedulingv1.PriorityClass{}
		name := blueprint.PriorityClass(workload)
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, class)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading PriorityClass %q: %w", name, err)
		}
		class = &schedulingv1.PriorityClass{
			ObjectMeta:  metav1.ObjectMeta{Name: name},
			Value:       priorities[workload],
			Description: fmt.Sprintf("GPU pods of workload class %s (gpufleet)", workload),
		}
		if err := c.client.Create(ctx, class); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating PriorityClass %q: %w", name, err)
		}
	}
	return nil
}
