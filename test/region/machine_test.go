package region

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

// row is a running instance of a type, the first of us-east-1a.
func row(t *testing.T, typeName string) *instance {
	t.Helper()
	all, err := loadCatalog()
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := all.lookup(typeName)
	return &instance{
		launch: launch{typeName: typeName, subnet: subnets()[0], capacityType: onDemand, rootGiB: 100, profile: instanceProfile},
		id:     "i-0123456789abcdef0", reservation: "r-0123456789abcdef0", address: subnets()[0].address(0), kind: kind,
		state: stateRunning, end: make(chan struct{}),
	}
}

func TestNewNode_HasTheTypesSizeAndNoGPUs(t *testing.T) {
	config, err := parseUserData([]byte(goodNodeConfig))
	if err != nil {
		t.Fatal(err)
	}
	node, err := newNode(row(t, "p5.48xlarge"), &config)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{"providerID": node.Spec.ProviderID, "kwok": node.Annotations["kwok.x-k8s.io/node"]}
	for _, label := range []string{corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable} {
		have[label] = node.Labels[label]
	}
	for name, quantity := range node.Status.Capacity {
		have["capacity "+string(name)] = quantity.String()
	}
	for name, quantity := range node.Status.Allocatable {
		have["allocatable "+string(name)] = quantity.String()
	}
	// 192 vCPUs: 60 + 10 + 2 x 5 + 188 x 2.5 = 550 millicores are reserved. 2 TiB x 39/40 = 2044723 MiB, less 255, 50 x 11
	// and 100 MiB.
	want := map[string]string{
		"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "kwok": "fake",
		corev1.LabelHostname: "i-0123456789abcdef0", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		"capacity cpu": "192", "capacity memory": "2044723Mi", "capacity pods": "50", "capacity ephemeral-storage": "100Gi",
		"allocatable cpu": "191450m", "allocatable memory": "2043818Mi", "allocatable pods": "50", "allocatable ephemeral-storage": "90Gi",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestCluster_AdmitsOnlyMachinesThatKnowItAndHaveARole(t *testing.T) {
	c := &cluster{config: &rest.Config{Host: "https://127.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca\n")}}}
	good := func() nodeConfigSpec {
		config, err := parseUserData([]byte(goodNodeConfig))
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	for name, c2 := range map[string]struct {
		edit    func(*nodeConfigSpec)
		profile string
		admits  bool
	}{
		"as it should be": {func(*nodeConfigSpec) {}, instanceProfile, true},
		"trailing slash":  {func(s *nodeConfigSpec) { s.Cluster.APIServerEndpoint += "/" }, instanceProfile, true},
		"other endpoint":  {func(s *nodeConfigSpec) { s.Cluster.APIServerEndpoint = "https://10.0.0.1" }, instanceProfile, false},
		"other CA":        {func(s *nodeConfigSpec) { s.Cluster.CertificateAuthority = []byte("other") }, instanceProfile, false},
		"no role":         {func(*nodeConfigSpec) {}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := good()
			c2.edit(&config)
			if err := c.admits(&config, c2.profile); (err == nil) != c2.admits {
				t.Errorf("got %v, want admission %v", err, c2.admits)
			}
		})
	}
}

func TestCatalog_EveryBoardIsKnownToNVMLAndCountsAgree(t *testing.T) {
	all, err := loadCatalog()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range all.Types {
		if !slices.Contains(nvml.Boards(), kind.Board.Key) {
			t.Errorf("%s: board %q is not one of test/nvml's %v", kind.Name, kind.Board.Key, nvml.Boards())
		}
		if len(kind.Board.Buses) != kind.GPU.Count {
			t.Errorf("%s: %d boards, and EC2 says %d GPUs", kind.Name, len(kind.Board.Buses), kind.GPU.Count)
		}
		if kind.OnDemand <= 0 || kind.Spot <= 0 || len(kind.Zones) == 0 {
			t.Errorf("%s: no price or no zone: %+v", kind.Name, kind)
		}
	}
}

