package nvml

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// library compiles the fake once for all tests of the package.
var library = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gpufleet-nvml-*")
	if err != nil {
		return "", err
	}
	return Build(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if lib, err := library(); err == nil {
		_ = os.RemoveAll(filepath.Dir(lib))
	}
	os.Exit(code)
}

// open gives the machine to the library and returns NVML through go-nvml, as the agent sees it.
func open(t *testing.T, s State) (nvml.Interface, string) {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := Write(path, s); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvState, path)
	n := nvml.New(nvml.WithLibraryPath(lib))
	must(t, "Init", n.Init())
	t.Cleanup(func() { must(t, "Shutdown", n.Shutdown()) })
	return n, path
}

func machine(t *testing.T, board string, count int) State {
	t.Helper()
	s, err := NewMachine("i-0123456789abcdef0", board, count)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, what string, ret nvml.Return) {
	t.Helper()
	if ret != nvml.SUCCESS {
		t.Fatalf("%s: %v", what, nvml.ErrorString(ret))
	}
}

func device(t *testing.T, n nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, ret := n.DeviceGetHandleByIndex(index)
	must(t, "DeviceGetHandleByIndex", ret)
	return d
}

func profileInfo(t *testing.T, d nvml.Device, index int) *nvml.GpuInstanceProfileInfo {
	t.Helper()
	info, ret := d.GetGpuInstanceProfileInfo(index)
	must(t, "GetGpuInstanceProfileInfo", ret)
	return &info
}

func TestLibrary_TellsWhoTheBoardsAre(t *testing.T) {
	n, _ := open(t, machine(t, "H100-80GB-SXM", 8))
	driver, ret := n.SystemGetDriverVersion()
	must(t, "SystemGetDriverVersion", ret)
	cuda, ret := n.SystemGetCudaDriverVersion_v2()
	must(t, "SystemGetCudaDriverVersion_v2", ret)
	count, ret := n.DeviceGetCount()
	must(t, "DeviceGetCount", ret)
	if driver != "580.95.05" || cuda != 13000 || count != 8 {
		t.Errorf("driver %s, CUDA %d, %d boards; want 580.95.05, 13000, 8", driver, cuda, count)
	}
	d := device(t, n, 7)
	name, _ := d.GetName()
	memory, _ := d.GetMemoryInfo()
	pci, ret := d.GetPciInfo()
	must(t, "GetPciInfo", ret)
	if name != "NVIDIA H100 80GB HBM3" || memory.Total>>20 != 81559 || pci.PciDeviceId != 0x233010DE || pci.Bus != 0xCA {
		t.Errorf("name %q, %d MiB, PCI id %#x on bus %#x", name, memory.Total>>20, pci.PciDeviceId, pci.Bus)
	}
	uuid, _ := d.GetUUID()
	first, _ := device(t, n, 0).GetUUID()
	if uuid == first || len(uuid) != len("GPU-00000000-0000-0000-0000-000000000000") {
		t.Errorf("UUID %q, and %q of another board", uuid, first)
	}
}

func TestLibrary_ProfileIndexIsNotProfileID(t *testing.T) {
	n, _ := open(t, machine(t, "H100-80GB-SXM", 1))
	d := device(t, n, 0)
	// nvidia-smi mig -lgip of an H100 80GB HBM3: ids by enum index.
	want := map[int]uint32{
		nvml.GPU_INSTANCE_PROFILE_1_SLICE: 19, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: 20, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: 15,
		nvml.GPU_INSTANCE_PROFILE_2_SLICE: 14, nvml.GPU_INSTANCE_PROFILE_3_SLICE: 9, nvml.GPU_INSTANCE_PROFILE_4_SLICE: 5,
		nvml.GPU_INSTANCE_PROFILE_7_SLICE: 0,
	}
	got := map[int]uint32{}
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.GetGpuInstanceProfileInfo(i)
		if ret == nvml.SUCCESS {
			got[i] = info.Id
		} else if ret != nvml.ERROR_NOT_SUPPORTED {
			t.Errorf("profile index %d: %v", i, ret)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	placements, ret := d.GetGpuInstancePossiblePlacements(profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE))
	must(t, "GetGpuInstancePossiblePlacements", ret)
	if diff := cmp.Diff([]nvml.GpuInstancePlacement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}, placements); diff != "" {
		t.Error(diff)
	}
}

