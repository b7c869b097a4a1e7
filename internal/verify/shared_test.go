package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// singleBlueprint is the cut machine, whose instances are all called nvidia.com/gpu.
func singleBlueprint() v1alpha1.Blueprint {
	bp := cutBlueprint()
	bp.MIGStrategy, bp.Resources = v1alpha1.MIGSingle, amounts(map[string]int64{"nvidia.com/gpu": 56})
	return bp
}

// sharedBlueprint is four L4s, each shared by four pods.
func sharedBlueprint(renamed bool) v1alpha1.Blueprint {
	name := "nvidia.com/gpu"
	if renamed {
		name += ".shared"
	}
	return v1alpha1.Blueprint{
		InstanceType: "g6.12xlarge", Hash: "def",
		GPU:     v1alpha1.GPUBlueprint{Model: "L4-24GB", ProductNames: []string{"NVIDIA L4"}, Count: 4, MemoryMiB: 23034},
		Sharing: v1alpha1.SharingTimeSlicing, Replicas: 4, RenameByDefault: renamed,
		Resources: amounts(map[string]int64{name: 16}),
	}
}

// bottlerocket-os/bottlerocket#4250: shares under the other name, whichever was ordered.
func TestC20_ASharedGPUUnderAnotherNameIsNamed(t *testing.T) {
	plain, renamed := map[string]int64{"nvidia.com/gpu": 16}, map[string]int64{"nvidia.com/gpu.shared": 16}
	both := map[string]int64{"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 16}
	for _, tc := range []struct {
		name            string
		bp              v1alpha1.Blueprint
		allocatable     map[string]int64
		expected, found string
	}{
		{"not renamed", sharedBlueprint(true), plain, "nvidia.com/gpu.shared: 16", "nvidia.com/gpu: 16"},
		{"renamed", sharedBlueprint(false), renamed, "nvidia.com/gpu: 16", "nvidia.com/gpu.shared: 16"},
		{"renamed, the old name at 0", sharedBlueprint(false), both, "nvidia.com/gpu: 16", "nvidia.com/gpu.shared: 16"},
		{"renamed as ordered, the old name at 0", sharedBlueprint(true), both, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want []v1alpha1.Finding
			if tc.expected != "" {
				want = []v1alpha1.Finding{finding("AdvertiseMismatch", -1, tc.expected, tc.found,
					"the node should advertise "+tc.expected+", but advertises "+tc.found)}
			}
			if diff := cmp.Diff(want, Node(tc.bp, inventory(tc.bp), amounts(tc.allocatable))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// That all instances have one name says nothing of where they are: the number fits, the places do not.
func TestNode_LooksAtPlacesUnderOneName(t *testing.T) {
	bp := singleBlueprint()
	bp.Layout.Devices[0].Instances = []v1alpha1.MIGInstance{
		{Profile: "1g.10gb", ComputeSlices: 1, Start: 0, Size: 1}, {Profile: "1g.10gb", ComputeSlices: 1, Start: 1, Size: 1},
	}
	bp.Resources = amounts(map[string]int64{"nvidia.com/gpu": 16})
	inv := inventory(bp)
	inv.GPUs[7].MIG.Instances[1].Start = 2
	want := []v1alpha1.Finding{finding("LayoutMismatch", 7, "1g.10gb at 0, 1g.10gb at 1", "1g.10gb at 0, 1g.10gb at 2",
		"GPU 7 should have 1g.10gb at 0, 1g.10gb at 1, but has 1g.10gb at 0, 1g.10gb at 2")}
	if diff := cmp.Diff(want, Node(bp, inv, bp.Resources)); diff != "" {
		t.Error(diff)
	}
}

// Shared GPUs are whole ones: MIG on one of them is another machine than was ordered.
func TestNode_ExpectsSharedGPUsWhole(t *testing.T) {
	bp := sharedBlueprint(true)
	inv := inventory(bp)
	inv.GPUs[1].MIG = &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true, Instances: sevenSlices("1g.10gb")}
	want := []v1alpha1.Finding{finding("LayoutMismatch", 1, "MIG disabled", "7 x 1g.10gb", "GPU 1 should have MIG disabled, but has 7 x 1g.10gb")}
	if diff := cmp.Diff(want, Node(bp, inv, bp.Resources)); diff != "" {
		t.Error(diff)
	}
}
