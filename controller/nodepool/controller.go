// Package nodepool keeps GPUNodePools: it compiles a Blueprint for each instance type, writes one Karpenter NodePool an
// entry of machines, the device plugin's configuration and the priority classes, and says Accepted, then Ready. A pool
// that is deleted keeps its finalizer until every instance is confirmed gone.
package nodepool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const (
	// conflictAgain is how soon a pool is looked at again that somebody else wrote meanwhile.
	conflictAgain = 50 * time.Millisecond
	// countedAgain is how soon a pool is looked at again whose ledger was not counted yet: until then the status says
	// what it said before the start, and not that nothing is used.
	countedAgain = time.Second
	// limitsAgain is how often the status of a pool with limits is brought up to date: the ledger changes without a word.
	limitsAgain = 10 * time.Second
)

// Lister tells which instances exist, so that a deleted pool can wait for the last.
type Lister interface {
	List(ctx context.Context, cluster string) ([]cloud.Instance, error)
}

// Controller reconciles GPUNodePools.
type Controller struct {
	client  client.Client
	lister  Lister
	ledger  Ledger
	cluster string
}

// Ledger holds launches to the pools' limits. This reconciler is the only one that tells it what they are.
type Ledger interface {
	SetLimits(pool string, limits ledger.Limits)
	Usage(pool string) ledger.Usage
	Drop(pool string)
}

// NewController returns a reconciler for the pools of one cluster.
func NewController(c client.Client, lister Lister, l Ledger, cluster string) *Controller {
	return &Controller{client: c, lister: lister, ledger: l, cluster: cluster}
}

// Register adds the reconciler to a manager. A pool is looked at again when anything changes that its Blueprints are
// compiled from or that its status counts.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	byLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return request(o.GetLabels()[v1alpha1.LabelPool])
	})
	return ctrl.NewControllerManagedBy(m).
		Named("gpunodepool").
		For(&v1alpha1.GPUNodePool{}).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(poolOfNodePool)).
		Watches(&karpv1.NodeClaim{}, byLabel).
		Watches(&v1alpha1.GPUNode{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return request(o.(*v1alpha1.GPUNode).Spec.Pool)
		})).
		Watches(nodeclass.New(), handler.EnqueueRequestsFromMapFunc(c.poolsOfClass)).
		Watches(&v1alpha1.MIGLayout{}, handler.EnqueueRequestsFromMapFunc(c.poolsOfLayout)).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// poolOfNodePool goes by name and not by owner: a NodePool in the way of a pool is not ours, and when it goes the pool
// can be accepted.
func poolOfNodePool(_ context.Context, o client.Object) []reconcile.Request {
	at := strings.LastIndex(o.GetName(), "-")
	if at < 0 {
		return nil
	}
	return request(o.GetName()[:at])
}

func request(pool string) []reconcile.Request {
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pool}}}
}

func (c *Controller) poolsOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	return c.poolsOfClasses(ctx, map[string]bool{o.GetName(): true})
}

func (c *Controller) poolsOfLayout(ctx context.Context, o client.Object) []reconcile.Request {
	classes := &nodeclass.ObjectList{}
	if err := c.client.List(ctx, classes); err != nil {
		return nil
	}
	names := map[string]bool{}
	for i := range classes.Items {
		if lo.Contains(classes.Items[i].Spec.Sharing.Layouts, o.GetName()) {
			names[classes.Items[i].Name] = true
		}
	}
	return c.poolsOfClasses(ctx, names)
}

func (c *Controller) poolsOfClasses(ctx context.Context, classes map[string]bool) []reconcile.Request {
	pools := &v1alpha1.GPUNodePoolList{}
	if err := c.client.List(ctx, pools); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		if classes[pools.Items[i].Spec.NodeClassRef.Name] {
			requests = append(requests, request(pools.Items[i].Name)...)
		}
	}
	return requests
}

// Reconcile brings one pool up to date.
func (c *Controller) Reconcile(ctx context.Context, pool *v1alpha1.GPUNodePool) (reconcile.Result, error) {
	if !pool.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, pool)
	}
	if controllerutil.AddFinalizer(pool, v1alpha1.FinalizerPool) {
		// Only the finalizer is written, with the resource version as the lock: a list is replaced whole by a merge patch.
		stored := pool.DeepCopy()
		controllerutil.RemoveFinalizer(stored, v1alpha1.FinalizerPool)
		if err := c.client.Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	stored := pool.DeepCopy()
	err := c.sync(ctx, pool)
	if patchErr := c.patchStatus(ctx, stored, pool); apierrors.IsConflict(patchErr) && err == nil {
		// What is held back was written meanwhile: look again at what it says.
		return reconcile.Result{RequeueAfter: conflictAgain}, nil
	} else if patchErr != nil {
		return reconcile.Result{}, errors.Join(err, patchErr)
	}
	switch {
	case err != nil || pool.Spec.Limits == nil:
		return reconcile.Result{}, err
	case !c.ledger.Usage(pool.Name).Ready:
		return reconcile.Result{RequeueAfter: countedAgain}, nil
	}
	return reconcile.Result{RequeueAfter: limitsAgain}, nil
}

