package ledger

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// one is the surge of a p5.48xlarge pool by default: one node.
var one = Surge(1, p5)

func TestReserve_HoldsTheSteadySumToEachLimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		held   []Machine
		ask    Machine
		want   string
	}{
		{"gpus: the first fits", gpus(8).surging(one), nil, p5, ""},
		{"gpus: full, and the surge is not for this", gpus(8).surging(one), []Machine{p5}, p5, "pool inference: limit gpus 8 is reached: 8 in use, 8 asked"},
		{"gpus: exactly full", gpus(16), []Machine{p5}, p5, ""},
		{"gpus: some room, too little", gpus(12).surging(one), []Machine{p5}, p5, "pool inference: limit gpus 12 would be passed: 8 in use, 8 asked"},
		{"gpus: some room, enough for a smaller machine", gpus(9), []Machine{p5}, g6, ""},
		{"gpus: none at all", gpus(0).surging(one), nil, g6, "pool inference: limit gpus 0 is reached: 0 in use, 1 asked"},
		{"C01: one of one in use", gpus(1).surging(Surge(1, g6)), []Machine{g6}, g6, "pool inference: limit gpus 1 is reached: 1 in use, 1 asked"},
		{"C19: 24 replicas of one board are one GPU", gpus(2), []Machine{g6}, g6, ""},
		{"C19: and three nodes are three", gpus(2), []Machine{g6, g6}, g6, "pool inference: limit gpus 2 is reached: 2 in use, 1 asked"},
		{"nodes: a node is a node, however small", nodes(2).surging(one), []Machine{p5, g6}, g6, "pool inference: limit nodes 2 is reached: 2 in use, 1 asked"},
		{"nodes: exactly full", nodes(3), []Machine{p5, g6}, p5, ""},
		{"cost: exactly full", cost(110.08), []Machine{p5}, p5, ""},
		{"cost: a millionth too much", Limits{HourlyCost: new(Money(110_079_999))}, []Machine{p5}, p5, "pool inference: limit hourlyCost $110.079999/h would be passed: $55.04/h in use, $55.04/h asked"},
		{"cost: some room, too little", cost(60).surging(one), []Machine{p5}, p5, "pool inference: limit hourlyCost $60.00/h would be passed: $55.04/h in use, $55.04/h asked"},
		{"C51: 42.1 and 98.3 are over 60", cost(60), []Machine{NewMachine(8, 42.1, true)}, NewMachine(8, 98.3, true), "pool inference: limit hourlyCost $60.00/h would be passed: $42.10/h in use, $98.30/h asked"},
		{"C51: 42.1 and 17.9 are 60", cost(60), []Machine{NewMachine(8, 42.1, true)}, NewMachine(8, 17.9, true), ""},
		{"several: the first that is reached", Limits{GPUs: new(int64(16)), Nodes: new(int64(1)), HourlyCost: new(Dollars(1))}, nil, p5, "pool inference: limit hourlyCost $1.00/h would be passed: $0.00/h in use, $55.04/h asked"},
		{"several: gpus before nodes", Limits{GPUs: new(int64(8)), Nodes: new(int64(1))}, []Machine{p5}, p5, "pool inference: limit gpus 8 is reached: 8 in use, 8 asked"},
		{"no limits", Limits{}, []Machine{p5, p5, nameless}, nameless, ""},
		{"a limit that is a way to write none", gpus(math.MaxInt64).surging(one), []Machine{p5}, p5, ""},
		{"a limit below zero is zero", gpus(math.MinInt64), nil, g6, "pool inference: limit gpus 0 is reached: 0 in use, 1 asked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, Limits{})
			for i, m := range tc.held {
				launch(t, l, string(rune('a'+i)), m)
			}
			l.SetLimits(inference, tc.limits)
			before := l.Usage(inference)
			fits := before.Fits(tc.ask)
			err := l.Reserve(inference, first("new", tc.ask))
			if got := words(err); got != tc.want || words(fits) != tc.want {
				t.Fatalf("reserve: %q\nfits:    %q\nwant:    %q", got, words(fits), tc.want)
			}
			if diff := cmp.Diff(before, l.Usage(inference)); err != nil && diff != "" {
				t.Errorf("a refusal changed the pool (-before +after):\n%s", diff)
			}
		})
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A full pool can replace its one node: the old one is marked, the new one is asked, and there is no third.
func TestReserve_LetsAFullPoolReplaceItsNodeWithinTheSurge(t *testing.T) {
	l := ready(t, gpus(8).surging(one))
	launch(t, l, "old", p5)
	_ = refuse(t, l, first("new", p5))
	l.SetLeaving(inference, "old", true)
	launch(t, l, "new", p5)
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h")

	l.SetLeaving(inference, "new", true)
	want := &Refusal{Pool: inference, Limit: GPUs, Sum: Outstanding, Value: 8, Surge: 8, Used: 16, Leaving: 16, Asked: 8}
	got := refuse(t, l, first("third", p5))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "pool inference: limit gpus 8 with surge 8 is reached: 0 in use, 16 not yet gone, 8 asked"; got.Error() != want {
		t.Errorf("%s\nwant %s", got, want)
	}

	l.Forget(inference, "old")
	grant(t, l, first("third", p5))
}

