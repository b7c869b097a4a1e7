package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// commands are all of them, that of the program first.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

func TestHelp_EveryExampleRuns(t *testing.T) {
	notebook := waiting(pod("notebook", slice, 1, "inference"), time.Minute)
	inResearch := notebook.DeepCopy()
	inResearch.Namespace, inResearch.UID = "research", "notebook-2"
	w := newWorld(t, with(full(), notebook, inResearch, waiting(pod("inference-6d9f7c-x2x1z", slice, 1, "inference"), time.Minute),
		claim("inference-0-zzzzz", "inference", "p5.48xlarge", "i-0a1b2c3d4e5f60001", time.Minute))...)
	examples := 0
	for _, cmd := range commands(w.program.command()) {
		if cmd.HasParent() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			command, _, _ := strings.Cut(line, " | ")
			args := strings.Fields(command)
			if args[0] != "gpufleet" {
				t.Errorf("%s: example %q does not begin with the program's name", cmd.CommandPath(), line)
				continue
			}
			examples++
			// -w ends when it has shown something.
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			out := &frames{left: 1, cancel: cancel}
			a := w.runUntil(ctx, out, args[1:]...)
			cancel()
			if a.code == exitError || out.Len() == 0 {
				t.Errorf("%s: exit code %d, printed %q, said %q", line, a.code, out.String(), a.stderr)
			}
		}
	}
	if examples < 12 {
		t.Errorf("%d examples: the test proves little", examples)
	}
}

func TestHelp_SaysTheExitCodes(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{}, {"status"}, {"explain"}, {"explain", "pod"}, {"explain", "pool"}, {"explain", "node"}} {
		a := w.run(t, append(args, "--help")...)
		if a.code != exitNothingHeld || !strings.Contains(a.stdout, "Exit codes: 0 nothing is held, 1 error, 2 something is held.") {
			t.Errorf("%v --help: exit code %d, printed\n%s", args, a.code, a.stdout)
		}
	}
}

func TestName_IsWhatPeopleType(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin/gpufleet":        "gpufleet",
		"gpufleet-linux-amd64":           "gpufleet",
		"/opt/krew/bin/kubectl-gpufleet": "kubectl gpufleet",
		"kubectl-gpufleet.exe":           "kubectl gpufleet",
	} {
		if got := nameOf(path); got != want {
			t.Errorf("nameOf(%q) = %q, want %q", path, got, want)
		}
	}
	w := newWorld(t)
	w.program.name = "kubectl gpufleet"
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--help"}, []string{"\n  kubectl gpufleet [command]\n", "\n  kubectl gpufleet status\n", `Use "kubectl gpufleet [command] --help"`}},
		{[]string{"explain", "pod", "--help"}, []string{"\n  kubectl gpufleet explain pod NAME [flags]\n", "\n  kubectl gpufleet explain pod notebook\n"}},
	} {
		a := w.run(t, tc.args...)
		for _, want := range tc.want {
			if !strings.Contains(a.stdout, want) {
				t.Errorf("%v: no %q in\n%s", tc.args, want, a.stdout)
			}
		}
		if strings.Contains(strings.ReplaceAll(a.stdout, "kubectl gpufleet", ""), "\n  gpufleet ") {
			t.Errorf("%v: a line without kubectl in\n%s", tc.args, a.stdout)
		}
	}
}

func TestCommand_RefusesWhatMeansNothingBeforeItAsksACluster(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "-o", "xml"}, `gpufleet: output "xml" is not known: give -o text, json or yaml`},
		{[]string{"explain", "pod", "waits", "-o", "wide"}, `gpufleet: output "wide" is not known: give -o text, json or yaml`},
		{[]string{"status", "--request-timeout", "0s"}, "gpufleet: --request-timeout 0s: give a time above 0, such as 15s"},
		{[]string{"status", "extra"}, `gpufleet: unknown command "extra" for "gpufleet status"`},
		{[]string{"status", "--colour"}, "gpufleet: unknown flag: --colour"},
		{[]string{"stats"}, "gpufleet: unknown command \"stats\" for \"gpufleet\"\n\nDid you mean this?\n\tstatus\n"},
	} {
		w := newWorld(t, full()...)
		if a := w.run(t, tc.args...); a.code != exitError || strings.TrimSpace(a.stderr) != strings.TrimSpace(tc.want) || a.stdout != "" {
			t.Errorf("%v: exit code %d, printed %q, said %q; want %q", tc.args, a.code, a.stdout, a.stderr, tc.want)
		}
		if asked := len(w.core.Actions()) + len(w.dynamic.Actions()); asked > 0 {
			t.Errorf("%v: %d requests", tc.args, asked)
		}
	}
}

func TestVersion_NeedsNoCluster(t *testing.T) {
	w := newWorld(t)
	w.program.connect = nil
	w.run(t, "version").want(t, exitNothingHeld, "gpufleet dev\n", "")
}

// full disk: a report that cannot be printed is an error, and not "nothing held".
func TestCommand_SaysThatItCannotPrint(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"status", "-o", "yaml"}, {"status", "-w"}, {"version"}} {
		var stderr bytes.Buffer
		if code := newWorld(t, lease(time.Second)).program.run(t.Context(), args, broken{}, &stderr); code != exitError || !strings.Contains(stderr.String(), "no space") {
			t.Errorf("%v: exit code %d, said %q", args, code, stderr.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errNoSpace }

var errNoSpace = errors.New("no space left on device")

func TestComplete_ProposesNames(t *testing.T) {
	other := pod("other", slice, 1)
	other.Namespace = "research"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"explain", "pod", ""}, "served waits"},
		{[]string{"explain", "pod", "-n", "research", ""}, "other"},
		{[]string{"explain", "pod", "waits", ""}, ""},
		{[]string{"explain", "pool", ""}, "inference"},
		{[]string{"explain", "node", ""}, "i-0a1"},
		{[]string{"explain", ""}, "node pod pool"},
		{[]string{"status", "-o", ""}, "json text yaml"},
		{[]string{"status", ""}, ""},
	} {
		w := newWorld(t, with(full(), other)...)
		if got := proposals(w.run(t, append([]string{"__complete"}, tc.args...)...)); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.args, got, tc.want)
		}
	}
}

// proposals are the names that a completion prints before its directive, without descriptions.
func proposals(a answer) string {
	var names []string
	for line := range strings.Lines(a.stdout) {
		if strings.HasPrefix(line, ":") {
			break
		}
		name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A shell that completes is no place for errors.
func TestComplete_ProposesNothingWhereNothingCanBeRead(t *testing.T) {
	for _, kind := range []string{"pod", "pool", "node"} {
		w := newWorld(t, full()...)
		w.refuse("list", "pods", errNoSpace)
		w.refuse("list", v1alpha1.GPUNodePools.Resource, errNoSpace)
		w.refuse("list", v1alpha1.GPUNodes.Resource, errNoSpace)
		a := w.run(t, "__complete", "explain", kind, "")
		if a.code != exitNothingHeld || !strings.HasPrefix(a.stdout, ":4\n") {
			t.Errorf("%s: exit code %d, printed %q", kind, a.code, a.stdout)
		}
	}
}
