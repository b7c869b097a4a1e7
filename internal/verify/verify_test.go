package verify

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

const slices1g = "nvidia.com/mig-1g.10gb"

// cutBlueprint is eight H100s, each cut into seven 1g.10gb; wholeBlueprint the same machine uncut.
func cutBlueprint() v1alpha1.Blueprint {
	bp := wholeBlueprint()
	bp.Sharing = v1alpha1.SharingMIG
	bp.Layout = &v1alpha1.LayoutBlueprint{
		Name:    "h100-7x1g10gb",
		Devices: []v1alpha1.DeviceLayout{{GPUs: []int32{0, 1, 2, 3, 4, 5, 6, 7}, Instances: sevenSlices("1g.10gb")}},
	}
	bp.Resources = amounts(map[string]int64{slices1g: 56})
	return bp
}

func wholeBlueprint() v1alpha1.Blueprint {
	return v1alpha1.Blueprint{
		InstanceType: "p5.48xlarge", Hash: "abc",
		GPU: v1alpha1.GPUBlueprint{
			Model: "H100-80GB-SXM", ProductNames: []string{"NVIDIA H100 80GB HBM3"}, Count: 8, MemoryMiB: 81152,
		},
		Sharing: v1alpha1.SharingExclusive, DriverMinVersion: "550.90",
		Resources: amounts(map[string]int64{"nvidia.com/gpu": 8}),
	}
}

func sevenSlices(profile string) []v1alpha1.MIGInstance {
	var out []v1alpha1.MIGInstance
	for start := range int32(7) {
		out = append(out, v1alpha1.MIGInstance{Profile: profile, ComputeSlices: 1, Start: start, Size: 1})
	}
	return out
}