func TestReserve_WithoutSurgeWaitsUntilTheNodeIsGone(t *testing.T) {
	l := ready(t, gpus(8))
	launch(t, l, "old", p5)
	l.SetLeaving(inference, "old", true)
	got := refuse(t, l, first("new", p5)).Error()
	if want := "pool inference: limit gpus 8 with surge 0 is reached: 0 in use, 8 not yet gone, 8 asked"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	l.Forget(inference, "old")
	grant(t, l, first("new", p5))
}

func TestReserve_HoldsTheOutstandingSumToEachLimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits Limits
		want   string
	}{
		{"gpus", gpus(8).surging(Amounts{GPUs: 7}), "pool inference: limit gpus 8 with surge 7 would be passed: 0 in use, 8 not yet gone, 8 asked"},
		{"nodes", nodes(1), "pool inference: limit nodes 1 with surge 0 is reached: 0 in use, 1 not yet gone, 1 asked"},
		{"cost", cost(60).surging(Amounts{HourlyCost: 50_079_999}), "pool inference: limit hourlyCost $60.00/h with surge $50.079999/h would be passed: $0.00/h in use, $55.04/h not yet gone, $55.04/h asked"},
		{"cost, exactly", cost(60).surging(Amounts{HourlyCost: 50_080_000}), ""},
		{"a surge below zero is none", gpus(16).surging(Amounts{GPUs: -8}), ""},
		{"a surge as large as can be", gpus(math.MaxInt64).surging(Amounts{GPUs: math.MaxInt64}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, tc.limits)
			launch(t, l, "old", p5)
			l.SetLeaving(inference, "old", true)
			if got := words(l.Reserve(inference, first("new", p5))); got != tc.want {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestReserve_RefusesAnUnknownPriceUnderACostLimit(t *testing.T) {
	const (
		asked = "pool inference: limit hourlyCost $1000.00/h: the price of what is asked is not known, and does not count as nothing: ask for instance types whose price is known, or lift this limit"
		held  = "pool inference: limit hourlyCost $1000.00/h: the price of one node that is not gone is not known, and does not count as nothing: nothing is added until it is gone or this limit is lifted"
		two   = "pool inference: limit hourlyCost $1000.00/h: the prices of 2 nodes that are not gone are not known, and do not count as nothing: nothing is added until they are gone or this limit is lifted"
	)
	for _, tc := range []struct {
		name    string
		held    []Machine
		leaving bool
		ask     Machine
		want    Refusal
		words   string
	}{
		{"of what is asked", []Machine{p5}, false, nameless, Refusal{Sum: Steady, Used: 55_040_000}, asked},
		{"of what runs", []Machine{nameless, p5}, false, p5, Refusal{Sum: Steady, Used: 55_040_000, Asked: 55_040_000, Unpriced: 1}, held},
		{"of two that run", []Machine{nameless, nameless}, false, p5, Refusal{Sum: Steady, Asked: 55_040_000, Unpriced: 2}, two},
		{"of what is leaving", []Machine{nameless}, true, p5, Refusal{Sum: Outstanding, Surge: 55_040_000, Asked: 55_040_000, Unpriced: 1}, held},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, Limits{})
			for i, m := range tc.held {
				launch(t, l, string(rune('a'+i)), m)
				l.SetLeaving(inference, string(rune('a'+i)), tc.leaving)
			}
			l.SetLimits(inference, cost(1000).surging(one))
			want := tc.want
			want.Pool, want.Limit, want.Value, want.UnknownPrice = inference, HourlyCost, 1000_000_000, true
			got := refuse(t, l, first("new", tc.ask))
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Error() != tc.words {
				t.Errorf("%s\nwant %s", got, tc.words)
			}
		})
	}
}

