package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// said is something that the controller said.
type said struct {
	// From is Event, or Status for status.holds of the pool.
	From   string `json:"from"`
	Reason string `json:"reason,omitempty"`
	// Message is its own.
	Message string       `json:"message"`
	At      *metav1.Time `json:"at,omitempty"`
}

// saidTo is the newest that the controller said of what holds a pod; nil where it said nothing, where the pod has a node,
// and where events may not be read, which is noted.
func (c *cluster) saidTo(ctx context.Context, s *snapshot, timeout time.Duration, pod *corev1.Pod) *corev1.Event {
	if pod.Spec.NodeName != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	events, err := c.core.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String(),
	})
	if err != nil {
		asked := request{verb: "list", resource: corev1.Resource("events"), namespace: pod.Namespace}
		s.notes = append(s.notes, fmt.Sprintf("may not %s: what the controller said to the pod is not known", asked))
		return nil
	}
	var newest *corev1.Event
	for i := range events.Items {
		event := &events.Items[i]
		// Karpenter core speaks by the same name, of other things.
		ours := (event.Source.Component == v1alpha1.ControllerName || event.ReportingController == v1alpha1.ControllerName) && isReason(event.Reason)
		if ours && event.InvolvedObject.UID == pod.UID && (newest == nil || happened(event).After(happened(newest))) {
			newest = event
		}
	}
	return newest
}

func isReason(name string) bool { return v1alpha1.PrecedenceOf(name) < len(v1alpha1.HoldReasons) }

// happened is when an event was last said: recorders fill in one or the other.
func happened(event *corev1.Event) time.Time {
	return latest(latest(event.LastTimestamp.Time, event.EventTime.Time), event.CreationTimestamp.Time)
}

// hear adds what the controller said where that differs from what is found here.
func (r *podReport) hear(f *fleet, event *corev1.Event) {
	reason := ""
	switch {
	case r.State == PodHeld:
		reason = r.Cause.Reason
	case r.State != PodExpected:
		return
	}
	if event != nil && event.Reason != reason {
		at := metav1.NewTime(happened(event))
		r.ControllerSaid = append(r.ControllerSaid, said{From: "Event", Reason: event.Reason, Message: event.Message, At: &at})
	}
	p := f.pool(r.Pool)
	if reason == "" || p == nil {
		return
	}
	var parts []string
	for _, hold := range p.object.Status.Holds {
		if hold.Reason == reason {
			return
		}
		parts = append(parts, fmt.Sprintf("%s for %s", hold.Reason, count(int(hold.Pods), "pod")))
	}
	message := fmt.Sprintf("status.holds of GPUNodePool %s has no %s", r.Pool, reason)
	if len(parts) > 0 {
		message += ", but " + strings.Join(parts, ", ")
	}
	r.ControllerSaid = append(r.ControllerSaid, said{From: "Status", Message: message})
}
