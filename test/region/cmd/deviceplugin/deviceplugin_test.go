package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

func TestParseConfig(t *testing.T) {
	for name, c := range map[string]struct{ yaml, strategy, err string }{
		"mixed":                       {"version: v1\nflags:\n  migStrategy: mixed\n", "mixed", ""},
		"no flags":                    {"version: v1\n", "none", ""},
		"other flags":                 {"version: v1\nflags: {migStrategy: single, failOnInitError: true, plugin: {deviceIDStrategy: uuid}}\n", "single", ""},
		"no version":                  {"flags: {migStrategy: mixed}\n", "", `version is ""`},
		"other version":               {"version: v2\n", "", `version is "v2"`},
		"other strategy":              {"version: v1\nflags: {migStrategy: all}\n", "", `flags.migStrategy is "all"`},
		"unknown key":                 {"version: v1\nflags: {migstrategies: mixed}\n", "", "unknown field"},
		"key a level up":              {"version: v1\nmigStrategy: mixed\n", "", "unknown field"},
		"key twice":                   {"version: v1\nversion: v1\n", "", "already set"},
		"time slicing":                {"version: v1\nsharing: {timeSlicing: {renameByDefault: true, failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n", "none", ""},
		"time slicing of nothing":     {"version: v1\nsharing: {timeSlicing: {}}\n", "", "no resources specified"},
		"time slicing of no name":     {"version: v1\nsharing: {timeSlicing: {resources: [{replicas: 4}]}}\n", "", "resources[0]: no resource name"},
		"no replicas":                 {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu}]}}\n", "", "resources[0]: no replicas"},
		"one replica":                 {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}\n", "", "must be >= 2, not 1"},
		"a resource twice":            {"version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 4}]}}\n", "", "resources[1]: nvidia.com/gpu is given twice"},
		"a name that is ignored":      {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, rename: nvidia.com/a, replicas: 2}]}}\n", "", "ignored by the plugin"},
		"devices that are ignored":    {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: 1, replicas: 2}]}}\n", "", "ignored by the plugin"},
		"renameByDefault under flags": {"version: v1\nflags: {renameByDefault: true}\n", "", "unknown field"},
		"renameByDefault a level up":  {"version: v1\nsharing: {renameByDefault: true}\n", "", "unknown field"},
		"renameByDefault too deep":    {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, renameByDefault: true}]}}\n", "", "unknown field"},
		"replicas in other letters":   {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, Replicas: 2}]}}\n", "", `unknown field "Replicas"`},
		"renaming in other letters":   {"version: v1\nsharing: {timeSlicing: {renamebydefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n", "", `unknown field "renamebydefault"`},
		"MPS":                         {"version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n", "", "sharing.mps is set"},
		"no configuration":            {"", "", `version is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseConfig([]byte(c.yaml))
			switch {
			case c.err == "" && (err != nil || got.Flags.MIGStrategy != c.strategy):
				t.Errorf("got %q, %v, want %q", got.Flags.MIGStrategy, err, c.strategy)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %v, want an error with %q", err, c.err)
			}
		})
	}
}

// Names and memory as nvidia-smi prints them on such boards (NVIDIA MIG User Guide, nvidia-smi mig -lgip transcripts).
func TestProfileName(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		compute, gpu   int
		memory, board  uint64
		suffix, expect string
	}{
		{1, 1, 9856, 81152, "", "1g.10gb"},
		{7, 7, 80640, 81152, "", "7g.80gb"},
		{3, 3, 40448, 81152, "", "3g.40gb"},
		{1, 1, 9856, 81152, "+me", "1g.10gb+me"},
		{1, 1, 20096, 81152, "", "1g.20gb"},
		{1, 1, 4864, 40960, "", "1g.5gb"},
		{1, 1, 9856, 40960, "", "1g.10gb"},
		{1, 2, 20096, 81152, "", "1c.2g.20gb"},
		{1, 1, 16384, 143771, "", "1g.18gb"},
		{3, 3, 71424, 143771, "", "3g.71gb"},
	} {
		if got := profileName(c.compute, c.gpu, c.memory, c.board*mib, c.suffix); got != c.expect {
			t.Errorf("%d of %d MiB: got %s, want %s", c.memory, c.board, got, c.expect)
		}
	}
}

func TestAdvertise(t *testing.T) {
	cut := func(i int, profiles ...string) gpu { return gpu{Index: i, MIG: true, Profiles: profiles} }
	whole := func(i int) gpu { return gpu{Index: i} }
	for name, c := range map[string]struct {
		strategy string
		gpus     []gpu
		want     map[string]int64
		warns    string
		err      string
	}{
		"mixed": {
			strategy: "mixed", gpus: []gpu{cut(0, "1g.10gb", "1g.10gb", "3g.40gb"), whole(1)},
			want: map[string]int64{"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1, "nvidia.com/gpu": 1},
		},
		"mixed, empty GPU": {
			strategy: "mixed", gpus: []gpu{cut(0, "7g.80gb"), cut(1)},
			want: map[string]int64{"nvidia.com/mig-7g.80gb": 1}, warns: "GPU 1: MIG is enabled",
		},
		"mixed, suffixes": {
			strategy: "mixed", gpus: []gpu{cut(0, "1g.10gb+me", "1g.24gb-me", "1c.2g.20gb")},
			want: map[string]int64{"nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-1g.24gb-me": 1}, warns: "1c.2g.20gb",
		},
		"none counts boards":       {strategy: "none", gpus: []gpu{cut(0, "7g.80gb"), whole(1)}, want: map[string]int64{"nvidia.com/gpu": 2}},
		"single":                   {strategy: "single", gpus: []gpu{cut(0, "3g.40gb", "3g.40gb"), cut(1, "3g.40gb")}, want: map[string]int64{"nvidia.com/gpu": 3}},
		"single without MIG":       {strategy: "single", gpus: []gpu{whole(0), whole(1)}, want: map[string]int64{"nvidia.com/gpu": 2}},
		"single, two kinds":        {strategy: "single", gpus: []gpu{cut(0, "3g.40gb", "4g.40gb")}, err: "more than one MIG device type"},
		"single, one GPU not MIG":  {strategy: "single", gpus: []gpu{cut(0, "7g.80gb"), whole(1)}, err: "or none"},
		"single, as many on each":  {strategy: "single", gpus: []gpu{cut(0, "1g.10gb", "1g.10gb"), cut(1, "1g.10gb", "1g.10gb")}, want: map[string]int64{"nvidia.com/gpu": 4}},
		"single, GPUs cut apart":   {strategy: "single", gpus: []gpu{cut(0, "7g.80gb"), cut(1, "3g.40gb")}, err: "more than one MIG device type"},
		"single, other engines":    {strategy: "single", gpus: []gpu{cut(0, "1g.10gb+me", "1g.10gb")}, err: "more than one MIG device type"},
		"single, one GPU is empty": {strategy: "single", gpus: []gpu{cut(0)}, err: "no MIG device"},
		"no GPU":                   {strategy: "mixed", want: map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings bytes.Buffer
			got, err := advertise(c.strategy, c.gpus, &warnings)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want an error with %q", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
			if (c.warns == "") != (warnings.Len() == 0) || !strings.Contains(warnings.String(), c.warns) {
				t.Errorf("warned %q, want %q", warnings.String(), c.warns)
			}
		})
	}
}

// advertised runs the whole program on one machine.
func advertised(t *testing.T, state nvml.State, configuration string) (map[string]int64, string) {
	t.Helper()
	dir := t.TempDir()
	library, err := nvml.Build(t.Context(), filepath.Join(os.TempDir(), "gpufleet-nvml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nvml.Write(filepath.Join(dir, "nvml.state"), state); err != nil {
		t.Fatal(err)
	}
	t.Setenv(nvml.EnvState, filepath.Join(dir, "nvml.state"))
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, warnings bytes.Buffer
	if err := run(library, config, &out, &warnings); err != nil {
		t.Fatal(err)
	}
	var counts map[string]int64
	if err := json.Unmarshal(out.Bytes(), &counts); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return counts, warnings.String()
}

const mixed = "version: v1\nflags:\n  migStrategy: mixed\n"

// sevenths cuts a board into n instances of one slice, each with its compute instance; profile id 19 is 1g.10gb of an H100.
func sevenths(g *nvml.GPU, n int) {
	g.MIG, g.MIGPending, g.Created = true, true, n
	for i := range n {
		g.Instances = append(g.Instances, nvml.Instance{
			ID: i + 1, ProfileID: 19, Start: i, Size: 1,
			Compute: []nvml.ComputeInstance{{ID: 0, Profile: 0, Start: 0, Size: 1}},
		})
	}
}

func TestRun_CountsWhatThisMachinesNVMLHas(t *testing.T) {
	state, err := nvml.NewMachine("machine", "H100-80GB-SXM", 4)
	if err != nil {
		t.Fatal(err)
	}
	sevenths(&state.GPUs[0], 7)
	sevenths(&state.GPUs[1], 6)
	state.GPUs[2].MIG, state.GPUs[2].MIGPending = true, true
	counts, warnings := advertised(t, state, mixed)
	if diff := cmp.Diff(map[string]int64{"nvidia.com/mig-1g.10gb": 13, "nvidia.com/gpu": 1}, counts); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(warnings, "GPU 2") {
		t.Errorf("no warning of the empty GPU 2: %q", warnings)
	}
}

func TestRun_BoardsWithoutMIGAreWhole(t *testing.T) {
	state, err := nvml.NewMachine("machine", "L4", 4)
	if err != nil {
		t.Fatal(err)
	}
	counts, _ := advertised(t, state, mixed)
	if diff := cmp.Diff(map[string]int64{"nvidia.com/gpu": 4}, counts); diff != "" {
		t.Error(diff)
	}
}

// kubernetes-sigs/karpenter#729 and bottlerocket-os/bottlerocket#4250: as many as there are replicas of every GPU, under
// the name that the configuration chooses.
func TestRun_SharesWhatTheConfigurationNames(t *testing.T) {
	machine := func(board string, n int) nvml.State {
		state, err := nvml.NewMachine("machine", board, n)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	cut := machine("H100-80GB-SXM", 2)
	sevenths(&cut.GPUs[0], 7)
	sevenths(&cut.GPUs[1], 7)
	half := machine("H100-80GB-SXM", 2)
	sevenths(&half.GPUs[0], 7)
	for name, c := range map[string]struct {
		state nvml.State
		yaml  string
		want  map[string]int64
	}{
		"four L4 by four": {machine("L4", 4), "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
			map[string]int64{"nvidia.com/gpu": 16}},
		"four L4 by four, renamed": {machine("L4", 4), "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
			map[string]int64{"nvidia.com/gpu.shared": 16}},
		"a name without its prefix": {machine("L4", 1), "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 24}]}}",
			map[string]int64{"nvidia.com/gpu": 24}},
		"a resource that the machine does not have": {machine("L4", 4), "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}",
			map[string]int64{"nvidia.com/gpu": 4}},
		"MIG instances as GPUs": {cut, "flags: {migStrategy: single}", map[string]int64{"nvidia.com/gpu": 14}},
		"MIG instances as GPUs, shared and renamed": {cut,
			"flags: {migStrategy: single}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
			map[string]int64{"nvidia.com/gpu.shared": 28}},
		"instances shared and a GPU not": {half,
			"flags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]}}",
			map[string]int64{"nvidia.com/mig-1g.10gb.shared": 14, "nvidia.com/gpu": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			counts, _ := advertised(t, c.state, "version: v1\n"+c.yaml+"\n")
			if diff := cmp.Diff(c.want, counts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRun_ALibraryThatIsNotThereIsAnError(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("version: v1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run("/no/such/libnvidia-ml.so.1", config, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("a machine without NVML advertised something")
	}
}
