package blueprint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// slicedClass shares every GPU among so many pods.
func slicedClass(replicas int32) *v1alpha1.GPUNodeClass {
	class := testClass()
	class.Spec.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: &replicas}
	return class
}

// singleClass advertises MIG instances as nvidia.com/gpu.
func singleClass(layouts ...string) *v1alpha1.GPUNodeClass {
	class := testClass(layouts...)
	class.Spec.Sharing.MIGStrategy = v1alpha1.MIGSingle
	return class
}

func compiled(t *testing.T, class *v1alpha1.GPUNodeClass, instanceType string, layouts ...*v1alpha1.MIGLayout) v1alpha1.Blueprint {
	t.Helper()
	bp, err := Compile(testPool(instanceType), class, byName(layouts...), instanceType)
	if err != nil {
		t.Fatal(err)
	}
	return bp
}

func offers(t *testing.T, bp v1alpha1.Blueprint, want map[corev1.ResourceName]int64) {
	t.Helper()
	if diff := cmp.Diff(quantities(want), bp.Resources); diff != "" {
		t.Error(diff)
	}
}

// kubernetes-sigs/karpenter#729: what is simulated is physical GPUs x replicas, and what is counted is physical.
func TestC19_CompileOffersAShareForEachReplicaAndCountsPhysicalGPUs(t *testing.T) {
	for _, tc := range []struct {
		instanceType string
		replicas     int32
		shares       int64
		gpus         int32
	}{
		{"g5.xlarge", 24, 24, 1},   // 1 x A10G
		{"g6.12xlarge", 4, 16, 4},  // 4 x L4
		{"p5.48xlarge", 2, 16, 8},  // 8 x H100, which stay whole
		{"g6.xlarge", 128, 128, 1}, // the most
		{"p5.48xlarge", 128, 1024, 8},
	} {
		bp := compiled(t, slicedClass(tc.replicas), tc.instanceType)
		offers(t, bp, map[corev1.ResourceName]int64{"nvidia.com/gpu": tc.shares})
		if bp.GPU.Count != tc.gpus || bp.Replicas != tc.replicas || bp.Layout != nil || bp.MIGStrategy != "" {
			t.Errorf("%s by %d: %d GPUs, %d replicas, layout %v, MIG strategy %q; want %d GPUs",
				tc.instanceType, tc.replicas, bp.GPU.Count, bp.Replicas, bp.Layout, bp.MIGStrategy, tc.gpus)
		}
		if machine := Machine(bp); machine.GPUs != int64(tc.gpus) {
			t.Errorf("%s by %d counts as %d GPUs, want %d", tc.instanceType, tc.replicas, machine.GPUs, tc.gpus)
		}
		if bp.Sharing != "TimeSlicing" || bp.Labels["gpufleet.dev/sharing"] != "TimeSlicing" {
			t.Errorf("sharing %s, labels %v", bp.Sharing, bp.Labels)
		}
	}
}

// bottlerocket-os/bottlerocket#4250: the name of a share is decided once, and the device plugin is configured from it.
func TestC20_CompileOffersRenamedSharesUnderTheirOwnNameOnly(t *testing.T) {
	class := slicedClass(4)
	class.Spec.Sharing.RenameByDefault = true
	bp := compiled(t, class, "g6.12xlarge")
	offers(t, bp, map[corev1.ResourceName]int64{"nvidia.com/gpu.shared": 16})
	if !bp.RenameByDefault || bp.FailRequestsGreaterThanOne {
		t.Errorf("rename %v, one each %v; want the first alone", bp.RenameByDefault, bp.FailRequestsGreaterThanOne)
	}
	class.Spec.Sharing.RenameByDefault, class.Spec.Sharing.FailRequestsGreaterThanOne = false, true
	bp = compiled(t, class, "g6.12xlarge")
	offers(t, bp, map[corev1.ResourceName]int64{"nvidia.com/gpu": 16})
	if bp.RenameByDefault || !bp.FailRequestsGreaterThanOne {
		t.Errorf("rename %v, one each %v; want the second alone", bp.RenameByDefault, bp.FailRequestsGreaterThanOne)
	}
}

// aws/containers-roadmap#2690: on each of eight H100s two 1g.10gb, one 2g.20gb and one 3g.40gb.
func TestC21_CompileOffersEachProfileOfABalancedLayout(t *testing.T) {
	balanced := testLayout("balanced", "H100-80GB-SXM", cut(
		v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 2}, v1alpha1.MIGSlice{Profile: "2g.20gb", Count: 1},
		v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 1}))
	want := map[corev1.ResourceName]int64{"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}
	leftOut := compiled(t, testClass("balanced"), "p5.48xlarge", balanced)
	offers(t, leftOut, want)
	class := testClass("balanced")
	class.Spec.Sharing.MIGStrategy = v1alpha1.MIGMixed
	if diff := cmp.Diff(leftOut, compiled(t, class, "p5.48xlarge", balanced)); diff != "" {
		t.Errorf("Mixed is not the default: %s", diff)
	}
	if leftOut.MIGStrategy != "Mixed" {
		t.Errorf("MIG strategy %q, want Mixed", leftOut.MIGStrategy)
	}
}

