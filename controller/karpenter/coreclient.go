package karpenter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// coreClient is the client that core works with. Core plans for each NodePool by itself and for each pass by itself; what
// the limits of a whole pool have no room for is kept from it here, before it has made anything.
type coreClient struct {
	client.Client
	provider *CloudProvider
}

// disrupting says whether core looks for nodes to end, or replaces them.
func disrupting(ctx context.Context) bool {
	return strings.HasPrefix(injection.GetControllerName(ctx), "disruption")
}

// Create makes no NodeClaim of a pool that the ledger has no room for: the claims of one pass may come from several
// NodePools of the pool, each within its limits, and several passes do not see each other's. Core tries again for the pods,
// and sees then that the pool is full. The claim carries what is needed to go on from here after a restart.
func (c coreClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	claim, isClaim := object.(*karpv1.NodeClaim)
	pool := object.GetLabels()[v1alpha1.LabelPool]
	if !isClaim || pool == "" {
		return c.Client.Create(ctx, object, opts...)
	}
	books := c.provider.books
	claim.Annotations = maps.Clone(claim.Annotations) // the claims of one pass share them with their template
	if disrupting(ctx) {
		replaced, err := books.chosenNow(ctx, pool)
		if err != nil {
			return err
		}
		if replaced != "" {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.AnnotationReplaces, replaced)
		}
	}
	admission := string(uuid.NewUUID())
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.AnnotationAdmission, admission)
	if err := books.reserve(ctx, pool, ledger.Claim{UID: admission, Attempt: admission, Machine: largestOf(claim)}); err != nil {
		return fmt.Errorf("no NodeClaim is made of NodePool %s: %w", claim.Labels[karpv1.NodePoolLabelKey], err)
	}
	if err := c.Client.Create(ctx, claim, opts...); err != nil {
		c.provider.ledger.Release(pool, admission)
		return err
	}
	return nil
}

// largestOf counts a claim that may become one of several instance types as core does: as the most of each of them.
func largestOf(claim *karpv1.NodeClaim) ledger.Machine {
	types := instanceTypes(claim)
	if len(types) == 0 {
		return machineOf("")
	}
	largest := machineOf(types[0])
	for _, each := range types[1:] {
		m := machineOf(each)
		largest.GPUs, largest.Price = max(largest.GPUs, m.GPUs), max(largest.Price, m.Price)
		largest.HasPrice = largest.HasPrice && m.HasPrice
	}
	return largest
}

// instanceTypes are what a claim may become.
func instanceTypes(claim *karpv1.NodeClaim) []string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable {
			return requirement.Values
		}
	}
	return nil
}

// List leaves pods out where core looks for a replacement and lists the pods that wait: it plans machines for them in the
// same breath, and gives the whole replacement up if one of these is refused. Those that a limit holds back wait for the
// provisioner, which finds out when there is room.
func (c coreClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, isPods := list.(*corev1.PodList)
	if !isPods || !disrupting(ctx) || !unbound(opts) {
		return nil
	}
	closed, err := c.provider.closed(ctx)
	if err != nil {
		return err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return heldByLimits(&pod, closed) })
	return nil
}

// unbound says whether pods without a node are asked for.
func unbound(opts []client.ListOption) bool {
	all := (&client.ListOptions{}).ApplyOptions(opts)
	if all.FieldSelector == nil {
		return false
	}
	node, exact := all.FieldSelector.RequiresExactMatch("spec.nodeName")
	return exact && node == ""
}

// closed are, by pool, the Blueprints of the machines that its limits have no room for.
func (c *CloudProvider) closed(ctx context.Context) (map[string][]v1alpha1.Blueprint, error) {
	pools := &v1alpha1.GPUNodePoolList{}
	if err := c.client.List(ctx, pools); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	closed := map[string][]v1alpha1.Blueprint{}
	for i := range pools.Items {
		pool, err := fleet.Of(ctx, c.client, &pools.Items[i])
		if fleet.Unusable(err) {
			continue // nothing is planned for it at all
		}
		if err != nil {
			return nil, err
		}
		blueprints, err := c.blueprints(ctx, pool)
		if fleet.Unusable(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		usage := c.ledger.Usage(pool.Pool.Name)
		closed[pool.Pool.Name] = slices.DeleteFunc(blueprints, func(bp v1alpha1.Blueprint) bool {
			return usage.Fits(blueprint.Machine(bp)) == nil
		})
	}
	return closed, nil
}

// heldByLimits says whether a machine that the limits have no room for is one that the pod may want.
func heldByLimits(pod *corev1.Pod, closed map[string][]v1alpha1.Blueprint) bool {
	named, requests := diagnose.NamedPools(pod), resources.RequestsForPods(pod)
	for pool, blueprints := range closed {
		if len(named) > 0 && !slices.Contains(named, pool) {
			continue
		}
		for _, bp := range blueprints {
			for name := range bp.Resources {
				if asked := requests[name]; asked.Sign() > 0 {
					return true
				}
			}
		}
	}
	return false
}
