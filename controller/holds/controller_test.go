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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

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
		"Pod second Warning LimitReached pool inf: "+words+"; raise limits.gpus of GPUNodePool inf to 2 or more, or wait until a machine of the pool is gone")
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
	wantLines(t, w.said.take(), "Pod third Warning LimitReached pool inf: limit gpus 1 is reached: 1 in use, 1 asked; raise limits.gpus of GPUNodePool inf to 2 or more, or wait until a machine of the pool is gone")
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
		"Pod second Warning LimitReached pool inf: limit nodes 1 is reached: 1 in use, 1 asked; raise limits.nodes of GPUNodePool inf to 2 or more, or wait until a machine of the pool is gone")
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
	w.ledger = ledger.New()
	w.restart(w.client)
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
	w.reconcile(t, "inf")
	if left := series(t, "inf"); len(left) > 0 {
		t.Errorf("series are left: %v", left)
	}
	if notice, told := w.notices.last["inf LimitReached"]; !told || notice.Held {
		t.Errorf("whoever was told of the hold is not told of its end: %+v", notice)
	}
}

func TestReconcile_SaysOfAPoolThatLaunchesNothingWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, w *world)
		want   string
	}{
		"it is going": {func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Finalizers = []string{v1alpha1.FinalizerPool}
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if err := w.client.Delete(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}, "it is being deleted"},
		"its class is gone": {func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), whole()); err != nil {
				t.Fatal(err)
			}
		}, `node class "whole" does not exist: declare it, or name one that does`},
		"an instance type is unknown": {func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Spec.Machines = append(pool.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: []string{"g9.huge"}})
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}, "GPUNodePool inf: spec.machines[1].instanceTypes[0]: instance type g9.huge is not a known GPU instance type"},
		"its class has no zone": {func(t *testing.T, w *world) {
			pool := w.pool(t, "inf")
			pool.Spec.Zones = []string{"us-east-1f"}
			if err := w.client.Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}, "no subnet of GPUNodeClass whole is known in the pool's zones"},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t)
			tc.change(t, w)
			w.reconcile(t, "inf")
			holds := w.pool(t, "inf").Status.Holds
			if len(holds) != 1 || holds[0].Reason != v1alpha1.HoldPoolNotReady || holds[0].Pods != 1 || !strings.HasPrefix(holds[0].Message, tc.want) {
				t.Errorf("holds are %+v, want PoolNotReady: %s", holds, tc.want)
			}
			if lines := w.said.take(); len(lines) != 2 {
				t.Errorf("events are %q, want one on the pool and one on the pod", lines)
			}
			wantSeries(t, "inf", map[string]float64{"gpufleet_pool_used{limit=GPUs}": 1, "gpufleet_pool_hourly_cost_dollars": 1})
		})
	}
}

// The ledger is never told of a pool that was not accepted since the controller started.
func TestReconcile_SaysWhyAPoolThatWasNeverAcceptedHoldsItsPods(t *testing.T) {
	lost := newPool("lost", "nowhere", "g6.xlarge")
	lost.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, Reason: "ClassNotFound", ObservedGeneration: 3}}
	w := newWorld(t, lost, newPod("pod", "lost", list(gpu, 1)))
	w.reconcile(t, "lost")
	holds := w.pool(t, "lost").Status.Holds
	if len(holds) != 1 || holds[0].Reason != v1alpha1.HoldPoolNotReady || !strings.HasPrefix(holds[0].Message, `node class "nowhere" does not exist`) {
		t.Errorf("holds are %+v", holds)
	}
	if _, told := series(t, "lost")["gpufleet_pool_used{limit=GPUs}"]; told {
		t.Error("says what is used of a pool that nobody has counted")
	}
}

// After a start nothing is launched before the ledger has counted. Where it cannot, the pods hear of that, and no more of what
// held them before.
func TestReconcile_SaysThatAPoolCannotBeCounted(t *testing.T) {
	w := newWorld(t, newPool("inf", "whole", "g6.xlarge"), newClass("whole", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive}), newPod("pod", "inf", list(gpu, 1)))
	w.reconcile(t, "inf")
	w.clock.Step(countedWithin)
	w.reconcile(t, "inf")
	if holds := w.pool(t, "inf").Status.Holds; len(holds) != 0 {
		t.Fatalf("within a minute holds are %+v", holds)
	}
	w.clock.Step(time.Second)
	w.reconcile(t, "inf")
	holds := w.pool(t, "inf").Status.Holds
	if len(holds) != 1 || holds[0].Reason != v1alpha1.HoldPoolNotReady || !strings.HasPrefix(holds[0].Message, "its machines cannot be counted since the controller started") {
		t.Errorf("after a minute holds are %+v", holds)
	}
	w.count(t, "inf", ledger.Limits{})
	w.reconcile(t, "inf")
	if holds := w.pool(t, "inf").Status.Holds; len(holds) != 0 {
		t.Errorf("when it is counted holds are %+v", holds)
	}
}

