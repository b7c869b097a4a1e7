package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// recorder says what core says, but for what it says of pods that it finds no machine for: a pod that asks for GPUs has one
// reason, from controller/holds, and core's words beside it name taints of other pools. A pod that is not meant for us
// must not hear of us at all.
type recorder struct{ events.Recorder }

// Publish leaves out what pods need not hear.
func (r recorder) Publish(all ...events.Event) {
	for _, event := range all {
		pod, ofPod := event.InvolvedObject.(*corev1.Pod)
		if ofPod && event.Reason == events.FailedScheduling && (!diagnose.Meant(pod) || diagnose.AsksGPUs(diagnose.Cluster{}, pod)) {
			continue
		}
		r.Recorder.Publish(event)
	}
}
