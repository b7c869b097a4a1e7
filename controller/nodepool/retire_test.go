package nodepool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

// newWorldOf has a pool that was reconciled with the given entries.
func newWorldOf(t *testing.T, entries ...string) *world {
	t.Helper()
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines(entries...)
	})
	w.reconcile(t)
	return w
}

// declare changes the pool's entries and reconciles.
func (w *world) declare(t *testing.T, entries ...string) {
	t.Helper()
	change(t, w, &v1alpha1.GPUNodePool{}, poolName, func(pool *v1alpha1.GPUNodePool) { pool.Spec.Machines = machines(entries...) })
	w.reconcile(t)
}

// specs are the NodePools' by name.
func (w *world) specs(t *testing.T) map[string]karpv1.NodePoolSpec {
	t.Helper()
	out := map[string]karpv1.NodePoolSpec{}
	for _, name := range w.nodePoolNames(t) {
		out[name] = get(t, w, &karpv1.NodePool{}, name).Spec
	}
	return out
}

func weights(specs map[string]karpv1.NodePoolSpec) map[string]int32 {
	out := map[string]int32{}
	for name, spec := range specs {
		out[name] = *spec.Weight
	}
	return out
}

// closed is a NodePool's spec without room for a machine.
func closed(spec karpv1.NodePoolSpec) karpv1.NodePoolSpec {
	out := *spec.DeepCopy()
	out.Limits = karpv1.Limits{"cpu": resource.MustParse("0")}
	return out
}

// Core ends or rolls nodes whose NodePool is gone or has another template: an entry that moves must keep both.
func TestReconcile_ChangesOnlyWeightsOfEntriesThatMove(t *testing.T) {
	for name, tc := range map[string]struct {
		declared []string
		want     map[string]int32
	}{
		"in another order":             {[]string{"p5.4xlarge", "p5.48xlarge"}, map[string]int32{nodePoolP54: 100, nodePoolP548: 99}},
		"behind a new one":             {[]string{"p5.48xlarge,p5.4xlarge", "p5.48xlarge", "p5.4xlarge"}, map[string]int32{nodePoolBoth: 100, nodePoolP548: 99, nodePoolP54: 98}},
		"before a new one":             {[]string{"p5.48xlarge", "p5.4xlarge", "p5.48xlarge,p5.4xlarge"}, map[string]int32{nodePoolP548: 100, nodePoolP54: 99, nodePoolBoth: 98}},
		"behind one that is taken out": {[]string{"p5.4xlarge"}, map[string]int32{nodePoolP54: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
			before := w.specs(t)
			w.declare(t, tc.declared...)
			after := w.specs(t)
			if diff := cmp.Diff(tc.want, weights(after)); diff != "" {
				t.Errorf("weights: %s", diff)
			}
			for name, spec := range after {
				if _, moved := before[name]; !moved {
					continue
				}
				if diff := cmp.Diff(before[name], spec, cmpopts.IgnoreFields(karpv1.NodePoolSpec{}, "Weight")); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		})
	}
}

// Within an entry the order has no meaning: core chooses by price.
func TestReconcile_KeepsTheNodePoolOfAnEntryWhoseTypesChangePlaces(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge,p5.4xlarge")
	w.declare(t, "p5.4xlarge,p5.48xlarge")
	if got := w.nodePoolNames(t); !slices.Equal(got, []string{nodePoolBoth}) {
		t.Errorf("NodePools %v, want %s", got, nodePoolBoth)
	}
	if got := w.pool(t).Spec.Machines[0].InstanceTypes; !slices.Equal(got, []string{"p5.4xlarge", "p5.48xlarge"}) {
		t.Errorf("the pool's own list became %v", got)
	}
}

// A NodePool's name becomes a label value, which has 63 characters at most.
func TestNodePool_HasALabelsLengthUnderTheLongestPoolName(t *testing.T) {
	pool := testPool()
	pool.Name = strings.Repeat("a", 54)
	got := NodePool(pool, 0, v1alpha1.Blueprint{}, v1alpha1.EffectiveSettings{ConsolidateAfter: metav1.Duration{}}).Name
	if want := strings.Repeat("a", 54) + "-866aa927"; got != want || len(got) != 63 {
		t.Errorf("NodePool %s of %d characters, want %s of 63", got, len(got), want)
	}
}

func TestReconcile_DeletesTheNodePoolOfARemovedEntryThatHasNoNodes(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	// One that the user wrote: our label makes it nobody's but theirs.
	w.create(t, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{v1alpha1.LabelPool: poolName}}})
	w.create(t, claimOf(nodePoolP54, "elsewhere", "i-1"))
	w.writes = nil
	w.declare(t, "p5.4xlarge")

	if got, want := w.nodePoolNames(t), []string{nodePoolP54, "theirs"}; !slices.Equal(got, want) {
		t.Errorf("NodePools %v, want %v", got, want)
	}
	if !slices.Contains(w.writes, "delete *v1.NodePool "+nodePoolP548) {
		t.Errorf("wrote %v, want %s deleted", w.writes, nodePoolP548)
	}
	if len(w.deletions) > 0 {
		t.Errorf("propagation policies %v, want the API server's own: nothing hangs on an empty NodePool", w.deletions)
	}
	if !w.exists(t, &karpv1.NodeClaim{}, "elsewhere") {
		t.Error("the NodeClaim of another entry is gone")
	}
}