func TestReconcile_APodThatNamesTwoPoolsIsHeldOnlyIfBothHoldItAndOneSpeaks(t *testing.T) {
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
	w.wantHeld(t, "b", "", 0)
	if lines := w.said.take(); len(lines) != 2 {
		t.Errorf("events are %q, want one on the pool that speaks and one on the pod", lines)
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

// A pod whose pool is gone still hears why it waits; there is no pool to say it on.
func TestReconcile_TellsThePodsOfAPoolThatIsGone(t *testing.T) {
	w := full(t)
	if err := w.client.Delete(t.Context(), w.pool(t, "inf")); err != nil {
		t.Fatal(err)
	}
	if again := w.reconcile(t, "inf"); again != 5*time.Second {
		t.Errorf("looks again after %s, want 5s while a pod waits", again)
	}
	wantLines(t, w.said.take(), "Pod second Warning SelectorMismatch no pool: the pod selects gpufleet.dev/pool=inf, and there is no such GPUNodePool; there is none at all; "+
		"declare a GPUNodePool, and select it by gpufleet.dev/pool")
	wantSeries(t, "", map[string]float64{"gpufleet_pool_held_pods{reason=SelectorMismatch}": 1})
	w.create(t, newPool("inf", "whole", "g6.xlarge"))
	w.reconcile(t, "")
	wantSeries(t, "", map[string]float64{"gpufleet_pool_held_pods{reason=SelectorMismatch}": 0})
}

// A GPU pod that does not say that it is meant for us is ours to explain only where nobody else could serve it, and after
// others have had their time.
func TestStrays_APodThatNamesNothingOfOurs(t *testing.T) {
	anywhere := func(p *corev1.Pod) { p.Spec.NodeSelector, p.Spec.Tolerations = nil, nil }
	others := newNode(newClaim("other", "", "p5.48xlarge", nil), list(gpu, 8), func(n *corev1.Node) { n.Labels = nil })
	foreign := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	foreign.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "x"}
	for name, tc := range map[string]struct {
		objects []client.Object
		waited  time.Duration
		want    int
	}{
		"for five minutes":                 {nil, 5 * time.Minute, 1},
		"not yet so long":                  {nil, 5*time.Minute - time.Second, 0},
		"where other nodes have GPUs":      {[]client.Object{others}, time.Hour, 0},
		"where another Karpenter may help": {[]client.Object{foreign}, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.objects, newPool("inf", "whole", "g6.xlarge"), newPod("lost", "", list(gpu, 1), anywhere), newPod("cpu", "", list("cpu", 1), anywhere))...)
			w.clock.Step(tc.waited)
			w.reconcile(t, "")
			if lines := w.said.take(); len(lines) != tc.want {
				t.Errorf("events are %q, want %d", lines, tc.want)
			}
		})
	}
}

