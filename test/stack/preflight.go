package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Disk space: a cold build fills the Go module cache (2.5 GB), its build cache (3 GB) and build/bin; a warm one needs
// room for new links and the logs.
const (
	coldDisk = 6 << 30
	warmDisk = 1 << 30
)

// requirement is something that the machine must offer: check says what is wrong, install what to do.
type requirement struct {
	name    string
	check   func(ctx context.Context, root string) error
	install string
}

func requirements() []requirement {
	return []requirement{
		{"Go", checkGo, "install Go 1.21 or later from https://go.dev/dl; it fetches the toolchain that go.mod names by itself, unless GOTOOLCHAIN=local or GOPROXY=off forbids it"},
		{"a C compiler", anyOf("gcc"), "the agent needs cgo, and the fake NVML library is C: apt-get install gcc libc6-dev (Fedora: dnf install gcc glibc-devel)"},
		{"make", anyOf("make"), "apt-get install make (Fedora: dnf install make)"},
		{"Terraform or OpenTofu", anyOf("terraform", "tofu"), "https://developer.hashicorp.com/terraform/install or https://opentofu.org/docs/intro/install"},
		{"kubectl", anyOf("kubectl"), "https://kubernetes.io/docs/tasks/tools"},
		{"disk space", checkDisk, "free some, or set GOCACHE and GOMODCACHE to a larger disk"},
	}
}

// Preflight checks what the stack needs of this machine. Its error names everything that is missing, each with what to
// install.
func Preflight(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	return preflight(ctx, root, requirements())
}

func preflight(ctx context.Context, root string, all []requirement) error {
	var missing []string
	for _, r := range all {
		if err := r.check(ctx, root); err != nil {
			missing = append(missing, fmt.Sprintf("  %s: %v\n    %s", r.name, err, r.install))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("this machine lacks %d of what the local stage needs:\n%s", len(missing), strings.Join(missing, "\n"))
}

// anyOf asks for one of several programs on PATH.
func anyOf(programs ...string) func(context.Context, string) error {
	return func(context.Context, string) error {
		for _, program := range programs {
			if _, err := exec.LookPath(program); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%s is not on PATH", strings.Join(programs, " or "))
	}
}

// checkGo lets the go command choose, and if need be fetch, the toolchain that go.mod asks for.
func checkGo(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-m")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go list -m: %w %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func checkDisk(ctx context.Context, root string) error {
	need := uint64(coldDisk)
	if _, err := os.Stat(filepath.Join(root, binDir, "controlplane")); err == nil {
		need = warmDisk
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dirs := []string{root}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, dir := range dirs {
		free, err := freeBytes(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the go command makes its cache on its first run
		}
		if err != nil {
			return err
		}
		if free < need {
			return fmt.Errorf("%.1f GB free on the disk of %s, %.1f GB needed", gigabytes(free), dir, gigabytes(need))
		}
	}
	return nil
}

func gigabytes(n uint64) float64 { return float64(n) / 1e9 }