func (c *Controller) patchStatus(ctx context.Context, stored, pool *v1alpha1.GPUNodePool) error {
	if equality.Semantic.DeepEqual(stored.Status, pool.Status) {
		return nil
	}
	// Conditions are a list, which a merge patch replaces whole, and holds are written by another reconciler: the resource
	// version is the lock.
	err := c.client.Status().Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// sync compiles, writes what follows and sets the pool's status.
func (c *Controller) sync(ctx context.Context, pool *v1alpha1.GPUNodePool) error {
	effective := blueprint.Defaults(pool)
	pool.Status.Effective = &effective
	claims, err := c.claims(ctx, pool)
	if err != nil {
		return err
	}
	if err := c.count(ctx, pool, claims); err != nil {
		return err
	}
	blueprints, err := c.compile(ctx, pool)
	var refusal *blueprint.Error
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	if refusal != nil {
		refuse(pool, refusal.Reason, refusal.Error())
		return nil
	}
	// The ledger learns the limits even where they are refused below: they hold back what was accepted before.
	bounds, err := blueprint.Limits(pool, blueprints, present(claims)...)
	if err != nil {
		return fmt.Errorf("reading the limits of pool %q: %w", pool.Name, err)
	}
	c.ledger.SetLimits(pool.Name, bounds)
	if usage := c.ledger.Usage(pool.Name); usage.Ready || pool.Spec.Limits == nil {
		pool.Status.Limits = limits(usage)
	}
	refused, doubtful := blueprint.CheckLimits(pool, blueprints, bounds)
	if len(refused) > 0 {
		refuse(pool, v1alpha1.ReasonInvalidPool, invalid(pool, refused[0]).Error())
		return nil
	}
	pool.Status.Blueprints = summaries(blueprints)
	setCondition(pool, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, accepted(blueprints, doubtful))

	err = c.apply(ctx, pool, blueprints, effective)
	var conflict *conflictError
	if errors.As(err, &conflict) {
		refuse(pool, v1alpha1.ReasonConflict, conflict.Error())
		return nil
	}
	if err != nil {
		setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, err.Error())
		return err
	}
	return c.setReady(ctx, pool)
}

// refuse says why a pool is not accepted. What already runs stays: its NodePools go only when the pool goes, and nothing
// new is launched, since GetInstanceTypes compiles from the same inputs.
func refuse(pool *v1alpha1.GPUNodePool, reason, message string) {
	setCondition(pool, v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, message)
	setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted, "the pool is not accepted: nothing is launched")
	pool.Status.Blueprints = nil
}

// compile returns the pool's Blueprints, or the *blueprint.Error of the first that cannot be.
func (c *Controller) compile(ctx context.Context, pool *v1alpha1.GPUNodePool) ([]v1alpha1.Blueprint, error) {
	if violations := v1alpha1.ValidateGPUNodePool(&pool.Spec); len(violations) > 0 {
		return nil, invalid(pool, violations[0])
	}
	inputs, err := fleet.Of(ctx, c.client, pool)
	if err != nil {
		return nil, err
	}
	var blueprints []v1alpha1.Blueprint
	for _, instanceType := range inputs.InstanceTypes() {
		bp, err := inputs.Blueprint(instanceType)
		if err != nil {
			return nil, err
		}
		blueprints = append(blueprints, bp)
	}
	return blueprints, nil
}

// invalid is the error of a rule that the pool breaks by itself.
func invalid(pool *v1alpha1.GPUNodePool, v v1alpha1.Violation) *blueprint.Error {
	return &blueprint.Error{
		Reason: v1alpha1.ReasonInvalidPool, Object: v1alpha1.KindGPUNodePool + " " + pool.Name, Path: v.Path, Message: v.Message,
	}
}

// setReady says whether the pool can launch: its class is resolved, has a subnet in the pool's zones, and core takes its
// NodePools.
func (c *Controller) setReady(ctx context.Context, pool *v1alpha1.GPUNodePool) error {
	inputs, err := fleet.Of(ctx, c.client, pool)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(inputs.Class.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.ObservedGeneration != inputs.Class.Generation:
		setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonResolving,
			fmt.Sprintf("GPUNodeClass %s is being resolved", inputs.Class.Name))
	case ready.Status != metav1.ConditionTrue:
		setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClassNotReady,
			fmt.Sprintf("GPUNodeClass %s is not ready: %s", inputs.Class.Name, ready.Message))
	case len(inputs.Zones()) == 0:
		setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonClassNotReady,
			fmt.Sprintf("no subnet of GPUNodeClass %s is in the pool's zones %v", inputs.Class.Name, pool.Spec.Zones))
	default:
		return c.setReadyByNodePools(ctx, pool)
	}
	return nil
}

// setReadyByNodePools follows core's word on the pool's NodePools. One that core has not looked at yet is not trouble.
func (c *Controller) setReadyByNodePools(ctx context.Context, pool *v1alpha1.GPUNodePool) error {
	nodePools, err := c.nodePools(ctx, pool)
	if err != nil {
		return err
	}
	for i := range nodePools {
		ready := nodePools[i].StatusConditions(status.WithObservedOnly()).Root()
		if ready == nil || !ready.IsFalse() || !nodePools[i].DeletionTimestamp.IsZero() {
			continue
		}
		setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodePoolNotReady,
			fmt.Sprintf("NodePool %s is not ready: %s", nodePools[i].Name, coresWords(&nodePools[i], ready)))
		return nil
	}
	setCondition(pool, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "the pool launches what its pods ask for")
	return nil
}

// coresWords are those of the conditions that keep a NodePool from being ready: Ready itself only names them.
func coresWords(nodePool *karpv1.NodePool, ready *status.Condition) string {
	var words []string
	conditions := nodePool.StatusConditions(status.WithObservedOnly())
	for _, each := range conditions.List() {
		if each.Type != ready.Type && conditions.IsDependentCondition(each.Type) && each.IsFalse() {
			words = append(words, fmt.Sprintf("%s: %s: %s", each.Type, each.Reason, each.Message))
		}
	}
	if len(words) == 0 {
		return ready.Reason + ": " + ready.Message
	}
	return strings.Join(words, "; ")
}

func setCondition(pool *v1alpha1.GPUNodePool, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: pool.Generation,
	})
}

// drainCheck is how often a pool that is going looks for instances that no watch tells of.
const drainCheck = 2 * time.Second
