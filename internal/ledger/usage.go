package ledger

import (
	"fmt"
	"math"
)

// Usage is a pool at one moment. It does not change any more, so a whole simulation can be held to one.
type Usage struct {
	Pool string
	// Ready says whether anything may launch: Limits were set and Rebuild has counted the pool.
	Ready  bool
	Limits Limits
	// Steady and Outstanding are the two sums. Stray is the part of Outstanding that no claim accounts for: instances
	// whose claim is gone, or has gone on to another attempt.
	Steady, Outstanding, Stray Totals
}

// Fits says why one more machine may not launch, or nil: ErrNotReady or *Refusal. It is the rule that Reserve applies.
func (u Usage) Fits(m Machine) error {
	if !u.Ready {
		return fmt.Errorf("pool %s: %w", u.Pool, ErrNotReady)
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("pool %s: %w", u.Pool, err)
	}
	for _, sum := range [...]Sum{Steady, Outstanding} {
		for _, limit := range limits() {
			if refusal := u.refuse(sum, limit, m); refusal != nil {
				return refusal
			}
		}
	}
	return nil
}

// Above says whether the machines that stay are more than a limit admits: it was lowered, or a replacement was given up when
// the new machine was there.
func (u Usage) Above() bool {
	for _, limit := range limits() {
		if value, limited := u.Limits.value(limit); limited && u.Steady.of(limit) > value {
			return true
		}
	}
	return false
}

// refuse holds one sum to one limit.
func (u Usage) refuse(sum Sum, limit Limit, m Machine) *Refusal {
	value, surge, limited := u.allowed(sum, limit)
	if !limited {
		return nil
	}
	used := u.sum(sum)
	unknown := limit == HourlyCost && (!m.HasPrice || used.Unpriced > 0)
	asked := m.amounts().of(limit)
	if !unknown && asked <= plus(value, surge)-used.of(limit) {
		return nil
	}
	refusal := &Refusal{
		Pool: u.Pool, Limit: limit, Sum: sum, Value: value, Surge: surge,
		Used: used.of(limit), Leaving: used.of(limit) - u.Steady.of(limit), Asked: asked,
		UnknownPrice: unknown,
	}
	if unknown && m.HasPrice {
		refusal.Unpriced = used.Unpriced
	}
	return refusal
}

// allowed is a limit and what its sum may have beyond it.
func (u Usage) allowed(sum Sum, limit Limit) (value, surge int64, limited bool) {
	value, limited = u.Limits.value(limit)
	if sum == Outstanding {
		surge = max(u.Limits.Surge.of(limit), 0)
	}
	return value, surge, limited
}

func (u Usage) sum(sum Sum) Totals {
	if sum == Steady {
		return u.Steady
	}
	return u.Outstanding
}

// plus does not pass the largest number: a limit of that size is a way to write none.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Headroom is what may still launch, by each limit alone. One that is nil is not limited.
type Headroom struct {
	GPUs       *int64
	Nodes      *int64
	HourlyCost *Money
}

// Headroom is the smaller room of the two sums, and never below 0. A sum of money that cannot be told has none.
func (u Usage) Headroom() Headroom {
	var h Headroom
	h.GPUs = u.room(GPUs)
	h.Nodes = u.room(Nodes)
	if cost := u.room(HourlyCost); cost != nil {
		h.HourlyCost = new(Money(*cost))
	}
	return h
}

func (u Usage) room(limit Limit) *int64 {
	room := int64(math.MaxInt64)
	for _, sum := range [...]Sum{Steady, Outstanding} {
		value, surge, limited := u.allowed(sum, limit)
		if !limited {
			return nil
		}
		used := u.sum(sum)
		if !u.Ready || (limit == HourlyCost && used.Unpriced > 0) {
			return new(int64(0))
		}
		room = min(room, plus(value, surge)-used.of(limit))
	}
	return new(max(room, 0))
}
