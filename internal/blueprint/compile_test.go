package blueprint

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func testPool(types ...string) *v1alpha1.GPUNodePool {
	return &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "inference"},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload:     v1alpha1.WorkloadInference,
			NodeClassRef: v1alpha1.NodeClassReference{Name: "h100-mig"},
			Machines:     []v1alpha1.MachineSpec{{InstanceTypes: types}},
			Labels:       map[string]string{"team": "search"},
			Taints:       []v1alpha1.TaintSpec{{Key: "search", Value: "only", Effect: corev1.TaintEffectNoExecute}},
		},
	}
}

func testClass(layouts ...string) *v1alpha1.GPUNodeClass {
	class := &v1alpha1.GPUNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-mig"},
		Spec: v1alpha1.GPUNodeClassSpec{
			Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
				Subnets: []string{"subnet-a"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "gpufleet-node",
				AMI: v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-1"},
				Cluster: v1alpha1.ClusterSpec{
					Name: "prod", Endpoint: "https://k8s", CertificateAuthority: "Y2E=", ServiceCIDR: "10.100.0.0/16",
				},
				RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 100},
			}},
			Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive},
			Driver:  &v1alpha1.DriverSpec{MinVersion: "550.90"},
		},
	}
	if len(layouts) > 0 {
		class.Spec.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: layouts}
	}
	return class
}

func testLayout(name, model string, devices ...v1alpha1.MIGDevices) *v1alpha1.MIGLayout {
	return &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MIGLayoutSpec{GPUModel: model, Devices: devices},
	}
}

func cut(slices ...v1alpha1.MIGSlice) v1alpha1.MIGDevices { return v1alpha1.MIGDevices{Slices: slices} }

func onGPUs(d v1alpha1.MIGDevices, gpus ...int32) v1alpha1.MIGDevices {
	d.GPUs = gpus
	return d
}

var seven = cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 7})

func byName(layouts ...*v1alpha1.MIGLayout) map[string]*v1alpha1.MIGLayout {
	out := map[string]*v1alpha1.MIGLayout{}
	for _, l := range layouts {
		out[l.Name] = l
	}
	return out
}

func quantities(counts map[corev1.ResourceName]int64) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, n := range counts {
		out[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return out
}

func small(starts ...int32) []v1alpha1.MIGInstance {
	var out []v1alpha1.MIGInstance
	for _, s := range starts {
		out = append(out, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: s, Size: 1})
	}
	return out
}

