package karpenter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/karpenter/pkg/events"
)

func TestRecorder_LeavesOutWhatPodsNeedNotHear(t *testing.T) {
	w := newWorld(t, exclusive)
	asking := w.pods(1, "nvidia.com/gpu", 1)[0]
	meant := w.pods(1, "cpu", 1)[0]
	foreign := &corev1.Pod{}
	for name, tc := range map[string]struct {
		event events.Event
		said  int
	}{
		"a GPU pod has a reason of its own": {events.Event{InvolvedObject: asking, Reason: events.FailedScheduling}, 0},
		"a pod that is not meant for us":    {events.Event{InvolvedObject: foreign, Reason: events.FailedScheduling}, 0},
		"a pod of ours without GPUs":        {events.Event{InvolvedObject: meant, Reason: events.FailedScheduling}, 1},
		"another event on a GPU pod":        {events.Event{InvolvedObject: asking, Reason: events.Nominated}, 1},
		"the same reason on something else": {events.Event{InvolvedObject: &corev1.Node{}, Reason: events.FailedScheduling}, 1},
	} {
		said := record.NewFakeRecorder(10)
		recorder{events.NewRecorder(said)}.Publish(tc.event)
		if got := len(said.Events); got != tc.said {
			t.Errorf("%s: %d events, want %d", name, got, tc.said)
		}
	}
}