func TestReconcile_ClosesTheNodePoolOfARemovedEntryUntilItsLastNodeIsGone(t *testing.T) {
	for name, held := range map[string]*karpv1.NodeClaim{
		"launching": claimOf(nodePoolP548, "held", ""),
		"running":   claimOf(nodePoolP548, "held", "i-1", "karpenter.sh/termination"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
			w.create(t, held.DeepCopy())
			want := closed(w.specs(t)[nodePoolP548])
			w.declare(t, "p5.4xlarge")
			// All but the limits is as it was: another template would be drift.
			if diff := cmp.Diff(want, w.specs(t)[nodePoolP548]); diff != "" {
				t.Fatalf("the NodePool of the removed entry: %s", diff)
			}
			if got := get(t, w, &karpv1.NodeClaim{}, "held"); !got.DeletionTimestamp.IsZero() {
				t.Error("a node of a removed entry is ended, jobs and all")
			}
			if limits := w.specs(t)[nodePoolP54].Limits; limits != nil {
				t.Errorf("the entry that stays has limits %v", limits)
			}
			w.writes = nil
			w.reconcile(t)
			if len(w.writes) > 0 {
				t.Errorf("a second look wrote %v", w.writes)
			}

			if err := w.client.Delete(t.Context(), get(t, w, &karpv1.NodeClaim{}, "held")); err != nil {
				t.Fatal(err)
			}
			w.reconcile(t)
			if len(held.Finalizers) > 0 {
				if diff := cmp.Diff(want, w.specs(t)[nodePoolP548]); diff != "" {
					t.Fatalf("the NodePool of a node that drains: %s", diff)
				}
				hold(t, w, &karpv1.NodeClaim{}, "held")
				w.reconcile(t)
			}
			if got := w.nodePoolNames(t); !slices.Equal(got, []string{nodePoolP54}) {
				t.Errorf("NodePools %v when the last node is gone, want %s", got, nodePoolP54)
			}
			if len(w.deletions) > 0 {
				t.Errorf("propagation policies %v, want the API server's own", w.deletions)
			}
		})
	}
}

func TestReconcile_OpensTheNodePoolOfAnEntryThatIsDeclaredAgain(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	w.create(t, claimOf(nodePoolP548, "held", "i-1"))
	before := get(t, w, &karpv1.NodePool{}, nodePoolP548)
	w.declare(t, "p5.4xlarge")
	w.declare(t, "p5.48xlarge", "p5.4xlarge")
	after := get(t, w, &karpv1.NodePool{}, nodePoolP548)
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Error(diff)
	}
	if slices.Contains(w.writes, "delete *v1.NodePool "+nodePoolP548) {
		t.Error("it is another NodePool than the one that its nodes came of")
	}
}

func TestReconcile_LeavesARemovedEntryThatIsGoingAlready(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	hold(t, w, &karpv1.NodePool{}, nodePoolP54, "foregroundDeletion")
	hold(t, w, &karpv1.NodePool{}, nodePoolP548, "foregroundDeletion")
	w.declare(t, "p5.4xlarge,p5.48xlarge")
	w.create(t, claimOf(nodePoolP54, "late", ""))
	w.writes = nil
	w.reconcile(t)
	if len(w.writes) > 0 {
		t.Errorf("while the NodePools go, a second look wrote: %v", w.writes)
	}
}

