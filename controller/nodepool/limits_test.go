package nodepool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

func limitedPool(gpus, nodes int64, hourlyCost string) func(*v1alpha1.GPUNodePool, *nodeclass.Object, *v1alpha1.MIGLayout) {
	return func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Limits = &v1alpha1.LimitsSpec{GPUs: &gpus, Nodes: &nodes, HourlyCost: hourlyCost}
	}
}

// counted makes the ledger know one machine of 8 GPUs at 55.04 dollars an hour that runs, and one that leaves.
func (w *world) counted(t *testing.T) {
	t.Helper()
	machine := ledger.NewMachine(8, 55.04, true)
	err := w.Controller.ledger.(*ledger.Ledger).Rebuild(func() (map[string]ledger.World, error) {
		return map[string]ledger.World{poolName: {Claims: []ledger.Claim{
			{UID: "stays", Attempt: "a", Machine: machine, State: ledger.Launched},
			{UID: "leaves", Attempt: "b", Machine: machine, State: ledger.Launched, Leaving: true},
		}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Core counts pseudo-resources: what pods ask for is slices here. Each NodePool of the pool has the whole limit.
func TestReconcile_HoldsCoresSimulationToTheLimits(t *testing.T) {
	w := newWorld(t, limitedPool(16, 3, "120"), func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines("p5.48xlarge", "p5.4xlarge")
	})
	w.reconcile(t)
	want := corev1.ResourceList{"gpufleet.dev/gpu": resource.MustParse("16"), "gpufleet.dev/node": resource.MustParse("3"), "gpufleet.dev/microdollars-per-hour": resource.MustParse("120000000")}
	specs := w.specs(t)
	if len(specs) != 2 {
		t.Fatalf("%d NodePools, want 2", len(specs))
	}
	for name, spec := range specs {
		if diff := cmp.Diff(want, corev1.ResourceList(spec.Limits)); diff != "" {
			t.Errorf("limits of NodePool %s: %s", name, diff)
		}
	}

	pool := w.pool(t)
	pool.Spec.Limits = nil
	if err := w.client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	for name, spec := range w.specs(t) {
		if len(spec.Limits) != 0 {
			t.Errorf("limits of NodePool %s are %v after the pool's were lifted", name, spec.Limits)
		}
	}
}

// One machine of 8 GPUs and 55.04 dollars stays, one leaves: 8 of 16, and 16 outstanding of 16 + 8 with the surge.
func TestReconcile_ShowsWhatIsUsedOfEachLimit(t *testing.T) {
	w := newWorld(t, limitedPool(16, 3, "120"))
	w.reconcile(t)
	w.counted(t)
	w.reconcile(t)
	want := []v1alpha1.LimitStatus{
		{Name: "GPUs", Limit: "16", WithSurge: "24", Used: "8", Outstanding: "16", Headroom: "8"},
		{Name: "Nodes", Limit: "3", WithSurge: "4", Used: "1", Outstanding: "2", Headroom: "2"},
		{Name: "HourlyCost", Limit: "$120.00/h", WithSurge: "$175.04/h", Used: "$55.04/h", Outstanding: "$110.08/h", Headroom: "$64.96/h"},
	}
	if diff := cmp.Diff(want, w.pool(t).Status.Limits); diff != "" {
		t.Error(diff)
	}
}

// Nothing could ever be launched within 7 GPUs of machines with 8: said in the plan's words, and what was accepted before
// is held to it.
func TestReconcile_RefusesALimitThatNoMachineFits(t *testing.T) {
	w := newWorld(t, limitedPool(16, 3, "120"))
	w.reconcile(t)
	w.counted(t)
	pool := w.pool(t)
	pool.Spec.Limits.GPUs = new(int64(7))
	if err := w.client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	w.wantCondition(t, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidPool, "GPUNodePool inference: spec.limits.gpus: 7 is less than any machine of the pool has: "+
		"the smallest, p5.48xlarge, has 8 GPUs, so that nothing could ever be launched. Set 8 or more, name smaller machines, or set 0 to launch nothing")
	usage := w.Controller.ledger.Usage(poolName)
	if usage.Limits.GPUs == nil || *usage.Limits.GPUs != 7 {
		t.Errorf("the ledger's limits are %+v", usage.Limits)
	}
}

// A limit of 0 is how a pool is closed: it stands, and the condition says what it does.
func TestReconcile_AcceptsALimitOfZeroAndSaysWhatItDoes(t *testing.T) {
	w := newWorld(t, limitedPool(0, 3, "120"))
	w.reconcile(t)
	w.wantCondition(t, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid,
		"p5.48xlarge offers nvidia.com/mig-1g.10gb: 56; spec.limits.gpus: 0 launches nothing: nodes that run stay until they go, and none takes their place")
}

// A controller that just started has not counted: that nothing is used would be a lie.
func TestReconcile_SaysOfLimitsWhatItSaidUntilTheLedgerIsCounted(t *testing.T) {
	w := newWorld(t, limitedPool(16, 3, "120"))
	said := []v1alpha1.LimitStatus{{Name: "GPUs", Limit: "16", WithSurge: "24", Used: "16", Outstanding: "16", Headroom: "0"}}
	pool := w.pool(t)
	pool.Status.Limits = said
	if err := w.client.Status().Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	result, err := w.Reconcile(t.Context(), w.pool(t))
	if err != nil || result.RequeueAfter != countedAgain {
		t.Errorf("result %+v, error %v: want a look after %s", result, err, countedAgain)
	}
	if diff := cmp.Diff(said, w.pool(t).Status.Limits); diff != "" {
		t.Error(diff)
	}
	w.counted(t)
	result, err = w.Reconcile(t.Context(), w.pool(t))
	if err != nil || result.RequeueAfter != limitsAgain {
		t.Errorf("result %+v, error %v: want a look after %s, since the ledger changes without a word", result, err, limitsAgain)
	}
	if got := w.pool(t).Status.Limits; len(got) != 3 || got[0].Used != "8" {
		t.Errorf("limits %+v", got)
	}
}

// What is held back is written by another reconciler, into the same status.
func TestReconcile_LooksAgainSoonAfterAConflictOverTheStatus(t *testing.T) {
	w := newWorld(t)
	w.fail = func(verb string, o client.Object) error {
		if _, ok := o.(*v1alpha1.GPUNodePool); ok && verb == "patch status" {
			return apierrors.NewConflict(schema.GroupResource{Group: "gpufleet.dev", Resource: "gpunodepools"}, o.GetName(), nil)
		}
		return nil
	}
	result, err := w.Reconcile(t.Context(), w.pool(t))
	if err != nil || result.RequeueAfter != conflictAgain {
		t.Errorf("result %+v, error %v: want a look after %s", result, err, conflictAgain)
	}
}

// A machine that the pool no longer launches may be larger than all that it does: the surge has room for what takes its place.
func TestReconcile_CountsTheSurgeByTheMachinesThatThereAre(t *testing.T) {
	w := newWorld(t, limitedPool(8, 8, ""), func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines("p5.4xlarge")
	})
	surge := func() int64 {
		t.Helper()
		w.reconcile(t)
		return w.Controller.ledger.Usage(poolName).Limits.Surge.GPUs
	}
	if got := surge(); got != 1 {
		t.Errorf("a surge of %d GPUs, want the 1 of a p5.4xlarge", got)
	}
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.Labels = "old", map[string]string{v1alpha1.LabelPool: poolName, corev1.LabelInstanceTypeStable: "p5.48xlarge"}
	if err := w.client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if got := surge(); got != 8 {
		t.Errorf("a surge of %d GPUs, want the 8 of the p5.48xlarge that is there", got)
	}
}
