package ledger

import (
	"errors"
	"strings"
	"testing"
)

func TestReserve_IsNotReadyBeforeLimitsAndRebuild(t *testing.T) {
	notReady := func(t *testing.T, l *Ledger) {
		t.Helper()
		err := l.Reserve(inference, first("a", p5))
		if !errors.Is(err, ErrNotReady) {
			t.Errorf("reserve: %v, want ErrNotReady", err)
		}
		if err := l.Usage(inference).Fits(p5); !errors.Is(err, ErrNotReady) {
			t.Errorf("fits: %v, want ErrNotReady", err)
		}
	}
	t.Run("nothing was said of the pool", func(t *testing.T) { notReady(t, &Ledger{}) })
	t.Run("limits only", func(t *testing.T) {
		l := New()
		l.SetLimits(inference, gpus(8))
		notReady(t, l)
		if got := *l.Usage(inference).Headroom().GPUs; got != 0 {
			t.Errorf("headroom %d before anything was counted, want 0", got)
		}
	})
	t.Run("counted, but no limits", func(t *testing.T) {
		l := New()
		rebuild(t, l, World{})
		notReady(t, l)
	})
	t.Run("counting failed", func(t *testing.T) {
		l := New()
		l.SetLimits(inference, gpus(8))
		broken := errors.New("ec2: request limit exceeded")
		err := l.Rebuild(func() (map[string]World, error) { return map[string]World{inference: {}}, broken })
		if !errors.Is(err, broken) {
			t.Errorf("rebuild: %v, want it to wrap the reason", err)
		}
		notReady(t, l)
	})
	t.Run("another pool was counted", func(t *testing.T) {
		l := New()
		l.SetLimits(inference, gpus(8))
		if err := l.Rebuild(func() (map[string]World, error) { return map[string]World{"batch": {}}, nil }); err != nil {
			t.Fatal(err)
		}
		notReady(t, l)
	})
	t.Run("dropped", func(t *testing.T) {
		l := ready(t, gpus(8))
		launch(t, l, "b", p5)
		l.Drop(inference)
		notReady(t, l)
		l.SetLimits(inference, gpus(8))
		notReady(t, l)
		for _, late := range []func(){
			func() { l.Forget(inference, "b") }, func() { l.Release("other", "b") }, func() { l.Gone("other", "i-b") },
		} {
			late()
		}
		rebuild(t, l, World{})
		grant(t, l, first("a", p5))
	})
}

func TestRebuild_CountsClaimsAndInstances(t *testing.T) {
	const one, two = "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h"
	reserved := first("a", p5)
	reserved.State = Reserved
	leaving := launchedClaim("a", p5)
	leaving.Leaving = true
	for _, tc := range []struct {
		name                string
		world               World
		steady, outstanding string
	}{
		{"nothing", World{}, nothing, nothing},
		{"a claim that asked for nothing", World{Claims: []Claim{{UID: "a"}}}, nothing, nothing},
		{"a claim whose outcome is not known", World{Claims: []Claim{reserved}}, one, one},
		{"the same, and its instance is there", World{Claims: []Claim{reserved}, Instances: []Instance{instanceOf("a", p5)}}, one, one},
		{"a launched claim that the list does not show yet", World{Claims: []Claim{launchedClaim("a", p5)}}, one, one},
		{"a launched claim and its instance", World{Claims: []Claim{launchedClaim("a", p5)}, Instances: []Instance{instanceOf("a", p5)}}, one, one},
		{"a claim that is leaving", World{Claims: []Claim{leaving}, Instances: []Instance{instanceOf("a", p5)}}, nothing, one},
		{"an instance whose claim is gone", World{Instances: []Instance{instanceOf("a", p5)}}, nothing, one},
		{"an instance that names no claim", World{Instances: []Instance{{ID: "i-1", Machine: p5}}}, nothing, one},
		{"two of them", World{Instances: []Instance{{ID: "i-1", Machine: p5}, {ID: "i-2", Machine: p5}}}, nothing, two},
		{"one that is listed twice", World{Instances: []Instance{{ID: "i-1", Machine: p5}, {ID: "i-1", Machine: p5}}}, nothing, one},
		{"an earlier attempt that is not gone", World{Claims: []Claim{launchedClaim("a", p5)}, Instances: []Instance{
			instanceOf("a", p5), {ID: "i-0", Claim: "a", Attempt: "a/0", Machine: p5}}}, one, two},
		{"an earlier attempt of a claim that asks for nothing now", World{Claims: []Claim{{UID: "a"}}, Instances: []Instance{instanceOf("a", p5)}}, nothing, one},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, gpus(8))
			launch(t, l, "from before", p5)
			rebuild(t, l, tc.world)
			wantSums(t, l, tc.steady, tc.outstanding)
			rebuild(t, l, tc.world)
			wantSums(t, l, tc.steady, tc.outstanding)
		})
	}
}

func TestRebuild_RefusesAWorldThatCannotBeCountedAndCountsTheOthers(t *testing.T) {
	l := ready(t, gpus(8))
	launch(t, l, "a", p5)
	l.SetLimits("batch", gpus(8))
	err := l.Rebuild(func() (map[string]World, error) {
		return map[string]World{
			inference: {Claims: []Claim{launchedClaim("b", Machine{})}, Instances: []Instance{{ID: "i-1"}}},
			"batch":   {},
		}, nil
	})
	for _, part := range []string{"pool inference: counting claims and instances: ", "claim b: a machine of 0 GPUs", "instance i-1: a machine of 0 GPUs"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("rebuild: %v, want it to say %q", err, part)
		}
	}
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
	if err := l.Reserve("batch", first("c", p5)); err != nil {
		t.Errorf("batch: %v", err)
	}
}