func TestReconcile_TouchesNoRemovedEntryWhoseNodesCannotBeListed(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	before := w.specs(t)[nodePoolP548]
	w.failClaims = errors.New("etcd is ill")
	change(t, w, &v1alpha1.GPUNodePool{}, poolName, func(pool *v1alpha1.GPUNodePool) { pool.Spec.Machines = machines("p5.4xlarge") })
	_, err := w.Reconcile(t.Context(), w.pool(t))
	if !errors.Is(err, w.failClaims) {
		t.Fatalf("error %v, want the API server's", err)
	}
	wantWords(t, err.Error(), `listing NodeClaims of NodePool "inference-866aa927"`)
	w.wantCondition(t, "Ready", isFalse, "WriteFailed", "etcd is ill")
	if diff := cmp.Diff(before, w.specs(t)[nodePoolP548]); diff != "" {
		t.Error(diff)
	}
}

func TestReconcile_ReturnsAFailedRetirementWithTheNodePoolsName(t *testing.T) {
	refused := errors.New("the API server says no")
	for verb, claims := range map[string][]client.Object{
		"delete": nil,
		"patch":  {claimOf(nodePoolP548, "held", "i-1")},
	} {
		t.Run(verb, func(t *testing.T) {
			w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
			w.create(t, claims...)
			w.fail = func(v string, o client.Object) error {
				if fmt.Sprintf("%s %T", v, o) == verb+" *v1.NodePool" {
					return refused
				}
				return nil
			}
			change(t, w, &v1alpha1.GPUNodePool{}, poolName, func(pool *v1alpha1.GPUNodePool) { pool.Spec.Machines = machines("p5.4xlarge") })
			_, err := w.Reconcile(t.Context(), w.pool(t))
			if !errors.Is(err, refused) {
				t.Fatalf("error %v, want the API server's", err)
			}
			wantWords(t, err.Error(), `retiring NodePool "inference-866aa927"`)
			w.wantCondition(t, "Accepted", isTrue, "Valid")
			w.wantCondition(t, "Ready", isFalse, "WriteFailed", `retiring NodePool "inference-866aa927": the API server says no`)
		})
	}
}

