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

// The rule of version 1, pinned: if this fails, the rule has changed and hashVersion must too, or every node drifts.
func TestHash_OfVersionOneIsStable(t *testing.T) {
	bp, err := Compile(testPool("p5.48xlarge"), testClass("h100"), byName(testLayout("h100", "H100-80GB-SXM", seven)), "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	if bp.HashVersion != "1" || bp.Hash != "98778cfdff7b0eb3" {
		t.Errorf("version %s hash %s", bp.HashVersion, bp.Hash)
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
