package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

// target is one binary of build/bin.
type target struct {
	binary  string
	what    string // for people
	dir     string // of its module, from the repository's root
	pkg     string
	ldflags string
	first   string // how long the first build takes, where that is long enough to say so
}

// Kubernetes says which version it is by what the linker wrote; it must be the one that test/controlplane/go.mod names.
const (
	kubernetesVersion = "v1.36.3"
	versionPackage    = "k8s.io/component-base/version"
)

func controlPlaneTarget() target {
	return target{
		binary: "controlplane", what: "the control plane", dir: "test/controlplane", pkg: ".", first: "about 4 minutes",
		ldflags: fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36",
			versionPackage, kubernetesVersion),
	}
}

// productTargets share every flag, so that they share compiled packages: each other set of flags costs two minutes.
func productTargets() []target {
	return []target{
		{binary: "gpufleet-controller", what: "the controller", dir: ".", pkg: "./controller/cmd/controller", first: "about 2 minutes"},
		{binary: "gpufleet-agent", what: "the node agent", dir: ".", pkg: "./controller/cmd/agent"},
		{binary: "gpufleet", what: "the command line", dir: ".", pkg: "./controller/cmd/gpufleet"},
		{binary: "terraform-provider-gpufleet", what: "the Terraform provider", dir: ".", pkg: "."},
		{binary: "deviceplugin", what: "the device plugin's stand-in", dir: ".", pkg: "./test/region/cmd/deviceplugin"},
	}
}

// Build builds all that a stack runs into build/bin and build/lib, and tells progress what it does. The go command
// decides what is stale: with nothing changed it takes a few seconds.
func Build(ctx context.Context, progress io.Writer) error {
	if err := BuildControlPlane(ctx, progress); err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	for _, t := range productTargets() {
		if err := t.build(ctx, root, progress); err != nil {
			return err
		}
	}
	if err := linkPlugin(filepath.Join(root, binDir)); err != nil {
		return fmt.Errorf("naming the command line for kubectl: %w", err)
	}
	if _, err := nvml.Build(ctx, filepath.Join(root, libDir)); err != nil {
		return fmt.Errorf("building the fake NVML library: %w", err)
	}
	return nil
}

// linkPlugin makes "kubectl gpufleet" work: kubectl finds its plugins on PATH by their names.
func linkPlugin(bin string) error {
	link := filepath.Join(bin, "kubectl-gpufleet")
	if target, err := os.Readlink(link); err == nil && target == "gpufleet" {
		return nil
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink("gpufleet", link)
}

// BuildControlPlane builds only what StartControlPlane runs.
func BuildControlPlane(ctx context.Context, progress io.Writer) error {
	root, err := Root()
	if err != nil {
		return err
	}
	return controlPlaneTarget().build(ctx, root, progress)
}

func (t target) build(ctx context.Context, root string, progress io.Writer) error {
	out := filepath.Join(root, binDir, t.binary)
	hint := ""
	if _, err := os.Stat(out); err != nil && t.first != "" {
		hint = fmt.Sprintf(" (first time: %s)", t.first)
	}
	tell(progress, "building %s%s...\n", t.what, hint)
	began := time.Now()
	args := []string{"build", "-o", out}
	if t.ldflags != "" {
		args = append(args, "-ldflags", t.ldflags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir, cmd.Env = filepath.Join(root, t.dir), os.Environ()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s (go %s in %s): %w\n%s", t.what, strings.Join(cmd.Args[1:], " "), cmd.Dir, err, output.Bytes())
	}
	if took := time.Since(began); took > 10*time.Second {
		tell(progress, "  built in %s\n", took.Round(time.Second))
	}
	return nil
}

// tell writes a line for people; a reader who went away is no reason to stop.
func tell(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, format, args...)
	}
}
