package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
)

func TestTable_EveryEntryHasItsSources(t *testing.T) {
	tab, err := readTable(ec2JSON)
	if err != nil {
		t.Fatal(err)
	}
	if tab.AsOf == "" {
		t.Error("the table has no date")
	}
	for _, e := range tab.Types {
		if len(e.Source) == 0 {
			t.Errorf("%s has no source", e.Name)
		}
		for _, s := range e.Source {
			if tab.Sources[s] == "" {
				t.Errorf("%s cites %q, which is not among the sources", e.Name, s)
			}
		}
		if (e.PricePerHour != nil) != (e.PriceAsOf != "") || (e.PricePerHour != nil) != slices.Contains(e.Source, "price") {
			t.Errorf("%s: a price without its date or source, or the reverse", e.Name)
		}
		if !slices.Contains([]string{statusCurrent, statusRetired, statusUnverified}, e.Status) {
			t.Errorf("%s has status %q", e.Name, e.Status)
		}
		if (e.Status != statusCurrent) != (e.Note != "") {
			t.Errorf("%s is %s: note %q", e.Name, e.Status, e.Note)
		}
	}
}

func TestTable_EveryGPUHasAModelThatKnowsItsName(t *testing.T) {
	for _, typ := range Types() {
		m, ok := gpu.Lookup(typ.GPU.Model)
		if !ok {
			t.Errorf("%s: GPU model %s is not known", typ.Name, typ.GPU.Model)
			continue
		}
		if typ.GPU.ProductName != "" && !slices.Contains(m.ProductNames, typ.GPU.ProductName) {
			t.Errorf("%s: NVML reports %q, which is not one of %v", typ.Name, typ.GPU.ProductName, m.ProductNames)
		}
	}
}

func TestTable_EveryTypeThatCanBeLaunchedIsComplete(t *testing.T) {
	for _, typ := range Types() {
		if typ.Retired || typ.Unverified || typ.Fractional() {
			continue
		}
		if typ.VCPU < 1 || typ.MemoryMiB < 1 || typ.MaxENIs < 1 || typ.IPv4PerENI < 1 || typ.GPU.MemoryMiB < 1 || typ.GPU.ProductName == "" {
			t.Errorf("%s lacks something: %+v", typ.Name, typ)
		}
		if typ.Arch != "amd64" && typ.Arch != "arm64" {
			t.Errorf("%s has architecture %q", typ.Name, typ.Arch)
		}
		if family, _, _ := strings.Cut(typ.Name, "."); family != typ.Family {
			t.Errorf("%s is of family %q", typ.Name, typ.Family)
		}
	}
}

func TestLookup_KnowsTheMachines(t *testing.T) {
	for _, want := range []Type{
		{Name: "p5.48xlarge", Family: "p5", Arch: "amd64", VCPU: 192, MemoryMiB: 2097152, MaxENIs: 64, IPv4PerENI: 50,
			PricePerHour: 55.04, HasPrice: true, PriceAsOf: "2026-07-20",
			GPU: GPU{Model: "H100-80GB-SXM", NameEC2: "H100", Count: 8, PartitionSize: 1, ProductName: "NVIDIA H100 80GB HBM3", MemoryMiB: 81152}},
		{Name: "p4d.24xlarge", Family: "p4d", Arch: "amd64", VCPU: 96, MemoryMiB: 1179648, MaxENIs: 60, IPv4PerENI: 50,
			PricePerHour: 21.957642, HasPrice: true, PriceAsOf: "2026-07-20",
			GPU: GPU{Model: "A100-40GB", NameEC2: "A100", Count: 8, PartitionSize: 1, ProductName: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960}},
		{Name: "p5e.48xlarge", Family: "p5e", Arch: "amd64", VCPU: 192, MemoryMiB: 2097152, MaxENIs: 64, IPv4PerENI: 50,
			GPU: GPU{Model: "H200-141GB", NameEC2: "H200", Count: 8, PartitionSize: 1, ProductName: "NVIDIA H200", MemoryMiB: 143360}},
	} {
		if got, ok := Lookup(want.Name); !ok || got != want {
			t.Errorf("got %v %+v\nwant %+v", ok, got, want)
		}
	}
	if _, ok := Lookup("m7i.large"); ok {
		t.Error("m7i.large has no GPU and is not in the table")
	}
}

// aws/karpenter-provider-aws#8368: EC2 reports 0 GPUs for every g6f size, and did for p5.4xlarge.
func TestC06_NoTypeCountsAsZeroGPUs(t *testing.T) {
	for _, typ := range Types() {
		if typ.GPU.Count < 1 {
			t.Errorf("%s has %d GPUs", typ.Name, typ.GPU.Count)
		}
	}
	for name, want := range map[string]struct {
		count int
		part  float64
	}{"p5.4xlarge": {1, 1}, "g6f.large": {1, 0.125}, "g6f.4xlarge": {1, 0.5}, "gr6f.4xlarge": {1, 0.5}} {
		typ, ok := Lookup(name)
		if !ok || typ.GPU.Count != want.count || typ.GPU.PartitionSize != want.part || typ.Fractional() != (want.part < 1) {
			t.Errorf("%s: %+v, want %+v", name, typ.GPU, want)
		}
	}
}

func TestTypes_MarkWhatIsNotSoldOrNotVerified(t *testing.T) {
	var retired, unverified []string
	for _, typ := range Types() {
		if typ.Retired {
			retired = append(retired, typ.Name)
		}
		if typ.Unverified {
			unverified = append(unverified, typ.Name)
		}
	}
	if got := strings.Join(retired, " "); got != "p3.16xlarge p3.2xlarge p3.8xlarge" {
		t.Errorf("retired: %s", got)
	}
	if got := strings.Join(unverified, " "); got != "p6e-gb200.36xlarge" {
		t.Errorf("unverified: %s", got)
	}
	if n := len(Types()); n != 69 {
		t.Errorf("%d types, want 69", n)
	}
}