// A pool that is deleted is another matter: everything of it goes, closed NodePools too.
func TestFinalize_EndsTheNodesOfARemovedEntryWithThePool(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	w.create(t, claimOf(nodePoolP548, "held", "i-1", "karpenter.sh/termination"))
	w.declare(t, "p5.4xlarge")
	if err := w.client.Delete(t.Context(), w.pool(t)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	want := map[string]metav1.DeletionPropagation{nodePoolP548: "Foreground", nodePoolP54: "Foreground"}
	if diff := cmp.Diff(want, w.deletions); diff != "" {
		t.Errorf("deletions: %s", diff)
	}
	if get(t, w, &karpv1.NodeClaim{}, "held").DeletionTimestamp.IsZero() {
		t.Error("the NodeClaim of the removed entry stays")
	}
}

// setNodePoolStatus writes what core says of a NodePool.
func (w *world) setNodePoolStatus(t *testing.T, name string, edit func(*karpv1.NodePool)) {
	t.Helper()
	nodePool := get(t, w, &karpv1.NodePool{}, name)
	edit(nodePool)
	if err := w.client.Status().Update(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
}

// Core's Ready follows ValidationSucceeded and NodeClassReady, and only names them: "ValidationSucceeded=False".
func TestReconcile_IsReadyOnlyWhenCoreTakesItsNodePools(t *testing.T) {
	const invalid = `invalid value "gpu" for label node-role.kubernetes.io/worker`
	for name, tc := range map[string]struct {
		core   func(*karpv1.NodePool)
		status metav1.ConditionStatus
		reason string
		words  []string
	}{
		"not looked at yet": {func(*karpv1.NodePool) {}, isTrue, "Ready", nil},
		"being looked at":   {func(np *karpv1.NodePool) { np.StatusConditions() }, isTrue, "Ready", nil},
		"ready": {func(np *karpv1.NodePool) {
			np.StatusConditions().SetTrue("ValidationSucceeded")
			np.StatusConditions().SetTrue("NodeClassReady")
		}, isTrue, "Ready", nil},
		"not valid": {func(np *karpv1.NodePool) {
			np.StatusConditions().SetFalse("ValidationSucceeded", "NodePoolValidationFailed", invalid)
			np.StatusConditions().SetTrue("NodeClassReady")
			np.StatusConditions().SetFalse("NodeRegistrationHealthy", "RegistrationFailed", "Failed to register node")
		}, isFalse, "NodePoolNotReady", []string{"NodePool inference-93b1a613 is not ready: ValidationSucceeded: NodePoolValidationFailed: " + invalid}},
		"not valid and without its class": {func(np *karpv1.NodePool) {
			np.StatusConditions().SetFalse("ValidationSucceeded", "NodePoolValidationFailed", invalid)
			np.StatusConditions().SetFalse("NodeClassReady", "NodeClassNotFound", "NodeClass not found on cluster")
		}, isFalse, "NodePoolNotReady", []string{"ValidationSucceeded: NodePoolValidationFailed: " + invalid, "; ", "NodeClassReady: NodeClassNotFound: NodeClass not found on cluster"}},
		// It says that launches failed of late, and is no part of core's Ready.
		"ready, with nodes that did not register": {func(np *karpv1.NodePool) {
			np.StatusConditions().SetTrue("ValidationSucceeded")
			np.StatusConditions().SetTrue("NodeClassReady")
			np.StatusConditions().SetFalse("NodeRegistrationHealthy", "RegistrationFailed", "Failed to register node")
		}, isTrue, "Ready", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
			w.setNodePoolStatus(t, nodePoolP54, tc.core)
			w.reconcile(t)
			w.wantCondition(t, "Accepted", isTrue, "Valid")
			w.wantCondition(t, "Ready", tc.status, tc.reason, tc.words...)
			if got := meta.FindStatusCondition(w.pool(t).Status.Conditions, "Ready").Message; strings.Contains(got, "RegistrationFailed") {
				t.Errorf("%q names what does not keep the NodePool from being ready", got)
			}
		})
	}
}

func TestReconcile_SaysCoresReadyWhereNothingElseIsSaid(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge")
	w.setNodePoolStatus(t, nodePoolP548, func(np *karpv1.NodePool) {
		np.Status.Conditions = []status.Condition{{Type: "Ready", Status: isFalse, Reason: "Broken", Message: "core says no more"}}
	})
	w.reconcile(t)
	w.wantCondition(t, "Ready", isFalse, "NodePoolNotReady", "NodePool inference-866aa927 is not ready: Broken: core says no more")
}

func TestReconcile_DoesNotAskWhetherANodePoolThatGoesIsReady(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge", "p5.4xlarge")
	hold(t, w, &karpv1.NodePool{}, nodePoolP54, "foregroundDeletion")
	w.setNodePoolStatus(t, nodePoolP54, func(np *karpv1.NodePool) {
		np.StatusConditions().SetFalse("ValidationSucceeded", "NodePoolValidationFailed", "wrong")
	})
	w.declare(t, "p5.48xlarge")
	if got := get(t, w, &karpv1.NodePool{}, nodePoolP54); got.DeletionTimestamp.IsZero() {
		t.Fatal("the NodePool is not going: the test sees nothing")
	}
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

func TestReconcile_BecomesReadyWhenCoreTakesItsNodePoolAgain(t *testing.T) {
	w := newWorldOf(t, "p5.48xlarge")
	w.setNodePoolStatus(t, nodePoolP548, func(np *karpv1.NodePool) {
		np.StatusConditions().SetFalse("ValidationSucceeded", "NodePoolValidationFailed", "wrong")
		np.StatusConditions().SetTrue("NodeClassReady")
	})
	w.reconcile(t)
	w.wantCondition(t, "Ready", isFalse, "NodePoolNotReady")
	w.setNodePoolStatus(t, nodePoolP548, func(np *karpv1.NodePool) { np.StatusConditions().SetTrue("ValidationSucceeded") })
	w.reconcile(t)
	w.wantCondition(t, "Ready", isTrue, "Ready")
}