func TestLibrary_MIGModeTakesEffectAtOnceOnHopperAndAfterAResetOnAmpere(t *testing.T) {
	for _, tc := range []struct {
		board            string
		activation, ret  nvml.Return
		current, pending int
	}{
		{"H100-80GB-SXM", nvml.SUCCESS, nvml.SUCCESS, 1, 1},
		{"A100-40GB", nvml.ERROR_RESET_REQUIRED, nvml.SUCCESS, 0, 1},
		{"T4", nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, 0, 0},
	} {
		t.Run(tc.board, func(t *testing.T) {
			n, path := open(t, machine(t, tc.board, 1))
			d := device(t, n, 0)
			activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
			if activation != tc.activation || ret != tc.ret {
				t.Errorf("SetMigMode: activation %v, %v; want %v, %v", activation, ret, tc.activation, tc.ret)
			}
			current, pending, _ := d.GetMigMode()
			if current != tc.current || pending != tc.pending {
				t.Errorf("mode %d pending %d, want %d %d", current, pending, tc.current, tc.pending)
			}
			if err := Update(path, func(s *State) error { s.Reboot(); return nil }); err != nil {
				t.Fatal(err)
			}
			want := 0
			if tc.board == "A100-40GB" {
				want = 1
			}
			if current, _, _ := d.GetMigMode(); current != want {
				t.Errorf("mode after a reboot %d, want %d", current, want)
			}
		})
	}
}

func TestLibrary_CreatesWhereItIsToldAndRefusesOverlap(t *testing.T) {
	n, path := open(t, machine(t, "H100-80GB-SXM", 1))
	d := device(t, n, 0)
	three, one := profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE), profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	if _, ret := d.CreateGpuInstanceWithPlacement(three, &nvml.GpuInstancePlacement{Start: 4, Size: 4}); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("with MIG off: %v, want not supported", ret)
	}
	_, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	must(t, "SetMigMode", ret)
	gi, ret := d.CreateGpuInstanceWithPlacement(three, &nvml.GpuInstancePlacement{Start: 4, Size: 4})
	must(t, "CreateGpuInstanceWithPlacement", ret)
	for _, tc := range []struct {
		name    string
		profile *nvml.GpuInstanceProfileInfo
		at      nvml.GpuInstancePlacement
		want    nvml.Return
	}{
		{"occupied", one, nvml.GpuInstancePlacement{Start: 5, Size: 1}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a start that the profile does not have", one, nvml.GpuInstancePlacement{Start: 7, Size: 1}, nvml.ERROR_INVALID_ARGUMENT},
		{"a size that the profile does not have", three, nvml.GpuInstancePlacement{Start: 0, Size: 3}, nvml.ERROR_INVALID_ARGUMENT},
		{"free", one, nvml.GpuInstancePlacement{Start: 3, Size: 1}, nvml.SUCCESS},
		{"the rest is too small", three, nvml.GpuInstancePlacement{Start: 0, Size: 4}, nvml.ERROR_INSUFFICIENT_RESOURCES},
	} {
		if _, ret := d.CreateGpuInstanceWithPlacement(tc.profile, &tc.at); ret != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, ret, tc.want)
		}
	}
	info, ret := gi.GetInfo()
	must(t, "GetInfo", ret)
	if info.ProfileId != 9 || info.Placement != (nvml.GpuInstancePlacement{Start: 4, Size: 4}) {
		t.Errorf("read back %+v", info)
	}
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Instance{{ID: 1, ProfileID: 9, Start: 4, Size: 4}, {ID: 2, ProfileID: 19, Start: 3, Size: 1}}
	if diff := cmp.Diff(want, s.GPUs[0].Instances); diff != "" {
		t.Error(diff)
	}
}

