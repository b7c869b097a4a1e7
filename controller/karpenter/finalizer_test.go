package karpenter

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// going launches for a claim with a lost answer, deletes the claim and drops core's finalizer, as core does for a claim
// without a provider id.
func going(t *testing.T, w *world) *karpv1.NodeClaim {
	t.Helper()
	claim := w.claim(t, "a")
	w.cloud.loseAnswer = &cloud.Error{Class: cloud.ClassTransient, Operation: "RunInstances", Err: errors.New("connection reset")}
	if _, err := w.Create(t.Context(), claim); err == nil {
		t.Fatal("want an error")
	}
	claim = w.reread(t, claim)
	remove(t, w, claim)
	claim = w.reread(t, claim)
	controllerutil.RemoveFinalizer(claim, karpv1.TerminationFinalizer)
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return w.reread(t, claim)
}

func (w *world) finalize(t *testing.T, claim *karpv1.NodeClaim) {
	t.Helper()
	if _, err := NewInstanceFinalizer(w.client, w.cloud, "test", w.clock, w.ledger).Reconcile(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

func (w *world) exists(t *testing.T, claim *karpv1.NodeClaim) bool {
	t.Helper()
	err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), &karpv1.NodeClaim{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestInstanceFinalizer_EndsTheInstanceOfALostAnswerBeforeTheClaimGoes(t *testing.T) {
	w := newWorld(t)
	claim := going(t, w)
	w.finalize(t, claim)
	if len(w.cloud.terminated) != 1 {
		t.Fatalf("terminated %v, want the one instance", w.cloud.terminated)
	}
	if !w.exists(t, claim) {
		t.Fatal("the claim went while its instance was still shutting down")
	}
	w.cloud.setState(cloud.StateTerminated)
	w.finalize(t, w.reread(t, claim))
	if w.exists(t, claim) {
		t.Error("the claim stays although its instance is gone")
	}
}

func TestInstanceFinalizer_DoesNotBelieveNotFoundWhileTheCloudMayLag(t *testing.T) {
	w := newWorld(t)
	claim := going(t, w)
	w.cloud.hidden = true
	w.finalize(t, claim)
	if !w.exists(t, claim) {
		t.Fatal("the claim went on a first NotFound")
	}
	w.clock.Step(lagAllowance + time.Second)
	w.finalize(t, w.reread(t, claim))
	if w.exists(t, claim) {
		t.Error("the claim stays although the cloud has had its time")
	}
}

func TestInstanceFinalizer_WaitsForCore(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	if _, err := w.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	remove(t, w, claim)
	w.finalize(t, w.reread(t, claim))
	if len(w.cloud.terminated) != 0 {
		t.Error("the instance was ended while core still drains its node")
	}
}

func TestDelete_SaysNotFoundOnlyWhenTheInstanceIsGone(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.ProviderID = created.Status.ProviderID
	for range 2 {
		if err := w.Delete(t.Context(), claim); err != nil {
			t.Fatalf("while it ends: %v", err)
		}
	}
	if len(w.cloud.terminated) != 1 {
		t.Errorf("%d calls to terminate, want one", len(w.cloud.terminated))
	}
	w.cloud.setState(cloud.StateTerminated)
	if err := w.Delete(t.Context(), claim); !cloudprovider.IsNodeClaimNotFoundError(err) {
		t.Errorf("when it is gone: %v, want NodeClaimNotFound", err)
	}
}

// A claim without a provider id keeps core from provisioning every pool: one whose journal somebody has spoiled is ended,
// and its instance is found by its tags.
func TestASpoiledJournal_EndsTheClaimAndItsInstance(t *testing.T) {
	w := newWorld(t)
	claim := going(t, w)
	claim.Annotations[v1alpha1.AnnotationLaunch] = "{garbage"
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.finalize(t, w.reread(t, claim))
	if len(w.cloud.terminated) != 1 || !w.exists(t, claim) {
		t.Fatalf("terminated %v, and the claim exists: %t; want the one instance, and the claim until it is gone", w.cloud.terminated, w.exists(t, claim))
	}
	for _, instance := range w.cloud.instances {
		instance.State = cloud.StateTerminated
	}
	w.clock.SetTime(claim.DeletionTimestamp.Add(lagAllowance + time.Second))
	w.finalize(t, w.reread(t, claim))
	if w.exists(t, claim) {
		t.Error("the claim stays although its instance is gone")
	}

	spoiled := w.claim(t, "b")
	spoiled.Annotations = map[string]string{v1alpha1.AnnotationLaunch: "{garbage"}
	if err := w.client.Update(t.Context(), spoiled); err != nil {
		t.Fatal(err)
	}
	_, err := w.Create(t.Context(), spoiled)
	if !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("%v: want an error that core ends the claim on", err)
	}
}

// While the cloud may still show an instance, the claim waits, and core must not: it does nothing for any pool while one
// claim has no provider id.
func TestInstanceFinalizer_LetsOtherPoolsGoOnWhileAClaimWaits(t *testing.T) {
	w := newWorld(t)
	claim := going(t, w)
	w.cloud.hidden = true
	core := state.NewCluster(w.clock, w.client, w.CloudProvider)
	core.UpdateNodeClaim(claim)
	if core.Synced(t.Context()) {
		t.Fatal("core goes on all the same: this test proves nothing")
	}
	w.finalize(t, claim)
	claim = w.reread(t, claim)
	if want := "gpufleet.dev/uid-a/unresolved"; claim.Status.ProviderID != want {
		t.Errorf("provider id %q, want %q", claim.Status.ProviderID, want)
	}
	core.UpdateNodeClaim(claim)
	if !core.Synced(t.Context()) {
		t.Error("core waits for the claim, and with it every pool")
	}
	w.cloud.hidden = false
	w.finalize(t, claim)
	if len(w.cloud.terminated) != 1 {
		t.Errorf("terminated %v, want the one instance that showed at last", w.cloud.terminated)
	}
}

// Somebody takes the journal off a claim that is going: its instance is found by its tags all the same.
func TestAJournalThatIsTakenAway_DoesNotLetTheClaimGoBeforeItsInstance(t *testing.T) {
	w := newWorld(t)
	claim := going(t, w)
	delete(claim.Annotations, v1alpha1.AnnotationLaunch)
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.finalize(t, w.reread(t, claim))
	if len(w.cloud.terminated) != 1 || !w.exists(t, claim) {
		t.Errorf("terminated %v, and the claim exists: %t; want the one instance, and the claim until it is gone", w.cloud.terminated, w.exists(t, claim))
	}
}
