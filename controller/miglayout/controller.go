// Package miglayout keeps MIGLayouts: it solves each one and shows its placements, or says why it cannot be placed.
package miglayout

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// Controller reconciles MIGLayouts.
type Controller struct {
	client client.Client
}

// NewController returns a reconciler.
func NewController(c client.Client) *Controller { return &Controller{client: c} }

// Register adds the reconciler to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("miglayout").
		For(&v1alpha1.MIGLayout{}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

// Reconcile solves one layout and writes its status.
func (c *Controller) Reconcile(ctx context.Context, layout *v1alpha1.MIGLayout) (reconcile.Result, error) {
	if !layout.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	stored := layout.DeepCopy()
	if err := solve(layout); err != nil {
		return reconcile.Result{}, err
	}
	if equality.Semantic.DeepEqual(stored.Status, layout.Status) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(c.client.Status().Patch(ctx, layout, client.MergeFrom(stored)))
}

func solve(layout *v1alpha1.MIGLayout) error {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, ObservedGeneration: layout.Generation,
		Reason: v1alpha1.ReasonValid, Message: "every slice has its place",
	}
	devices, err := blueprint.Layout(layout.Spec)
	var invalid *blueprint.Error
	switch {
	case errors.As(err, &invalid):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, invalid.Reason, invalid.Error()
	case err != nil:
		return err
	}
	layout.Status.Devices = devices
	meta.SetStatusCondition(&layout.Status.Conditions, condition)
	return nil
}
