package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const (
	upTimeout    = 5 * time.Minute // far more than the 10 s that it takes; each of its waits has its own limit
	downTimeout  = time.Minute
	pollInterval = 100 * time.Millisecond
)

// up starts a detached process that serves the stage, and returns when it is ready.
func up(ctx context.Context, s stage) error {
	if owner, ok, err := s.owner(); err != nil {
		return err
	} else if ok {
		return fmt.Errorf("the local stage is up already (pid %d): make status shows it, make down stops it", owner.PID)
	}
	if err := build(ctx, s); err != nil {
		return err
	}
	fmt.Println("starting the local stage...")
	ended, err := s.startServing()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("it was not ready after %s", upTimeout))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the local stage did not start (%w); its log, %s, says:\n%s", err, s.log(), s.readLog())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("starting the local stage: %w", context.Cause(ctx)), down(context.WithoutCancel(ctx), s))
		case <-ticker.C:
		}
		st, err := s.readState()
		if err == nil {
			fmt.Printf("\ngpufleet's local stage is up (%s).\n", st.Took.Round(100*time.Millisecond))
			report(os.Stdout, s, st)
			nextSteps(os.Stdout, st)
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the stage's state: %w", err)
		}
	}
}

// startServing runs "stack serve" in a session of its own, so that it outlives this terminal. The channel receives how
// it ended.
func (s stage) startServing() (<-chan error, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the stage's directory: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(s.log())
	if err != nil {
		return nil, fmt.Errorf("making the stage's log: %w", err)
	}
	cmd := exec.Command(self, "serve")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return nil, fmt.Errorf("starting stack serve: %w", err)
	}
	ended := make(chan error, 1)
	go func() { // ends with its process, or with ours
		if err := cmd.Wait(); err != nil {
			ended <- err
			return
		}
		ended <- errors.New("it ended at once")
	}()
	return ended, nil
}

func (s stage) readLog() string {
	data, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// down stops the process that serves the stage, and with it all that it started.
func down(ctx context.Context, s stage) error {
	owner, ok, err := s.owner()
	if err != nil {
		return err
	}
	if !ok {
		fmt.Println("no local stage is up: nothing to stop")
		return s.forget() // what a crash left behind
	}
	if err := syscall.Kill(owner.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping the local stage (pid %d): %w", owner.PID, err)
	}
	if err := s.gone(ctx, owner); err != nil {
		return err
	}
	fmt.Printf("the local stage (pid %d) is down; its logs stay in %s\n", owner.PID, short(stack.LogDir(s.dir)))
	return nil
}

// gone waits until the process has ended.
func (s stage) gone(ctx context.Context, owner process) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		current, ok, err := s.owner()
		if err != nil {
			return err
		}
		if !ok || current != owner {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the local stage (pid %d) did not end within %s of SIGTERM; %s says why, and kill -9 %d ends it with all its processes",
				owner.PID, downTimeout, s.log(), owner.PID)
		case <-ticker.C:
		}
	}
}