func amounts(counts map[string]int64) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, n := range counts {
		out[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return out
}

// inventory is what the agent reports of a machine that matches the Blueprint.
func inventory(bp v1alpha1.Blueprint) *v1alpha1.Inventory {
	inv := &v1alpha1.Inventory{BlueprintHash: bp.Hash, DriverVersion: "570.86.15"}
	for i := range bp.GPU.Count {
		mig := &v1alpha1.MIGInventory{Instances: slices.Clone(instancesOf(bp, i))}
		mig.Enabled = len(mig.Instances) > 0
		mig.PendingEnabled = mig.Enabled
		inv.GPUs = append(inv.GPUs, v1alpha1.GPUInventory{
			Index: i, UUID: fmt.Sprintf("GPU-%d", i), ProductName: bp.GPU.ProductNames[0], MemoryMiB: bp.GPU.MemoryMiB, MIG: mig,
		})
	}
	return inv
}

func finding(reason string, gpu int32, expected, found, message string) v1alpha1.Finding {
	f := v1alpha1.Finding{Reason: reason, Expected: expected, Found: found, Message: message}
	if gpu >= 0 {
		f.GPU = &gpu
	}
	return f
}

func TestIdentity_FindsNothingOnTheMachineThatWasOrdered(t *testing.T) {
	for _, bp := range []v1alpha1.Blueprint{cutBlueprint(), wholeBlueprint(), singleBlueprint(), sharedBlueprint(false), sharedBlueprint(true)} {
		if got := Node(bp, inventory(bp), bp.Resources); len(got) != 0 {
			t.Errorf("%s: %+v", bp.Sharing, got)
		}
	}
}

func TestIdentity_Finds(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bp     v1alpha1.Blueprint
		change func(*v1alpha1.Blueprint, *v1alpha1.Inventory)
		want   []v1alpha1.Finding
	}{
		{
			"seven GPUs of eight", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) { inv.GPUs = inv.GPUs[:7] },
			[]v1alpha1.Finding{finding("GPUCountMismatch", -1, "8", "7", "instance type p5.48xlarge has 8 GPUs, NVML sees 7")},
		},
		{
			"one MIG instance of fifty-six gone", cutBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.GPUs[3].MIG.Instances = slices.Delete(inv.GPUs[3].MIG.Instances, 6, 7)
			},
			[]v1alpha1.Finding{finding("PartialLayout", 3, "7 x 1g.10gb", "6 x 1g.10gb", "GPU 3 should have 7 x 1g.10gb, but has 6 x 1g.10gb")},
		},
		{
			"other profiles", cutBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.GPUs[0].MIG.Instances = []v1alpha1.MIGInstance{
					{Profile: "1g.10gb", ComputeSlices: 1, Start: 0, Size: 1},
					{Profile: "3g.40gb", ComputeSlices: 3, Start: 4, Size: 4},
				}
			},
			[]v1alpha1.Finding{finding("LayoutMismatch", 0, "7 x 1g.10gb", "1 x 3g.40gb + 1 x 1g.10gb",
				"GPU 0 should have 7 x 1g.10gb, but has 1 x 3g.40gb + 1 x 1g.10gb")},
		},
		{
			"the right profiles in other places", cutBlueprint(),
			func(bp *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				bp.Layout.Devices[0].Instances = sevenSlices("1g.10gb")[:2]
				for i := range inv.GPUs {
					inv.GPUs[i].MIG.Instances = slices.Clone(bp.Layout.Devices[0].Instances)
				}
				inv.GPUs[7].MIG.Instances = sevenSlices("1g.10gb")[1:3]
			},
			[]v1alpha1.Finding{finding("LayoutMismatch", 7, "1g.10gb at 0, 1g.10gb at 1", "1g.10gb at 1, 1g.10gb at 2",
				"GPU 7 should have 1g.10gb at 0, 1g.10gb at 1, but has 1g.10gb at 1, 1g.10gb at 2")},
		},
		{
			"an instance without its media extensions", cutBlueprint(),
			func(bp *v1alpha1.Blueprint, _ *v1alpha1.Inventory) {
				bp.Layout.Devices[0].Instances[2].Profile = "1g.10gb+me"
			},
			each(8, func(i int32) v1alpha1.Finding {
				return finding("LayoutMismatch", i, "6 x 1g.10gb + 1 x 1g.10gb+me", "7 x 1g.10gb",
					fmt.Sprintf("GPU %d should have 6 x 1g.10gb + 1 x 1g.10gb+me, but has 7 x 1g.10gb", i))
			}),
		},
		{
			"MIG off where it should be cut", cutBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) { inv.GPUs[1].MIG = &v1alpha1.MIGInventory{} },
			[]v1alpha1.Finding{finding("LayoutMismatch", 1, "7 x 1g.10gb", "MIG disabled", "GPU 1 should have 7 x 1g.10gb, but has MIG disabled")},
		},
		{
			"MIG on where it should be whole", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.GPUs[2].MIG = &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true, Instances: sevenSlices("1g.10gb")}
			},
			[]v1alpha1.Finding{finding("LayoutMismatch", 2, "MIG disabled", "7 x 1g.10gb", "GPU 2 should have MIG disabled, but has 7 x 1g.10gb")},
		},
		{
			"an older driver", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) { inv.DriverVersion = "550.54.15" },
			[]v1alpha1.Finding{finding("DriverTooOld", -1, "550.90 or newer", "550.54.15", "the driver is 550.54.15; the class asks for 550.90 or newer")},
		},
		{
			"a driver that says nothing", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) { inv.DriverVersion = "" },
			[]v1alpha1.Finding{finding("DriverTooOld", -1, "550.90 or newer", "unknown", "the driver is unknown; the class asks for 550.90 or newer")},
		},
		{
			"another board", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.GPUs[5].ProductName, inv.GPUs[5].MemoryMiB = "NVIDIA A100-SXM4-80GB", 81920
			},
			[]v1alpha1.Finding{finding("WrongGPU", 5, "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB",
				`GPU 5 is a "NVIDIA A100-SXM4-80GB", not a H100-80GB-SXM (NVIDIA H100 80GB HBM3)`)},
		},
		{
			"less memory than the model has", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) { inv.GPUs[0].MemoryMiB = 40960 },
			[]v1alpha1.Finding{finding("WrongGPU", 0, "81152 MiB", "40960 MiB",
				"GPU 0 has 40960 MiB of memory; a H100-80GB-SXM has 81152 MiB, give or take 2 %")},
		},
		{
			"a library that does not load", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				*inv = v1alpha1.Inventory{Failure: &v1alpha1.AgentFailure{Step: "load-nvml", Message: "libnvidia-ml.so.1: not found"}}
			},
			[]v1alpha1.Finding{finding("NVMLUnavailable", -1, "NVML readable", "failed at load-nvml",
				"the agent could not read the node's GPUs: load-nvml: libnvidia-ml.so.1: not found")},
		},
		{
			"a board that cannot be read", wholeBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.Failure = &v1alpha1.AgentFailure{Step: "read", Message: "GPU 7: GPU is lost"}
				inv.GPUs = inv.GPUs[:7]
			},
			[]v1alpha1.Finding{
				finding("NVMLUnavailable", -1, "NVML readable", "failed at read", "the agent could not read the node's GPUs: read: GPU 7: GPU is lost"),
				finding("GPUCountMismatch", -1, "8", "7", "instance type p5.48xlarge has 8 GPUs, NVML sees 7"),
			},
		},
		{
			"a layout that could not be applied, with what it left", cutBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.Failure = &v1alpha1.AgentFailure{Step: "create", Message: "GPU 4: in use by another client"}
				inv.GPUs[4].MIG.Instances = inv.GPUs[4].MIG.Instances[:3]
			},
			[]v1alpha1.Finding{
				finding("MIGApplyFailed", -1, "layout h100-7x1g10gb", "failed at create",
					"the agent could not apply layout h100-7x1g10gb: create: GPU 4: in use by another client"),
				finding("PartialLayout", 4, "7 x 1g.10gb", "3 x 1g.10gb", "GPU 4 should have 7 x 1g.10gb, but has 3 x 1g.10gb"),
			},
		},
		{
			"several things at once, the gravest first", cutBlueprint(),
			func(_ *v1alpha1.Blueprint, inv *v1alpha1.Inventory) {
				inv.GPUs[6].MIG.Instances = inv.GPUs[6].MIG.Instances[:6]
				inv.GPUs[0].MIG.Instances = inv.GPUs[0].MIG.Instances[:6]
				inv.DriverVersion = "535.1"
				inv.GPUs = inv.GPUs[:7]
			},
			[]v1alpha1.Finding{
				finding("GPUCountMismatch", -1, "8", "7", "instance type p5.48xlarge has 8 GPUs, NVML sees 7"),
				finding("DriverTooOld", -1, "550.90 or newer", "535.1", "the driver is 535.1; the class asks for 550.90 or newer"),
				finding("PartialLayout", 0, "7 x 1g.10gb", "6 x 1g.10gb", "GPU 0 should have 7 x 1g.10gb, but has 6 x 1g.10gb"),
				finding("PartialLayout", 6, "7 x 1g.10gb", "6 x 1g.10gb", "GPU 6 should have 7 x 1g.10gb, but has 6 x 1g.10gb"),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bp := tc.bp
			inv := inventory(bp)
			tc.change(&bp, inv)
			if diff := cmp.Diff(tc.want, Identity(bp, inv)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func each(n int32, f func(int32) v1alpha1.Finding) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

// NVIDIA/mig-parted#227: the same slices under another driver's name are the same slices.
func TestC14_IdentityAcceptsAProfileThatTheDriverRenamed(t *testing.T) {
	bp := cutBlueprint()
	inv := inventory(bp)
	for i := range inv.GPUs {
		inv.GPUs[i].MIG.Instances = sevenSlices("1g.11gb")
	}
	if got := Identity(bp, inv); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	// What pods ask for is the name, so the advertised resource has to be the Blueprint's.
	want := []v1alpha1.Finding{finding("AdvertiseMismatch", -1, "nvidia.com/mig-1g.10gb: 56", "nvidia.com/mig-1g.11gb: 56",
		"the node should advertise nvidia.com/mig-1g.10gb: 56, but advertises nvidia.com/mig-1g.11gb: 56")}
	if diff := cmp.Diff(want, Node(bp, inv, amounts(map[string]int64{"nvidia.com/mig-1g.11gb": 56}))); diff != "" {
		t.Error(diff)
	}
}

// NVIDIA/gpu-operator#668: on an A100 in a virtual machine the mode waits for a reboot, and NVML says (0, 1).
func TestC16_AModeThatWaitsForARebootIsSaid(t *testing.T) {
	for _, tc := range []struct {
		name             string
		bp               v1alpha1.Blueprint
		current, pending bool
		want             []v1alpha1.Finding
	}{
		{"to be cut, off until a reboot", cutBlueprint(), false, true, []v1alpha1.Finding{
			finding("RebootRequired", 0, "MIG enabled", "MIG disabled, MIG enabled after a reboot",
				"GPU 0 should have MIG enabled, but has MIG disabled, MIG enabled after a reboot")}},
		{"to be whole, on until a reboot", wholeBlueprint(), true, false, []v1alpha1.Finding{
			finding("RebootRequired", 0, "MIG disabled", "MIG enabled, MIG disabled after a reboot",
				"GPU 0 should have MIG disabled, but has MIG enabled, MIG disabled after a reboot")}},
		{"whole now, and only a reboot would cut it", wholeBlueprint(), false, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inv := inventory(tc.bp)
			inv.GPUs[0].MIG = &v1alpha1.MIGInventory{Enabled: tc.current, PendingEnabled: tc.pending}
			if diff := cmp.Diff(tc.want, Identity(tc.bp, inv)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// nebuly-ai/nos#25: one GPU with MIG on and nothing in it.
func TestC17_AGPUThatIsCutAndEmptyIsNamed(t *testing.T) {
	empty := &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true}
	bp := cutBlueprint()
	inv := inventory(bp)
	inv.GPUs[3].MIG = empty
	want := []v1alpha1.Finding{finding("PartialLayout", 3, "7 x 1g.10gb", "MIG enabled and no instances",
		"GPU 3 should have 7 x 1g.10gb, but has MIG enabled and no instances")}
	if diff := cmp.Diff(want, Identity(bp, inv)); diff != "" {
		t.Error(diff)
	}
	bp = wholeBlueprint()
	inv = inventory(bp)
	inv.GPUs[3].MIG = empty
	want = []v1alpha1.Finding{finding("LayoutMismatch", 3, "MIG disabled", "MIG enabled and no instances",
		"GPU 3 should have MIG disabled, but has MIG enabled and no instances")}
	if diff := cmp.Diff(want, Identity(bp, inv)); diff != "" {
		t.Error(diff)
	}
}

func TestIdentity_ToleratesWhatDriversReserveOfTheMemory(t *testing.T) {
	bp := wholeBlueprint()
	for memory, accepted := range map[int64]bool{81152: true, 81559: true, 79529: true, 79528: false, 82775: true, 82776: false} {
		inv := inventory(bp)
		inv.GPUs[0].MemoryMiB = memory
		if got := Identity(bp, inv); (len(got) == 0) != accepted {
			t.Errorf("%d MiB for %d: %+v, want accepted %v", memory, bp.GPU.MemoryMiB, got, accepted)
		}
	}
	bp.GPU.MemoryMiB = 0 // nobody published it
	inv := inventory(bp)
	inv.GPUs[0].MemoryMiB = 1
	if got := Identity(bp, inv); len(got) != 0 {
		t.Errorf("memory that is not known was compared: %+v", got)
	}
}

func TestIdentity_ReadsABoardWithoutMIGAsUncut(t *testing.T) {
	bp := wholeBlueprint()
	inv := inventory(bp)
	for i := range inv.GPUs {
		inv.GPUs[i].MIG = nil
	}
	if got := Identity(bp, inv); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := Identity(cutBlueprint(), inv); len(got) != 8 || got[0].Reason != "LayoutMismatch" {
		t.Errorf("%+v, want eight times LayoutMismatch", got)
	}
}

func TestAtLeast_ComparesNumbersAndNotText(t *testing.T) {
	for _, tc := range []struct {
		version, floor string
		want           bool
	}{
		{"550.90.07", "550.90.07", true},
		{"550.90.07", "550.9", true},
		{"550.54.15", "550.90", false},
		{"1000.1", "550", true},
		{"550", "550.0.0", true},
		{"550", "550.0.1", false},
		{"570.86", "550.90.07", true},
		{"", "550", false},
		{"550.beta", "550.1", false},
	} {
		if got := atLeast(tc.version, tc.floor); got != tc.want {
			t.Errorf("atLeast(%q, %q) = %v", tc.version, tc.floor, got)
		}
	}
}

func TestNode_ComparesTheAdvertisedResourcesExactly(t *testing.T) {
	for _, tc := range []struct {
		name            string
		bp              v1alpha1.Blueprint
		allocatable     map[string]int64
		expected, found string // both empty: no finding
	}{
		{"what was ordered", cutBlueprint(), map[string]int64{slices1g: 56, "cpu": 192}, "", ""},
		{"a name that is gone, at 0", cutBlueprint(), map[string]int64{slices1g: 56, "nvidia.com/gpu": 0}, "", ""},
		{"55 of 56", cutBlueprint(), map[string]int64{slices1g: 55}, "nvidia.com/mig-1g.10gb: 56", "nvidia.com/mig-1g.10gb: 55"},
		{"57 of 56", cutBlueprint(), map[string]int64{slices1g: 57}, "nvidia.com/mig-1g.10gb: 56", "nvidia.com/mig-1g.10gb: 57"},
		{"another name", cutBlueprint(), map[string]int64{"nvidia.com/mig-1g.10gb.shared": 56},
			"nvidia.com/mig-1g.10gb: 56", "nvidia.com/mig-1g.10gb.shared: 56"},
		{"whole GPUs beside the slices", cutBlueprint(), map[string]int64{slices1g: 56, "nvidia.com/gpu": 8}, "nvidia.com/gpu: 0", "nvidia.com/gpu: 8"},
		{"some under each name", cutBlueprint(), map[string]int64{slices1g: 49, "nvidia.com/gpu": 1},
			"nvidia.com/mig-1g.10gb: 56", "nvidia.com/mig-1g.10gb: 49, nvidia.com/gpu: 1"},
		{"nothing yet", wholeBlueprint(), nil, "nvidia.com/gpu: 8", "nvidia.com/gpu: 0"},
		{"55 of 56 under one name", singleBlueprint(), map[string]int64{"nvidia.com/gpu": 55}, "nvidia.com/gpu: 56", "nvidia.com/gpu: 55"},
		{"boards under the name of instances", singleBlueprint(), map[string]int64{"nvidia.com/gpu": 8}, "nvidia.com/gpu: 56", "nvidia.com/gpu: 8"},
		{"profiles where one name was ordered", singleBlueprint(), map[string]int64{slices1g: 56}, "nvidia.com/gpu: 56", "nvidia.com/mig-1g.10gb: 56"},
		{"one name where profiles were ordered", cutBlueprint(), map[string]int64{"nvidia.com/gpu": 56}, "nvidia.com/mig-1g.10gb: 56", "nvidia.com/gpu: 56"},
		{"GPUs that are not shared", sharedBlueprint(false), map[string]int64{"nvidia.com/gpu": 4}, "nvidia.com/gpu: 16", "nvidia.com/gpu: 4"},
		{"one replica too few on one GPU", sharedBlueprint(false), map[string]int64{"nvidia.com/gpu": 15}, "nvidia.com/gpu: 16", "nvidia.com/gpu: 15"},
		{"7 of 8", wholeBlueprint(), map[string]int64{"nvidia.com/gpu": 7}, "nvidia.com/gpu: 8", "nvidia.com/gpu: 7"},
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

func TestReported_WaitsForAnInventoryOfThisBlueprint(t *testing.T) {
	bp := wholeBlueprint()
	for _, tc := range []struct {
		name string
		inv  *v1alpha1.Inventory
		want bool
	}{
		{"none yet", nil, false},
		{"of another Blueprint", &v1alpha1.Inventory{BlueprintHash: "old"}, false},
		{"of none", &v1alpha1.Inventory{}, false},
		{"of this one", &v1alpha1.Inventory{BlueprintHash: bp.Hash}, true},
		{"a failure, whatever the Blueprint", &v1alpha1.Inventory{Failure: &v1alpha1.AgentFailure{Step: "load-nvml"}}, true},
	} {
		if got := Reported(bp, tc.inv); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := Identity(bp, nil); got != nil {
		t.Errorf("findings without an inventory: %+v", got)
	}
}

// Whatever instances are lost, added or moved, only the machine that was ordered passes, and findings come in order.
func TestIdentity_AcceptsOnlyTheOrderedInstances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bp := cutBlueprint()
		inv := inventory(bp)
		changed := false
		for i := range inv.GPUs {
			kept := rapid.SliceOfNDistinct(rapid.Int32Range(0, 6), 0, 7, rapid.ID[int32]).Draw(t, "kept")
			var instances []v1alpha1.MIGInstance
			for _, start := range kept { // in any order: NVML promises none
				instances = append(instances, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: start, Size: 1})
			}
			inv.GPUs[i].MIG.Instances = instances
			changed = changed || len(kept) < 7
		}
		got := Identity(bp, inv)
		if (len(got) > 0) != changed {
			t.Errorf("changed %v: %+v", changed, got)
		}
		for _, f := range got {
			if f.Reason != "PartialLayout" || f.GPU == nil {
				t.Errorf("%+v, want PartialLayout of a GPU", f)
			}
		}
		if !slices.IsSortedFunc(got, func(a, b v1alpha1.Finding) int { return int(*a.GPU - *b.GPU) }) {
			t.Errorf("not in order: %+v", got)
		}
	})
}
