package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// shared reads what the cache holds without a copy: thousands of pods are read at each look, and none is written.
const shared = client.UnsafeDisableDeepCopy

// notCounted is the trouble of a pool that launches nothing because nobody knows what it has.
const notCounted = "its machines cannot be counted since the controller started, and nothing is launched before they are: the controller's log says why"

// looked is a pool at one moment.
type looked struct {
	pool    diagnose.Pool
	cluster diagnose.Cluster
	// pods are those that wait and name the pool.
	pods []*corev1.Pod
	// blocks are what its verified nodes had left, before any waiting pod was thought of on them.
	blocks []diagnose.Block
	// unavailable are the pool's ways to buy that the cloud refuses now.
	unavailable []v1alpha1.UnavailableOffering
}

// look reads a pool at one moment.
func (c *Controller) look(ctx context.Context, pool *v1alpha1.GPUNodePool) (looked, error) {
	source, err := c.source(ctx, pool)
	if err != nil {
		return looked{}, err
	}
	seen := looked{}
	if seen.pods, err = c.waiting(ctx, pool.Name); err != nil {
		return looked{}, err
	}
	if seen.pool, err = diagnose.Assemble(source); err != nil {
		return looked{}, err
	}
	if seen.pool.Trouble == "" && !seen.pool.Usage.Ready {
		seen.pool.Trouble = notCounted
	}
	seen.blocks = diagnose.Blocks(seen.pool)
	seen.unavailable = source.Pool.Status.Unavailable
	seen.cluster, err = c.needed(ctx, seen.pods)
	return seen, err
}

// source reads what a pool is put together from. The pool that it returns is a copy with the ways to buy that are closed
// now in its status.
func (c *Controller) source(ctx context.Context, pool *v1alpha1.GPUNodePool) (diagnose.Source, error) {
	usage := c.supply.Usage(pool.Name)
	source := diagnose.Source{Pool: pool.DeepCopy(), Usage: &usage, Now: c.clock.Now()}
	inputs, err := fleet.Of(ctx, c.client, pool)
	if err != nil && !fleet.Unusable(err) {
		return source, err
	}
	if inputs.Class != nil {
		source.Class, source.Layouts = &inputs.Class.GPUNodeClass, inputs.Layouts
	}
	source.Pool.Status.Unavailable = unavailable(c.supply.Unavailable(pool.Spec.NodeClassRef.Name), inputs)
	claims, nodes, gpuNodes := &karpv1.NodeClaimList{}, &corev1.NodeList{}, &v1alpha1.GPUNodeList{}
	ofPool := client.MatchingLabels{v1alpha1.LabelPool: pool.Name}
	if err := c.client.List(ctx, claims, ofPool, shared); err != nil {
		return source, fmt.Errorf("listing NodeClaims of pool %q: %w", pool.Name, err)
	}
	if err := c.client.List(ctx, nodes, ofPool, shared); err != nil {
		return source, fmt.Errorf("listing nodes of pool %q: %w", pool.Name, err)
	}
	if err := c.client.List(ctx, gpuNodes, shared); err != nil {
		return source, fmt.Errorf("listing GPUNodes: %w", err)
	}
	for i := range claims.Items {
		source.Claims = append(source.Claims, claimOf(&claims.Items[i]))
	}
	for i := range nodes.Items {
		source.Nodes = append(source.Nodes, &nodes.Items[i])
	}
	for i := range gpuNodes.Items {
		if gpuNodes.Items[i].Spec.Pool == pool.Name {
			source.GPUNodes = append(source.GPUNodes, &gpuNodes.Items[i])
		}
	}
	source.Bound, source.Leaving, err = c.bound(ctx, nodes, source.Now)
	return source, err
}

// unavailable are those of the pool's own instance types, zones and capacity types.
func unavailable(all []v1alpha1.UnavailableOffering, inputs fleet.Pool) []v1alpha1.UnavailableOffering {
	if inputs.Class == nil {
		return nil
	}
	var zones []string
	for _, subnet := range inputs.Zones() {
		zones = append(zones, subnet.Zone)
	}
	types := inputs.InstanceTypes()
	own := slices.DeleteFunc(all, func(o v1alpha1.UnavailableOffering) bool {
		return !slices.Contains(types, o.InstanceType) || !slices.Contains(zones, o.Zone)
	})
	return own[:min(len(own), v1alpha1.MaxUnavailable)]
}

