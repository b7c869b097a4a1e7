// Command bench measures what gpufleet promises to be fast at, against a goal each, and fails where a figure is beyond
// twice its goal.
//
//	go run ./test/bench [-readme README.md]
//
// It runs Go benchmarks that stand beside what they measure. With -readme the table is written into that file, between
// the lines <!-- bench --> and <!-- /bench -->, with date, processor and commit.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/tools/benchmark/parse"
)

// beyond is by how much a figure may miss its goal: machines differ.
const beyond = 2

// figure is one thing that is measured.
type figure struct {
	what      string
	pkg       string
	benchmark string
	// goal is the most time that one operation takes.
	goal time.Duration
}

var figures = []figure{
	{"ledger: one decision to launch, reserved and released, in a pool of 1,000 nodes", "./internal/ledger", "BenchmarkReserveAndRelease", 10 * time.Microsecond},
	{"ledger: one refusal", "./internal/ledger", "BenchmarkReserveRefused", 10 * time.Microsecond},
	{"ledger: count 1,000 nodes anew, as after a restart", "./internal/ledger", "BenchmarkRebuildOfAThousandNodes", 100 * time.Millisecond},
	{"instance types of 100 pools with two entries each, once a pass of the scheduler", "./controller/karpenter", "BenchmarkGetInstanceTypes_Of100Pools", 100 * time.Millisecond},
	{"why each of 5,000 pods waits, in 50 pools with 1,000 nodes", "./controller/holds", "BenchmarkReconcile_AFullPass", time.Second},
	{"the same after one change, which is of one pool", "./controller/holds", "BenchmarkReconcile_OneChange", 20 * time.Millisecond},
	{"one Blueprint", "./internal/blueprint", "BenchmarkCompile", time.Millisecond},
}

func main() {
	readme := flag.String("readme", "", "write the table into this file, between its markers")
	flag.Parse()
	if err := run(*readme); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(readme string) error {
	table := &strings.Builder{}
	fmt.Fprintf(table, "| what | goal | measured | measured / goal |\n|---|---|---|---|\n")
	var missed []string
	for _, f := range figures {
		fmt.Fprintln(os.Stderr, "measuring", f.benchmark)
		took, err := f.measure()
		if err != nil {
			return err
		}
		ratio := float64(took) / float64(f.goal)
		fmt.Fprintf(table, "| %s | %s | %s | %.2f |\n", f.what, f.goal, rounded(took), ratio)
		if ratio > beyond {
			missed = append(missed, fmt.Sprintf("%s took %s, the goal is %s", f.benchmark, took, f.goal))
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

// measure runs the benchmark and returns the time of one operation.
func (f figure) measure() (time.Duration, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^"+f.benchmark+"$", f.pkg)
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			out = append(out, failed.Stderr...)
		}
		return 0, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	set, err := parse.ParseSet(bytes.NewReader(out))
	if err != nil {
		return 0, fmt.Errorf("reading what %s printed: %w", f.benchmark, err)
	}
	for _, runs := range set {
		for _, one := range runs {
			if strings.Split(one.Name, "-")[0] == f.benchmark {
				return time.Duration(one.NsPerOp), nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no benchmark %s", f.pkg, f.benchmark)
}

// rounded has three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
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
