package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const inference = "inference"

// Machines at AWS's us-east-1 on-demand list prices of 2026-07-20.
var (
	p5       = Machine{GPUs: 8, Price: 55_040_000, HasPrice: true} // p5.48xlarge, $55.04/h
	g6       = Machine{GPUs: 1, Price: 804_800, HasPrice: true}    // g6.xlarge, $0.8048/h
	p5en     = Machine{GPUs: 8, Price: 63_296_000, HasPrice: true} // p5en.48xlarge, $63.296/h
	nameless = Machine{GPUs: 8}                                    // p5e.48xlarge: no list has its price
)

func gpus(n int64) Limits  { return Limits{GPUs: new(n)} }
func nodes(n int64) Limits { return Limits{Nodes: new(n)} }
func cost(perHour float64) Limits {
	return Limits{HourlyCost: new(Dollars(perHour))}
}

func (l Limits) surging(a Amounts) Limits {
	l.Surge = a
	return l
}

// first is the first attempt of a claim.
func first(uid string, m Machine) Claim { return Claim{UID: uid, Attempt: uid + "/1", Machine: m} }

func launchedClaim(uid string, m Machine) Claim {
	c := first(uid, m)
	c.State = Launched
	return c
}

// instanceOf is the machine of a claim's first attempt.
func instanceOf(uid string, m Machine) Instance {
	return Instance{ID: "i-" + uid, Claim: uid, Attempt: uid + "/1", Machine: m}
}

// ready returns a ledger with one pool in which nothing exists yet.
func ready(t testing.TB, limits Limits) *Ledger {
	t.Helper()
	l := New()
	l.SetLimits(inference, limits)
	rebuild(t, l, World{})
	return l
}

func rebuild(t testing.TB, l *Ledger, world World) {
	t.Helper()
	if err := l.Rebuild(reading(world)); err != nil {
		t.Fatal(err)
	}
}

func reading(world World) func() (map[string]World, error) {
	return func() (map[string]World, error) { return map[string]World{inference: world}, nil }
}

func grant(t testing.TB, l *Ledger, claim Claim) {
	t.Helper()
	if err := l.Reserve(inference, claim); err != nil {
		t.Fatalf("claim %s is refused: %v", claim.UID, err)
	}
}

// launch reserves and settles the first attempt of a claim.
func launch(t testing.TB, l *Ledger, uid string, m Machine) {
	t.Helper()
	grant(t, l, first(uid, m))
	settle(t, l, first(uid, m))
}

func settle(t testing.TB, l *Ledger, claim Claim) {
	t.Helper()
	if err := l.Settle(inference, claim); err != nil {
		t.Fatal(err)
	}
}

func observe(t testing.TB, l *Ledger, instance Instance) {
	t.Helper()
	if err := l.Observe(inference, instance); err != nil {
		t.Fatal(err)
	}
}

func refuse(t testing.TB, l *Ledger, claim Claim) *Refusal {
	t.Helper()
	err := l.Reserve(inference, claim)
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("claim %s: %v, want a refusal", claim.UID, err)
	}
	return refusal
}

// wantSums compares the two sums, written "8 GPUs, 1 nodes, $55.04/h, 0 unpriced".
func wantSums(t testing.TB, l *Ledger, steady, outstanding string) {
	t.Helper()
	u := l.Usage(inference)
	if diff := cmp.Diff([]string{steady, outstanding}, []string{total(u.Steady), total(u.Outstanding)}); diff != "" {
		t.Fatalf("steady and outstanding (-want +got):\n%s", diff)
	}
}

func total(t Totals) string {
	words := fmt.Sprintf("%d GPUs, %d nodes, %s", t.GPUs, t.Nodes, t.HourlyCost)
	if t.Unpriced > 0 {
		words += fmt.Sprintf(", %d unpriced", t.Unpriced)
	}
	return words
}

const nothing = "0 GPUs, 0 nodes, $0.00/h"
