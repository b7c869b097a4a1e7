package blueprint

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// taints are the node's: that of every GPU node, that of the workload class, and the pool's own.
func taints(pool *v1alpha1.GPUNodePool) []corev1.Taint {
	out := []corev1.Taint{
		{Key: v1alpha1.TaintGPU, Value: v1alpha1.TaintGPUValue, Effect: corev1.TaintEffectNoSchedule},
		{Key: v1alpha1.TaintWorkload, Value: string(pool.Spec.Workload), Effect: corev1.TaintEffectNoSchedule},
	}
	for _, t := range pool.Spec.Taints {
		out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
}

// Tolerations are what a pod of the pool carries: one for each taint of its nodes, and none for the startup taint.
func Tolerations(pool *v1alpha1.GPUNodePool) []corev1.Toleration {
	nodeTaints := taints(pool)
	out := make([]corev1.Toleration, len(nodeTaints))
	for i, t := range nodeTaints {
		out[i] = corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect}
	}
	return out
}

// NodeSelector is what a pod of the pool carries, so that it lands on this pool and no other.
func NodeSelector(pool *v1alpha1.GPUNodePool) map[string]string {
	return map[string]string{v1alpha1.LabelPool: pool.Name}
}

// PriorityClass is the name of the priority class of a workload class, e.g. gpufleet-inference.
func PriorityClass(w v1alpha1.Workload) string { return "gpufleet-" + strings.ToLower(string(w)) }

// Defaults are the pool's settings, those that it leaves out filled in by its workload class.
func Defaults(pool *v1alpha1.GPUNodePool) v1alpha1.EffectiveSettings {
	out := workloadDefaults(pool.Spec.Workload)
	if len(pool.Spec.CapacityTypes) > 0 {
		out.CapacityTypes = append([]v1alpha1.CapacityType(nil), pool.Spec.CapacityTypes...)
	}
	if d := pool.Spec.Disruption; d != nil && d.ConsolidateAfter != nil {
		out.ConsolidateAfter = *d.ConsolidateAfter
	}
	return out
}

// workloadDefaults: inference must not vanish under its users, so it buys on-demand and keeps idle nodes longest; batch
// work restarts cheaply; research sits between them.
func workloadDefaults(w v1alpha1.Workload) v1alpha1.EffectiveSettings {
	spotFirst := []v1alpha1.CapacityType{v1alpha1.CapacityTypeSpot, v1alpha1.CapacityTypeOnDemand}
	out := v1alpha1.EffectiveSettings{PriorityClass: PriorityClass(w)}
	switch w {
	case v1alpha1.WorkloadBatch:
		out.CapacityTypes, out.ConsolidateAfter = spotFirst, minutes(2)
	case v1alpha1.WorkloadResearch:
		out.CapacityTypes, out.ConsolidateAfter = spotFirst, minutes(5)
	default: // Inference; the CRD allows no fourth
		out.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeOnDemand}
		out.ConsolidateAfter = minutes(30)
	}
	return out
}

func minutes(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Minute} }
