package blueprint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestLayout_PlacesEachEntryAndCountsWhatItLeaves(t *testing.T) {
	spec := testLayout("", "H100-80GB-SXM",
		onGPUs(cut(v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 2}), 0),
		onGPUs(cut(v1alpha1.MIGSlice{Profile: "1g.10gb+me", Count: 1}, v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 2}), 1),
	).Spec
	got, err := Layout(spec)
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.MIGDevicesStatus{
		{
			Instances: []v1alpha1.MIGInstance{
				{Profile: "3g.40gb", ComputeSlices: 3, Start: 0, Size: 4}, {Profile: "3g.40gb", ComputeSlices: 3, Start: 4, Size: 4},
			},
			Resources:           quantities(map[corev1.ResourceName]int64{"nvidia.com/mig-3g.40gb": 2}),
			UnusedComputeSlices: 1, UnusedMemorySlices: 0,
		},
		{
			Instances: append(small(0, 1), v1alpha1.MIGInstance{Profile: "1g.10gb+me", ComputeSlices: 1, Start: 2, Size: 1}),
			Resources: quantities(map[corev1.ResourceName]int64{
				"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-1g.10gb.me": 1,
			}),
			UnusedComputeSlices: 4, UnusedMemorySlices: 5,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLayout_SaysWhereItIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec v1alpha1.MIGLayoutSpec
		want Error
	}{
		{"an unknown profile", testLayout("", "H100-80GB-SXM", onGPUs(seven, 0),
			onGPUs(cut(v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 1}, v1alpha1.MIGSlice{Profile: "1g.5gb", Count: 1}), 1)).Spec,
			Error{"InvalidLayout", "", "spec.devices[1].slices[1].profile",
				"H100-80GB-SXM has no MIG profile 1g.5gb (the nearest is 1g.10gb); it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"}},
		{"slices that do not fit", testLayout("", "A100-80GB",
			cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 4}, v1alpha1.MIGSlice{Profile: "4g.40gb", Count: 1})).Spec,
			Error{"InvalidLayout", "", "spec.devices[0].slices[0]",
				"A100-80GB cannot be cut into 4 x 1g.10gb + 4g.40gb: 4 x 1g.10gb do not fit beside 4g.40gb: at most 3"}},
		{"slices of which no one is to blame", testLayout("", "A100-80GB",
			cut(v1alpha1.MIGSlice{Profile: "7g.80gb", Count: 1}, v1alpha1.MIGSlice{Profile: "2g.20gb", Count: 3}, v1alpha1.MIGSlice{Profile: "1g.20gb", Count: 4})).Spec,
			Error{"InvalidLayout", "", "spec.devices[0].slices", "A100-80GB cannot be cut into "}},
		{"a model without MIG", testLayout("", "T4-16GB", seven).Spec,
			Error{"InvalidLayout", "", "spec.gpuModel", "T4-16GB cannot be cut into 7 x 1g.10gb: the model has no MIG; layouts can be made for "}},
		{"no devices", testLayout("", "H100-80GB-SXM").Spec,
			Error{"InvalidLayout", "", "spec.devices", "has 0 entries; 1 to 16 are allowed"}},
		{"a GPU in two entries", testLayout("", "H100-80GB-SXM", onGPUs(seven, 0, 1), onGPUs(seven, 1)).Spec,
			Error{"InvalidLayout", "", "spec.devices[1].gpus[0]", v1alpha1.MessageGPUNamedTwice}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Layout(tc.spec)
			checkError(t, err, tc.want)
		})
	}
}

// nebuly-ai/nos#25: a layout cannot leave a GPU with MIG on and nothing in it. GPUs that no entry names stay whole.
func TestC17_NoLayoutLeavesAGPUCutAndEmpty(t *testing.T) {
	_, err := Layout(testLayout("", "A100-80GB", v1alpha1.MIGDevices{}).Spec)
	checkError(t, err, Error{"InvalidLayout", "", "spec.devices[0].slices", "has 0 entries; 1 to 16 are allowed"})

	bp, err := Compile(testPool("p4de.24xlarge"), testClass("seven-gpus"),
		byName(testLayout("seven-gpus", "A100-80GB", onGPUs(seven, 0, 1, 2, 4, 5, 6, 7))), "p4de.24xlarge")
	if err != nil {
		t.Fatal(err)
	}
	want := quantities(map[corev1.ResourceName]int64{"nvidia.com/mig-1g.10gb": 49, "nvidia.com/gpu": 1})
	if diff := cmp.Diff(want, bp.Resources); diff != "" {
		t.Error(diff)
	}
}
