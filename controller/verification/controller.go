// Package verification keeps GPUNodes: one for each node of ours, its spec the Blueprint, its conditions the verdict. It
// is the only writer of the startup taint: the taint goes when the node is proved to be its Blueprint, comes back when
// it no longer is, and a node that is not proved in time is replaced.
package verification

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// conflictAgain is how soon a node is looked at again that somebody else wrote meanwhile.
const conflictAgain = 50 * time.Millisecond

// Controller reconciles Nodes of our pools.
type Controller struct {
	client   client.Client
	recorder record.EventRecorder
	clock    clock.PassiveClock
}

// NewController returns a reconciler.
func NewController(c client.Client, recorder record.EventRecorder, clk clock.PassiveClock) *Controller {
	return &Controller{client: c, recorder: recorder, clock: clk}
}

// Register adds the reconciler to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelPool] != "" })
	return ctrl.NewControllerManagedBy(m).
		Named("verification").
		For(&corev1.Node{}, builder.WithPredicates(ours)).
		Watches(&v1alpha1.GPUNode{}, &handler.EnqueueRequestForObject{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.nodesOf)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// nodesOf are the nodes of a claim: a node may come before its claim knows the instance.
func (c *Controller) nodesOf(ctx context.Context, o client.Object) []reconcile.Request {
	claim := o.(*karpv1.NodeClaim)
	if claim.Status.ProviderID == "" {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes, client.MatchingFields{"spec.providerID": claim.Status.ProviderID}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range nodes.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&nodes.Items[i])})
	}
	return requests
}

// Reconcile brings the GPUNode, the verdict and the taint of one node up to date.
func (c *Controller) Reconcile(ctx context.Context, node *corev1.Node) (reconcile.Result, error) {
	if node.Labels[v1alpha1.LabelPool] == "" || !node.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	claim, err := c.claimOf(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if claim == nil {
		// Its NodeClaim will wake it, if it has one.
		return reconcile.Result{}, nil
	}
	gpuNode, err := c.ensureGPUNode(ctx, node, claim)
	if err != nil || gpuNode == nil {
		return reconcile.Result{}, err
	}
	stored := gpuNode.DeepCopy()
	judge(gpuNode, node, c.clock.Now())
	if err := c.patchStatus(ctx, stored, gpuNode, claim); err != nil {
		return reconcile.Result{}, err
	}
	verified := meta.IsStatusConditionTrue(gpuNode.Status.Conditions, v1alpha1.ConditionVerified)
	if err := c.publish(ctx, node, gpuNode.Spec); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictAgain}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.setTaint(ctx, node, verified); apierrors.IsConflict(err) {
		// Core and the kubelet write Nodes too: look again at what they wrote.
		return reconcile.Result{RequeueAfter: conflictAgain}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if verified {
		return reconcile.Result{}, nil
	}
	return c.enforceDeadline(ctx, node, gpuNode, claim)
}

// claimOf returns the NodeClaim with the node's provider id, nil where there is none yet.
func (c *Controller) claimOf(ctx context.Context, node *corev1.Node) (*karpv1.NodeClaim, error) {
	if node.Spec.ProviderID == "" {
		return nil, nil
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.client.List(ctx, claims, client.MatchingFields{"status.providerID": node.Spec.ProviderID}); err != nil {
		return nil, fmt.Errorf("finding the NodeClaim of node %q: %w", node.Name, err)
	}
	if len(claims.Items) == 0 {
		return nil, nil
	}
	return &claims.Items[0], nil
}

// ensureGPUNode creates the node's GPUNode. Once made, its Blueprint stays: a node is what it was launched as, and a
// pool that has changed since is drift.
func (c *Controller) ensureGPUNode(ctx context.Context, node *corev1.Node, claim *karpv1.NodeClaim) (*v1alpha1.GPUNode, error) {
	gpuNode := &v1alpha1.GPUNode{}
	err := c.client.Get(ctx, client.ObjectKey{Name: node.Name}, gpuNode)
	if err == nil || !apierrors.IsNotFound(err) {
		return gpuNode, err
	}
	if !claim.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	pool, err := fleet.Read(ctx, c.client, claim.Labels[v1alpha1.LabelPool])
	if err != nil {
		return nil, err
	}
	bp, err := pool.Blueprint(claim.Labels[corev1.LabelInstanceTypeStable])
	if err != nil {
		return nil, fmt.Errorf("compiling the Blueprint of node %q: %w", node.Name, err)
	}
	gpuNode = &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{
			Name:   node.Name,
			Labels: map[string]string{v1alpha1.LabelPool: bp.Pool},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: apis.Group + "/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID,
			}},
		},
		Spec: bp,
	}
	if err := c.client.Create(ctx, gpuNode); err != nil {
		return nil, fmt.Errorf("creating GPUNode %q: %w", node.Name, err)
	}
	metrics.ObserveStartup(bp.Pool, metrics.PhaseJoined, c.clock.Since(claim.CreationTimestamp.Time).Seconds())
	return gpuNode, nil
}