// claimOf is what matters of a NodeClaim.
func claimOf(claim *karpv1.NodeClaim) diagnose.Claim {
	return diagnose.Claim{
		Name: claim.Name, Labels: claim.Labels, Types: instanceTypes(claim), ProviderID: claim.Status.ProviderID,
		Taints: claim.Spec.Taints, Requests: claim.Spec.Resources.Requests, Allocatable: claim.Status.Allocatable,
		Created: claim.CreationTimestamp.Time, Leaving: !claim.DeletionTimestamp.IsZero(),
	}
}

// instanceTypes are what a claim may become, or has become.
func instanceTypes(claim *karpv1.NodeClaim) []string {
	if chosen := claim.Labels[corev1.LabelInstanceTypeStable]; chosen != "" {
		return []string{chosen}
	}
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable && requirement.Operator == corev1.NodeSelectorOpIn {
			return requirement.Values
		}
	}
	return nil
}

// bound are the pods that hold something of each of some nodes, and those that are about to give it back.
func (c *Controller) bound(ctx context.Context, nodes *corev1.NodeList, now time.Time) (there, leaving func(string) []*corev1.Pod, err error) {
	holding, going := map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for i := range nodes.Items {
		name, pods := nodes.Items[i].Name, &corev1.PodList{}
		if err := c.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": name}, shared); err != nil {
			return nil, nil, fmt.Errorf("listing pods on node %q: %w", name, err)
		}
		for j := range pods.Items {
			switch pod := &pods.Items[j]; {
			case diagnose.Occupies(pod, now):
				holding[name] = append(holding[name], pod)
			case diagnose.Leaves(pod, now):
				going[name] = append(going[name], pod)
			}
		}
	}
	of := func(pods map[string][]*corev1.Pod) func(string) []*corev1.Pod {
		return func(node string) []*corev1.Pod { return pods[node] }
	}
	return of(holding), of(going), nil
}

// waiting are the pods that wait for a pool.
func (c *Controller) waiting(ctx context.Context, pool string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.client.List(ctx, list, client.MatchingFields{waitsFor: pool}, shared); err != nil {
		return nil, fmt.Errorf("listing pods that wait: %w", err)
	}
	return pointers(list.Items), nil
}

// needed reads what only some pods need: past the cache, and only where one of these does.
func (c *Controller) needed(ctx context.Context, pods []*corev1.Pod) (diagnose.Cluster, error) {
	cluster, err := c.claimsOf(ctx, pods)
	if err != nil {
		return cluster, err
	}
	cluster.Volumes, err = c.volumesOf(ctx, pods)
	return cluster, err
}

// volumesOf reads the PersistentVolumeClaims of the namespaces of pods that need any, and the storage classes; nil where none
// does.
func (c *Controller) volumesOf(ctx context.Context, pods []*corev1.Pod) (*diagnose.Volumes, error) {
	namespaces := map[string]bool{}
	for _, pod := range pods {
		if diagnose.Mounts(pod) {
			namespaces[pod.Namespace] = true
		}
	}
	if len(namespaces) == 0 {
		return nil, nil
	}
	var claims []*corev1.PersistentVolumeClaim
	for namespace := range namespaces {
		list := &corev1.PersistentVolumeClaimList{}
		if err := c.live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("reading PersistentVolumeClaims of namespace %q: %w", namespace, err)
		}
		claims = append(claims, pointers(list.Items)...)
	}
	classes := &storagev1.StorageClassList{}
	if err := c.live.List(ctx, classes); err != nil {
		return nil, fmt.Errorf("reading StorageClasses: %w", err)
	}
	return diagnose.NewVolumes(claims, pointers(classes.Items)), nil
}

// claimsOf reads what resource claims of some pods are decided from; a cluster that does not serve them must not keep the
// controller from starting.
func (c *Controller) claimsOf(ctx context.Context, pods []*corev1.Pod) (diagnose.Cluster, error) {
	var cluster diagnose.Cluster
	if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }) {
		return cluster, nil
	}
	quotas, claims, templates := &corev1.ResourceQuotaList{}, &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}
	classes, slicesOf := &resourcev1.DeviceClassList{}, &resourcev1.ResourceSliceList{}
	for _, list := range []client.ObjectList{quotas, claims, templates, classes, slicesOf} {
		if err := c.live.List(ctx, list); err != nil && !notServed(err) {
			return cluster, fmt.Errorf("reading what resource claims are decided from: %w", err)
		}
	}
	cluster.Quotas, cluster.Claims, cluster.Templates = pointers(quotas.Items), pointers(claims.Items), pointers(templates.Items)
	cluster.Classes, cluster.Slices = pointers(classes.Items), pointers(slicesOf.Items)
	return cluster, nil
}

func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
