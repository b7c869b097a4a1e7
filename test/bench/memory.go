package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const mebibyte = 1 << 20

// errElsewhere is of a figure that this system cannot measure.
var errElsewhere = errors.New("a process's resident memory is read from /proc, which Linux has")

// minute is how long the crowd is held while memory is looked at, and again while writes are counted.
const minute = time.Minute

// resident is the most memory that the controller has resident in a minute in which it holds the crowd.
func resident(what string, goal float64) figure {
	return figure{what: what, goal: goal, words: mebibytes, measured: func(ctx context.Context) (float64, error) {
		if runtime.GOOS != "linux" {
			return 0, errElsewhere
		}
		return crowdOfTheGoal.measure(ctx)
	}}
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/mebibyte) }

// measure starts a stage, brings the crowd about and looks at the controller that has to bear it. What it must not do
// meanwhile is checked there too: nowhere else are there as many nodes and pods.
func (c crowd) measure(ctx context.Context) (most float64, err error) {
	log.SetLogger(logr.Discard()) // what the clients here have to say
	running, err := stack.Start(ctx, stack.Options{BareMachines: true, Audit: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	// The watches end before the API server is asked to: it waits for them.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api, err := newClient(running)
	if err != nil {
		return 0, err
	}
	if err := c.bringAbout(ctx, running, api); err != nil {
		return 0, err
	}
	pid := controllerPID(running)
	say("holding %s: the controller's memory, process %d", minute, pid)
	if most, err = mostResident(ctx, pid, minute); err != nil {
		return 0, err
	}
	peak, err := memoryOf(pid, "VmHWM")
	if err != nil {
		return 0, err
	}
	say("resident: %s at most in that minute, %s at most since it started", mebibytes(most), mebibytes(peak))
	return most, errors.Join(c.checkSeries(ctx, running, api), checkSilence(ctx, running))
}

func newClient(running *stack.Stack) (client.Client, error) {
	kinds, err := scheme()
	if err != nil {
		return nil, err
	}
	config := running.Config()
	config.QPS = -1 // thousands of objects are made at once
	return client.New(config, client.Options{Scheme: kinds})
}

func controllerPID(running *stack.Stack) int {
	for _, component := range running.Components() {
		if component.Name == "gpufleet-controller" {
			return component.PID
		}
	}
	return 0
}

// mostResident looks at a process every half second.
func mostResident(ctx context.Context, pid int, span time.Duration) (float64, error) {
	most := 0.0
	for end := time.Now().Add(span); time.Now().Before(end); {
		now, err := memoryOf(pid, "VmRSS")
		if err != nil {
			return 0, err
		}
		most = max(most, now)
		if err := stack.Pause(ctx, time.Second/2); err != nil {
			return 0, err
		}
	}
	return most, nil
}

// memoryOf reads one of the sizes of /proc/PID/status, in bytes.
func memoryOf(pid int, field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("the controller's memory: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	line, _, _ := strings.Cut(rest, "\n")
	kibibytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s of process %d: %w", field, pid, err)
	}
	return kibibytes * 1024, nil
}
