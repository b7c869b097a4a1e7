package holds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// nominated makes the scheduler keep a node for a pod.
func nominated(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.NominatedNodeName = node }
}

// wantHolds looks at the pool's holds: "LimitReached 1: the message", or none.
func (w *world) wantHolds(t *testing.T, pool string, want ...string) {
	t.Helper()
	var got []string
	for _, hold := range w.pool(t, pool).Status.Holds {
		got = append(got, fmt.Sprintf("%s %d: %s", hold.Reason, hold.Pods, hold.Message))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("at %s holds are\n%s\nwant\n%s", w.clock.Now().Format(time.TimeOnly), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Others are evicted for a pod, and one of them does not end within its grace period of 10 minutes.
func TestReconcile_APodThatOthersAreEvictedForIsNotSilentForEver(t *testing.T) {
	claim := newClaim("node-1", "inf", "p5.48xlarge", list(gpu, 8))
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), claim, newNode(claim, list(gpu, 8, "pods", 110)),
		newPod("old", "inf", list(gpu, 8), on("node-1"), terminating(10*time.Minute)), newPod("urgent", "inf", list(gpu, 8), nominated("node-1")))
	w.count(t, "inf", gpus(8), boards(8))
	for _, after := range []time.Duration{0, 6 * time.Minute, 4 * time.Minute} {
		w.clock.Step(after)
		w.reconcile(t, "inf")
		w.wantHolds(t, "inf")
	}
	w.clock.Step(time.Second)
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf", "LimitReached 1: limit gpus 8 is reached: 8 in use, 8 asked for 1 waiting pod")
	w.said.take()
	w.ledger.SetLimits("inf", gpus(16))
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf", "Other 1: the scheduler keeps node node-1 for the pod, and what it needs there is still held, after their grace period, by default/old; no machine is launched meanwhile (1 waiting pod)")
}

// A machine never joins. Karpenter gives it up after 15 minutes, and the next one does not join either.
func TestReconcile_MachinesThatNeverJoinDoNotKeepAPodInSilence(t *testing.T) {
	launchedAt := func(name string, at time.Time) *karpv1.NodeClaim {
		claim := newClaim(name, "inf", "p5.48xlarge", list(gpu, 8))
		claim.CreationTimestamp = metav1.NewTime(at)
		return claim
	}
	first := launchedAt("first", began)
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), first, newPod("pod", "inf", list(gpu, 8)))
	w.count(t, "inf", gpus(8))
	look := func(after time.Duration, want ...string) {
		t.Helper()
		w.clock.SetTime(began.Add(after))
		w.reconcile(t, "inf")
		w.wantHolds(t, "inf", want...)
	}
	look(0)
	look(10 * time.Minute)
	look(10*time.Minute+time.Second, "NotVerified 1: NodeClaim first (instance first) has no node since 12:00:00 UTC, when it was asked for (1 waiting pod)")
	wantLines(t, w.said.take(),
		"GPUNodePool inf Warning NotVerified NodeClaim first (instance first) has no node since 12:00:00 UTC, when it was asked for (1 waiting pod)",
		"Pod pod Warning NotVerified pool inf: NodeClaim first (instance first) has no node since 12:00:00 UTC, when it was asked for; look at the console output of instance first and at what its kubelet says as it boots; Karpenter replaces it 15 minutes after its launch")
	look(15*time.Minute, "NotVerified 1: NodeClaim first (instance first) has no node since 12:00:00 UTC, when it was asked for (1 waiting pod)")

	if err := w.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	look(15*time.Minute + 5*time.Second)
	second := launchedAt("second", began.Add(15*time.Minute+8*time.Second))
	w.create(t, second)
	const again = "NotVerified 1: machines have been expected to take the pod for longer than 15m0s, and none has; the last, NodeClaim second (instance second), was asked for at 12:15:08 UTC (1 waiting pod)"
	look(15*time.Minute+10*time.Second, again)
	look(20*time.Minute, again)

	w.create(t, newNode(second, nil, unverified))
	look(21 * time.Minute)
	if err := w.client.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	look(21*time.Minute + 5*time.Second)
	w.ledger.SetLimits("inf", gpus(0))
	look(22*time.Minute, "LimitReached 1: limit gpus 0 is reached: 0 in use, 8 asked for 1 waiting pod")
	w.ledger.SetLimits("inf", gpus(8))
	w.create(t, launchedAt("third", began.Add(22*time.Minute)))
	look(31 * time.Minute)
}

// After a restart nothing is remembered: what waits for long can be expected as from the first look.
func TestStart_APodThatWaitsForLongIsNotOverdueAtOnce(t *testing.T) {
	claim := newClaim("node-1", "inf", "p5.48xlarge", list(gpu, 8))
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), claim, newNode(claim, list(gpu, 8, "pods", 110)), newPod("pod", "inf", list(gpu, 8)))
	w.count(t, "inf", gpus(8), boards(8))
	w.clock.Step(time.Hour)
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf")
	w.clock.Step(5 * time.Minute)
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf")
	w.clock.Step(time.Second)
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf", "Other 1: node node-1 has room for the pod, for longer than 5m0s; the scheduler says nothing (1 waiting pod)")
}

