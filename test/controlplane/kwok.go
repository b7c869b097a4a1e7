package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// runKwok is KWOK's own main (sigs.k8s.io/kwok/cmd/kwok), with one difference: the command has no Version. Kubernetes'
// component-base registers a global --version flag that is not a bool, and cobra refuses to run a command that has a
// Version beside such a flag.
func runKwok() int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx := signals.SetupSignalContext()
	ctx, logger := log.InitFlags(ctx, flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("kwok cannot read its configuration", "err", err)
		return 1
	}
	command := cmd.NewCommand(ctx)
	command.Version = ""
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("kwok ended", "err", err)
		return 1
	}
	return 0
}

// printStages prints KWOK's stock stages: nodes become Ready and keep their lease, pods run, jobs complete, deleted
// pods go. KWOK does not start without stages.
func printStages() int {
	stages := []string{
		nodefast.DefaultNodeInit,
		nodeheartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
	}
	if _, err := fmt.Fprintln(os.Stdout, strings.Join(stages, "\n---\n")); err != nil {
		fmt.Fprintf(os.Stderr, "cannot print the stages: %v\n", err)
		return 1
	}
	return 0
}
