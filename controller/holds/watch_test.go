package holds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

func TestWaits_IsOfPodsThatTheSchedulerFoundNoNodeFor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"unschedulable":     {func(*corev1.Pod) {}, true},
		"not looked at yet": {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"behind a scheduling gate": {func(p *corev1.Pod) {
			p.Status.Conditions[0].Reason, p.Spec.SchedulingGates = corev1.PodReasonSchedulingGated, []corev1.PodSchedulingGate{{Name: "queue"}}
		}, true},
		"another scheduler has not looked": {func(p *corev1.Pod) { p.Spec.SchedulerName, p.Status.Conditions = "kai-scheduler", nil }, true},
		"scheduled":                        {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }, false},
		"bound":                            {func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }, false},
		"others are evicted for it":        {func(p *corev1.Pod) { p.Status.NominatedNodeName = "node-1" }, true},
		"on its way out":                   {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: began} }, false},
		"failed before it was bound":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"another condition is not it":      {func(p *corev1.Pod) { p.Status.Conditions[0].Type = corev1.PodReady }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := diagnose.Waits(newPod("pod", "inf", nil, tc.change)); got != tc.want {
				t.Errorf("waits: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestNamedPools_AreThoseOfTheSelectorAndOfRequiredAffinity(t *testing.T) {
	affinity := func(operator corev1.NodeSelectorOperator, key string, values ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}},
			}}}
		}
	}
	for name, tc := range map[string]struct {
		selector string
		change   func(*corev1.Pod)
		want     []string
	}{
		"a selector":                 {"inf", func(*corev1.Pod) {}, []string{"inf"}},
		"nothing":                    {"", func(*corev1.Pod) {}, nil},
		"an affinity":                {"", affinity(corev1.NodeSelectorOpIn, "gpufleet.dev/pool", "b", "a"), []string{"a", "b"}},
		"both name the same":         {"a", affinity(corev1.NodeSelectorOpIn, "gpufleet.dev/pool", "a"), []string{"a"}},
		"an affinity that shuns it":  {"", affinity(corev1.NodeSelectorOpNotIn, "gpufleet.dev/pool", "a"), nil},
		"an affinity for other keys": {"", affinity(corev1.NodeSelectorOpIn, "team", "a"), nil},
		"a preference is no demand": {"", func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpufleet.dev/pool", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}},
			}}}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := diagnose.NamedPools(newPod("pod", tc.selector, nil, tc.change)); !slices.Equal(got, tc.want) {
				t.Errorf("names %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPodChanges_AreThoseThatChangeAVerdict(t *testing.T) {
	changes := podChanges()
	waiting := newPod("pod", "inf", nil)
	fresh := newPod("pod", "inf", nil, func(p *corev1.Pod) { p.Status.Conditions = nil })
	running := newPod("pod", "inf", nil, on("node-1"))
	ready := newPod("pod", "inf", nil, on("node-1"), func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" })
	for name, tc := range map[string]struct{ got, want bool }{
		"one that waits is listed":   {changes.Create(event.CreateEvent{Object: waiting}), true},
		"one that runs is listed":    {changes.Create(event.CreateEvent{Object: running}), false},
		"it begins to wait":          {changes.Update(event.UpdateEvent{ObjectOld: fresh, ObjectNew: waiting}), true},
		"it ceases to wait":          {changes.Update(event.UpdateEvent{ObjectOld: waiting, ObjectNew: running}), true},
		"it still waits":             {changes.Update(event.UpdateEvent{ObjectOld: waiting, ObjectNew: waiting}), false},
		"it runs, with an address":   {changes.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: ready}), false},
		"it is asked to end":         {changes.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: newPod("pod", "inf", nil, on("node-1"), terminating(time.Minute))}), true},
		"others are evicted for it":  {changes.Update(event.UpdateEvent{ObjectOld: waiting, ObjectNew: newPod("pod", "inf", nil, nominated("node-1"))}), true},
		"it has finished":            {changes.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: newPod("pod", "inf", nil, on("node-1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}), true},
		"it is gone, and frees GPUs": {changes.Delete(event.DeleteEvent{Object: running}), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: looks %t, want %t", name, tc.got, tc.want)
		}
	}
}

// The queue is the one that controllers have. It holds a pool once, so what 5,000 pods ask for is one look.
func TestGathered_FiveThousandPodsAreOneLook(t *testing.T) {
	queue := priorityqueue.New[reconcile.Request]("holds")
	defer queue.ShutDown()
	handler := gathered(func(o client.Object) []string { return diagnose.NamedPools(o.(*corev1.Pod)) })
	asked := time.Now()
	for i := range 5000 {
		pod := newPod(fmt.Sprint(i), "inf", nil)
		handler.Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}, queue)
	}
	request, _ := queue.Get()
	if waited := time.Since(asked); waited < gather {
		t.Errorf("looks after %s, want %s: what comes meanwhile is gathered", waited, gather)
	}
	if want := (reconcile.Request{NamespacedName: client.ObjectKey{Name: "inf"}}); request != want {
		t.Errorf("looks at %v, want %v", request, want)
	}
	queue.Done(request)
	if left := queue.Len(); left != 0 {
		t.Errorf("%d looks are left, want none", left)
	}
}

func TestGathered_ListedAndDeletedObjectsAskToo(t *testing.T) {
	queue := priorityqueue.New[reconcile.Request]("holds-listed")
	defer queue.ShutDown()
	handler := gathered(func(o client.Object) []string { return []string{o.GetName()} })
	handler.Create(t.Context(), event.CreateEvent{Object: newPod("listed", "", nil)}, queue)
	handler.Delete(t.Context(), event.DeleteEvent{Object: newPod("deleted", "", nil)}, queue)
	first, _ := queue.Get()
	second, _ := queue.Get()
	if names := []string{first.Name, second.Name}; !slices.Contains(names, "listed") || !slices.Contains(names, "deleted") {
		t.Errorf("looks at %v, want both", names)
	}
}

// Pods on CPU nodes never make us look.
func TestPoolsOf_APodThatAsksForNoGPUAndNamesNoPoolIsNobodys(t *testing.T) {
	anywhere := func(p *corev1.Pod) { p.Spec.NodeSelector, p.Spec.Tolerations = nil, nil }
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"it names a pool":            {newPod("pod", "inf", list(gpu, 1)), []string{"inf"}},
		"it names one, for its CPUs": {newPod("pod", "inf", list("cpu", 1)), []string{"inf"}},
		"it names none":              {newPod("pod", "", list(gpu, 1), anywhere), []string{""}},
		"it asks for CPUs":           {newPod("pod", "", list("cpu", 1), anywhere), nil},
	} {
		if got := poolsOf(tc.pod); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := ofOne(""); got != nil {
		t.Errorf("an object of no pool is of %q", got)
	}
}