// Create runs again for the same claim: after a lost answer, and after an answer that nobody could write down.
func TestReserve_GrantsTheSameAttemptAgainAndCountsItOnce(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, first("a", p5))
	grant(t, l, first("a", p5))
	settle(t, l, first("a", p5))
	l.SetLimits(inference, gpus(0))
	grant(t, l, first("a", p5))
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
	l.Release(inference, "a")
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
}

func TestReserve_TheNextAttemptTakesThePlaceOfTheOneBefore(t *testing.T) {
	second := func(m Machine) Claim { return Claim{UID: "a", Attempt: "a/2", Machine: m} }
	for _, tc := range []struct {
		name   string
		limits Limits
		next   Machine
		want   string
		steady string
	}{
		{"another machine of the same size", gpus(16), p5en, "", "16 GPUs, 2 nodes, $118.336/h"},
		{"a smaller one", gpus(16), g6, "", "9 GPUs, 2 nodes, $55.8448/h"},
		{"a dearer one, past the limit", cost(115), p5en, "pool inference: limit hourlyCost $115.00/h would be passed: $55.04/h in use, $63.296/h asked", "16 GPUs, 2 nodes, $110.08/h"},
		{"the same one, when the limit was lowered: it is a new launch", gpus(8), p5, "pool inference: limit gpus 8 is reached: 8 in use, 8 asked", "16 GPUs, 2 nodes, $110.08/h"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := ready(t, gpus(16))
			launch(t, l, "other", p5)
			grant(t, l, first("a", p5))
			l.SetLimits(inference, tc.limits)
			if got := words(l.Reserve(inference, second(tc.next))); got != tc.want {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
			wantSums(t, l, tc.steady, tc.steady)
		})
	}
}

// A machine that started and ended at once is not gone yet when the next attempt is asked.
func TestReserve_CountsTheInstanceOfAnEarlierAttemptUntilItIsGone(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, first("a", p5))
	observe(t, l, instanceOf("a", p5))
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
	next := Claim{UID: "a", Attempt: "a/2", Machine: p5}
	refusal := refuse(t, l, next)
	if refusal.Sum != Outstanding || refusal.Used != 8 {
		t.Errorf("refused by %+v, want the outstanding sum with 8 used", refusal)
	}

	l.SetLimits(inference, gpus(8).surging(one))
	grant(t, l, next)
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "16 GPUs, 2 nodes, $110.08/h")
	if got := total(l.Usage(inference).Stray); got != "8 GPUs, 1 nodes, $55.04/h" {
		t.Errorf("stray: %s", got)
	}
	l.Gone(inference, "i-a")
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
}

