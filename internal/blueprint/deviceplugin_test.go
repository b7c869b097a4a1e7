package blueprint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

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
		TimeSlicing *pluginV1Replicated `json:"timeSlicing"`
		MPS         *pluginV1Replicated `json:"mps"`
	} `json:"sharing"`
}

type pluginV1Replicated struct {
	RenameByDefault            bool `json:"renameByDefault"`
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne"`
	Resources                  []struct {
		Name     string `json:"name"`
		Rename   string `json:"rename"`
		Devices  any    `json:"devices"`
		Replicas int    `json:"replicas"`
	} `json:"resources"`
}

func TestDevicePluginConfig_IsWhatThePluginReads(t *testing.T) {
	h100 := testLayout("h100", "H100-80GB-SXM", seven)
	renamed := slicedClass(24)
	renamed.Spec.Sharing.RenameByDefault, renamed.Spec.Sharing.FailRequestsGreaterThanOne = true, true
	for _, tc := range []struct {
		name     string
		bp       v1alpha1.Blueprint
		strategy string
		shared   *pluginV1Replicated // without its resources
		replicas int
		text     string // letter by letter: the plugin reads the keys of timeSlicing so
	}{
		{"MIG", compiled(t, testClass("h100"), "p5.48xlarge", h100), "mixed", nil, 0,
			"flags:\n  migStrategy: mixed\nversion: v1\n"},
		{"MIG under one name", compiled(t, singleClass("h100"), "p5.48xlarge", h100), "single", nil, 0,
			"flags:\n  migStrategy: single\nversion: v1\n"},
		{"whole GPUs", compiled(t, testClass(), "p5.48xlarge"), "none", nil, 0,
			"flags:\n  migStrategy: none\nversion: v1\n"},
		{"shared GPUs", compiled(t, slicedClass(4), "g6.12xlarge"), "none", &pluginV1Replicated{}, 4,
			"flags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\nversion: v1\n"},
		{"shared GPUs, renamed, one each", compiled(t, renamed, "g5.xlarge"), "none",
			&pluginV1Replicated{RenameByDefault: true, FailRequestsGreaterThanOne: true}, 24,
			"flags:\n  migStrategy: none\nsharing:\n  timeSlicing:\n    failRequestsGreaterThanOne: true\n    renameByDefault: true\n" +
				"    resources:\n    - name: nvidia.com/gpu\n      replicas: 24\nversion: v1\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := DevicePluginConfig(tc.bp, tc.bp)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.text, string(data)); diff != "" {
				t.Error(diff)
			}
			var got pluginV1
			if err := yaml.UnmarshalStrict(data, &got); err != nil {
				t.Fatalf("%v in\n%s", err, data)
			}
			if got.Version != "v1" || got.Flags.MIGStrategy == nil || *got.Flags.MIGStrategy != tc.strategy {
				t.Errorf("want version v1 and migStrategy %s, got\n%s", tc.strategy, data)
			}
			if tc.shared == nil {
				if got.Sharing != nil {
					t.Errorf("GPUs that nobody shares have a sharing block, which needs 2 replicas:\n%s", data)
				}
				return
			}
			if got.Sharing == nil || got.Sharing.MPS != nil || got.Sharing.TimeSlicing == nil || len(got.Sharing.TimeSlicing.Resources) != 1 {
				t.Fatalf("want one resource in timeSlicing alone, got\n%s", data)
			}
			// The name is that before renaming; rename and devices are ignored by the plugin.
			if r := got.Sharing.TimeSlicing.Resources[0]; r.Name != "nvidia.com/gpu" || r.Replicas != tc.replicas || r.Rename != "" || r.Devices != nil {
				t.Errorf("want nvidia.com/gpu with %d replicas, got\n%s", tc.replicas, data)
			}
			got.Sharing.TimeSlicing.Resources = nil
			if diff := cmp.Diff(tc.shared, got.Sharing.TimeSlicing); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDevicePluginConfig_IsOfOnePool(t *testing.T) {
	h100 := testLayout("h100", "H100-80GB-SXM", seven)
	renamed, oneEach := slicedClass(4), slicedClass(4)
	renamed.Spec.Sharing.RenameByDefault, oneEach.Spec.Sharing.FailRequestsGreaterThanOne = true, true
	whole := compiled(t, testClass(), "p5.48xlarge")
	elsewhere := whole
	elsewhere.Pool = "batch"
	sliced := compiled(t, slicedClass(4), "g6.12xlarge")
	cut := compiled(t, testClass("h100"), "p5.48xlarge", h100)
	for _, tc := range []struct {
		name string
		bps  []v1alpha1.Blueprint
		fine bool
	}{
		{"none", nil, false},
		{"two machines of one class", []v1alpha1.Blueprint{sliced, compiled(t, slicedClass(4), "g5.xlarge")}, true},
		{"two pools", []v1alpha1.Blueprint{whole, elsewhere}, false},
		{"two strategies", []v1alpha1.Blueprint{cut, whole}, false},
		{"whole and shared GPUs", []v1alpha1.Blueprint{whole, sliced}, false},
		{"two numbers of replicas", []v1alpha1.Blueprint{sliced, compiled(t, slicedClass(8), "g6.12xlarge")}, false},
		{"two names", []v1alpha1.Blueprint{sliced, compiled(t, renamed, "g6.12xlarge")}, false},
		{"two rules for requests", []v1alpha1.Blueprint{sliced, compiled(t, oneEach, "g6.12xlarge")}, false},
		{"two MIG strategies", []v1alpha1.Blueprint{cut, compiled(t, singleClass("h100"), "p5.48xlarge", h100)}, false},
	} {
		if data, err := DevicePluginConfig(tc.bps...); (err == nil) != tc.fine {
			t.Errorf("%s: %v\n%s", tc.name, err, data)
		}
	}
}
