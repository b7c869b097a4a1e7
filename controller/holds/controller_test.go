package holds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// full is C01's pool with one GPU, which is in use, and a second pod that waits.
func full(t *testing.T, more ...client.Object) *world {
	t.Helper()
	claim := newClaim("node-1", "inf", "g6.xlarge", list(gpu, 1))
	w := newWorld(t, append([]client.Object{
		newPool("inf", "whole", "g6.xlarge"), whole(), claim, newNode(claim, list(gpu, 1)),
		newPod("first", "inf", list(gpu, 1), on("node-1")), newPod("second", "inf", list(gpu, 1)),
	}, more...)...)
	w.count(t, "inf", gpus(1), boards(1))
	return w
}

func TestC01_AFullPoolSaysItInAllPlacesWithinOneReconcile(t *testing.T) {
	w := full(t)
	w.clock.Step(3 * time.Second)
	if again := w.reconcile(t, "inf"); again != 5*time.Second {
		t.Errorf("looks again after %s, want 5s while a pod waits", again)
	}
	w.wantHeld(t, "inf", "GPUs", 1)
	const words = "limit gpus 1 is reached: 1 in use, 1 asked"
	pool := w.pool(t, "inf")
	if got := meta.FindStatusCondition(pool.Status.Conditions, "LimitReached").Message; got != words+" for 1 waiting pod" {
		t.Errorf("condition says %q", got)
	}
	hold := pool.Status.Holds[0]
	if hold.GPUs != 1 || !hold.Since.Time.Equal(began) || hold.Message != words+" for 1 waiting pod" {
		t.Errorf("hold is %+v; want 1 GPU since %s", hold, began)
	}
	wantLines(t, w.said.take(),
		"GPUNodePool inf Warning LimitReached "+words+" for 1 waiting pod",
		"Pod second Warning LimitReached pool inf: "+words)
	wantSeries(t, "inf", map[string]float64{
		"gpufleet_pool_limit_reached{limit=GPUs}":                1,
		"gpufleet_pool_held_pods{reason=LimitReached}":           1,
		"gpufleet_pool_held_gpus":                                1,
		"gpufleet_pool_held_oldest_seconds{reason=LimitReached}": 3,
		"gpufleet_pool_limit{limit=GPUs}":                        1,
		"gpufleet_pool_used{limit=GPUs}":                         1,
		"gpufleet_pool_headroom{limit=GPUs}":                     0,
		"gpufleet_pool_used{limit=Nodes}":                        1,
		"gpufleet_pool_hourly_cost_dollars":                      1,
	})
}

func TestC01_RaisingTheLimitClearsItWithinOneReconcile(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.said.take()
	before := meta.FindStatusCondition(w.pool(t, "inf").Status.Conditions, "LimitReached").LastTransitionTime
	w.clock.Step(time.Minute)
	w.ledger.SetLimits("inf", gpus(2))
	pool := w.pool(t, "inf")
	pool.Generation++
	if err := w.client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "", 0)
	if after := meta.FindStatusCondition(w.pool(t, "inf").Status.Conditions, "LimitReached").LastTransitionTime; !after.Time.Equal(before.Add(time.Minute)) {
		t.Errorf("the condition changed at %s, want a minute after %s", after, before)
	}
	wantLines(t, w.said.take(),
		"GPUNodePool inf Normal WithinLimits no limit of the pool holds a waiting pod back any more: 1 of 2 GPUs in use")
	wantSeries(t, "inf", map[string]float64{
		"gpufleet_pool_limit_reached{limit=GPUs}":                0,
		"gpufleet_pool_held_pods{reason=LimitReached}":           0,
		"gpufleet_pool_held_gpus":                                0,
		"gpufleet_pool_held_oldest_seconds{reason=LimitReached}": 0,
		"gpufleet_pool_headroom{limit=GPUs}":                     1,
	})
}

func TestDemo_SixtyMorePodsOnAFullMIGPoolNeedNineGPUs(t *testing.T) {
	class, layout := mig()
	claim := newClaim("node-1", "inference", "p5.48xlarge", list(slice, 56))
	w := newWorld(t, append(append([]client.Object{
		newPool("inference", "mig", "p5.48xlarge"), class, layout, claim, newNode(claim, list(slice, 56)),
	}, pods(56, "running", "inference", list(slice, 1), on("node-1"))...), pods(60, "more", "inference", list(slice, 1))...)...)
	w.count(t, "inference", gpus(8), boards(8))
	w.reconcile(t, "inference")
	w.wantHeld(t, "inference", "GPUs", 60)
	hold := w.pool(t, "inference").Status.Holds[0]
	if hold.GPUs != 9 || hold.Message != "limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods" {
		t.Errorf("hold is %+v", hold)
	}
	if lines := w.said.take(); len(lines) != 61 {
		t.Errorf("%d events, want one on each of 60 pods and one on the pool", len(lines))
	}
}

