package blueprint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

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

// pluginV1 is the schema of NVIDIA/k8s-device-plugin v0.20.0 api/config/v1, as far as a configuration of ours could
// reach. The plugin ignores unknown keys; this does not.
type pluginV1 struct {
	Version string `json:"version"`
	Flags   struct {
		MIGStrategy             *string `json:"migStrategy"`
		FailOnInitError         *bool   `json:"failOnInitError"`
		DeviceDiscoveryStrategy *string `json:"deviceDiscoveryStrategy"`
		Plugin                  *struct {
			PassDeviceSpecs    *bool   `json:"passDeviceSpecs"`
			DeviceListStrategy any     `json:"deviceListStrategy"`
			DeviceIDStrategy   *string `json:"deviceIDStrategy"`
		} `json:"plugin"`
	} `json:"flags"`
	Sharing *struct {
		TimeSlicing any `json:"timeSlicing"`
		MPS         any `json:"mps"`
	} `json:"sharing"`
}

func TestDevicePluginConfig_IsWhatThePluginReads(t *testing.T) {
	mig, err := Compile(testPool("p5.48xlarge"), testClass("h100"), byName(testLayout("h100", "H100-80GB-SXM", seven)), "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Compile(testPool("p5.48xlarge"), testClass(), nil, "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		bp   v1alpha1.Blueprint
		want string
	}{{mig, "mixed"}, {whole, "none"}} {
		data, err := DevicePluginConfig(tc.bp, tc.bp)
		if err != nil {
			t.Fatal(err)
		}
		var got pluginV1
		if err := yaml.UnmarshalStrict(data, &got); err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		if got.Version != "v1" || got.Flags.MIGStrategy == nil || *got.Flags.MIGStrategy != tc.want || got.Sharing != nil {
			t.Errorf("want version v1 and migStrategy %s, got\n%s", tc.want, data)
		}
	}
	if _, err := DevicePluginConfig(mig, whole); err == nil {
		t.Error("one configuration for two sharing strategies")
	}
	if _, err := DevicePluginConfig(); err == nil {
		t.Error("a configuration for no Blueprint")
	}
}
