package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// frames is standard output that ends the watch, by what a person would do, after so many frames.
type frames struct {
	bytes.Buffer
	left   int
	cancel context.CancelFunc
	// between runs after a frame that is not the last.
	between func()
}

func (f *frames) Write(p []byte) (int, error) {
	n, err := f.Buffer.Write(p)
	if f.left--; f.left == 0 {
		f.cancel()
	} else if f.between != nil {
		f.between()
	}
	return n, err
}

// watch runs "status -w" until it has shown so many frames.
func (w *world) watch(t *testing.T, count int, between func(), args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	f := &frames{left: count, cancel: cancel, between: between}
	a := w.runUntil(ctx, f, append([]string{"status", "-w", "--interval", "1ms"}, args...)...)
	if f.left > 0 {
		t.Fatalf("%d frames less than wanted; it said %s", f.left, a.stderr)
	}
	a.stdout = f.String()
	return a
}

// free ends what is held: the pod goes.
func (w *world) free(t *testing.T) {
	t.Helper()
	if err := w.core.CoreV1().Pods("default").Delete(t.Context(), "waits", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestWatch_AppendsOnAPipeAndEndsAsTheLastStateDoes(t *testing.T) {
	w := newWorld(t, full()...)
	w.watch(t, 2, func() { w.free(t) }).want(t, exitNothingHeld, `2026-12-01T12:00:00Z
POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE  HEADROOM      COST  AGE  HELD
inference  Inference    1/1   8/8  8 verified     0 GPUs    $55.04/h   3h  1 LimitReached

Held
POOL       REASON        PODS  GPUS  FOR  WHY
inference  LimitReached     1     1   4m  limit gpus 8 is reached: 8 in use, 8 asked

2026-12-01T12:00:00Z
POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE  HEADROOM      COST  AGE  HELD
inference  Inference    1/1   8/8  8 verified     0 GPUs    $55.04/h   3h  0

Nothing is held.
`, "")
	if a := newWorld(t, full()...).watch(t, 2, nil); a.code != exitHeld {
		t.Errorf("exit code %d while a pod is held to the end, want %d", a.code, exitHeld)
	}
}

func TestWatch_RedrawsInPlaceOnATerminal(t *testing.T) {
	w := newWorld(t, with(mig(), lease(90*time.Second))...)
	w.terminal = &screen{width: 60, height: 20}
	frame := "\x1b[Hthe controller has not been heard of for 1m30s; limits in\x1b[K\n" +
		"use and unavailable offerings are what it said last; reasons\x1b[K\n" +
		"are computed here, from the cluster's objects, and still\x1b[K\n" +
		"hold\x1b[K\n" +
		"There is no GPUNodePool.\x1b[K\n\x1b[J"
	a := w.watch(t, 2, nil)
	if want := "\x1b[H\x1b[J" + frame + frame; a.stdout != want {
		t.Errorf("printed\n%q\nwant\n%q", a.stdout, want)
	}
	if a.stderr != "" {
		t.Errorf("said %q beside the picture", a.stderr)
	}
}

// A frame that is longer than the terminal would scroll, and no longer be drawn in place.
func TestWatch_CutsWhatTheTerminalHasNoLinesFor(t *testing.T) {
	w := newWorld(t, full()...)
	w.terminal, w.env["NO_COLOR"] = &screen{width: 100, height: 5}, "1"
	// Six lines; the cursor rests on the fifth.
	want := "POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE  HEADROOM      COST  AGE  HELD\n" +
		"inference  Inference    1/1   8/8  8 verified     0 GPUs    $55.04/h   3h  1 LimitReached\n" +
		"\n" +
		"... 3 lines more\n"
	a := w.watch(t, 1, nil)
	if got := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(a.stdout); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

func TestWatch_JSONIsALineForEachFrame(t *testing.T) {
	w := newWorld(t, full()...)
	a := w.watch(t, 3, nil, "-o", "json")
	lines := strings.Split(strings.TrimSuffix(a.stdout, "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3:\n%s", len(lines), a.stdout)
	}
	for _, line := range lines {
		var r statusReport
		if err := json.Unmarshal([]byte(line), &r); err != nil || len(r.Holds) != 1 {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestWatch_YAMLIsADocumentForEachFrame(t *testing.T) {
	a := newWorld(t, full()...).watch(t, 2, nil, "-o", "yaml")
	if documents := strings.Count(a.stdout, "---\nat: "); documents != 2 || !strings.HasPrefix(a.stdout, "---\n") {
		t.Errorf("%d documents, want 2:\n%s", documents, a.stdout)
	}
}

func TestWatch_GoesOnWhenTheServerIsAwayForAWhile(t *testing.T) {
	w := newWorld(t, full()...)
	asked := 0
	w.away(func() bool { asked++; return asked == 2 })
	a := w.watch(t, 2, nil)
	const said = "12:00:00: cannot list gpunodepools.gpufleet.dev: https://cluster.test cannot be reached: look at --kubeconfig and --context: connection refused; trying again\n"
	if a.code != exitHeld || asked != 3 || a.stderr != said {
		t.Errorf("exit code %d, asked %d times, said %q; want %d, 3 and %q", a.code, asked, a.stderr, exitHeld, said)
	}
}

func TestWatch_InterruptedWhileTheServerIsAwayIsAnError(t *testing.T) {
	w := newWorld(t, full()...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	w.away(func() bool {
		if asked++; asked == 3 {
			cancel()
		}
		return asked > 1
	})
	a := w.runUntil(ctx, &bytes.Buffer{}, "status", "-w", "--interval", "1ms")
	if a.code != exitError || asked != 3 {
		t.Errorf("exit code %d after %d tries, want %d after 3", a.code, asked, exitError)
	}
}

func TestWatch_WhatCannotBeReadAtFirstEndsIt(t *testing.T) {
	w := newWorld(t, full()...)
	w.away(func() bool { return true })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if a := w.runUntil(ctx, &bytes.Buffer{}, "status", "-w", "--interval", "1ms"); ctx.Err() != nil || a.code != exitError || a.stdout != "" || !strings.Contains(a.stderr, "cannot be reached") {
		t.Errorf("%+v", a)
	}
}

func TestWatch_RefusesAnIntervalOfNothing(t *testing.T) {
	newWorld(t, full()...).run(t, "status", "-w", "--interval", "0s").
		want(t, exitError, "", "gpufleet: --interval 0s: give a time above 0, such as 2s\n")
}

// away makes the server not answer while when says so; it is asked once a look.
func (w *world) away(when func() bool) {
	w.dynamic.PrependReactor("list", "gpunodepools", func(clienttesting.Action) (bool, runtime.Object, error) {
		return when(), nil, errors.New("connection refused")
	})
}
