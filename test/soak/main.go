// Command soak plays random mischief on the whole local stage for a while, and looks all the time whether what must always
// be so is so: from outside the product, by the region's books and the API server.
//
//	go run ./test/soak [-minutes 20] [-seed N] [-dir build/soak]
//
// The seed decides what is done, step by step, and is printed: a run that failed can be played again, as far as timing lets
// it. The stage must have been built (make build). What was done is in build/soak/soak.log, the logs of the stage in
// build/soak/stack/logs. It exits 1 where anything was broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpufleet/terraform-provider-gpufleet/test/e2e"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	minutes := flag.Float64("minutes", 20, "how long there is mischief; the end takes some minutes more")
	seed := flag.Uint64("seed", rand.Uint64N(1_000_000), "what decides everything that is done (default: a random one)")
	dir := flag.String("dir", filepath.Join("build", "soak"), "where the log and the stage's files go")
	flag.Parse()
	log.SetLogger(logr.Discard()) // what the clients here have to say
	if err := run(ctx, time.Duration(*minutes*float64(time.Minute)), *seed, *dir); err != nil {
		fmt.Fprintf(os.Stderr, "soak: %v\nsoak: to play it again: make soak SOAK_SEED=%d SOAK_MINUTES=%g\n", err, *seed, *minutes)
		os.Exit(1)
	}
}

// bootDelay lets machines be pending for a while, so that mischief can meet them there.
const bootDelay = 2 * time.Second

func run(ctx context.Context, span time.Duration, seed uint64, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	diary, err := openDiary(filepath.Join(dir, "soak.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, diary.close()) }()
	diary.say("seed %d, %s", seed, span)
	running, err := stack.Start(ctx, stack.Options{Dir: filepath.Join(dir, "stack"), BootDelay: bootDelay})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	// The watches end before the API server is asked to: it waits for them.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scene, err := e2e.NewScene(ctx, running, dir)
	if err != nil {
		return err
	}
	s := &soak{Scene: scene, diary: diary, seed: seed, pools: pools()}
	err = s.play(ctx, span)
	s.summary(context.WithoutCancel(ctx))
	return errors.Join(err, s.verdict())
}

// soak is one run.
type soak struct {
	*e2e.Scene
	diary *diary
	seed  uint64
	pools []*pool
	watch *watch
	// faults are those that are on, with when each ends.
	faults map[string]time.Time
	// done counts what was done, by kind and outcome.
	done map[string]*tally
}

type tally struct{ done, nothing, failed int }

// play makes the fleet, does mischief, and wants a good end.
func (s *soak) play(ctx context.Context, span time.Duration) error {
	s.faults, s.done = map[string]time.Time{}, map[string]*tally{}
	if err := s.declare(ctx); err != nil {
		return err
	}
	s.watch = s.startWatch(ctx)
	defer s.watch.stop()
	if err := s.mischief(ctx, span); err != nil {
		return err
	}
	if s.verdict() != nil {
		return nil // it is said by whoever asked; the stage is left as it is
	}
	return s.end(ctx)
}

// mischief does one thing after the other until the time is over or something is broken.
func (s *soak) mischief(ctx context.Context, span time.Duration) error {
	for step, end := uint64(0), time.Now().Add(span); time.Now().Before(end) && s.verdict() == nil; step++ {
		// A source of its own for each step: how much of it one step uses, which depends on what is there, changes no other.
		chance := rand.New(rand.NewPCG(s.seed, step))
		s.endFaults(ctx)
		if err := s.act(ctx, choose(chance), chance); err != nil {
			return err
		}
		if err := stack.Pause(ctx, time.Duration(500+chance.IntN(5500))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// act does one thing. What does not work is said and counted; only a stage that is broken ends the run.
func (s *soak) act(ctx context.Context, a action, chance *rand.Rand) error {
	if s.done[a.name] == nil {
		s.done[a.name] = &tally{}
	}
	did, err := a.do(s, ctx, chance)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errBroken):
		return fmt.Errorf("%s: %w", a.name, err)
	case err != nil:
		s.done[a.name].failed++
		s.diary.say("%s did not work: %v", a.name, err)
	case did == "":
		s.done[a.name].nothing++
	default:
		s.done[a.name].done++
		s.diary.say("%s: %s", a.name, did)
	}
	select {
	case dead := <-s.Stack.Died():
		return dead
	default:
		return nil
	}
}

// verdict is the error of a run in which something was broken.
func (s *soak) verdict() error {
	if s.watch == nil {
		return nil
	}
	if broken := s.watch.broken(); len(broken) > 0 {
		return fmt.Errorf("%d violations, the first: %s", len(broken), broken[0])
	}
	return nil
}

// errBroken is of a stage that does not run any more.
var errBroken = errors.New("the stage is broken")
