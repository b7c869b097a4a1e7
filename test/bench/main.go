// Command bench measures what gpufleet promises to be fast and small at, against a goal each, and fails where a figure is
// beyond twice its goal.
//
//	go run ./test/bench [-run REGEXP | -readme README.md]
//
// Times are those of Go benchmarks that stand beside what they measure. The controller's memory is that of the real
// binary on the local stage, which must have been built (make build); it is looked at on Linux only. With -readme the
// table is written into that file, between the lines <!-- bench --> and <!-- /bench -->, with date, processor and commit.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// beyond is by how much a figure may miss its goal: machines differ.
const beyond = 2

// figure is one thing that is measured. The less the better.
type figure struct {
	what string
	goal float64
	// measured returns the figure in the goal's unit, and words writes either.
	measured func(context.Context) (float64, error)
	words    func(float64) string
}

var figures = []figure{
	timed("ledger: one decision to launch, reserved and released, in a pool of 1,000 nodes", "./internal/ledger", "BenchmarkReserveAndRelease", 10*time.Microsecond),
	timed("ledger: one refusal", "./internal/ledger", "BenchmarkReserveRefused", 10*time.Microsecond),
	timed("ledger: count 1,000 nodes anew, as after a restart", "./internal/ledger", "BenchmarkRebuildOfAThousandNodes", 100*time.Millisecond),
	timed("instance types of 100 pools with two entries each, once a pass of the scheduler", "./controller/karpenter", "BenchmarkGetInstanceTypes_Of100Pools", 100*time.Millisecond),
	timed("why each of 5,000 pods waits, in 50 pools with 1,000 nodes", "./controller/holds", "BenchmarkReconcile_AFullPass", time.Second),
	timed("the same after one change, which is of one pool", "./controller/holds", "BenchmarkReconcile_OneChange", 20*time.Millisecond),
	timed("one Blueprint", "./internal/blueprint", "BenchmarkCompile", time.Millisecond),
	resident("controller: resident memory with 5,000 pending pods, 1,000 nodes, 50 pools", 400*mebibyte),
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	readme := flag.String("readme", "", "write the table into this file, between its markers")
	chosen := flag.String("run", "", "measure only the figures whose names this regular expression matches")
	flag.Parse()
	if err := run(ctx, *readme, *chosen); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, readme, chosen string) error {
	which, err := regexp.Compile(chosen)
	if err != nil {
		return err
	}
	if readme != "" && chosen != "" {
		return errors.New("-readme writes the whole table: leave -run out")
	}
	table := &strings.Builder{}
	fmt.Fprintf(table, "| what | goal | measured | measured / goal |\n|---|---|---|---|\n")
	var missed []string
	for _, f := range figures {
		if !which.MatchString(f.what) {
			continue
		}
		say("measuring %s", f.what)
		got, err := f.measured(ctx)
		if errors.Is(err, errElsewhere) {
			say("left out: %v", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
		ratio := got / f.goal
		fmt.Fprintf(table, "| %s | %s | %s | %.2f |\n", f.what, f.words(f.goal), f.words(got), ratio)
		if ratio > beyond {
			missed = append(missed, fmt.Sprintf("%s: %s, the goal is %s", f.what, f.words(got), f.words(f.goal)))
		}
	}
	where, err := circumstances()
	if err != nil {
		return err
	}
	fmt.Fprintf(table, "\n%s\n", where)
	fmt.Print(table)
	if readme != "" {
		if err := write(readme, table.String()); err != nil {
			return err
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("beyond %d times the goal: %s", beyond, strings.Join(missed, "; "))
	}
	return nil
}

// say tells whoever waits. The table alone goes to standard output.
func say(format string, args ...any) {
	fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// circumstances are the date, the processor and the commit.
func circumstances() (string, error) {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	return fmt.Sprintf("Measured on %s at commit %s, on %s.", time.Now().UTC().Format(time.DateOnly), bytes.TrimSpace(commit), processor()), nil
}

// processor is its name, where the system says it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	text := string(info)
	_, after, found := strings.Cut(text, "model name")
	if !found {
		return "an unknown processor"
	}
	name, _, _ := strings.Cut(after, "\n")
	return fmt.Sprintf("%d x %s", strings.Count(text, "model name"), strings.TrimSpace(strings.TrimLeft(name, "\t :")))
}

const (
	opening = "<!-- bench -->\n"
	closing = "<!-- /bench -->\n"
)

// write puts the table between the markers of a file.
func write(path, table string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, opened := strings.Cut(string(content), opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		return fmt.Errorf("%s has no lines %s and %s", path, strings.TrimSpace(opening), strings.TrimSpace(closing))
	}
	return os.WriteFile(path, []byte(before+opening+"\n"+table+"\n"+closing+after), 0o644)
}