// fitted fits the boards of a p5.48xlarge in a region with these faults, and reads them back.
func fitted(t *testing.T, set map[string]string) nvml.State {
	t.Helper()
	all, err := loadCatalog()
	if err != nil {
		t.Fatal(err)
	}
	r := &Region{faults: newFaults(), catalog: all, books: newBooks()}
	for name, body := range set {
		if err := r.faults.put(name, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{region: r, row: row(t, "p5.48xlarge"), dir: filepath.Join(t.TempDir(), "machine")}
	if err := m.fitBoards(); err != nil {
		t.Fatal(err)
	}
	state, err := nvml.Read(m.statePath())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestMachine_BootsWithTheBoardsOfItsType(t *testing.T) {
	state := fitted(t, nil)
	if len(state.GPUs) != 8 || len(state.Faults) != 0 || state.Driver != "580.95.05" {
		t.Fatalf("got %+v", state)
	}
	uuids := map[string]bool{}
	for _, gpu := range state.GPUs {
		uuids[gpu.UUID] = true
		if gpu.Name != "NVIDIA H100 80GB HBM3" || gpu.MemoryMiB != 81152 || gpu.MIG {
			t.Errorf("board %+v", gpu)
		}
	}
	if len(uuids) != 8 {
		t.Errorf("8 boards have %d UUIDs", len(uuids))
	}
}

func TestMachine_MissingGPUTakesThatBoardAway(t *testing.T) {
	whole, less := fitted(t, nil), fitted(t, map[string]string{"missing-gpu": `{"gpu":7}`})
	if diff := cmp.Diff(whole.GPUs[:7], less.GPUs); diff != "" {
		t.Error(diff)
	}
}

func TestMachine_LoseMIGInstanceGoesIntoItsNVML(t *testing.T) {
	state := fitted(t, map[string]string{"lose-mig-instance": `{"gpu":3,"nth":7}`})
	if diff := cmp.Diff([]nvml.Fault{{Name: "lose-instance", GPU: 3, N: 7}}, state.Faults); diff != "" {
		t.Error(diff)
	}
}

func TestMachinePatch_TakesBoardsAwayAndBringsThemBack(t *testing.T) {
	whole := fitted(t, nil)
	state := nvml.State{GPUs: slices.Clone(whole.GPUs)}
	for _, n := range []int{5, 8, 0} {
		var patch machinePatch
		patch.NVML.GPUs = &n
		if err := patch.apply(&state, whole); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole.GPUs[:n], state.GPUs); diff != "" {
			t.Errorf("to %d boards: %s", n, diff)
		}
	}
	nine := 9
	var patch machinePatch
	patch.NVML.GPUs = &nine
	if err := patch.apply(&state, whole); err == nil {
		t.Error("a machine with room for 8 boards took 9")
	}
}

func TestDevicePlugin_RenamesByFaultAndZeroesWhatIsGone(t *testing.T) {
	r := &Region{faults: newFaults()}
	p := &devicePlugin{m: &machine{region: r}, advertised: map[string]bool{}, counts: map[string]int64{"nvidia.com/mig-1g.10gb": 56}}
	if got, want := describe(p.resources()), `{"nvidia.com/mig-1g.10gb":56}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := r.faults.put("rename-resource", []byte(`{"from":"nvidia.com/mig-1g.10gb","to":"nvidia.com/mig-1g.10gb.shared"}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := describe(p.resources()), `{"nvidia.com/mig-1g.10gb":0,"nvidia.com/mig-1g.10gb.shared":56}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMachine_AProgramSeesItsMachineAndNotTheRegionsEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	m := &machine{row: row(t, "g6.xlarge"), dir: t.TempDir()}
	out, err := os.Create(filepath.Join(m.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.program(t.Context(), os.Stderr, "/usr/bin/env")
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := "NVML_STATE_FILE=" + m.statePath() + "\nPATH=" + os.Getenv("PATH") + "\nHOME=" + m.dir + "\n"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}
