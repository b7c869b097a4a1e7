package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// keptFor makes the scheduler keep a node for the pod.
func keptFor(node string) change {
	return ofPod(func(p *corev1.Pod) { p.Status.NominatedNodeName = node })
}

// leaving is a pod that is about to give so much back to the last node: within its grace period.
func leaving(asks string) change {
	return func(s *situation) {
		place := s.pool.Places[len(s.pool.Places)-1]
		place.Leaving = append(place.Leaving, replica("leaving", asks, deleted(noon.Add(2*time.Hour))))
	}
}

// outstaying makes the pods of the last node such as were to be gone a second ago.
func outstaying() change {
	return func(s *situation) {
		for _, pod := range s.pool.Places[len(s.pool.Places)-1].Pods {
			deleted(noon.Add(-time.Second))(pod)
		}
	}
}

func deleted(end time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: end} }
}

func TestDecide_APodThatOthersAreEvictedFor(t *testing.T) {
	const remedy = "look at the finalizers of default/on-n1 and at the kubelet of node n1: what was deleted there is not gone, and until it is the scheduler keeps the node, and no machine is launched"
	full := []change{asking("gpu 8"), fullPool(), keptFor("n1")}
	of := func(more ...change) []change { return append(full[:len(full):len(full)], more...) }
	decideRows(t, []row{
		{name: "they are within their grace period of two hours", changes: of(waitingFor(time.Hour), node("n1", fullNode, "cpu 1", 0), leaving("gpu 8")), want: "expected"},
		{name: "the node has room", changes: of(node("n1", fullNode, "cpu 1", 0)), want: "expected"},
		{name: "the node has room beside those that leave, for an hour", changes: of(asking("gpu 4"), waitingFor(time.Hour), node("n1", fullNode, "gpu 2", 0), leaving("gpu 2")),
			want: "Other", message: "pool inf: node n1 has room for the pod, for longer than 5m0s; the scheduler says: 0/3 nodes are available"},
		{name: "they were not deleted yet, 10 seconds on", changes: of(waitingFor(10*time.Second), node("n1", fullNode, "gpu 8", 0)), want: "expected"},
		{name: "they were not deleted, 11 seconds on", changes: of(waitingFor(11*time.Second), node("n1", fullNode, "gpu 8", 0)),
			want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked",
			remedy: "raise limits.gpus of GPUNodePool inf to 16 or more, or wait until a machine of the pool is gone"},
		{name: "they stay beyond it", changes: of(node("n1", fullNode, "gpu 8", 0), outstaying()),
			want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked", remedy: remedy},
		{name: "they stay, and a machine may be launched", changes: []change{asking("gpu 8"), keptFor("n1"), node("n1", fullNode, "gpu 8", 0), outstaying()},
			want: "Other", message: "pool inf: the scheduler keeps node n1 for the pod, and what it needs there is still held, after their grace period, by default/on-n1; no machine is launched meanwhile", remedy: remedy},
		{name: "one stays, and holds no GPU", changes: []change{asking("gpu 8"), keptFor("n1"), node("n1", fullNode, "cpu 192", 0), outstaying()}, want: "expected"},
		{name: "they stay, and scattered GPUs would do", changes: []change{asking("gpu 4"), used(gpuLimit(24, 8), 3, 8), keptFor("n1"), node("n2", fullNode, "gpu 6", 0), node("n3", fullNode, "gpu 6", 0), node("n1", fullNode, "gpu 8", 0), outstaying()},
			want: "Fragmented", message: "pool inf: the pod needs nvidia.com/gpu: 4 on one node; 4 are free in total, and 2 on the node that has the most", also: "LimitReached"},
		{name: "they stay, and another node has room", changes: []change{asking("gpu 4"), used(gpuLimit(16, 8), 2, 8), keptFor("n1"), node("n1", fullNode, "gpu 8", 0), outstaying(), node("n2", fullNode, "gpu 4", 0)}, want: "expected"},
		{name: "the node is none of the pool's, and the pool is full", changes: of(waitingFor(time.Second)), want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked"},
		{name: "the node is none of the pool's, and a machine may be launched", changes: []change{keptFor("n1")}, want: "expected"},
	})
}

func TestDecide_SaysWhichNodeIsKeptForAPodAndWhoIsStillThere(t *testing.T) {
	v := newSituation(t, asking("gpu 8"), fullPool(), keptFor("n1"), node("n1", fullNode, "gpu 8", 0), outstaying()).verdict(t)
	if got := v.Causes[0].fact("nominatedNode"); got != "n1" {
		t.Errorf("it says that node %q is kept for the pod, want n1", got)
	}
	if got, want := v.Causes[0].fact("stillThere"), "default/on-n1: deleted, and there after their grace period"; got != want {
		t.Errorf("of who is still there it says %q, want %q", got, want)
	}
	v = newSituation(t, asking("gpu 8"), fullPool(), keptFor("n1"), node("n1", fullNode, "gpu 8", 0)).verdict(t)
	if node, still := v.Causes[0].fact("nominatedNode"), v.Causes[0].fact("stillThere"); node != "n1" || still != "" {
		t.Errorf("where nobody was deleted it says %q, %q", node, still)
	}
}

func TestFew_NamesThreeAndCountsTheOthers(t *testing.T) {
	if got := few([]string{"a", "b", "c"}); got != "a, b, c" {
		t.Errorf("of three: %q", got)
	}
	if got := few([]string{"a", "b", "c", "d", "e"}); got != "a, b, c and 2 more" {
		t.Errorf("of five: %q", got)
	}
}

// The scheduler lets no pod of the same priority have what it keeps for another, however much longer that one has waited.
func TestDecide_WhatIsKeptForAPodIsNotAnothersOfThePriority(t *testing.T) {
	older := waiter("a-older", "gpu 8", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) })
	kept := waiter("b-kept", "gpu 8", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n1" })
	urgent := waiter("c-urgent", "gpu 8", func(p *corev1.Pod) { p.Spec.Priority = new(int32(1)) })
	for want, pods := range map[string][]*corev1.Pod{"b-kept": {older, kept}, "c-urgent": {older, kept, urgent}} {
		s := newSituation(t, fullPool(), node("n1", fullNode, "cpu 1", 0))
		var got []string
		for _, v := range Decide(s.cluster, s.pool, pods) {
			if v.Expected {
				got = append(got, v.Pod.Name)
			} else if v.Reason() != v1alpha1.HoldLimitReached {
				t.Errorf("%s is held by %s", v.Pod.Name, v.Reason())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("room for one is %q's, want %s's", got, want)
		}
	}
}
