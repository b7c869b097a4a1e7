package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelease_GivesBackAReservationOnly(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, first("a", p5))
	l.Release(inference, "a")
	wantSums(t, l, nothing, nothing)
	launch(t, l, "b", p5)
	l.Release(inference, "b")
	l.Release(inference, "never seen")
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
}

func TestSettle_IsAFactThatNoLimitRefuses(t *testing.T) {
	l := ready(t, gpus(0))
	settle(t, l, first("a", p5))
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
}

func TestSettle_LeavesAClaimLeaving(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, first("a", p5))
	l.SetLeaving(inference, "a", true)
	settle(t, l, first("a", p5))
	wantSums(t, l, nothing, "8 GPUs, 1 nodes, $55.04/h")
}

func TestSetLeaving_CanBeGivenUp(t *testing.T) {
	l := ready(t, gpus(8).surging(one))
	launch(t, l, "old", p5)
	l.SetLeaving(inference, "old", true)
	launch(t, l, "new", p5)
	l.SetLeaving(inference, "old", false)
	l.SetLeaving(inference, "never seen", true)
	wantSums(t, l, "16 GPUs, 2 nodes, $110.08/h", "16 GPUs, 2 nodes, $110.08/h")
	if got := refuse(t, l, first("third", p5)); got.Sum != Steady || got.Used != 16 {
		t.Errorf("refused by %+v, want the steady sum with 16 used", got)
	}
}

func TestForget_EndsTheClaimWithItsInstanceAndNoOther(t *testing.T) {
	l := ready(t, gpus(8).surging(Surge(2, p5)))
	grant(t, l, first("a", p5))
	observe(t, l, instanceOf("a", p5))
	next := Claim{UID: "a", Attempt: "a/2", Machine: p5}
	grant(t, l, next)
	settle(t, l, next)
	observe(t, l, Instance{ID: "i-a2", Claim: "a", Attempt: "a/2", Machine: p5})
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h")
	l.Forget(inference, "a")
	wantSums(t, l, nothing, "8 GPUs, 1 nodes, $55.04/h")
	l.Forget(inference, "a")
	wantSums(t, l, nothing, "8 GPUs, 1 nodes, $55.04/h")
	l.Gone(inference, "i-a")
	l.Gone(inference, "i-never-seen")
	wantSums(t, l, nothing, nothing)
}

func TestObserve_CountsAnInstanceWithoutAClaimOnce(t *testing.T) {
	l := ready(t, gpus(8))
	orphan := Instance{ID: "i-1", Machine: p5}
	observe(t, l, orphan)
	observe(t, l, orphan)
	wantSums(t, l, nothing, "8 GPUs, 1 nodes, $55.04/h")
	if got := refuse(t, l, first("a", p5)); got.Sum != Outstanding {
		t.Errorf("refused by %+v, want the outstanding sum", got)
	}
}

// One claim has one machine: of two instances that carry the same attempt, whatever made the second, one is too many.
func TestObserve_CountsASecondInstanceOfOneAttempt(t *testing.T) {
	l := ready(t, gpus(8))
	launch(t, l, "a", p5)
	observe(t, l, Instance{ID: "i-1", Claim: "a", Attempt: "a/1", Machine: p5})
	observe(t, l, Instance{ID: "i-2", Claim: "a", Attempt: "a/1", Machine: p5})
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h")
}

func TestSetLimits_BelowUseEndsNothingAndRefusesWhatIsNew(t *testing.T) {
	limits := gpus(16)
	l := ready(t, limits)
	launch(t, l, "a", p5)
	launch(t, l, "b", p5)
	*limits.GPUs = 1000
	_ = refuse(t, l, first("c", p5))
	l.SetLimits(inference, gpus(8))
	wantSums(t, l, "16 GPUs, 2 nodes, $110.08/h", "16 GPUs, 2 nodes, $110.08/h")
	if got, want := refuse(t, l, first("c", g6)).Error(), "pool inference: limit gpus 8 is reached: 16 in use, 1 asked"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	l.SetLimits(inference, gpus(17))
	grant(t, l, first("c", g6))
}

func TestUsage_DoesNotReachIntoTheLedger(t *testing.T) {
	l := ready(t, gpus(8))
	*l.Usage(inference).Limits.GPUs = 1000
	launch(t, l, "a", p5)
	_ = refuse(t, l, first("b", p5))
}

func TestHeadroom_IsTheSmallerRoomOfTheTwoSums(t *testing.T) {
	all := Limits{GPUs: new(int64(24)), Nodes: new(int64(4)), HourlyCost: new(Dollars(200)), Surge: one}
	for _, tc := range []struct {
		name    string
		limits  Limits
		steady  []Machine
		leaving []Machine
		want    Headroom
	}{
		{"nothing is used", all, nil, nil, Headroom{new(int64(24)), new(int64(4)), new(Dollars(200))}},
		{"the steady sum is nearer", all, []Machine{p5}, nil, Headroom{new(int64(16)), new(int64(3)), new(Dollars(144.96))}},
		{"one leaving takes the surge only", all, []Machine{p5}, []Machine{p5}, Headroom{new(int64(16)), new(int64(3)), new(Dollars(144.96))}},
		{"two leaving take more than it", all, []Machine{p5}, []Machine{p5, p5}, Headroom{new(int64(8)), new(int64(2)), new(Dollars(89.92))}},
		{"past the limit there is none", gpus(4), []Machine{p5}, nil, Headroom{GPUs: new(int64(0))}},
		{"no limits", Limits{}, []Machine{p5}, nil, Headroom{}},
		{"money that cannot be told", all, []Machine{nameless}, nil, Headroom{new(int64(16)), new(int64(3)), new(Money(0))}},
		{"money that is leaving and cannot be told", all, nil, []Machine{nameless}, Headroom{new(int64(24)), new(int64(4)), new(Money(0))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, Limits{})
			for i, m := range append(tc.steady, tc.leaving...) {
				uid := string(rune('a' + i))
				launch(t, l, uid, m)
				l.SetLeaving(inference, uid, i >= len(tc.steady))
			}
			l.SetLimits(inference, tc.limits)
			if diff := cmp.Diff(tc.want, l.Usage(inference).Headroom()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimit_NamesItsFieldOfTheSpec(t *testing.T) {
	for limit, want := range map[Limit]string{GPUs: "gpus", Nodes: "nodes", HourlyCost: "hourlyCost"} {
		if got := limit.Field(); got != want {
			t.Errorf("%s: %s, want %s", limit, got, want)
		}
	}
}

func TestPools_DoNotShareLimits(t *testing.T) {
	l := ready(t, gpus(8))
	l.SetLimits("batch", gpus(8))
	err := l.Rebuild(func() (map[string]World, error) { return map[string]World{"batch": {}}, nil })
	if err != nil {
		t.Fatal(err)
	}
	launch(t, l, "a", p5)
	if err := l.Reserve("batch", first("b", p5)); err != nil {
		t.Errorf("batch is refused for what inference uses: %v", err)
	}
	_ = refuse(t, l, first("c", p5))
}
