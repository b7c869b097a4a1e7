package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitNothingHeld = 0
	exitError       = 1
	exitHeld        = 2
)

// program is the command line with what it meets outside: tests bring their own.
type program struct {
	// name is what people type.
	name    string
	now     func() time.Time
	getenv  func(string) string
	connect func(options, func(string) string) (*cluster, error)
	// screen is the terminal that w writes to; ok is false where it is none.
	screen func(w io.Writer) (s screen, ok bool)
}

// screen is the size of a terminal, in characters.
type screen struct{ width, height int }

// options are the flags of every command.
type options struct {
	kubeconfig, context, namespace string
	output                         string
	noColor                        bool
	timeout                        time.Duration
}

// errHeld ends a command that did its work and found something held.
var errHeld = errors.New("held")

// run executes the command line and returns the exit code.
func (p program) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := p.command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitNothingHeld
	case errors.Is(err, errHeld):
		return exitHeld
	}
	fmt.Fprintf(stderr, "gpufleet: %v\n", err)
	return exitError
}

const exitCodes = `Exit codes: 0 nothing is held, 1 error, 2 something is held.`

func (p program) command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "gpufleet",
		Short: "Say why GPU pods wait, and what the fleet has",
		Long: `gpufleet says why GPU pods wait, and what the fleet's pools and nodes have.

It only reads: ClusterRole gpufleet-viewer is enough. It asks the API server and not the controller, so it works while the
controller is down, and then says how old the controller's last word is. The kubeconfig is found as kubectl finds it.

` + exitCodes,
		Example: p.examples(
			"# What is held, and why", "gpufleet status",
			"", "# Why does this pod wait?", "gpufleet explain pod inference-6d9f7c-x2x1z -n default",
		),
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: p.name}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config, then the pod's own service account)")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig (default: its current context)")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pod (default: the context's)")
	flags.StringVarP(&o.output, "output", "o", formatText, "text, json or yaml")
	flags.BoolVar(&o.noColor, "no-color", false, "no colours on a terminal (also by the environment variable NO_COLOR)")
	flags.DurationVar(&o.timeout, "request-timeout", 15*time.Second, "how long reading the cluster may take")
	complete(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "context", p.completeContexts(o))
	complete(cmd, "namespace", cobra.NoFileCompletions)
	cmd.AddCommand(p.explainCommand(o), p.statusCommand(o), p.versionCommand())
	return cmd
}

// complete ties the completion of a flag to it. It fails only for a flag that there is not.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err))
	}
}

func (p program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program; needs no cluster",
		Example: p.examples("gpufleet version"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "gpufleet", version)
			return err
		},
	}
}

// examples are lines of a command's help, with the name that people type.
func (p program) examples(lines ...string) string {
	for i, line := range lines {
		if rest, found := strings.CutPrefix(line, "gpufleet "); found {
			line = p.name + " " + rest
		}
		if line != "" {
			line = "  " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// Output formats.
const (
	formatText = "text"
	formatJSON = "json"
	formatYAML = "yaml"
)

var formats = []string{formatText, formatJSON, formatYAML}

// check refuses flags that mean nothing, before a cluster is asked.
func (o options) check() error {
	if !slices.Contains(formats, o.output) {
		return fmt.Errorf("output %q is not known: give -o text, json or yaml", o.output)
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--request-timeout %s: give a time above 0, such as 15s", o.timeout)
	}
	return nil
}
