package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

// run executes the command line and returns what it printed.
func run(ctx context.Context, args ...string) (stdout string, err error) {
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestInventory_PrintsWhatNVMLSeesAndChangesNothing(t *testing.T) {
	lib, err := nvml.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	state, err := nvml.NewMachine("i-1", "L40S", 4)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := nvml.Write(path, state); err != nil {
		t.Fatal(err)
	}
	t.Setenv(nvml.EnvState, path)
	out, err := run(t.Context(), "inventory", "--nvml-library", lib)
	if err != nil {
		t.Fatal(err)
	}
	var inv v1alpha1.Inventory
	if err := json.Unmarshal([]byte(out), &inv); err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != 4 || inv.GPUs[0].ProductName != "NVIDIA L40S" || inv.GPUs[0].MemoryMiB != 46068 || inv.DriverVersion != state.Driver {
		t.Errorf("printed %s", out)
	}
}

func TestInventory_WithoutNVMLPrintsWhyAndFails(t *testing.T) {
	out, err := run(t.Context(), "inventory", "--nvml-library", filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	if err == nil || !strings.Contains(out, `"step": "load-nvml"`) {
		t.Errorf("error %v, printed %s", err, out)
	}
}

func TestRun_SaysWhatIsMissing(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("KUBECONFIG", "")
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no node", nil, "--node-name"},
		{"unknown log format", []string{"--node-name", "n", "--log-format", "xml"}, "json or text"},
		{"no cluster", []string{"--node-name", "n"}, "--kubeconfig"},
		{"resync of zero", []string{"--node-name", "n", "--kubeconfig", kubeconfig(t), "--resync", "0s"}, "above 0"},
	} {
		if _, err := run(t.Context(), tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that names %s", tc.name, err, tc.want)
		}
	}
}

func TestRun_EndsWhenToldThoughTheAPIServerIsAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := run(ctx, "--node-name", "n", "--kubeconfig", kubeconfig(t)); err != nil {
		t.Errorf("error %v, want none: it was told to stop", err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("stopped after %s", took)
	}
}

// kubeconfig names an API server that does not answer: nothing listens on the discard port.
func kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