// The worked example of the quickstart: eight H100s, each cut into seven 1g.10gb.
func TestC11_CompileOffersOnlySlicesWhereEveryGPUIsCut(t *testing.T) {
	got, err := Compile(testPool("p5.48xlarge"), testClass("h100-7x1g10gb"),
		byName(testLayout("h100-7x1g10gb", "H100-80GB-SXM", seven)), "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Blueprint{
		Pool: "inference", Workload: v1alpha1.WorkloadInference, InstanceType: "p5.48xlarge",
		GPU: v1alpha1.GPUBlueprint{
			Model: "H100-80GB-SXM", ProductNames: []string{"NVIDIA H100 80GB HBM3"}, Count: 8, MemoryMiB: 81152,
		},
		Sharing: v1alpha1.SharingMIG, MIGStrategy: v1alpha1.MIGMixed, Allocation: v1alpha1.AllocationDevicePlugin,
		Layout: &v1alpha1.LayoutBlueprint{
			Name:    "h100-7x1g10gb",
			Devices: []v1alpha1.DeviceLayout{{GPUs: []int32{0, 1, 2, 3, 4, 5, 6, 7}, Instances: small(0, 1, 2, 3, 4, 5, 6)}},
		},
		Resources:        quantities(map[corev1.ResourceName]int64{"nvidia.com/mig-1g.10gb": 56}),
		DriverMinVersion: "550.90",
		Labels: map[string]string{
			"gpufleet.dev/pool": "inference", "gpufleet.dev/workload": "Inference", "gpufleet.dev/gpu-model": "H100-80GB-SXM",
			"gpufleet.dev/sharing": "MIG", "gpufleet.dev/layout": "h100-7x1g10gb", "gpufleet.dev/allocation": "DevicePlugin",
			"nvidia.com/device-plugin.config": "inference", "nvidia.com/gpu.deploy.mig-manager": "false", "team": "search",
		},
		Taints: []corev1.Taint{
			{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule"},
			{Key: "gpufleet.dev/workload", Value: "Inference", Effect: "NoSchedule"},
			{Key: "search", Value: "only", Effect: "NoExecute"},
		},
		StartupTaints: []corev1.Taint{{Key: "gpufleet.dev/unverified", Effect: "NoSchedule"}},
		PricePerHour:  "55.04", PriceAsOf: "2026-07-20",
		Hash: got.Hash, HashVersion: "1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCompile_OffersWholeGPUs(t *testing.T) {
	class := testClass()
	class.Spec.Sharing.Strategy = "" // the CRD's default
	got, err := Compile(testPool("p5.48xlarge"), class, nil, "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(quantities(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}), got.Resources); diff != "" {
		t.Error(diff)
	}
	if got.Layout != nil || got.Sharing != v1alpha1.SharingExclusive || got.Labels["gpufleet.dev/sharing"] != "Exclusive" {
		t.Errorf("layout %v, sharing %s, labels %v", got.Layout, got.Sharing, got.Labels)
	}
	if layout, ok := got.Labels["gpufleet.dev/layout"]; ok {
		t.Errorf("whole GPUs have label gpufleet.dev/layout=%s", layout)
	}
}

// A price that is not known is absent, never zero.
func TestCompile_LeavesOutAPriceThatIsNotKnown(t *testing.T) {
	got, err := Compile(testPool("p5e.48xlarge"), testClass(), nil, "p5e.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	if got.PricePerHour != "" || got.PriceAsOf != "" {
		t.Errorf("price %q as of %q, want none", got.PricePerHour, got.PriceAsOf)
	}
}

func TestCompile_CutsSomeGPUsAndLeavesOthersWhole(t *testing.T) {
	layout := testLayout("mixed", "H100-80GB-SXM",
		onGPUs(seven, 1, 0),
		onGPUs(cut(v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 4}, v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 1}), 7))
	got, err := Compile(testPool("p5.48xlarge"), testClass("mixed"), byName(layout), "p5.48xlarge")
	if err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.DeviceLayout{
		{GPUs: []int32{0, 1}, Instances: small(0, 1, 2, 3, 4, 5, 6)},
		{GPUs: []int32{7}, Instances: append(small(0, 1, 2, 3),
			v1alpha1.MIGInstance{Profile: "3g.40gb", ComputeSlices: 3, Start: 4, Size: 4})},
		{GPUs: []int32{2, 3, 4, 5, 6}},
	}
	if diff := cmp.Diff(want, got.Layout.Devices); diff != "" {
		t.Error(diff)
	}
	wantResources := quantities(map[corev1.ResourceName]int64{
		"nvidia.com/mig-1g.10gb": 2*7 + 4, "nvidia.com/mig-3g.40gb": 1, "nvidia.com/gpu": 5,
	})
	if diff := cmp.Diff(wantResources, got.Resources); diff != "" {
		t.Error(diff)
	}
}

func TestCompile_ChoosesTheLayoutOfTheMachinesModel(t *testing.T) {
	a100 := testLayout("a100", "A100-40GB", cut(v1alpha1.MIGSlice{Profile: "1g.5gb", Count: 7}))
	h100 := testLayout("h100", "H100-80GB-SXM", seven)
	for instanceType, want := range map[string]string{"p4d.24xlarge": "a100", "p5.4xlarge": "h100"} {
		got, err := Compile(testPool(instanceType), testClass("a100", "h100"), byName(a100, h100), instanceType)
		if err != nil {
			t.Fatal(err)
		}
		if got.Layout.Name != want {
			t.Errorf("%s has layout %s, want %s", instanceType, got.Layout.Name, want)
		}
	}
}

