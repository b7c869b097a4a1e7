package ledger

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// burst asks for n machines at once and returns how many are granted.
func burst(l *Ledger, prefix string, n int, m Machine) int64 {
	var granted atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if l.Reserve(inference, first(fmt.Sprint(prefix, i), m)) == nil {
				granted.Add(1)
			}
		})
	}
	wg.Wait()
	return granted.Load()
}

func TestC03_ABurstOfFiveOnALimitOfThreeNodesGivesThree(t *testing.T) {
	for _, limits := range []Limits{nodes(3), nodes(3).surging(one)} {
		for range 50 {
			l := ready(t, limits)
			if got := burst(l, "a", 5, p5); got != 3 {
				t.Fatalf("%d nodes, want 3", got)
			}
			wantSums(t, l, "24 GPUs, 3 nodes, $165.12/h", "24 GPUs, 3 nodes, $165.12/h")
		}
	}
}

// Several passes at once, each with its own claims, while limits and leaving nodes change and the pool is counted anew.
func TestC03_ConcurrentBurstsNeverPassALimit(t *testing.T) {
	l := ready(t, gpus(40).surging(one))
	var wg sync.WaitGroup
	var granted atomic.Int64
	for pass := range 4 {
		wg.Go(func() {
			for range 20 {
				granted.Add(burst(l, fmt.Sprintf("%d/", pass), 5, p5))
				rebuilt := l.Rebuild(func() (map[string]World, error) {
					return map[string]World{inference: everyClaim(4, 5)}, nil
				})
				if rebuilt != nil {
					t.Error(rebuilt)
				}
				if u := l.Usage(inference); u.Steady.GPUs > 40 || u.Outstanding.GPUs > 48 {
					t.Errorf("steady %s, outstanding %s", total(u.Steady), total(u.Outstanding))
				}
			}
		})
	}
	wg.Wait()
	wantSums(t, l, "40 GPUs, 5 nodes, $275.20/h", "40 GPUs, 5 nodes, $275.20/h")
	// A claim that was granted is granted again at each of its pass's 20 tries: at least 5 claims, and at most 5 times 20.
	if got := granted.Load(); got < 5 || got > 100 {
		t.Errorf("%d grants, want 5 to 100", got)
	}
}

// everyClaim is a list that shows every claim and the journal of none.
func everyClaim(passes, claims int) World {
	var world World
	for pass := range passes {
		for i := range claims {
			world.Claims = append(world.Claims, Claim{UID: fmt.Sprintf("%d/%d", pass, i)})
		}
	}
	return world
}

// The node class's image cannot join: each pod leaves a claim whose node never comes, twenty times.
func TestC02_ClaimsThatNeverJoinCountUntilTheirInstanceIsGone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		most   int64
	}{
		{"without surge", gpus(8), 8},
		{"with the default surge", gpus(8).surging(one), 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, tc.limits)
			var running []string
			for i := range 20 {
				uid := fmt.Sprint(i)
				if l.Reserve(inference, first(uid, p5)) == nil {
					settle(t, l, first(uid, p5))
					running = append(running, uid)
				}
				l.SetLeaving(inference, uid, true) // the pod is deleted, and its claim with it
				if machines := int64(8 * len(running)); machines > tc.most {
					t.Fatalf("round %d: %d GPUs are running, want at most %d", i, machines, tc.most)
				}
			}
			if got := l.Usage(inference).Outstanding.GPUs; got != tc.most {
				t.Errorf("%d outstanding, want %d", got, tc.most)
			}
			l.Forget(inference, running[0])
			grant(t, l, first("after", p5))
		})
	}
}