// What happens while the world is read is not in what was read, or not all of it.
func TestRebuild_KeepsWhatHappenedWhileItRead(t *testing.T) {
	const one, two = "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h"
	unasked := World{Claims: []Claim{{UID: "a"}}}
	launched := World{Claims: []Claim{launchedClaim("a", p5)}, Instances: []Instance{instanceOf("a", p5)}}
	leaving := World{Claims: []Claim{{UID: "a", Attempt: "a/1", Machine: p5, State: Launched, Leaving: true}}}
	for _, tc := range []struct {
		name                string
		before, meanwhile   func(t *testing.T, l *Ledger)
		world               World
		steady, outstanding string
	}{
		{"a reservation of a claim that the list does not have", nil,
			func(t *testing.T, l *Ledger) { grant(t, l, first("a", p5)) }, World{}, one, one},
		{"a reservation that was made before and is not in the journal yet",
			func(t *testing.T, l *Ledger) { grant(t, l, first("a", p5)) }, nil, unasked, one, one},
		{"a claim that vanished", func(t *testing.T, l *Ledger) { launch(t, l, "a", p5) }, nil, World{}, nothing, nothing},
		{"a launch", nil, func(t *testing.T, l *Ledger) { launch(t, l, "a", p5) }, unasked, one, one},
		{"an instance that the list has not seen end", func(t *testing.T, l *Ledger) { grant(t, l, first("a", p5)) },
			func(t *testing.T, l *Ledger) {
				observe(t, l, instanceOf("a", p5))
				grant(t, l, Claim{UID: "a", Attempt: "a/2", Machine: p5})
			}, unasked, one, two},
		{"an instance of an earlier attempt, of a claim that only the list has", nil,
			func(t *testing.T, l *Ledger) {
				observe(t, l, Instance{ID: "i-0", Claim: "a", Attempt: "a/0", Machine: p5})
			}, launched, one, two},
		{"an instance without a claim", nil,
			func(t *testing.T, l *Ledger) { observe(t, l, Instance{ID: "i-1", Machine: p5}) }, World{}, nothing, one},
		{"a release, of what the list still shows", func(t *testing.T, l *Ledger) {
			observe(t, l, Instance{ID: "i-0", Claim: "a", Attempt: "a/0", Machine: p5})
			grant(t, l, first("a", p5))
		}, func(t *testing.T, l *Ledger) { l.Release(inference, "a") }, World{Claims: []Claim{{UID: "a", Attempt: "a/1", Machine: p5, State: Reserved}}}, nothing, one},
		{"disruption", func(t *testing.T, l *Ledger) { launch(t, l, "a", p5) },
			func(t *testing.T, l *Ledger) { l.SetLeaving(inference, "a", true) }, launched, nothing, one},
		{"disruption that was given up, of what the list has leaving", func(t *testing.T, l *Ledger) { launch(t, l, "a", p5) },
			func(t *testing.T, l *Ledger) { l.SetLeaving(inference, "a", false) }, leaving, one, one},
		{"the end of a claim that the list still shows, and its instance until the next time",
			func(t *testing.T, l *Ledger) { launch(t, l, "a", p5) },
			func(t *testing.T, l *Ledger) { l.Forget(inference, "a") }, launched, nothing, one},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, Limits{})
			if tc.before != nil {
				tc.before(t, l)
			}
			err := l.Rebuild(func() (map[string]World, error) {
				if tc.meanwhile != nil {
					tc.meanwhile(t, l)
				}
				return map[string]World{inference: tc.world}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			wantSums(t, l, tc.steady, tc.outstanding)
		})
	}
}

// A reservation that was given back while the list still showed it is not counted for as long as its claim lives.
func TestRebuild_DoesNotBringBackAReservation(t *testing.T) {
	l := ready(t, gpus(8))
	shown := first("a", p5)
	shown.State = Reserved
	grant(t, l, shown)
	err := l.Rebuild(func() (map[string]World, error) {
		l.Release(inference, "a")
		return map[string]World{inference: {Claims: []Claim{shown}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantSums(t, l, nothing, nothing)
	rebuild(t, l, World{Claims: []Claim{{UID: "a"}}})
	wantSums(t, l, nothing, nothing)
	if n := len(l.pools[inference].accounts); n != 0 {
		t.Errorf("%d accounts are kept of a pool in which nothing is", n)
	}
}

// An older answer must not take the place of a newer one.
func TestRebuild_LetsOneReadAtATime(t *testing.T) {
	l := New()
	err := l.Rebuild(func() (map[string]World, error) {
		if l.rebuilds.TryLock() {
			t.Error("another Rebuild could begin while this one reads")
			l.rebuilds.Unlock()
		}
		if !l.mu.TryLock() {
			t.Error("everything waits while this one reads")
		}
		l.mu.Unlock()
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !l.rebuilds.TryLock() {
		t.Error("no Rebuild can begin any more")
	}
}