func TestC03_PodsThatMustNotShareANodeAreHeldByTheLimitOfNodes(t *testing.T) {
	apart := func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": "web"}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}},
		}}
	}
	objects := append([]client.Object{newPool("inf", "whole", "p5.48xlarge"), whole()}, pods(2, "waiting", "inf", list(gpu, 1), apart)...)
	for i := range 3 {
		claim := newClaim(fmt.Sprintf("node-%d", i), "inf", "p5.48xlarge", list(gpu, 8))
		objects = append(objects, claim, newNode(claim, list(gpu, 8)), newPod(fmt.Sprintf("running-%d", i), "inf", list(gpu, 1), apart, on(claim.Name)))
	}
	w := newWorld(t, objects...)
	w.count(t, "inf", ledger.Limits{Nodes: new(int64(3)), Surge: ledger.Amounts{Nodes: 1}}, boards(8), boards(8), boards(8))
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "Nodes", 2)
	if got := w.pool(t, "inf").Status.Holds[0].Message; got != "limit nodes 3 is reached: 3 in use, 1 asked for 2 waiting pods" {
		t.Errorf("hold says %q", got)
	}
}

func TestReconcile_WritesAndSaysNothingWhenNothingChanged(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.said.take()
	version, writes := w.pool(t, "inf").ResourceVersion, w.writes
	for range 3 {
		w.clock.Step(5 * time.Second)
		w.reconcile(t, "inf")
	}
	if after := w.pool(t, "inf").ResourceVersion; after != version || w.writes != writes {
		t.Errorf("wrote %d times more, version %s, was %s", w.writes-writes, after, version)
	}
	wantLines(t, w.said.take())
	wantSeries(t, "inf", map[string]float64{"gpufleet_pool_held_oldest_seconds{reason=LimitReached}": 15})
}

func TestReconcile_TellsEachPodOnceAndAgainAfterAnHour(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.said.take()
	w.create(t, newPod("third", "inf", list(gpu, 1)))
	w.reconcile(t, "inf")
	wantLines(t, w.said.take(), "Pod third Warning LimitReached pool inf: limit gpus 1 is reached: 1 in use, 1 asked")
	w.clock.Step(59 * time.Minute)
	w.reconcile(t, "inf")
	wantLines(t, w.said.take())
	w.clock.Step(time.Minute)
	w.reconcile(t, "inf")
	if lines := w.said.take(); len(lines) != 2 || !strings.HasPrefix(lines[0], "Pod ") || !strings.HasPrefix(lines[1], "Pod ") {
		t.Errorf("after an hour: %q; want each pod once more, and not the pool", lines)
	}
}

func TestReconcile_SaysAnotherLimit(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.said.take()
	w.ledger.SetLimits("inf", ledger.Limits{Nodes: new(int64(1))})
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "Nodes", 1)
	wantLines(t, w.said.take(),
		"GPUNodePool inf Warning LimitReached limit nodes 1 is reached: 1 in use, 1 asked for 1 waiting pod",
		"Pod second Warning LimitReached pool inf: limit nodes 1 is reached: 1 in use, 1 asked")
	if _, still := series(t, "inf")["gpufleet_pool_limit_reached{limit=GPUs}"]; still {
		t.Error("the series of a limit that was lifted is still there")
	}
}

func TestReconcile_PacesTheEventsOfManyPods(t *testing.T) {
	w := full(t, pods(500, "many", "inf", list(gpu, 1))...)
	if again := w.reconcile(t, "inf"); again != time.Second {
		t.Errorf("looks again after %s, want 1s while pods are not told", again)
	}
	w.wantHeld(t, "inf", "GPUs", 501)
	if lines := w.said.take(); len(lines) != 300+1 {
		t.Errorf("%d events at once, want 300 on pods and one on the pool", len(lines))
	}
	for _, want := range []int{100, 100, 1} {
		w.clock.Step(time.Second)
		w.reconcile(t, "inf")
		if lines := w.said.take(); len(lines) != want {
			t.Errorf("%d events in the next second, want %d", len(lines), want)
		}
	}
}

func TestReconcile_KeepsTheConditionsThatOthersWrite(t *testing.T) {
	w := full(t)
	accept := func() {
		pool := w.pool(t, "inf")
		meta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Valid"})
		pool.Status.Nodes = &v1alpha1.NodeCounts{Total: 1}
		if err := w.client.Status().Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	w.beforeWrite = accept
	if again := w.reconcile(t, "inf"); again != 50*time.Millisecond {
		t.Errorf("looks again after %s, want 50ms: the pool was written meanwhile", again)
	}
	if meta.FindStatusCondition(w.pool(t, "inf").Status.Conditions, "LimitReached") != nil {
		t.Error("a stale copy was written")
	}
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "GPUs", 1)
	pool := w.pool(t, "inf")
	if !meta.IsStatusConditionTrue(pool.Status.Conditions, "Accepted") || pool.Status.Nodes == nil {
		t.Errorf("what another reconciler wrote is gone: %+v", pool.Status)
	}
	if lines := w.said.take(); len(lines) != 2 {
		t.Errorf("events are %q, want one on the pool and one on the pod", lines)
	}
}

