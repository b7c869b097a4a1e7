package nodepool

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

// newGoingWorld has a pool that was reconciled, then got the given objects, and is being deleted.
func newGoingWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t)
	w.reconcile(t)
	w.create(t, objects...)
	if err := w.client.Delete(t.Context(), w.pool(t)); err != nil {
		t.Fatal(err)
	}
	return w
}

// gone says whether the pool is.
func (w *world) gone(t *testing.T) bool {
	t.Helper()
	err := w.client.Get(t.Context(), client.ObjectKey{Name: poolName}, &v1alpha1.GPUNodePool{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

// hold keeps a stored object when it is deleted, as a finalizer of somebody else does.
func hold[T client.Object](t *testing.T, w *world, object T, name string, finalizers ...string) {
	t.Helper()
	stored := get(t, w, object, name)
	stored.SetFinalizers(finalizers)
	if err := w.client.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
}

func instance(id, pool string, state cloud.State) cloud.Instance {
	return cloud.Instance{ID: id, State: state, Claim: cloud.Claim{Pool: pool}}
}

func TestC64_APoolStaysUntilItsLastInstanceIsGone(t *testing.T) {
	held := claim("claim-x", "p5.48xlarge", "i-1", "karpenter.sh/termination")
	held.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeDrained, "Draining", "pod default/llm is held by PodDisruptionBudget llm")
	w := newGoingWorld(t, held)
	hold(t, w, &karpv1.NodePool{}, nodePoolP548, "foregroundDeletion")
	w.cloud.list = []cloud.Instance{instance("i-1", poolName, cloud.StateRunning), instance("i-2", "batch", cloud.StateRunning)}

	draining := func(words ...string) {
		t.Helper()
		if again := w.reconcile(t); again != 2*time.Second {
			t.Errorf("looks again after %s, want 2s: no watch tells of the last instance", again)
		}
		if w.gone(t) {
			t.Fatalf("the pool went while there was %v", words)
		}
		w.wantCondition(t, "Ready", isFalse, "Draining", append(words, "waiting for ")...)
	}
	const drain = "NodeClaim claim-x on node i-1 (pod default/llm is held by PodDisruptionBudget llm)"
	draining("NodePool "+nodePoolP548, drain, "instance i-1 (running)")

	hold(t, w, &karpv1.NodePool{}, nodePoolP548)
	draining(drain, "instance i-1 (running)")

	hold(t, w, &karpv1.NodeClaim{}, "claim-x")
	w.cloud.list[0].State = cloud.StateShuttingDown
	draining("instance i-1 (shutting-down)")
	if _, configured := w.pluginConfigs(t)[poolName]; !configured {
		t.Error("the device plugin's configuration went before the last instance")
	}

	w.cloud.list = w.cloud.list[1:]
	if again := w.reconcile(t); again != 0 {
		t.Errorf("looks again after %s at a pool that went", again)
	}
	if !w.gone(t) {
		t.Errorf("the pool is still there, finalizers %v", w.pool(t).Finalizers)
	}
	if !slices.Contains(w.cloud.asked, "prod") || slices.ContainsFunc(w.cloud.asked, func(c string) bool { return c != "prod" }) {
		t.Errorf("asked for instances of clusters %v, want prod", w.cloud.asked)
	}
}

func TestC64_APoolStaysWhileTheCloudDoesNotSayWhatIsLeft(t *testing.T) {
	w := newGoingWorld(t)
	w.cloud.err = errors.New("DescribeInstances: Throttled")
	_, err := w.Reconcile(t.Context(), w.pool(t))
	if !errors.Is(err, w.cloud.err) {
		t.Fatalf("error %v, want the cloud's", err)
	}
	wantWords(t, err.Error(), "asking the cloud which instances of pool", poolName)
	if w.gone(t) {
		t.Error("the pool went though nobody knows whether its instances did")
	}
	w.cloud.err = nil
	w.reconcile(t)
	if !w.gone(t) {
		t.Error("the pool is still there when the cloud says that nothing is left")
	}
}

func TestFinalize_DeletesNodePoolsInTheForegroundAndClaimsItself(t *testing.T) {
	other := claim("other", "p5.48xlarge", "i-2")
	other.Labels[v1alpha1.LabelPool] = "batch"
	foreign := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{v1alpha1.LabelPool: poolName}}}
	w := newGoingWorld(t, claim("claim-x", "p5.48xlarge", "i-1", "karpenter.sh/termination"), claim("claim-y", "p5.48xlarge", ""), other, foreign)
	hold(t, w, &karpv1.NodePool{}, nodePoolP548, "foregroundDeletion")
	w.reconcile(t)

	if w.deletions[nodePoolP548] != metav1.DeletePropagationForeground {
		t.Errorf("NodePool deleted with %q, want Foreground: it must outlive its claims", w.deletions[nodePoolP548])
	}
	claims := &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, each := range claims.Items {
		left[each.Name] = !each.DeletionTimestamp.IsZero()
	}
	if len(left) != 2 || !left["claim-x"] || left["other"] {
		t.Errorf("NodeClaims and whether they are going: %v, want the pool's own to go", left)
	}
	if got, want := w.nodePoolNames(t), []string{nodePoolP548, "theirs"}; !slices.Equal(got, want) {
		t.Errorf("NodePools %v, want %v", got, want)
	}

	// What is going already is not deleted again, and the same words are not written again.
	w.writes = nil
	w.reconcile(t)
	if len(w.writes) > 0 {
		t.Errorf("a second look wrote %v", w.writes)
	}
}

