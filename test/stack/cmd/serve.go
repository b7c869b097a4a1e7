package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// state is what the serving process tells about itself once the stage is ready.
type state struct {
	Server     string            `json:"server"`
	Endpoint   string            `json:"endpoint"`
	AdminURL   string            `json:"adminURL"`
	MetricsURL string            `json:"metricsURL"`
	EnvFile    string            `json:"envFile"`
	Components []stack.Component `json:"components"`
	Took       time.Duration     `json:"took"`
}

// serve runs the stage until the context ends or a part of it dies.
func serve(ctx context.Context, s stage) (err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making the stage's directory: %w", err)
	}
	release, err := s.claim()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.forget(), release()) }()
	if err := s.forget(); err != nil {
		return err
	}
	began := time.Now()
	running, err := stack.Start(ctx, stack.Options{Dir: s.dir, BootDelay: bootDelay, LeaderElection: true})
	if err != nil {
		return err
	}
	if err := s.writeState(stateOf(running, time.Since(began))); err != nil {
		return errors.Join(err, running.Stop())
	}
	fmt.Printf("ready after %s\n", time.Since(began).Round(time.Millisecond))
	for {
		select {
		case <-ctx.Done():
			fmt.Println("stopping: asked to")
			return running.Stop()
		case dead := <-running.Died():
			// A controller that ends is started again, as in a cluster. Without any other part there is no stage.
			revived, err := running.ReviveController(ctx)
			if !revived || err != nil {
				return errors.Join(fmt.Errorf("stopping: %w", dead), err, running.Stop())
			}
			fmt.Println("the controller was started again:", dead)
			if err := s.writeState(stateOf(running, time.Since(began))); err != nil {
				return errors.Join(err, running.Stop())
			}
		}
	}
}

// bootDelay makes a machine's boot visible to a person without making anybody wait.
const bootDelay = 2 * time.Second

func stateOf(running *stack.Stack, took time.Duration) state {
	return state{
		Server: running.Server, Endpoint: running.Endpoint, AdminURL: running.AdminURL, MetricsURL: running.MetricsURL,
		EnvFile: stack.EnvFile(running.Dir), Components: running.Components(), Took: took,
	}
}

// forget removes what tells others that a stage runs. Logs stay, for reading.
func (s stage) forget() error {
	var errs []error
	for _, path := range []string{s.stateFile(), stack.EnvFile(s.dir)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