// A pod that names no pool, and that one has room for, is not expected for ever either.
func TestStrays_APodThatAPoolHasRoomForIsHeldInTime(t *testing.T) {
	claim := newClaim("node-1", "inf", "p5.48xlarge", list(gpu, 8))
	unnamed := newPod("pod", "", list(gpu, 8), func(p *corev1.Pod) { p.Spec.NodeSelector = nil })
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), claim, newNode(claim, list(gpu, 8, "pods", 110)), unnamed)
	w.count(t, "inf", gpus(8), boards(8))
	for _, pool := range []string{"inf", ""} {
		w.reconcile(t, pool)
	}
	wantLines(t, w.said.take())
	w.clock.Step(5*time.Minute + time.Second)
	for _, pool := range []string{"inf", ""} {
		w.reconcile(t, pool)
	}
	if lines := w.said.take(); len(lines) != 1 || !strings.HasPrefix(lines[0], "Pod pod Warning Other pool inf: node node-1 has room for the pod, for longer than 5m0s") {
		t.Errorf("events are %q, want one that says Other", lines)
	}
}

// said is an event on pod second of the pool inf, as the API server has it.
func said(name, reason, limit string, ago time.Duration, change ...func(*corev1.Event)) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"gpufleet.dev/pool": "inf", "gpufleet.dev/limit": limit}},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "second", UID: "uid of second"},
		Source:         corev1.EventSource{Component: "gpufleet-controller"}, Reason: reason, LastTimestamp: metav1.NewTime(began.Add(-ago)),
	}
	for _, each := range change {
		each(event)
	}
	return event
}

func TestStart_PodsAreNotToldTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		events []client.Object
		again  bool
	}{
		"nothing was said":       {nil, true},
		"the same was said":      {[]client.Object{said("a", "LimitReached", "GPUs", 59*time.Minute)}, false},
		"it was said long ago":   {[]client.Object{said("a", "LimitReached", "GPUs", time.Hour)}, true},
		"it was said anew since": {[]client.Object{said("b", "LimitReached", "GPUs", time.Hour), said("a", "LimitReached", "GPUs", time.Minute), said("c", "LimitReached", "GPUs", 2*time.Hour)}, false},
		"another limit":          {[]client.Object{said("a", "LimitReached", "Nodes", time.Minute)}, true},
		"another reason":         {[]client.Object{said("a", "NoCapacity", "", time.Minute)}, true},
		"of another pool":        {[]client.Object{said("a", "LimitReached", "GPUs", time.Minute, func(e *corev1.Event) { e.Annotations["gpufleet.dev/pool"] = "other" })}, true},
		"to another pod":         {[]client.Object{said("a", "LimitReached", "GPUs", time.Minute, func(e *corev1.Event) { e.InvolvedObject.UID = "other" })}, true},
		"by somebody else":       {[]client.Object{said("a", "LimitReached", "GPUs", time.Minute, func(e *corev1.Event) { e.Source.Component = "default-scheduler" })}, true},
		"by core":                {[]client.Object{said("a", "LimitReached", "GPUs", time.Minute, func(e *corev1.Event) { e.Annotations = nil })}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t, tc.events...)
			w.reconcile(t, "inf")
			told := false
			for _, line := range w.said.take() {
				told = told || strings.HasPrefix(line, "Pod second Warning LimitReached")
			}
			if told != tc.again {
				t.Errorf("the pod is told: %t, want %t", told, tc.again)
			}
		})
	}
}

// What a start knows an event by stands on the event.
func TestReconcile_WritesPoolAndLimitOnEvents(t *testing.T) {
	w := full(t)
	w.reconcile(t, "inf")
	if got := w.said.annotations; got["gpufleet.dev/pool"] != "inf" || got["gpufleet.dev/limit"] != "GPUs" {
		t.Errorf("annotations of the event are %v", got)
	}
}

// deaf cannot list events.
type deaf struct {
	client.Reader
	asked int
}

func (d *deaf) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if _, events := into.(*corev1.EventList); events {
		d.asked++
		return errors.New("events may not be listed")
	}
	return d.Reader.List(ctx, into, opts...)
}

// paged answers with one event a page.
type paged struct {
	client.Reader
	pages []corev1.Event
}