func TestFinalize_ForgetsThePool(t *testing.T) {
	w := newGoingWorld(t)
	configs := &corev1.ConfigMap{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "gpufleet-system", Name: "gpufleet-device-plugin"}, configs); err != nil {
		t.Fatal(err)
	}
	configs.Data["batch"] = "of another pool"
	if err := w.client.Update(t.Context(), configs); err != nil {
		t.Fatal(err)
	}
	metrics.SetPoolGPUs("batch", 1, 2)
	if len(gauge(t)) == 0 {
		t.Fatal("the pool has no series: the test sees none")
	}
	w.reconcile(t)
	if !w.gone(t) {
		t.Fatal("the pool is still there")
	}
	if got := w.pluginConfigs(t); len(got) != 1 || got["batch"] != "of another pool" {
		t.Errorf("the device plugin's ConfigMap has %v, want the other pool's key only", got)
	}
	if got := gauge(t); len(got) > 0 {
		t.Errorf("a pool that is gone still has series: %v", got)
	}
}

func TestFinalize_LetsAPoolGoThatNeverWroteAnything(t *testing.T) {
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.NodeClassRef.Name = "gone"
	})
	w.reconcile(t)
	if err := w.client.Delete(t.Context(), w.pool(t)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if !w.gone(t) {
		t.Error("the pool is still there")
	}
}

func TestFinalize_LeavesAPoolThatWaitsForSomebodyElse(t *testing.T) {
	w := newWorld(t)
	hold(t, w, &v1alpha1.GPUNodePool{}, poolName, "example.com/other")
	if err := w.client.Delete(t.Context(), w.pool(t)); err != nil {
		t.Fatal(err)
	}
	w.writes = nil
	w.reconcile(t)
	if len(w.writes) > 0 || len(w.cloud.asked) > 0 {
		t.Errorf("wrote %v, asked the cloud %d times", w.writes, len(w.cloud.asked))
	}
}

// A list is replaced whole by a merge patch: what somebody adds between our read and our write must not be lost.
func TestReconcile_KeepsFinalizersThatSomebodyAddsMeanwhile(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{
		"when it adds its own":    func(t *testing.T) *world { return newWorld(t) },
		"when it removes its own": func(t *testing.T) *world { return newGoingWorld(t) },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			stale := w.pool(t)
			hold(t, w, &v1alpha1.GPUNodePool{}, poolName, append(slices.Clone(stale.Finalizers), "example.com/other")...)
			if _, err := w.Reconcile(t.Context(), stale); !apierrors.IsConflict(err) {
				t.Errorf("error %v, want a conflict", err)
			}
			w.reconcile(t)
			if got := w.pool(t).Finalizers; !slices.Contains(got, "example.com/other") {
				t.Errorf("finalizers %v: somebody else's is lost", got)
			}
		})
	}
}

func TestReconcile_TakesItsFinalizerBeforeItWritesAnythingElse(t *testing.T) {
	w := newWorld(t)
	refused := errors.New("no")
	w.fail = func(verb string, o client.Object) error {
		if _, pool := o.(*v1alpha1.GPUNodePool); pool && verb == "patch" {
			return refused
		}
		return nil
	}
	if _, err := w.Reconcile(t.Context(), w.pool(t)); !errors.Is(err, refused) {
		t.Errorf("error %v, want the API server's", err)
	}
	if len(w.writes) > 0 {
		t.Errorf("without its finalizer it wrote %v", w.writes)
	}
	w.fail = nil
	w.reconcile(t)
	if got := w.pool(t).Finalizers; !slices.Equal(got, []string{"gpufleet.dev/pool"}) {
		t.Errorf("finalizers %v, want gpufleet.dev/pool", got)
	}
}
