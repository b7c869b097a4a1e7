package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// Terraform is terraform, or tofu where only that is installed, in one working directory.
type Terraform struct {
	Dir  string
	tool string
	env  []string
}

// newTerraform copies the quickstart into dir.
func newTerraform(s *stack.Stack, dir string) (Terraform, error) {
	tool, err := exec.LookPath("terraform")
	if err != nil {
		if tool, err = exec.LookPath("tofu"); err != nil {
			return Terraform{}, errors.New("neither terraform nor tofu is on PATH: install one")
		}
	}
	root, err := stack.Root()
	if err != nil {
		return Terraform{}, err
	}
	if err := copyDir(filepath.Join(root, "examples", "quickstart"), dir); err != nil {
		return Terraform{}, fmt.Errorf("copying the quickstart: %w", err)
	}
	// The built provider is found through dev_overrides, so init is not needed and must not run.
	return Terraform{Dir: dir, tool: tool, env: slices.Concat(os.Environ(), s.Env(), []string{"TF_IN_AUTOMATION=1", "TF_INPUT=0"})}, nil
}

// Run runs one command and returns its exit code and output.
func (t Terraform) Run(ctx context.Context, args ...string) (int, string, error) {
	cmd := exec.CommandContext(ctx, t.tool, args...)
	cmd.Dir, cmd.Env = t.Dir, t.env
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), output.String(), nil
	}
	return 0, output.String(), err
}

// must runs a command that has to exit 0.
func (t Terraform) must(ctx context.Context, args ...string) (string, error) {
	code, output, err := t.Run(ctx, args...)
	if err != nil {
		return output, err
	}
	if code != 0 {
		return output, fmt.Errorf("%s %v exited %d:\n%s", filepath.Base(t.tool), args, code, output)
	}
	return output, nil
}

// Apply applies the configuration.
func (t Terraform) Apply(ctx context.Context) (string, error) {
	return t.must(ctx, "apply", "-auto-approve", "-no-color")
}

// Destroy removes everything.
func (t Terraform) Destroy(ctx context.Context) (string, error) {
	return t.must(ctx, "destroy", "-auto-approve", "-no-color")
}

// Unchanged plans twice, once by refresh only, and wants both to find nothing to do.
func (t Terraform) Unchanged(ctx context.Context) error {
	for _, args := range [][]string{{"plan", "-detailed-exitcode", "-no-color"}, {"plan", "-detailed-exitcode", "-refresh-only", "-no-color"}} {
		if _, err := t.must(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
