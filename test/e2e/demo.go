package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// Demo builds what is missing, starts a stack of its own in a temporary directory, tells the incident to out and stops
// the stack. It returns the first thing that is not so; then the directory with every log stays, as it does with keep.
func Demo(ctx context.Context, out io.Writer, keep bool) error {
	n := newNarrator(out)
	n.head("A GPU pod sits Pending, GPUs look free, and nobody can say why. Watch gpufleet end that.")
	if err := n.step("check what this machine needs, and build what is missing", func() (string, error) {
		if err := stack.Preflight(ctx); err != nil {
			return "", err
		}
		return "control plane, controller, agent, provider and a fake NVML are in build/", stack.Build(ctx, out)
	}); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gpufleet-demo-")
	if err != nil {
		return err
	}
	if err = n.play(ctx, dir); err == nil {
		n.head(fmt.Sprintf("All of it held, in %s. Next: make up, then follow examples/quickstart/README.md.", n.elapsed()))
	}
	if err != nil || keep {
		n.head("The logs of every part are in " + filepath.Join(dir, "stack", "logs"))
		return err
	}
	return os.RemoveAll(dir)
}

// play starts a stack, tells the incident on it and stops it.
func (n *narrator) play(ctx context.Context, dir string) (err error) {
	var running *stack.Stack
	if err := n.step("start a real control plane, an emulated AWS region and the controller", func() (string, error) {
		running, err = stack.Start(ctx, stack.Options{Dir: filepath.Join(dir, "stack"), BootDelay: bootDelay})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("Kubernetes at %s, EC2 at %s, metrics at %s", running.Server, running.Endpoint, running.MetricsURL), nil
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	// The scene's watches end before the API server is asked to: it waits for them.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scene, err := NewScene(ctx, running, dir)
	if err != nil {
		return err
	}
	for _, step := range Story() {
		if err := n.step(step.Title, func() (string, error) { return step.Do(ctx, scene) }); err != nil {
			return err
		}
	}
	return nil
}

// bootDelay is how long a machine takes to boot in the demo: long enough to be seen.
const bootDelay = time.Second

// narrator tells a story to a person: a numbered line for each step, below it what was observed and how long it took.
type narrator struct {
	out    io.Writer
	colour bool
	began  time.Time
	count  int
}

func newNarrator(out io.Writer) *narrator {
	file, isFile := out.(*os.File)
	n := &narrator{out: out, began: time.Now()}
	if isFile && os.Getenv("NO_COLOR") == "" {
		info, err := file.Stat()
		n.colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return n
}

func (n *narrator) paint(code, text string) string {
	if !n.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (n *narrator) head(text string) { fmt.Fprintf(n.out, "\n%s\n\n", n.paint("1", text)) }

func (n *narrator) elapsed() string { return seconds(time.Since(n.began)) }

func (n *narrator) step(title string, do func() (string, error)) error {
	n.count++
	fmt.Fprintf(n.out, "%2d  %s\n", n.count, n.paint("1", title))
	began := time.Now()
	observed, err := do()
	took := seconds(time.Since(began))
	if err != nil {
		fmt.Fprintf(n.out, "    %s %s\n", n.paint("31", "not so, after "+took+":"), strings.ReplaceAll(err.Error(), "\n", "\n    "))
		return fmt.Errorf("step %d, %s: %w", n.count, title, err)
	}
	fmt.Fprintf(n.out, "    %s %s\n", n.paint("32", "observed in "+took+":"), observed)
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
