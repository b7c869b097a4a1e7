package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/tools/benchmark/parse"
)

// timed is the time of one operation of a Go benchmark.
func timed(what, pkg, benchmark string, goal time.Duration) figure {
	return figure{
		what: what, goal: float64(goal), words: duration,
		measured: func(ctx context.Context) (float64, error) { return runBenchmark(ctx, pkg, benchmark) },
	}
}

// runBenchmark returns the nanoseconds of one operation.
func runBenchmark(ctx context.Context, pkg, benchmark string) (float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+benchmark+"$", pkg)
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
		return 0, fmt.Errorf("reading what %s printed: %w", benchmark, err)
	}
	for _, runs := range set {
		for _, one := range runs {
			if strings.Split(one.Name, "-")[0] == benchmark {
				return one.NsPerOp, nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no benchmark %s", pkg, benchmark)
}

// duration writes nanoseconds with three digits.
func duration(nanoseconds float64) string {
	d, unit := time.Duration(nanoseconds), time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
