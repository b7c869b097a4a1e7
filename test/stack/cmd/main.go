// Command stack starts and stops the local stage that make up, make down and make status speak of. The stage itself is
// the library test/stack; this is its switch.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "stack: %v\n", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "stack",
		Short:         "gpufleet's local stage: a real control plane, an emulated region, the controller",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(
		command("up", "build what is stale, start the stage in the background, wait until it is ready", up),
		command("serve", "run the stage in the foreground until interrupted", serve),
		command("status", "say what runs where", status),
		command("down", "stop what up started", down),
		command("build", "build what the stage runs, and start nothing", build),
		demo(),
	)
	return cmd
}

// command is a subcommand that works on the stage of this checkout.
func command(use, short string, run func(context.Context, stage) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, err := here()
		if err != nil {
			return err
		}
		return run(cmd.Context(), s)
	}}
}

// stage is where the one stage of a checkout keeps its files.
type stage struct{ dir string }

func here() (stage, error) {
	root, err := stack.Root()
	if err != nil {
		return stage{}, err
	}
	return stage{dir: filepath.Join(root, "build", "stack")}, nil
}

func (s stage) claimFile() string { return filepath.Join(s.dir, "pid") }
func (s stage) stateFile() string { return filepath.Join(s.dir, "state.json") }
func (s stage) log() string       { return filepath.Join(s.dir, "stack.log") }

func build(ctx context.Context, _ stage) error {
	if err := stack.Preflight(ctx); err != nil {
		return err
	}
	return stack.Build(ctx, os.Stdout)
}