func TestReserve_RefusesAClaimThatIsLeaving(t *testing.T) {
	l := ready(t, Limits{})
	grant(t, l, first("a", p5))
	l.SetLeaving(inference, "a", true)
	for _, attempt := range []string{"a/1", "a/2"} {
		if err := l.Reserve(inference, Claim{UID: "a", Attempt: attempt, Machine: p5}); !errors.Is(err, ErrLeaving) {
			t.Errorf("attempt %s: %v, want ErrLeaving", attempt, err)
		}
	}
	unknown := first("b", p5)
	unknown.Leaving = true
	if err := l.Reserve(inference, unknown); !errors.Is(err, ErrLeaving) {
		t.Errorf("a claim that says so itself: %v, want ErrLeaving", err)
	}
	l.SetLeaving(inference, "a", false)
	grant(t, l, Claim{UID: "a", Attempt: "a/2", Machine: p5})
}

func TestLedger_RefusesWhatCannotBeCounted(t *testing.T) {
	l := ready(t, Limits{})
	for _, tc := range []struct {
		name  string
		claim Claim
		want  string
	}{
		{"no uid", Claim{Attempt: "1", Machine: p5}, "a claim without a UID cannot be counted"},
		{"no attempt", Claim{UID: "a", Machine: p5}, "claim a: a launch without an attempt's name cannot be told from the next: give its token"},
		{"part of a GPU", first("a", Machine{GPUs: 0}), "claim a: a machine of 0 GPUs cannot be counted: give its physical GPUs, 1 to 65536"},
		{"fewer GPUs than none", first("a", Machine{GPUs: -8}), "claim a: a machine of -8 GPUs cannot be counted: give its physical GPUs, 1 to 65536"},
		{"a price of nothing", first("a", Machine{GPUs: 1, HasPrice: true}), "claim a: a machine at $0.00/h cannot be counted: give its price, above $0.00/h and below $1000000.00/h, or none"},
		{"a price below nothing", first("a", Machine{GPUs: 1, Price: -Dollar, HasPrice: true}), "claim a: a machine at -$1.00/h cannot be counted: give its price, above $0.00/h and below $1000000.00/h, or none"},
	} {
		want := "pool inference: " + tc.want
		if got := words(l.Reserve(inference, tc.claim)); got != want {
			t.Errorf("%s: reserve: %q\nwant %q", tc.name, got, want)
		}
		if got := words(l.Settle(inference, tc.claim)); got != want {
			t.Errorf("%s: settle: %q\nwant %q", tc.name, got, want)
		}
	}
	for _, instance := range []Instance{{Machine: p5}, {ID: "i-1"}} {
		if err := l.Observe(inference, instance); err == nil || !strings.Contains(err.Error(), "cannot be counted") {
			t.Errorf("observe %+v: %v", instance, err)
		}
	}
	if err := l.Usage(inference).Fits(Machine{}); err == nil {
		t.Error("a machine without GPUs fits")
	}
	wantSums(t, l, nothing, nothing)
}

func TestReserve_TakesTheRoomThatWasHeldForTheClaimBeforeItWasMade(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, Claim{UID: "admission", Attempt: "admission", Machine: p5})
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
	_ = refuse(t, l, first("another", g6))

	claim := first("made", p5)
	claim.Admission = "admission"
	grant(t, l, claim)
	wantSums(t, l, "8 GPUs, 1 nodes, $55.04/h", "8 GPUs, 1 nodes, $55.04/h")
	l.Release(inference, "made")
	wantSums(t, l, nothing, nothing)
}

func TestReserve_ARefusalKeepsTheRoomThatIsHeld(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, Claim{UID: "admission", Attempt: "admission", Machine: g6})
	larger := first("made", Machine{GPUs: 9, Price: p5.Price, HasPrice: true})
	larger.Admission = "admission"
	_ = refuse(t, l, larger)
	wantSums(t, l, "1 GPUs, 1 nodes, $0.8048/h", "1 GPUs, 1 nodes, $0.8048/h")
}

// Nothing came of a claim that room was held for: the next count gives the room back.
func TestRebuild_ForgetsRoomThatIsHeldForNoClaim(t *testing.T) {
	l := ready(t, gpus(8))
	grant(t, l, Claim{UID: "admission", Attempt: "admission", Machine: p5})
	rebuild(t, l, World{})
	wantSums(t, l, nothing, nothing)
}
