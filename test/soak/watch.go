package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
	"github.com/gpufleet/terraform-provider-gpufleet/test/soak/invariants"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const (
	// lookEvery is how often the region's books are read. They forget nothing, so nothing is missed in between.
	lookEvery = 500 * time.Millisecond
	// witnessEvery is how often the order of all writes is looked through, which takes a while.
	witnessEvery = 30 * time.Second
	// launchGrace is how long a launch may be under way: the controller gives one up after 20 seconds (controller/karpenter,
	// createTimeout), and what it asked for takes effect at once.
	launchGrace = 20 * time.Second
)

// watch looks at what must always be so.
type watch struct {
	soak   *soak
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	found []string
	known map[string]bool
	looks int
	// most is the most GPUs that each pool had at one look.
	most map[string]int64
}

func (s *soak) startWatch(ctx context.Context) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{soak: s, cancel: cancel, known: map[string]bool{}, most: map[string]int64{}}
	w.done.Go(func() {
		witnessed := time.Now()
		for stack.Pause(ctx, lookEvery) == nil {
			books, err := s.books(ctx)
			if err != nil {
				continue // the region is busy, and has forgotten nothing at the next look
			}
			w.look(books)
			if time.Since(witnessed) > witnessEvery {
				w.lookAtBindings(books)
				witnessed = time.Now()
			}
		}
	})
	return w
}

// stop ends the watch. Whoever sums up takes a last look.
func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// look checks the books.
func (w *watch) look(books []region.Instance) {
	pools := w.soak.asked()
	w.tell(invariants.Launches(books, pools, gpus, launchGrace)...)
	w.tell(invariants.Twins(books)...)
	w.tell(invariants.Strangers(books, pools)...)
	now := map[string]int64{}
	for _, each := range books {
		if each.State != invariants.Terminated {
			now[invariants.PoolOf(each)] += gpus[each.Type]
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	for pool, boards := range now {
		w.most[pool] = max(w.most[pool], boards)
	}
}

// lookAtBindings checks the order of writes of every node that ever was.
func (w *watch) lookAtBindings(books []region.Instance) {
	for _, each := range books {
		if each.Node == "" {
			continue
		}
		order := w.soak.Witness.OrderOf(each.Node, 0)
		w.tell(invariants.EarlyBinding(each.Node, order.Untainted, order.FirstBinding)...)
	}
}

// tell notes what is broken, each once.
func (w *watch) tell(broken ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, each := range broken {
		if !w.known[each] {
			w.known[each] = true
			w.found = append(w.found, each)
			w.soak.diary.say("VIOLATION: %s", each)
		}
	}
}

// seen is how often the books were looked at, and the most GPUs that each pool had then.
func (w *watch) seen() (looks int, most map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks, maps.Clone(w.most)
}

func (w *watch) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.found...)
}

// books are every instance that the region ever started, with times.
func (s *soak) books(ctx context.Context) ([]region.Instance, error) {
	body, err := s.admin(ctx, "GET", "/v1/instances", nil)
	if err != nil {
		return nil, err
	}
	var books []region.Instance
	if err := json.Unmarshal(body, &books); err != nil {
		return nil, fmt.Errorf("reading the region's books: %w", err)
	}
	return books, nil
}
