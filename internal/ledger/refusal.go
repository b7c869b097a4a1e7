package ledger

import (
	"errors"
	"fmt"
)

// Errors of a launch that no limit refuses. The caller tries again, or drops a claim that is going anyway.
var (
	// ErrNotReady is of a pool whose limits were not set, or whose claims and instances were not counted, since the start.
	ErrNotReady = errors.New("its limits, claims and instances have not been counted since the controller started: nothing is launched before that")
	// ErrLeaving is of a claim that is being deleted or was marked for disruption.
	ErrLeaving = errors.New("it is being deleted or replaced: nothing is launched for it")
)

// Sum is one of the two sums.
type Sum string

// The sums, in the order in which they are looked at.
const (
	Steady      Sum = "Steady"
	Outstanding Sum = "Outstanding"
)

// Refusal is why a limit admits no launch. Quantities are in the limit's own unit; for HourlyCost they are Money.
type Refusal struct {
	Pool  string
	Limit Limit
	// Sum is the sum that would pass Value, or Value + Surge: Surge is 0 unless Sum is Outstanding.
	Sum          Sum
	Value, Surge int64
	// Used is the sum before the launch, of which Leaving is what only the outstanding sum holds: claims that are
	// leaving, and instances without a claim. Asked is what the launch would add.
	Used, Leaving, Asked int64
	// UnknownPrice says that the sum cannot be told: the price of what is asked, or of Unpriced machines of the sum, is
	// not known. Used and Asked are then what is known, a lower bound.
	UnknownPrice bool
	Unpriced     int64
}

// Error says what is reached, what is used and what was asked, in numbers.
func (r *Refusal) Error() string {
	limit := fmt.Sprintf("pool %s: limit %s %s", r.Pool, r.Limit.Field(), r.Limit.words(r.Value))
	if r.UnknownPrice {
		return limit + ": " + r.unpriced()
	}
	state, used := "is reached", r.Limit.words(r.Used)+" in use"
	if r.Used < r.Value+r.Surge {
		state = "would be passed"
	}
	if r.Sum == Outstanding {
		limit += " with surge " + r.Limit.words(r.Surge)
		used = fmt.Sprintf("%s in use, %s not yet gone", r.Limit.words(r.Used-r.Leaving), r.Limit.words(r.Leaving))
	}
	return fmt.Sprintf("%s %s: %s, %s asked", limit, state, used, r.Limit.words(r.Asked))
}

func (r *Refusal) unpriced() string {
	switch r.Unpriced {
	case 0:
		return "the price of what is asked is not known, and does not count as nothing: ask for instance types whose price is known, or lift this limit"
	case 1:
		return "the price of one node that is not gone is not known, and does not count as nothing: nothing is added until it is gone or this limit is lifted"
	}
	return fmt.Sprintf("the prices of %d nodes that are not gone are not known, and do not count as nothing: nothing is added until they are gone or this limit is lifted", r.Unpriced)
}

// Words writes a quantity of the refusal's limit: 8, or $55.04/h.
func (r *Refusal) Words(quantity int64) string { return r.Limit.words(quantity) }

// Number writes a quantity as the limit could be set to it: 8, or 55.04.
func (r *Refusal) Number(quantity int64) string {
	if r.Limit == HourlyCost {
		return Money(quantity).Amount()
	}
	return fmt.Sprint(quantity)
}