// patchStatus writes the verdict; what the agent writes is never in the patch, since it did not change here.
func (c *Controller) patchStatus(ctx context.Context, stored, gpuNode *v1alpha1.GPUNode, claim *karpv1.NodeClaim) error {
	if equality.Semantic.DeepEqual(stored.Status, gpuNode.Status) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, gpuNode, client.MergeFrom(stored)); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.announce(stored, gpuNode, claim)
	for kind, phase := range map[string]string{
		v1alpha1.ConditionIdentified: metrics.PhaseIdentified, v1alpha1.ConditionVerified: metrics.PhaseVerified,
	} {
		if !meta.IsStatusConditionTrue(stored.Status.Conditions, kind) && meta.IsStatusConditionTrue(gpuNode.Status.Conditions, kind) {
			metrics.ObserveStartup(gpuNode.Spec.Pool, phase, c.clock.Since(claim.CreationTimestamp.Time).Seconds())
		}
	}
	return nil
}

// announce says a new verdict once, as an event on the GPUNode and on its NodeClaim, where people look.
func (c *Controller) announce(stored, gpuNode *v1alpha1.GPUNode, claim *karpv1.NodeClaim) {
	before := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionVerified)
	verdict := meta.FindStatusCondition(gpuNode.Status.Conditions, v1alpha1.ConditionVerified)
	if before != nil && before.Status == verdict.Status && before.Reason == verdict.Reason {
		return
	}
	kind := corev1.EventTypeWarning
	switch verdict.Status {
	case metav1.ConditionUnknown:
		return
	case metav1.ConditionTrue:
		kind = corev1.EventTypeNormal
	}
	for _, object := range []client.Object{gpuNode, claim} {
		c.recorder.Event(object, kind, verdict.Reason, verdict.Message)
	}
}

// publish puts the pseudo-resources into the Node's status, before the taint goes and again whenever they differ: core
// counts an initialized node by what its status says alone, and a kubelet that starts without a device plugin's
// checkpoint sets extended resources to zero (kubernetes/kubernetes, pkg/kubelet/kubelet_node_status.go).
func (c *Controller) publish(ctx context.Context, node *corev1.Node, bp v1alpha1.Blueprint) error {
	stored := node.DeepCopy()
	for _, list := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		for name, quantity := range blueprint.PseudoResources(bp) {
			if have, found := (*list)[name]; !found || have.Cmp(quantity) != 0 {
				(*list)[name] = quantity
			}
		}
	}
	if equality.Semantic.DeepEqual(stored.Status, node.Status) {
		return nil
	}
	return client.IgnoreNotFound(c.client.Status().Patch(ctx, node, client.MergeFrom(stored)))
}

// setTaint makes the startup taint follow the verdict.
func (c *Controller) setTaint(ctx context.Context, node *corev1.Node, verified bool) error {
	taints := withoutUnverified(node.Spec.Taints)
	if !verified {
		taints = append(taints, v1alpha1.UnverifiedTaint())
	}
	if len(taints) == len(node.Spec.Taints) {
		return nil
	}
	stored := node.DeepCopy()
	node.Spec.Taints = taints
	// Taints are a list: a merge patch replaces it whole, so the resource version is the lock.
	err := c.client.Patch(ctx, node, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

func withoutUnverified(taints []corev1.Taint) []corev1.Taint {
	var out []corev1.Taint
	for _, taint := range taints {
		if taint.Key != v1alpha1.TaintUnverified {
			out = append(out, taint)
		}
	}
	return out
}

// enforceDeadline replaces a node that was never proved in time: core launches another for the pods that still wait. A
// node that was proved once has pods: it keeps its taint and goes when it is empty. One mistake in the device plugin's
// configuration would otherwise end every node of a fleet at once.
func (c *Controller) enforceDeadline(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	registered := claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeRegistered)
	if !registered.IsTrue() || !claim.DeletionTimestamp.IsZero() || gpuNode.Status.VerifiedAt != nil {
		// Gate 1 has core's own deadline: 15 minutes from the claim's creation.
		return reconcile.Result{}, nil
	}
	timeout, err := c.timeout(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	left := registered.LastTransitionTime.Add(timeout).Sub(c.clock.Now())
	if left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	verdict := meta.FindStatusCondition(gpuNode.Status.Conditions, v1alpha1.ConditionVerified)
	c.recorder.Eventf(gpuNode, corev1.EventTypeWarning, verdict.Reason, "not verified within %s, NodeClaim %s is deleted: %s", timeout, claim.Name, verdict.Message)
	if err := c.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("replacing node %q, which was not verified within %s: %w", node.Name, timeout, err)
	}
	return reconcile.Result{}, nil
}

// timeout is the class's. A pool or class that is gone has the default.
func (c *Controller) timeout(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, error) {
	pool, err := fleet.Read(ctx, c.client, claim.Labels[v1alpha1.LabelPool])
	if fleet.Unusable(err) {
		return time.ParseDuration(v1alpha1.DefaultVerificationTimeout)
	}
	if err != nil {
		return 0, err
	}
	if timeout := pool.Class.Spec.Verification.Timeout; timeout != nil {
		return timeout.Duration, nil
	}
	return time.ParseDuration(v1alpha1.DefaultVerificationTimeout)
}
