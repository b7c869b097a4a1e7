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

// List leaves out pods that a limit holds back, where core lists the pods that wait.
//
// Where it looks for a replacement, it plans machines for these in the same breath, and gives the whole replacement up if one
// of them is refused: it does not see a pod that may want any machine that the limits have no room for. The provisioner does
// not see one that can have no other: it would plan for thousands of pods that wait for a full pool, again and again, only to
// find out that there is no room. Both see them as soon as there is.
func (c coreClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, isPods := list.(*corev1.PodList)
	if !isPods || !unbound(opts) || !(disrupting(ctx) || launching(ctx)) {
		return nil
	}
	rooms, err := c.provider.rooms(ctx)
	if err != nil {
		return err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		open, closed := rooms.of(&pod)
		return closed && (!open || disrupting(ctx))
	})
	return nil
}

// launching says whether core launches for pods that wait.
func launching(ctx context.Context) bool { return injection.GetControllerName(ctx) == "provisioner" }

// unbound says whether pods without a node are asked for.
func unbound(opts []client.ListOption) bool {
	all := (&client.ListOptions{}).ApplyOptions(opts)
	if all.FieldSelector == nil {
		return false
	}
	node, exact := all.FieldSelector.RequiresExactMatch("spec.nodeName")
	return exact && node == ""
}

// rooms are the Blueprints of each pool, by whether its limits have room for a machine of it.
type rooms map[string]struct{ open, closed []v1alpha1.Blueprint }

func (c *CloudProvider) rooms(ctx context.Context) (rooms, error) {
	pools := &v1alpha1.GPUNodePoolList{}
	if err := c.client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pools: %w", err)
	}
	all := rooms{}
	for i := range pools.Items {
		pool, err := fleet.Of(ctx, c.client, &pools.Items[i])
		var blueprints []v1alpha1.Blueprint
		if err == nil {
			blueprints, err = c.blueprints(ctx, pool)
		}
		switch {
		case fleet.Unusable(err):
			continue // nothing is planned for it at all
		case err != nil:
			return nil, err
		}
		usage, room := c.ledger.Usage(pool.Pool.Name), all[pool.Pool.Name]
		for _, bp := range blueprints {
			if usage.Fits(blueprint.Machine(bp)) == nil {
				room.open = append(room.open, bp)
			} else {
				room.closed = append(room.closed, bp)
			}
		}
		all[pool.Pool.Name] = room
	}
	return all, nil
}

// of says whether there are machines with any of the GPU resources that a pod asks for, in the pools that it names or in
// all of them, that the limits have room for, and such that they have not.
func (r rooms) of(pod *corev1.Pod) (open, closed bool) {
	named, requests := diagnose.NamedPools(pod), resources.RequestsForPods(pod)
	asked := func(bp v1alpha1.Blueprint) bool {
		for name := range bp.Resources {
			if quantity := requests[name]; quantity.Sign() > 0 {
				return true
			}
		}
		return false
	}
	for pool, room := range r {
		if len(named) == 0 || slices.Contains(named, pool) {
			open = open || slices.ContainsFunc(room.open, asked)
			closed = closed || slices.ContainsFunc(room.closed, asked)
		}
	}
	return open, closed
}