func TestLibrary_AComputeInstanceMakesAMIGDevice(t *testing.T) {
	n, _ := open(t, machine(t, "A100-80GB", 2))
	d := device(t, n, 1)
	if _, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	if err := Update(os.Getenv(EnvState), func(s *State) error { s.Reboot(); return nil }); err != nil {
		t.Fatal(err)
	}
	gi, ret := d.CreateGpuInstance(profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE))
	must(t, "CreateGpuInstance", ret)
	if _, ret := d.GetMigDeviceHandleByIndex(0); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("a MIG device without a compute instance: %v", ret)
	}
	info, ret := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	must(t, "GetComputeInstanceProfileInfo", ret)
	ci, ret := gi.CreateComputeInstance(&info)
	must(t, "CreateComputeInstance", ret)
	if _, ret := gi.CreateComputeInstance(&info); ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		t.Errorf("a second one over the first: %v", ret)
	}
	mig, ret := d.GetMigDeviceHandleByIndex(0)
	must(t, "GetMigDeviceHandleByIndex", ret)
	name, _ := mig.GetName()
	attributes, ret := mig.GetAttributes()
	must(t, "GetAttributes", ret)
	uuid, ret := mig.GetUUID()
	must(t, "GetUUID", ret)
	if name != "NVIDIA A100-SXM4-80GB MIG 2g.20gb" || attributes.GpuInstanceSliceCount != 2 || attributes.MemorySizeMB != 19968 {
		t.Errorf("MIG device %q %+v", name, attributes)
	}
	again, ret := n.DeviceGetHandleByUUID(uuid)
	must(t, "DeviceGetHandleByUUID", ret)
	if id, _ := again.GetGpuInstanceId(); id != 1 {
		t.Errorf("%s is of GPU instance %d, want 1", uuid, id)
	}
	if ret := gi.Destroy(); ret != nvml.ERROR_IN_USE {
		t.Errorf("destroying a GPU instance with a compute instance: %v", ret)
	}
	must(t, "Destroy", ci.Destroy())
	must(t, "Destroy", gi.Destroy())
	if _, ret := gi.GetInfo(); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a destroyed instance answers: %v", ret)
	}
}

func TestLibrary_LoseInstanceReportsSuccessAndMakesNothing(t *testing.T) {
	s := machine(t, "H100-80GB-SXM", 1)
	s.Faults = []Fault{{Name: FaultLoseInstance, GPU: 0, N: 2}}
	n, path := open(t, s)
	d := device(t, n, 0)
	_, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	must(t, "SetMigMode", ret)
	one := profileInfo(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE)
	for start := range uint32(3) {
		gi, ret := d.CreateGpuInstanceWithPlacement(one, &nvml.GpuInstancePlacement{Start: start, Size: 1})
		must(t, "CreateGpuInstanceWithPlacement", ret)
		info, ret := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		must(t, "GetComputeInstanceProfileInfo", ret)
		_, ret = gi.CreateComputeInstance(&info)
		must(t, "CreateComputeInstance", ret)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var starts []int
	for _, in := range got.GPUs[0].Instances {
		starts = append(starts, in.Start)
	}
	if diff := cmp.Diff([]int{0, 2}, starts); diff != "" {
		t.Error(diff)
	}
}

func TestLibrary_WithoutAMachineTheDriverIsNotLoaded(t *testing.T) {
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvState, filepath.Join(t.TempDir(), "absent"))
	n := nvml.New(nvml.WithLibraryPath(lib))
	if ret := n.Init(); ret != nvml.ERROR_DRIVER_NOT_LOADED {
		t.Errorf("Init: %v, want driver not loaded", ret)
	}
}

func TestState_ReadsBackWhatWasWritten(t *testing.T) {
	for _, board := range Boards() {
		s := machine(t, board, 2)
		s.Faults = []Fault{{Name: FaultLoseInstance, GPU: 1, N: 7}}
		s.GPUs[1].MIG, s.GPUs[1].MIGPending, s.GPUs[1].Created = true, true, 3
		s.GPUs[1].Instances = []Instance{{ID: 3, ProfileID: 19, Start: 6, Size: 1, Compute: []ComputeInstance{{ID: 0, Profile: 0, Start: 0, Size: 1}}}}
		path := filepath.Join(t.TempDir(), "state")
		if err := Write(path, s); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("%s: %s", board, diff)
		}
	}
}

func TestWrite_RefusesABoardOrFaultThatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := Write(path, State{GPUs: []GPU{{UUID: "GPU-1", Board: "H1000"}}}); err == nil {
		t.Error("board H1000 was written")
	}
	if err := Write(path, State{Faults: []Fault{{Name: "lose-mig-instance"}}}); err == nil {
		t.Error("fault lose-mig-instance was written")
	}
}

func TestBuild_DoesNothingWhereItIsBuilt(t *testing.T) {
	t.Chdir(t.TempDir())
	dir := t.TempDir()
	lib, err := Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(lib)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	again, err := os.Stat(lib)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(first, again) {
		t.Error("the library was compiled again")
	}
}
