package blueprint

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestHash_ChangesOnlyWithWhatCannotChangeInPlace(t *testing.T) {
	type world struct {
		pool    *v1alpha1.GPUNodePool
		class   *v1alpha1.GPUNodeClass
		layout  *v1alpha1.MIGLayout
		machine string
	}
	start := func() world {
		return world{testPool("p5.48xlarge"), testClass("h100"), testLayout("h100", "H100-80GB-SXM", seven), "p5.48xlarge"}
	}
	compile := func(t *testing.T, w world) string {
		t.Helper()
		bp, err := Compile(w.pool, w.class, byName(w.layout), w.machine)
		if err != nil {
			t.Fatal(err)
		}
		return bp.Hash
	}
	original := compile(t, start())
	if len(original) != 16 {
		t.Errorf("hash %q, want 16 characters", original)
	}
	for _, tc := range []struct {
		name    string
		change  func(*world)
		changes bool
	}{
		{"nothing", func(*world) {}, false},
		{"the slices", func(w *world) { w.layout.Spec.Devices[0].Slices = []v1alpha1.MIGSlice{{Profile: "7g.80gb", Count: 1}} }, true},
		{"the GPUs that are cut", func(w *world) { w.layout.Spec.Devices[0].GPUs = []int32{0} }, true},
		{"the sharing", func(w *world) { w.class.Spec.Sharing = v1alpha1.SharingSpec{} }, true},
		{"the number of GPUs", func(w *world) { w.machine = "p5.4xlarge" }, true},
		{"the driver floor", func(w *world) { w.class.Spec.Driver.MinVersion = "570" }, true},
		{"the image", func(w *world) { w.class.Spec.Cloud.AWS.AMI.ID = "ami-2" }, true},
		{"the cluster's endpoint", func(w *world) { w.class.Spec.Cloud.AWS.Cluster.Endpoint = "https://other" }, true},
		{"the root volume", func(w *world) { w.class.Spec.Cloud.AWS.RootVolume.SizeGiB = 200 }, true},
		{"defaults left out", func(w *world) {
			w.class.Spec.Cloud.AWS.RootVolume.SizeGiB = 0
			w.class.Spec.Cloud.AWS.AMI.Family = ""
		}, false},
		{"the order of slices and a name for every GPU", func(w *world) {
			w.layout.Spec.Devices[0].GPUs = []int32{7, 6, 5, 4, 3, 2, 1, 0}
		}, false},
		{"the layout's name", func(w *world) {
			w.layout.Name = "renamed"
			w.class.Spec.Sharing.Layouts = []string{"renamed"}
		}, false},
		{"the pool's labels and taints", func(w *world) { w.pool.Spec.Labels, w.pool.Spec.Taints = nil, nil }, false},
		{"the workload", func(w *world) { w.pool.Spec.Workload = v1alpha1.WorkloadBatch }, false},
		{"subnets", func(w *world) { w.class.Spec.Cloud.AWS.Subnets = []string{"subnet-b"} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start()
			tc.change(&w)
			if got := compile(t, w); (got != original) != tc.changes {
				t.Errorf("hash %s from %s, want a change: %v", got, original, tc.changes)
			}
		})
	}
}

// Nothing of how GPUs are shared can change on a running node.
func TestHash_ChangesWithEverySettingOfSharing(t *testing.T) {
	layout := testLayout("h100", "H100-80GB-SXM", seven)
	settings := map[string]v1alpha1.SharingSpec{
		"exclusive":           {Strategy: v1alpha1.SharingExclusive},
		"MIG":                 {Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100"}},
		"MIG under one name":  {Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100"}, MIGStrategy: v1alpha1.MIGSingle},
		"4 replicas":          {Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4))},
		"8 replicas":          {Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(8))},
		"4 renamed":           {Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4)), RenameByDefault: true},
		"4, one each":         {Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4)), FailRequestsGreaterThanOne: true},
		"4 renamed, one each": {Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4)), RenameByDefault: true, FailRequestsGreaterThanOne: true},
	}
	seen := map[string]string{}
	for name, sharing := range settings {
		class := testClass()
		class.Spec.Sharing = sharing
		hash := compiled(t, class, "p5.48xlarge", layout).Hash
		if other, taken := seen[hash]; taken {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[hash] = name
	}
}

// The rule of version 1, pinned: if this fails, the rule has changed and hashVersion must too, or every node drifts. The
// first four are from before there was more than Exclusive, and MIG with each profile by its name.
func TestHash_OfVersionOneIsStable(t *testing.T) {
	h100 := testLayout("h100", "H100-80GB-SXM", seven)
	mixed := testLayout("mixed", "H100-80GB-SXM", onGPUs(seven, 1, 0),
		onGPUs(cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 4}, v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 1}), 7))
	renamed := slicedClass(4)
	renamed.Spec.Sharing.RenameByDefault, renamed.Spec.Sharing.FailRequestsGreaterThanOne = true, true
	for _, tc := range []struct {
		name, instanceType string
		class              *v1alpha1.GPUNodeClass
		want               string
	}{
		{"MIG, every GPU alike", "p5.48xlarge", testClass("h100"), "98778cfdff7b0eb3"},
		{"MIG, some GPUs", "p5.48xlarge", testClass("mixed"), "97e81449df8f512c"},
		{"exclusive", "p5.48xlarge", testClass(), "9e5e1277d51ff5cf"},
		{"exclusive, another machine", "g6.12xlarge", testClass(), "3bd61b844a477eeb"},
		{"MIG under one name", "p5.48xlarge", singleClass("h100"), "78f9f6e9c8178c5c"},
		{"time slicing", "g6.12xlarge", slicedClass(4), "bb1afbe80457b501"},
		{"time slicing, renamed, one each", "g6.12xlarge", renamed, "e00e510922aeb188"},
	} {
		if bp := compiled(t, tc.class, tc.instanceType, h100, mixed); bp.HashVersion != "1" || bp.Hash != tc.want {
			t.Errorf("%s: version %s hash %s, want version 1 hash %s", tc.name, bp.HashVersion, bp.Hash, tc.want)
		}
	}
}

// Compile must not write into what it is given: callers pass objects from a shared cache.
func TestCompile_LeavesItsInputsAlone(t *testing.T) {
	class := testClass()
	class.Spec.Cloud.AWS.RootVolume.SizeGiB = 0
	class.Spec.Cloud.AWS.AMI.Family = ""
	if _, err := Compile(testPool("p5.48xlarge"), class, nil, "p5.48xlarge"); err != nil {
		t.Fatal(err)
	}
	if aws := class.Spec.Cloud.AWS; aws.RootVolume.SizeGiB != 0 || aws.AMI.Family != "" {
		t.Errorf("the class now has %+v", aws)
	}
}
