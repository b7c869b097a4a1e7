package karpenter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// goneAgain is how soon an instance that is on its way out is looked at again.
const goneAgain = time.Second

// InstanceFinalizer lets a NodeClaim go when its instance is confirmed gone. Core drops its own finalizer without a call
// to Delete while the provider id is empty, and an answer that was lost leaves it empty: the journal's token finds the
// instance all the same.
type InstanceFinalizer struct {
	client  client.Client
	cloud   cloud.Cloud
	cluster string
	clock   clock.PassiveClock
	ledger  *ledger.Ledger
}

// NewInstanceFinalizer returns the reconciler for the claims of one cluster.
func NewInstanceFinalizer(c client.Client, provider cloud.Cloud, cluster string, clk clock.PassiveClock, l *ledger.Ledger) *InstanceFinalizer {
	return &InstanceFinalizer{client: c, cloud: provider, cluster: cluster, clock: clk, ledger: l}
}

// Register adds the reconciler to a manager.
func (f *InstanceFinalizer) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("nodeclaim.instance").
		For(&karpv1.NodeClaim{}).
		Complete(reconcile.AsReconciler(m.GetClient(), f))
}

// Reconcile handles a claim that is going and that core is done with.
func (f *InstanceFinalizer) Reconcile(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	if claim.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(claim, v1alpha1.FinalizerInstance) ||
		controllerutil.ContainsFinalizer(claim, karpv1.TerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	gone, err := f.gone(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !gone {
		return reconcile.Result{RequeueAfter: goneAgain}, f.letOthersGoOn(ctx, claim)
	}
	stored := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, v1alpha1.FinalizerInstance)
	err = f.client.Patch(ctx, claim, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	f.ledger.Forget(claim.Labels[v1alpha1.LabelPool], string(claim.UID))
	return reconcile.Result{}, nil
}

// unresolvedProviderID stands for a provider id that nobody knows. Core keeps its nodes by provider id: each claim has its own.
const unresolvedProviderID = v1alpha1.Group + "/%s/unresolved"

// letOthersGoOn gives a claim that waits here a provider id: while any claim has none, core provisions and disrupts nothing
// of any pool (pkg/controllers/state/cluster.go, Synced, v1.15.0). Core is done with the claim and asks nothing of that id.
func (f *InstanceFinalizer) letOthersGoOn(ctx context.Context, claim *karpv1.NodeClaim) error {
	if claim.Status.ProviderID != "" {
		return nil
	}
	stored := claim.DeepCopy()
	claim.Status.ProviderID = fmt.Sprintf(unresolvedProviderID, claim.UID)
	return client.IgnoreNotFound(f.client.Status().Patch(ctx, claim, client.MergeFrom(stored)))
}

// gone says whether no instance runs for the claim, and asks for the end of one that does.
func (f *InstanceFinalizer) gone(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	entry, err := readJournal(claim)
	switch {
	case err != nil || entry == nil:
		return f.goneByTags(ctx, claim)
	case !entry.open():
		return true, nil
	}
	instance, err := f.cloud.FindByToken(ctx, entry.Token)
	if errors.Is(err, cloud.ErrNotFound) {
		return f.clock.Since(entry.AskedAt.Time) > lagAllowance, nil
	}
	if err != nil {
		return false, fmt.Errorf("finding the instance of NodeClaim %s: %w", claim.Name, err)
	}
	if instance.State.Gone() {
		return true, nil
	}
	if !instance.State.Ending() {
		if err := f.cloud.Terminate(ctx, instance.ID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
			return false, fmt.Errorf("ending instance %s of NodeClaim %s: %w", instance.ID, claim.Name, err)
		}
	}
	return false, nil
}

// goneByTags is gone for a claim whose journal nobody can read: somebody wrote into it, or took it away (it comes with the
// finalizer). The instances carry its UID.
func (f *InstanceFinalizer) goneByTags(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	instances, err := f.cloud.List(ctx, f.cluster)
	if err != nil {
		return false, fmt.Errorf("finding instances of NodeClaim %s by their tags: %w", claim.Name, err)
	}
	gone := f.clock.Since(claim.DeletionTimestamp.Time) > lagAllowance
	for _, instance := range instances {
		if instance.Claim.UID != string(claim.UID) || instance.State.Gone() {
			continue
		}
		gone = false
		if instance.State.Ending() {
			continue
		}
		if err := f.cloud.Terminate(ctx, instance.ID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
			return false, fmt.Errorf("ending instance %s of NodeClaim %s: %w", instance.ID, claim.Name, err)
		}
	}
	return gone, nil
}
