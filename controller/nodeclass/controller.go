package nodeclass

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// resolveAgain is how long resolved subnets are believed, and how soon a cloud that failed is asked again.
const (
	resolveAgain      = time.Hour
	resolveAfterError = 30 * time.Second
)

// Resolver looks up what a class refers to.
type Resolver interface {
	Resolve(ctx context.Context, class *v1alpha1.GPUNodeClass) (cloud.Resolved, error)
}

// Controller reconciles GPUNodeClasses.
type Controller struct {
	client   client.Client
	resolver Resolver
}

// NewController returns a reconciler that resolves classes through the given cloud.
func NewController(c client.Client, resolver Resolver) *Controller {
	return &Controller{client: c, resolver: resolver}
}

// Register adds the reconciler to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("gpunodeclass").
		For(New(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// Reconcile resolves one class and writes its status.
func (c *Controller) Reconcile(ctx context.Context, class *Object) (reconcile.Result, error) {
	if !class.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	stored := class.DeepCopy()
	again := c.resolve(ctx, class)
	if equality.Semantic.DeepEqual(stored.Status, class.Status) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	err := c.client.Status().Patch(ctx, class, client.MergeFrom(stored))
	return reconcile.Result{RequeueAfter: again}, client.IgnoreNotFound(err)
}

// resolve fills in the status and returns when to look again; 0 is never.
func (c *Controller) resolve(ctx context.Context, class *Object) time.Duration {
	if violations := v1alpha1.ValidateGPUNodeClass(&class.Spec); len(violations) > 0 {
		words := lo.Map(violations, func(v v1alpha1.Violation, _ int) string { return v.Path + ": " + v.Message })
		set(class, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidClass, strings.Join(words, "; "))
		set(class, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted, "the class is not accepted")
		return 0
	}
	set(class, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, "the class is valid")

	resolved, err := c.resolver.Resolve(ctx, &class.GPUNodeClass)
	if err != nil {
		return c.unresolved(class, err)
	}
	// The image is resolved once for each change of the spec: a new image behind an alias must not roll nodes.
	if !wasResolved(class) {
		class.Status.AMI = resolved.Image
	}
	class.Status.Subnets = resolved.Subnets
	set(class, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady,
		fmt.Sprintf("image %s, %d subnets", class.Status.AMI, len(class.Status.Subnets)))
	return resolveAgain
}

// unresolved keeps a class Ready that was resolved before at this generation: a cloud that is ill for a minute must not
// stop pools whose facts are known.
func (c *Controller) unresolved(class *Object, err error) time.Duration {
	if wasResolved(class) {
		return resolveAfterError
	}
	set(class, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCloudError, err.Error())
	return resolveAfterError
}

// wasResolved says whether the status is what this generation of the spec was resolved to.
func wasResolved(class *Object) bool {
	ready := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == class.Generation
}

func set(class *Object, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&class.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: class.Generation,
	})
}
