package blueprint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestTolerations_CoverEveryTaintButTheStartupTaint(t *testing.T) {
	want := []corev1.Toleration{
		{Key: "nvidia.com/gpu", Operator: "Equal", Value: "present", Effect: "NoSchedule"},
		{Key: "gpufleet.dev/workload", Operator: "Equal", Value: "Inference", Effect: "NoSchedule"},
		{Key: "search", Operator: "Equal", Value: "only", Effect: "NoExecute"},
	}
	if diff := cmp.Diff(want, Tolerations(testPool())); diff != "" {
		t.Error(diff)
	}
}

func TestNodeSelector_ChoosesThePool(t *testing.T) {
	if diff := cmp.Diff(map[string]string{"gpufleet.dev/pool": "inference"}, NodeSelector(testPool())); diff != "" {
		t.Error(diff)
	}
}

func TestDefaults_FollowTheWorkloadAndYieldToThePool(t *testing.T) {
	onDemand, spotFirst := []v1alpha1.CapacityType{"on-demand"}, []v1alpha1.CapacityType{"spot", "on-demand"}
	for _, tc := range []struct {
		workload v1alpha1.Workload
		want     v1alpha1.EffectiveSettings
	}{
		{"Inference", v1alpha1.EffectiveSettings{CapacityTypes: onDemand, ConsolidateAfter: minutes(30), PriorityClass: "gpufleet-inference"}},
		{"Batch", v1alpha1.EffectiveSettings{CapacityTypes: spotFirst, ConsolidateAfter: minutes(2), PriorityClass: "gpufleet-batch"}},
		{"Research", v1alpha1.EffectiveSettings{CapacityTypes: spotFirst, ConsolidateAfter: minutes(5), PriorityClass: "gpufleet-research"}},
	} {
		pool := testPool()
		pool.Spec.Workload = tc.workload
		if diff := cmp.Diff(tc.want, Defaults(pool)); diff != "" {
			t.Errorf("%s: %s", tc.workload, diff)
		}
	}
	pool := testPool()
	pool.Spec.CapacityTypes = []v1alpha1.CapacityType{"spot"}
	pool.Spec.Disruption = &v1alpha1.DisruptionSpec{ConsolidateAfter: &metav1.Duration{Duration: 0}}
	want := v1alpha1.EffectiveSettings{
		CapacityTypes: []v1alpha1.CapacityType{"spot"}, ConsolidateAfter: metav1.Duration{Duration: 0 * time.Second},
		PriorityClass: "gpufleet-inference",
	}
	if diff := cmp.Diff(want, Defaults(pool)); diff != "" {
		t.Error(diff)
	}
}
