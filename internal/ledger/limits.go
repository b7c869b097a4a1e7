package ledger

import (
	"fmt"
	"slices"
)

// Limit is one of the things that a pool can be limited in. Its text is the reason of the pool's LimitReached condition.
type Limit string

// The limits, in the order in which they are looked at.
const (
	GPUs       Limit = "GPUs"
	Nodes      Limit = "Nodes"
	HourlyCost Limit = "HourlyCost"
)

// limits are all of them.
func limits() [3]Limit { return [...]Limit{GPUs, Nodes, HourlyCost} }

// Order is a limit's place among them, from 0; one that there is not comes before all.
func Order(l Limit) int {
	all := limits()
	return slices.Index(all[:], l)
}

// Field is the limit's field in spec.limits of a pool.
func (l Limit) Field() string {
	switch l {
	case GPUs:
		return "gpus"
	case Nodes:
		return "nodes"
	}
	return "hourlyCost"
}

// words writes a quantity of the limit: 8, or $55.04/h.
func (l Limit) words(quantity int64) string {
	if l == HourlyCost {
		return Money(quantity).String()
	}
	return fmt.Sprint(quantity)
}

// Limits are what a pool may have. One that is nil does not limit, and 0 admits nothing.
type Limits struct {
	GPUs       *int64
	Nodes      *int64
	HourlyCost *Money
	// Surge is what the outstanding sum may have beyond the limits, so that a node can be replaced before it is gone.
	// Zero is no surge: whoever has the pool's default asks Surge for it.
	Surge Amounts
}

func (l Limits) value(limit Limit) (int64, bool) {
	switch {
	case limit == GPUs && l.GPUs != nil:
		return max(*l.GPUs, 0), true
	case limit == Nodes && l.Nodes != nil:
		return max(*l.Nodes, 0), true
	case limit == HourlyCost && l.HourlyCost != nil:
		return max(int64(*l.HourlyCost), 0), true
	}
	return 0, false
}

// copied shares no pointer with the caller's.
func (l Limits) copied() Limits {
	if l.GPUs != nil {
		l.GPUs = new(*l.GPUs)
	}
	if l.Nodes != nil {
		l.Nodes = new(*l.Nodes)
	}
	if l.HourlyCost != nil {
		l.HourlyCost = new(*l.HourlyCost)
	}
	return l
}

// Amounts are quantities of everything that is limited.
type Amounts struct {
	GPUs       int64
	Nodes      int64
	HourlyCost Money
}

func (a Amounts) of(limit Limit) int64 {
	switch limit {
	case GPUs:
		return a.GPUs
	case Nodes:
		return a.Nodes
	}
	return int64(a.HourlyCost)
}

// maxSurge is more nodes than any pool has.
const maxSurge = 1_000_000

// Surge is a number of nodes of the pool's largest machine: the most GPUs and the highest known price among its machines.
// A pool's default is one node.
func Surge(nodes int64, machines ...Machine) Amounts {
	var gpus int64
	var price Money
	for _, m := range machines {
		gpus, price = max(gpus, m.GPUs), max(price, m.price())
	}
	nodes = min(max(nodes, 0), maxSurge)
	return Amounts{GPUs: nodes * gpus, Nodes: nodes, HourlyCost: Money(nodes) * price}
}

// Machine is what one node counts.
type Machine struct {
	// GPUs is the number of physical boards, at least 1. A part of a board cannot be counted.
	GPUs int64
	// Price is what it costs an hour; it means nothing unless HasPrice. An unknown price never counts as 0.
	Price    Money
	HasPrice bool
}

// maxGPUs is more than any machine has: a number above it is a mistake.
const maxGPUs = 1 << 16

// NewMachine counts boards, and dollars an hour where they are known. No machine costs nothing, nor a million: a price that
// is not between them, or not a number, is not known.
func NewMachine(gpus int64, pricePerHour float64, hasPrice bool) Machine {
	price := Dollars(pricePerHour)
	if !hasPrice || price <= 0 || price >= maxPrice {
		return Machine{GPUs: gpus}
	}
	return Machine{GPUs: gpus, Price: price, HasPrice: true}
}

// check refuses a machine that would count wrongly.
func (m Machine) check() error {
	if m.GPUs < 1 || m.GPUs > maxGPUs {
		return fmt.Errorf("a machine of %d GPUs cannot be counted: give its physical GPUs, 1 to %d", m.GPUs, maxGPUs)
	}
	if m.HasPrice && (m.Price <= 0 || m.Price >= maxPrice) {
		return fmt.Errorf("a machine at %s cannot be counted: give its price, above $0.00/h and below %s, or none", m.Price, maxPrice)
	}
	return nil
}

func (m Machine) price() Money {
	if !m.HasPrice {
		return 0
	}
	return m.Price
}

func (m Machine) amounts() Amounts { return Amounts{GPUs: m.GPUs, Nodes: 1, HourlyCost: m.price()} }

// Totals are the sum of some machines. HourlyCost is of those with a known price; Unpriced counts the others.
type Totals struct {
	Amounts
	Unpriced int64
}

func (t *Totals) add(m Machine) {
	a := m.amounts()
	t.GPUs, t.Nodes, t.HourlyCost = t.GPUs+a.GPUs, t.Nodes+a.Nodes, t.HourlyCost+a.HourlyCost
	if !m.HasPrice {
		t.Unpriced++
	}
}

func (t Totals) plus(o Totals) Totals {
	return Totals{
		Amounts:  Amounts{GPUs: t.GPUs + o.GPUs, Nodes: t.Nodes + o.Nodes, HourlyCost: t.HourlyCost + o.HourlyCost},
		Unpriced: t.Unpriced + o.Unpriced,
	}
}

func (t Totals) minus(o Totals) Totals {
	return Totals{
		Amounts:  Amounts{GPUs: t.GPUs - o.GPUs, Nodes: t.Nodes - o.Nodes, HourlyCost: t.HourlyCost - o.HourlyCost},
		Unpriced: t.Unpriced - o.Unpriced,
	}
}