func TestCompile_Refuses(t *testing.T) {
	h100 := testLayout("h100-7x1g10gb", "H100-80GB-SXM", seven)
	twoStrategies := testClass("h100-7x1g10gb")
	twoStrategies.Spec.Sharing.Strategy = v1alpha1.SharingExclusive
	noLayouts := testClass()
	noLayouts.Spec.Sharing.Strategy = v1alpha1.SharingMIG
	for _, tc := range []struct {
		name, instanceType string
		class              *v1alpha1.GPUNodeClass
		layouts            map[string]*v1alpha1.MIGLayout
		want               Error
	}{
		{
			name: "a machine with another GPU model than the layout's", instanceType: "p4d.24xlarge",
			class: testClass("h100-7x1g10gb"), layouts: byName(h100),
			want: Error{"SKUMismatch", "GPUNodeClass h100-mig", "spec.sharing.layouts",
				"instance type p4d.24xlarge has A100-40GB GPUs, but layout h100-7x1g10gb of class h100-mig is for H100-80GB-SXM: " +
					"add a layout for A100-40GB to the class, or use p5.48xlarge, p5.4xlarge"},
		},
		{
			name: "a machine without MIG", instanceType: "g5.xlarge", class: testClass("h100-7x1g10gb"), layouts: byName(h100),
			want: Error{"SKUMismatch", "GPUNodeClass h100-mig", "spec.sharing.strategy",
				"instance type g5.xlarge has A10G-24GB GPUs: the model has no MIG; use strategy Exclusive, or instance types with one of "},
		},
		{
			name: "a machine whose placements nobody published", instanceType: "g7.2xlarge",
			class: testClass("h100-7x1g10gb"), layouts: byName(h100),
			want: Error{"SKUMismatch", "GPUNodeClass h100-mig", "spec.sharing.strategy",
				"instance type g7.2xlarge has RTX-PRO-4500-Blackwell-32GB GPUs: the model can do MIG, but no public source lists its placements; "},
		},
		{
			name: "a layout that does not exist", instanceType: "p5.48xlarge", class: testClass("h100-7x1g10gb", "gone"), layouts: byName(h100),
			want: Error{"InvalidLayout", "GPUNodeClass h100-mig", "spec.sharing.layouts[1]",
				`MIG layout "gone" does not exist: declare it, or name one that does`},
		},
		{
			name: "a class without a cloud", instanceType: "p5.48xlarge", class: noCloud(), layouts: byName(h100),
			want: Error{"InvalidClass", "GPUNodeClass h100-mig", "spec.cloud", "exactly one cloud must be given: aws"},
		},
		{
			name: "two layouts for one model", instanceType: "p5.48xlarge", class: testClass("h100-7x1g10gb", "other"),
			layouts: byName(h100, testLayout("other", "H100-80GB-SXM", seven)),
			want: Error{"InvalidClass", "GPUNodeClass h100-mig", "spec.sharing.layouts[1]",
				"layouts h100-7x1g10gb and other are both for H100-80GB-SXM; a class has one layout for each GPU model"},
		},
		{
			name: "a layout for a model that nobody knows", instanceType: "p5.48xlarge", class: testClass("typo"),
			layouts: byName(testLayout("typo", "H100-80GB", seven)),
			want: Error{"InvalidLayout", "MIGLayout typo", "spec.gpuModel",
				"GPU model H100-80GB is not known; layouts can be made for A100-40GB, A100-80GB, "},
		},
		{
			name: "slices that cannot be placed", instanceType: "p5.48xlarge", class: testClass("tight"),
			layouts: byName(testLayout("tight", "H100-80GB-SXM",
				cut(v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 2}, v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 1}))),
			want: Error{"InvalidLayout", "MIGLayout tight", "spec.devices[0].slices[1]",
				"H100-80GB-SXM cannot be cut into 2 x 3g.40gb + 1g.10gb: 1 x 1g.10gb does not fit beside 2 x 3g.40gb: no place is left for it"},
		},
		{
			name: "a GPU that the machine does not have", instanceType: "p5.4xlarge", class: testClass("first-two"),
			layouts: byName(testLayout("first-two", "H100-80GB-SXM", onGPUs(seven, 1, 0))),
			want: Error{"SKUMismatch", "MIGLayout first-two", "spec.devices[0].gpus[0]",
				"layout first-two names GPU 1, but instance type p5.4xlarge has 1 GPU, 0; leave gpus out to cut every GPU"},
		},
		{
			name: "two sharing strategies", instanceType: "p5.48xlarge", class: twoStrategies, layouts: byName(h100),
			want: Error{"InvalidClass", "GPUNodeClass h100-mig", "spec.sharing", v1alpha1.MessageTwoStrategies},
		},
		{
			name: "MIG without layouts", instanceType: "p5.48xlarge", class: noLayouts,
			want: Error{"InvalidClass", "GPUNodeClass h100-mig", "spec.sharing", v1alpha1.MessageLayoutsMissing},
		},
		{
			name: "a size that the family does not have", instanceType: "p5.24xlarge", class: testClass(),
			want: Error{"SKUMismatch", "GPUNodePool inference", "spec.machines[0].instanceTypes[0]",
				"instance type p5.24xlarge is not a known GPU instance type; family p5 has p5.48xlarge, p5.4xlarge"},
		},
		{
			name: "a type without GPUs", instanceType: "m7i.large", class: testClass(),
			want: Error{"SKUMismatch", "GPUNodePool inference", "spec.machines[0].instanceTypes[0]",
				"instance type m7i.large is not a known GPU instance type; the known families are g4dn, g5, g5g, g6, g6e, g7, g7e, gr6, p3dn, p4d, p4de, p5, p5e, p5en, p6-b200, p6-b300"},
		},
		{
			name: "a retired type", instanceType: "p3.8xlarge", class: testClass(),
			want: Error{"SKUMismatch", "GPUNodePool inference", "spec.machines[0].instanceTypes[0]",
				"instance type p3.8xlarge is retired (no region has offered it since 2026-05-01); choose another type"},
		},
		{
			name: "a type that nobody verified", instanceType: "p6e-gb200.36xlarge", class: testClass(),
			want: Error{"SKUMismatch", "GPUNodePool inference", "spec.machines[0].instanceTypes[0]",
				"instance type p6e-gb200.36xlarge is refused: what is known about it is not verified ("},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bp, err := Compile(testPool(tc.instanceType), tc.class, tc.layouts, tc.instanceType)
			checkError(t, err, tc.want)
			if bp.Hash != "" {
				t.Errorf("a refused Blueprint has hash %s", bp.Hash)
			}
		})
	}
}