func TestCompile_OffersMIGInstancesAsGPUsUnderSingle(t *testing.T) {
	for _, tc := range []struct {
		name, instanceType string
		devices            []v1alpha1.MIGDevices
		want               int64
	}{
		{"seven on each of eight GPUs", "p5.48xlarge", []v1alpha1.MIGDevices{seven}, 56},
		{"seven on one GPU", "p5.4xlarge", []v1alpha1.MIGDevices{seven}, 7},
		{"one GPU named, on a machine of one", "p5.4xlarge", []v1alpha1.MIGDevices{onGPUs(seven, 0)}, 7},
		{"two of three slices", "p5.48xlarge", []v1alpha1.MIGDevices{cut(v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 2})}, 16},
		{"all alike in two entries", "p5.48xlarge", []v1alpha1.MIGDevices{onGPUs(seven, 0, 1, 2), onGPUs(seven, 3, 4, 5, 6, 7)}, 56},
		{"fewer than fit", "p5.48xlarge", []v1alpha1.MIGDevices{cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 3})}, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bp := compiled(t, singleClass("h100"), tc.instanceType, testLayout("h100", "H100-80GB-SXM", tc.devices...))
			offers(t, bp, map[corev1.ResourceName]int64{"nvidia.com/gpu": tc.want})
			if bp.MIGStrategy != "Single" || bp.Sharing != "MIG" || bp.Layout == nil {
				t.Errorf("MIG strategy %q, sharing %s, layout %v", bp.MIGStrategy, bp.Sharing, bp.Layout)
			}
		})
	}
}

func TestCompile_RefusesUnderSingleWhatOneNameCannotSay(t *testing.T) {
	balanced := cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 4}, v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 1})
	for _, tc := range []struct {
		name    string
		devices []v1alpha1.MIGDevices
		found   string
	}{
		{"two profiles on a GPU", []v1alpha1.MIGDevices{balanced}, "GPUs 0 1 2 3 4 5 6 7: 4 x 1g.10gb + 1 x 3g.40gb"},
		{"another profile on one GPU", []v1alpha1.MIGDevices{
			onGPUs(seven, 0, 1, 2, 3, 4, 5, 6), onGPUs(cut(v1alpha1.MIGSlice{Profile: "7g.80gb", Count: 1}), 7),
		}, "GPUs 0 1 2 3 4 5 6: 7 x 1g.10gb, GPU 7: 1 x 7g.80gb"},
		{"fewer instances on one GPU", []v1alpha1.MIGDevices{
			onGPUs(seven, 0, 1, 2, 3, 4, 5, 6), onGPUs(cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 6}), 7),
		}, "GPUs 0 1 2 3 4 5 6: 7 x 1g.10gb, GPU 7: 6 x 1g.10gb"},
		{"GPUs that stay whole", []v1alpha1.MIGDevices{onGPUs(seven, 0, 1)}, "GPUs 0 1: 7 x 1g.10gb, GPUs 2 3 4 5 6 7: whole"},
		{"media engines on one instance", []v1alpha1.MIGDevices{
			cut(v1alpha1.MIGSlice{Profile: "1g.10gb+me", Count: 1}, v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 6}),
		}, "GPUs 0 1 2 3 4 5 6 7: 6 x 1g.10gb + 1 x 1g.10gb+me"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layouts := byName(testLayout("h100", "H100-80GB-SXM", tc.devices...))
			_, err := Compile(testPool("p5.48xlarge"), singleClass("h100"), layouts, "p5.48xlarge")
			checkError(t, err, Error{"InvalidClass", "GPUNodeClass h100-mig", "spec.sharing.migStrategy",
				"Single advertises every MIG instance as nvidia.com/gpu, so every GPU must be cut alike, by one profile; layout h100 on p5.48xlarge is " +
					tc.found + ": cut every GPU by one profile, or use Mixed"})
			if _, err := Compile(testPool("p5.48xlarge"), testClass("h100"), layouts, "p5.48xlarge"); err != nil {
				t.Errorf("Mixed, which was proposed, does not do: %v", err)
			}
		})
	}
}

func TestCompile_RefusesSettingsOfAnotherStrategy(t *testing.T) {
	four := int32(4)
	for _, tc := range []struct {
		name          string
		sharing       v1alpha1.SharingSpec
		path, message string
	}{
		{"time slicing without replicas", v1alpha1.SharingSpec{Strategy: "TimeSlicing"}, "spec.sharing", v1alpha1.MessageReplicasMissing},
		{"one replica", v1alpha1.SharingSpec{Strategy: "TimeSlicing", Replicas: new(int32(1))}, "spec.sharing.replicas", "is 1; 2 to 128 are allowed"},
		{"replicas of MIG instances", v1alpha1.SharingSpec{Strategy: "MIG", Layouts: []string{"h100"}, Replicas: &four},
			"spec.sharing", v1alpha1.MessageReplicasElsewhere},
		{"time slicing of a layout", v1alpha1.SharingSpec{Strategy: "TimeSlicing", Layouts: []string{"h100"}, Replicas: &four},
			"spec.sharing", v1alpha1.MessageTwoStrategies},
		{"a MIG strategy for time slicing", v1alpha1.SharingSpec{Strategy: "TimeSlicing", MIGStrategy: "Single", Replicas: &four},
			"spec.sharing", v1alpha1.MessageMIGOnly},
		{"whole GPUs renamed", v1alpha1.SharingSpec{RenameByDefault: true}, "spec.sharing", v1alpha1.MessageTimeSlicingOnly},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := testClass()
			class.Spec.Sharing = tc.sharing
			_, err := Compile(testPool("p5.48xlarge"), class, byName(testLayout("h100", "H100-80GB-SXM", seven)), "p5.48xlarge")
			checkError(t, err, Error{"InvalidClass", "GPUNodeClass h100-mig", tc.path, tc.message})
		})
	}
}