func TestReconcile_IgnoresPodsThatDoNotNameThePoolOrDoNotWait(t *testing.T) {
	unnamed := newPod("unnamed", "", list(gpu, 1), func(pod *corev1.Pod) { pod.Spec.NodeSelector = nil })
	w := full(t, newPod("other", "batch", list(gpu, 1)), unnamed, newPod("ending", "inf", list(gpu, 1), terminating(time.Minute)))
	if err := w.client.Delete(t.Context(), newPod("second", "inf", nil)); err != nil {
		t.Fatal(err)
	}
	if again := w.reconcile(t, "inf"); again != 30*time.Second {
		t.Errorf("looks again after %s, want 30s while no pod of it waits", again)
	}
	w.wantHeld(t, "inf", "", 0)
	wantLines(t, w.said.take())
}

// A machine that is being replaced is not used any more, and is paid for until it is gone.
func TestReconcile_MeasuresWhatAMachineOnItsWayOutCosts(t *testing.T) {
	w := full(t)
	w.ledger.SetLeaving("inf", "inf-0", true)
	w.reconcile(t, "inf")
	wantSeries(t, "inf", map[string]float64{
		"gpufleet_pool_used{limit=GPUs}": 0, "gpufleet_pool_hourly_cost_dollars": 1, "gpufleet_pool_limit_reached{limit=GPUs}": 0,
	})
}

func TestReconcile_LeavesWhatWasSaidUntilTheLedgerHasCounted(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.said.take()
	restarted := NewController(w.client, ledger.New(), w.said, w.clock)
	w.Controller = restarted
	if again := w.reconcile(t, "inf"); again != time.Second {
		t.Errorf("looks again after %s, want 1s until the ledger is ready", again)
	}
	w.wantHeld(t, "inf", "GPUs", 1)
	wantLines(t, w.said.take())
}

func TestReconcile_ForgetsAPoolThatIsGone(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	if err := w.client.Delete(t.Context(), w.pool(t, "inf")); err != nil {
		t.Fatal(err)
	}
	if again := w.reconcile(t, "inf"); again != 0 {
		t.Errorf("looks again after %s at a pool that is gone", again)
	}
	if left := series(t, "inf"); len(left) > 0 {
		t.Errorf("series are left: %v", left)
	}
}

func TestReconcile_HoldsNothingForAPoolThatLaunchesNothing(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"it is going": func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Finalizers = []string{v1alpha1.FinalizerPool}
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Delete(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		},
		"its class is gone": func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), whole()); err != nil {
				t.Fatal(err)
			}
		},
		"an instance type is unknown": func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Spec.Machines = append(pool.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: []string{"g9.huge"}})
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		},
		"its class has no zone": func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Spec.Zones = []string{"us-east-1f"}
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t)
			change(t, w)
			w.reconcile(t, "inf")
			w.wantHeld(t, "inf", "", 0)
			wantLines(t, w.said.take())
			wantSeries(t, "inf", map[string]float64{"gpufleet_pool_used{limit=GPUs}": 1, "gpufleet_pool_hourly_cost_dollars": 1})
		})
	}
}

func TestReconcile_APodThatNamesTwoPoolsIsHeldOnlyIfBothHoldIt(t *testing.T) {
	either := func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = nil
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpufleet.dev/pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}},
			}}},
		}}
	}
	w := newWorld(t, newPool("a", "whole", "g6.xlarge"), newPool("b", "whole", "g6.xlarge"), whole(), newPod("either", "", list(gpu, 1), either))
	w.count(t, "a", gpus(1), boards(1))
	w.count(t, "b", gpus(2), boards(1))
	w.reconcile(t, "a")
	w.wantHeld(t, "a", "", 0)
	w.ledger.SetLimits("b", gpus(1))
	w.reconcile(t, "a")
	w.wantHeld(t, "a", "GPUs", 1)
	w.reconcile(t, "b")
	w.wantHeld(t, "b", "GPUs", 1)
	if lines := w.said.take(); len(lines) != 4 {
		t.Errorf("events are %q, want one on each pool and the pod told of each", lines)
	}
}

func TestReconcile_SaysAPriceThatIsNotKnown(t *testing.T) {
	w := full(t)
	cost := 60 * ledger.Dollar
	w.count(t, "inf", ledger.Limits{HourlyCost: &cost}, ledger.Machine{GPUs: 1})
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "HourlyCost", 1)
	message := w.pool(t, "inf").Status.Holds[0].Message
	if !strings.HasPrefix(message, "limit hourlyCost $60.00/h: the price of one node that is not gone is not known") || !strings.HasSuffix(message, " (1 waiting pod)") {
		t.Errorf("hold says %q", message)
	}
	wantSeries(t, "inf", map[string]float64{
		"gpufleet_pool_limit{limit=HourlyCost}": 60, "gpufleet_pool_headroom{limit=HourlyCost}": 0, "gpufleet_pool_limit_reached{limit=HourlyCost}": 1,
	})
}
