package stack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// TestStack is one stage for all its cases: starting one takes seconds.
func TestStack(t *testing.T) {
	if err := stack.Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	s, err := stack.Start(t.Context(), stack.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("everything is healthy", func(t *testing.T) {
		for _, c := range s.Components() {
			if err := stack.Healthy(t.Context(), c.Health); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	})
	t.Run("the metrics are where it says", func(t *testing.T) {
		if body := get(t, s.MetricsURL); !strings.Contains(body, "\ncontroller_runtime_") {
			t.Errorf("%s answers without metrics of controller-runtime: %.300s", s.MetricsURL, body)
		}
	})
	t.Run("the controller is not an administrator", func(t *testing.T) { checkControllerRights(t, s) })
	t.Run("the environment is enough for kubectl", func(t *testing.T) {
		out := shell(t, s, "kubectl get gpunodepools,miglayouts,nodepools.karpenter.sh -o name")
		if out != "" {
			t.Errorf("a new stage holds %q", out)
		}
	})
	t.Run("the environment points Terraform to the built provider", func(t *testing.T) {
		config, err := os.ReadFile(lookup(t, s.Env(), "TF_CLI_CONFIG_FILE"))
		if err != nil {
			t.Fatal(err)
		}
		for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
			if !strings.Contains(string(config), registry+"/gpufleet/gpufleet") {
				t.Errorf("no override for %s:\n%s", registry, config)
			}
		}
		if out := shell(t, s, "command -v terraform-provider-gpufleet"); !strings.HasSuffix(strings.TrimSpace(out), "build/bin/terraform-provider-gpufleet") {
			t.Errorf("PATH finds the provider at %q", out)
		}
	})
	t.Run("the environment is enough for the command line, also as kubectl gpufleet", func(t *testing.T) {
		for _, command := range []string{"gpufleet status", "kubectl gpufleet status"} {
			if out := shell(t, s, command); out != "There is no GPUNodePool.\n" {
				t.Errorf("%s prints %q", command, out)
			}
		}
	})
	t.Run("the controller can be killed and started again", func(t *testing.T) { checkRestart(t, s) })
	t.Run("Stop leaves no process", func(t *testing.T) {
		pids := pidsOf(s.Components())
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		for name, pid := range pids {
			if name == "region" {
				continue // it runs in this process
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%s (pid %d) is still there: %v", name, pid, err)
			}
		}
	})
}

// checkControllerRights asks the API server what the controller's own kubeconfig may do.
func checkControllerRights(t *testing.T, s *stack.Stack) {
	t.Helper()
	kubeconfig := s.Dir + "/gpufleet-controller.kubeconfig"
	if who := shell(t, s, "kubectl --kubeconfig "+kubeconfig+" auth whoami -o jsonpath={.status.userInfo.username}"); who != "system:serviceaccount:gpufleet-system:gpufleet-controller" {
		t.Errorf("the controller is %q", who)
	}
	for _, ask := range []struct{ question, want string }{
		{"list gpunodepools.gpufleet.dev", "yes"},
		{"'*' '*'", "no"},
		{"create clusterrolebindings.rbac.authorization.k8s.io", "no"},
		{"get secrets --all-namespaces", "no"},
	} {
		got := shell(t, s, "kubectl --kubeconfig "+kubeconfig+" auth can-i "+ask.question+" || true")
		if strings.TrimSpace(got) != ask.want {
			t.Errorf("may the controller %s: %q, want %s", ask.question, got, ask.want)
		}
	}
}

func checkRestart(t *testing.T, s *stack.Stack) {
	t.Helper()
	before := pidsOf(s.Components())["gpufleet-controller"]
	if err := s.StartController(t.Context()); err == nil {
		t.Error("a second controller was started beside the first")
	}
	if err := s.KillController(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(before, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the killed controller (pid %d) is still there: %v", before, err)
	}
	if _, listed := pidsOf(s.Components())["gpufleet-controller"]; listed {
		t.Error("a killed controller is listed as running")
	}
	if err := s.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := pidsOf(s.Components())["gpufleet-controller"]; after == 0 || after == before {
		t.Errorf("the new controller has pid %d, the killed one had %d", after, before)
	}
	eventually(t, "the new controller's workers", func(context.Context) error {
		if body := get(t, s.MetricsURL); !strings.Contains(body, "\ncontroller_runtime_active_workers{") {
			return fmt.Errorf("no worker among %d bytes of metrics", len(body))
		}
		return nil
	})
	select {
	case err := <-s.Died():
		t.Errorf("a killed controller is told as a death: %v", err)
	default:
	}
}

// shell runs a command in the stack's environment and nothing of ours.
func shell(t *testing.T, s *stack.Stack, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Env = append(s.Env(), "HOME="+s.Dir) // kubectl keeps a cache there
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, stderr.String())
	}
	return string(out)
}

func lookup(t *testing.T, env []string, key string) string {
	t.Helper()
	i := slices.IndexFunc(env, func(entry string) bool { return strings.HasPrefix(entry, key+"=") })
	if i < 0 {
		t.Fatalf("the environment lacks %s", key)
	}
	return strings.TrimPrefix(env[i], key+"=")
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(body)
}
