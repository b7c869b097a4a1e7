package agent

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

// fakeNVML compiles the shared library once for the package.
var fakeNVML = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gpufleet-agent-*")
	if err != nil {
		return "", err
	}
	return nvml.Build(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if lib, err := fakeNVML(); err == nil {
		_ = os.RemoveAll(filepath.Dir(lib))
	}
	os.Exit(code)
}

// machine boots a machine and returns its NVML, loaded as the agent loads NVIDIA's, and its state file.
func machine(t *testing.T, board string, count int, faults ...nvml.Fault) (Library, string) {
	t.Helper()
	lib, err := fakeNVML()
	if err != nil {
		t.Fatal(err)
	}
	s, err := nvml.NewMachine("i-0123456789abcdef0", board, count)
	if err != nil {
		t.Fatal(err)
	}
	s.Faults = faults
	path := filepath.Join(t.TempDir(), "state")
	if err := nvml.Write(path, s); err != nil {
		t.Fatal(err)
	}
	t.Setenv(nvml.EnvState, path)
	return NewLibrary(lib), path
}

func TestNVML_Cuts8H100Into56AndReadsThemBack(t *testing.T) {
	lib, path := machine(t, "H100-80GB-SXM", 8)
	inv := pass(t.Context(), lib, layoutOf(sevenOnes(), 0, 1, 2, 3, 4, 5, 6, 7))
	if inv.Failure != nil {
		t.Fatalf("failure %+v", inv.Failure)
	}
	if got := instances(inv); got != 56 {
		t.Errorf("%d instances, want 56", got)
	}
	if inv.DriverVersion != "580.95.05" || inv.NVMLVersion != "13.580.95.05" || inv.CUDAVersion != "13.0" {
		t.Errorf("versions %s %s %s", inv.DriverVersion, inv.NVMLVersion, inv.CUDAVersion)
	}
	last := inv.GPUs[7]
	want := v1alpha1.GPUInventory{
		Index: 7, UUID: last.UUID, ProductName: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, PCIBusID: "00000000:CA:00.0",
		MIG: &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true, Instances: sevenOnes()},
	}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Error(diff)
	}
	state, err := nvml.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range state.GPUs[7].Instances {
		if len(in.Compute) != 1 {
			t.Errorf("the instance at %d has %d compute instances, want 1", in.Start, len(in.Compute))
		}
	}
}

func TestNVML_CutsInAnyOrderBecausePlacesAreSolved(t *testing.T) {
	lib, _ := machine(t, "H100-80GB-SXM", 1)
	// 3g beside four 1g exists only with the 3g at 4 (NVIDIA MIG User Guide); naming it last must not matter.
	layout := []v1alpha1.MIGInstance{
		wanted("1g.10gb", 1, 0, 1), wanted("1g.10gb", 1, 1, 1), wanted("1g.10gb", 1, 2, 1), wanted("1g.10gb+me", 1, 3, 1), wanted("3g.40gb", 3, 4, 4),
	}
	inv := pass(t.Context(), lib, layoutOf(layout, 0))
	if inv.Failure != nil {
		t.Fatalf("failure %+v", inv.Failure)
	}
	if diff := cmp.Diff(layout, inv.GPUs[0].MIG.Instances); diff != "" {
		t.Error(diff)
	}
	// And another layout over it: what is foreign goes, what fits stays.
	next := []v1alpha1.MIGInstance{wanted("1g.10gb", 1, 0, 1), wanted("2g.20gb", 2, 2, 2), wanted("1g.20gb", 1, 4, 2)}
	inv = pass(t.Context(), lib, layoutOf(next, 0))
	if inv.Failure != nil {
		t.Fatalf("failure %+v", inv.Failure)
	}
	if diff := cmp.Diff(next, inv.GPUs[0].MIG.Instances); diff != "" {
		t.Error(diff)
	}
	if inv = pass(t.Context(), lib, layoutOf(nil, 0)); inv.Failure != nil || inv.GPUs[0].MIG.Enabled || instances(inv) != 0 {
		t.Errorf("made whole again: failure %+v, %+v", inv.Failure, inv.GPUs[0].MIG)
	}
}

func TestNVML_C13_AnInstanceThatWasNeverMadeIsMissingFromTheReport(t *testing.T) {
	lib, _ := machine(t, "H100-80GB-SXM", 8, nvml.Fault{Name: nvml.FaultLoseInstance, GPU: 3, N: 7})
	inv := pass(t.Context(), lib, layoutOf(sevenOnes(), 0, 1, 2, 3, 4, 5, 6, 7))
	if inv.Failure != nil {
		t.Errorf("failure %+v: every call reported success", inv.Failure)
	}
	if got := instances(inv); got != 55 {
		t.Errorf("%d instances, want 55", got)
	}
	if diff := cmp.Diff(sevenOnes()[:6], inv.GPUs[3].MIG.Instances); diff != "" {
		t.Error(diff)
	}
}

func TestNVML_C16_AModeThatWaitsForARebootIsReportedAndNoFailure(t *testing.T) {
	lib, path := machine(t, "A100-40GB", 8)
	ones := layoutOf([]v1alpha1.MIGInstance{wanted("1g.5gb", 1, 0, 1)}, 0, 1, 2, 3, 4, 5, 6, 7)
	inv := pass(t.Context(), lib, ones)
	if inv.Failure != nil || !resetDue(inv) {
		t.Fatalf("failure %+v, reset due %t; want none and true", inv.Failure, resetDue(inv))
	}
	if mig := inv.GPUs[0].MIG; mig.Enabled || !mig.PendingEnabled {
		t.Errorf("MIG %+v, want pending only", mig)
	}
	if err := nvml.Update(path, func(s *nvml.State) error { s.Reboot(); return nil }); err != nil {
		t.Fatal(err)
	}
	inv = pass(t.Context(), lib, ones)
	if inv.Failure != nil || resetDue(inv) || instances(inv) != 8 {
		t.Errorf("after the reboot: failure %+v, reset due %t, %d instances; want none, false, 8", inv.Failure, resetDue(inv), instances(inv))
	}
}

func TestNVML_BoardsWithoutMIGAreReportedWithoutIt(t *testing.T) {
	lib, _ := machine(t, "L4", 4)
	inv := Look(lib)
	if inv.Failure != nil || len(inv.GPUs) != 4 || inv.GPUs[3].MIG != nil || inv.GPUs[3].MemoryMiB != 23034 {
		t.Errorf("%+v", inv)
	}
}

func TestNVML_WhatCannotBeLoadedIsReportedAndNoCrash(t *testing.T) {
	notNVML := filepath.Join(t.TempDir(), "libother.so")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-x", "c", "-o", notNVML, "/dev/null").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lib, err := fakeNVML()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(nvml.EnvState, filepath.Join(t.TempDir(), "absent"))
	for _, tc := range []struct{ name, path, message string }{
		{"no such file", filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), "No such file"},
		{"another library", notNVML, "nvmlInit_v2"},
		{"no driver", lib, "Driver Not Loaded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inv := Look(NewLibrary(tc.path))
			if inv.Failure == nil || inv.Failure.Step != "load-nvml" || !strings.Contains(inv.Failure.Message, tc.message) {
				t.Errorf("failure %+v, want step load-nvml with %q", inv.Failure, tc.message)
			}
		})
	}
}