func (p *paged) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	list, events := into.(*corev1.EventList)
	if !events {
		return p.Reader.List(ctx, into, opts...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	at := len(asked.Continue)
	if list.Items = []corev1.Event{p.pages[at]}; at+1 < len(p.pages) {
		list.Continue = strings.Repeat("x", at+1)
	}
	if asked.Limit != 500 || asked.FieldSelector.String() != "source=gpufleet-controller" {
		return fmt.Errorf("asks for %d events with %s", asked.Limit, asked.FieldSelector)
	}
	return nil
}

func TestStart_ReadsEveryPageOfWhatWasSaid(t *testing.T) {
	w := full(t)
	toOther := func(e *corev1.Event) { e.InvolvedObject.UID = "other" }
	reader := &paged{Reader: w.client, pages: []corev1.Event{
		*said("a", "LimitReached", "GPUs", time.Minute, toOther), *said("b", "LimitReached", "GPUs", time.Minute, toOther), *said("c", "LimitReached", "GPUs", time.Minute),
	}}
	w.Controller = NewController(w.client, reader, w, w.said, w.notices, w.clock)
	w.reconcile(t, "inf")
	wantLines(t, w.said.take(), "GPUNodePool inf Warning LimitReached limit gpus 1 is reached: 1 in use, 1 asked for 1 waiting pod")
}

func TestStart_PodsAreToldWhereItIsNotKnownWhatWasSaid(t *testing.T) {
	w := full(t, said("a", "LimitReached", "GPUs", time.Minute))
	reader := &deaf{Reader: w.client}
	w.Controller = NewController(w.client, reader, w, w.said, w.notices, w.clock)
	for range 3 {
		w.reconcile(t, "inf")
	}
	if lines := w.said.take(); len(lines) != 2 || reader.asked != 1 {
		t.Errorf("events are %q after asking %d times, want one on the pool and one on the pod, asked once", lines, reader.asked)
	}
}

// daemon makes a pod one of a DaemonSet, for a node.
func daemon(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: types.UID("ds"), Controller: new(true)}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
	}
}

func TestReconcile_APodOfADaemonSetIsOfThePoolOfItsNode(t *testing.T) {
	anywhere := func(p *corev1.Pod) {
		p.Spec.NodeSelector, p.Spec.Tolerations = nil, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	const words = "the pod of a DaemonSet needs nvidia.com/gpu: 1 on node node-1, which has 0 of 1 free"
	const event = " Warning Fragmented pool inf: " + words + "; lower what the DaemonSet asks for, or free node node-1: no machine is launched for a pod of a DaemonSet"
	w := full(t, newPod("named", "inf", list(gpu, 1), daemon("node-1")), newPod("unnamed", "", list(gpu, 1), anywhere, daemon("node-1")),
		newPod("named-elsewhere", "inf", list(gpu, 1), daemon("worker-1")), newPod("elsewhere", "", list(gpu, 1), anywhere, daemon("worker-1")))
	if err := w.client.Delete(t.Context(), newPod("second", "inf", nil)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf", "Fragmented 1: "+words+" (1 waiting pod)")
	w.reconcile(t, "")
	wantLines(t, w.said.take(), "GPUNodePool inf Warning Fragmented "+words+" (1 waiting pod)", "Pod named"+event, "Pod unnamed"+event)
}

// counting counts what is listed past the cache.
type counting struct {
	client.Reader
	lists []string
}

func (c *counting) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.lists = append(c.lists, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1."), "List"))
	return c.Reader.List(ctx, into, opts...)
}

// mounts makes a pod need a PersistentVolumeClaim.
func mounts(claim string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func TestReconcile_AVolumeThatIsNotThereHoldsItsPod(t *testing.T) {
	late, atOnce := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	of := func(name, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}
	}
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), of("slow", "at-once"), of("fine", "late"),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, VolumeBindingMode: &late},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "at-once"}, VolumeBindingMode: &atOnce},
		newPod("fine", "inf", list(gpu, 1), mounts("fine")), newPod("missing", "inf", list(gpu, 1), mounts("data")), newPod("slow", "inf", list(gpu, 1), mounts("slow")))
	w.count(t, "inf", ledger.Limits{})
	w.reconcile(t, "inf")
	w.wantHolds(t, "inf", "Gated 2: the pod needs PersistentVolumeClaim default/data, which does not exist; no node is sought until it is bound (the first of 2 waiting pods; each has its own words)")
	for _, line := range w.said.take() {
		if strings.HasPrefix(line, "Pod fine") {
			t.Errorf("a pod whose volume waits for it is told %q", line)
		}
	}
}

func TestReconcile_ReadsVolumesOnlyWhereAPodNeedsThem(t *testing.T) {
	w := full(t)
	reader := &counting{Reader: w.client}
	w.Controller = NewController(w.client, reader, w, w.said, w.notices, w.clock)
	w.reconcile(t, "inf")
	if got := strings.Join(reader.lists, " "); got != "Event" {
		t.Errorf("lists %s past the cache, want the events only", got)
	}
	w.create(t, newPod("third", "inf", list(gpu, 1), mounts("data")))
	reader.lists = nil
	w.reconcile(t, "inf")
	if got := strings.Join(reader.lists, " "); got != "PersistentVolumeClaim StorageClass" {
		t.Errorf("lists %s past the cache, want the volumes", got)
	}
}