// checkError compares all but the end of the message: lists of models grow.
func checkError(t *testing.T, err error, want Error) {
	t.Helper()
	var got *Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if got.Reason != want.Reason || got.Object != want.Object || got.Path != want.Path {
		t.Errorf("got  %s, %s, %s\nwant %s, %s, %s", got.Reason, got.Object, got.Path, want.Reason, want.Object, want.Path)
	}
	if !strings.HasPrefix(got.Message, want.Message) {
		t.Errorf("got  %s\nwant %s", got.Message, want.Message)
	}
}

// aws/karpenter-provider-aws#8368: a fractional type is refused in words, and never counts as 0 GPUs.
func TestC06_CompileRefusesFractionalTypes(t *testing.T) {
	_, err := Compile(testPool("g6f.large"), testClass(), nil, "g6f.large")
	checkError(t, err, Error{"SKUMismatch", "GPUNodePool inference", "spec.machines[0].instanceTypes[0]",
		"instance type g6f.large has 0.125 of one L4-24GB: fractional GPUs are not supported; instance types with whole ones are g6.12xlarge, "})
}

func TestError_NamesTheObjectAndTheField(t *testing.T) {
	e := &Error{Reason: "InvalidLayout", Object: "MIGLayout a", Path: "spec.gpuModel", Message: "is wrong"}
	if got, want := e.Error(), "MIGLayout a: spec.gpuModel: is wrong"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Object = ""
	if got, want := e.Error(), "spec.gpuModel: is wrong"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func noCloud() *v1alpha1.GPUNodeClass {
	class := testClass("h100-7x1g10gb")
	class.Spec.Cloud.AWS = nil
	return class
}