// What the cloud refuses stands on the pool, for the command line, and in the conditions.
func TestReconcile_SaysWhatTheCloudRefuses(t *testing.T) {
	w := newWorld(t, newPool("inf", "whole", "g6.xlarge"), whole(), newPod("pod", "inf", list(gpu, 1)))
	w.count(t, "inf", ledger.Limits{})
	until := metav1.NewTime(began.Add(3 * time.Minute))
	refused := func(zone, reason, message string) v1alpha1.UnavailableOffering {
		return v1alpha1.UnavailableOffering{InstanceType: "g6.xlarge", Zone: zone, CapacityType: "on-demand", Reason: reason, Message: message, Until: until}
	}
	w.unavailable = []v1alpha1.UnavailableOffering{
		refused("us-east-1a", "QuotaExceeded", "VcpuLimitExceeded: 8 vCPUs"), refused("us-east-1b", "NoCapacity", "InsufficientInstanceCapacity: none"),
		refused("us-east-1c", "NoCapacity", "in a zone that the class does not have"),
		{InstanceType: "p5.48xlarge", Zone: "us-east-1a", CapacityType: "on-demand", Reason: "NoCapacity", Message: "another pool's"},
	}
	w.reconcile(t, "inf")
	pool := w.pool(t, "inf")
	if got := pool.Status.Unavailable; len(got) != 2 || got[0].Zone != "us-east-1a" || got[1].Reason != "NoCapacity" || !got[1].Until.Time.Equal(until.Time) {
		t.Errorf("unavailable are %+v", got)
	}
	for kind, want := range map[string]string{
		"CapacityUnavailable": "True QuotaExceeded", "PodsHeld": "True QuotaExceeded", "LimitReached": "False WithinLimits", "VerifyFailing": "False NothingHeld",
	} {
		condition := meta.FindStatusCondition(pool.Status.Conditions, kind)
		if condition == nil || string(condition.Status)+" "+condition.Reason != want {
			t.Errorf("%s is %+v, want %s", kind, condition, want)
		}
	}
	const words = "the cloud refuses g6.xlarge on-demand in us-east-1a until 12:03:00: VcpuLimitExceeded: 8 vCPUs (no other of the 2 ways to buy it is open)"
	wantLines(t, w.said.take(), "GPUNodePool inf Warning QuotaExceeded "+words+" (1 waiting pod)",
		"Pod pod Warning QuotaExceeded pool inf: "+words+"; raise the quota with the cloud, or let the pool use another purchase option or instance type")
	wantSeries(t, "inf", map[string]float64{"gpufleet_pool_held_pods{reason=QuotaExceeded}": 1, "gpufleet_pool_held_pods{reason=NoCapacity}": 0})
	if notice := w.notices.last["inf QuotaExceeded"]; !notice.Held || notice.Pods != 1 || notice.GPUs != 1 || notice.Command != "kubectl gpufleet explain pool inf" {
		t.Errorf("notice is %+v", notice)
	}
	if notice := w.notices.last["inf NoCapacity"]; notice.Held {
		t.Errorf("notice is %+v, want none held", notice)
	}

	w.unavailable = nil
	w.reconcile(t, "inf")
	wantLines(t, w.said.take(), "GPUNodePool inf Normal NothingHeld QuotaExceeded holds no waiting pod back any more")
	if condition := meta.FindStatusCondition(w.pool(t, "inf").Status.Conditions, "CapacityUnavailable"); condition.Status != metav1.ConditionFalse {
		t.Errorf("CapacityUnavailable is %+v after the end", condition)
	}
}

// A pod that a raised limit frees is given the time of a launch, however long it waited before.
func TestReconcile_APodThatIsExpectedForTooLongIsHeldBySomethingElse(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	w.clock.Step(time.Hour)
	w.ledger.SetLimits("inf", gpus(2))
	w.reconcile(t, "inf")
	if holds := w.pool(t, "inf").Status.Holds; len(holds) > 0 {
		t.Errorf("holds are %+v right after the limit was raised", holds)
	}
	w.clock.Step(5*time.Minute + time.Second)
	w.reconcile(t, "inf")
	holds := w.pool(t, "inf").Status.Holds
	if len(holds) != 1 || holds[0].Reason != v1alpha1.HoldOther || !strings.HasPrefix(holds[0].Message, "a machine may be launched for the pod, and none is, for longer than 5m0s") {
		t.Errorf("holds are %+v, want Other", holds)
	}
	w.clock.Step(time.Minute)
	w.reconcile(t, "inf")
	if holds := w.pool(t, "inf").Status.Holds; len(holds) != 1 || holds[0].Reason != v1alpha1.HoldOther {
		t.Errorf("holds are %+v a minute later, want Other still", holds)
	}
}

// C77: free GPUs that no pod can use are seen as such.
func TestReconcile_MeasuresFragmentation(t *testing.T) {
	objects := []client.Object{newPool("inf", "whole", "p5.48xlarge"), whole(), newPod("large", "inf", list(gpu, 8))}
	var machines []ledger.Machine
	for i := range 4 {
		claim := newClaim(fmt.Sprintf("node-%d", i), "inf", "p5.48xlarge", nil)
		objects = append(objects, claim, newNode(claim, list(gpu, 8, "pods", 110)), newPod(fmt.Sprintf("small-%d", i), "inf", list(gpu, 6), on(claim.Name)))
		machines = append(machines, boards(8))
	}
	w := newWorld(t, objects...)
	w.count(t, "inf", gpus(32), machines...)
	w.reconcile(t, "inf")
	holds := w.pool(t, "inf").Status.Holds
	if len(holds) != 1 || holds[0].Reason != "Fragmented" || holds[0].Message != "the pod needs nvidia.com/gpu: 8 on one node; 8 are free in total, and 2 on the node that has the most (1 waiting pod)" {
		t.Errorf("holds are %+v", holds)
	}
	wantSeries(t, "inf", map[string]float64{
		"gpufleet_pool_free{resource=nvidia.com/gpu}": 8, "gpufleet_pool_largest_free_block{resource=nvidia.com/gpu}": 2,
		"gpufleet_pool_fragmentation_ratio{resource=nvidia.com/gpu}": 0.75,
	})
}
