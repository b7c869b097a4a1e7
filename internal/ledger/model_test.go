package ledger

import (
	"fmt"
	"slices"
)

// The model is what truly exists, and the two sums written down as plainly as the rule says them: from nothing, by going
// through everything, each time. It shares no arithmetic with the ledger.

type modelPhase int

const (
	idle      modelPhase = iota // asked for nothing
	admitted                    // room is held for it, and it is about to be made
	reserved                    // the ledger granted; nothing is written down
	journaled                   // the attempt is in the journal, and may have been made
	running                     // the answer came and was written down
)

type modelClaim struct {
	uid      string
	attempts int
	machine  Machine
	phase    modelPhase
	leaving  bool
	admitted bool // room was held for it once, and may still be
	vanished bool // removed by force: the ledger was not told
}

// asks says whether an attempt may have been made for the claim.
func (c *modelClaim) asks() bool { return c.phase > admitted }

func (c *modelClaim) admission() string { return "admission of " + c.uid }

func (c *modelClaim) attempt() string { return fmt.Sprintf("%s/%d", c.uid, c.attempts) }

func (c *modelClaim) claim() Claim {
	return Claim{UID: c.uid, Attempt: c.attempt(), Machine: c.machine}
}

type modelInstance struct {
	Instance
	gone    bool
	foreign bool // nothing that the ledger granted
}

type model struct {
	limits    Limits
	claims    []*modelClaim
	instances []*modelInstance
	nextID    int
}

// sum adds up one quantity of what truly exists: GPUs, nodes, money or machines without a price.
func (m *model) sum(sum Sum, without *modelClaim, of func(Machine) int64) int64 {
	var n int64
	for _, c := range m.claims {
		if c == without || c.vanished || c.phase == idle || (sum == Steady && c.leaving) {
			continue
		}
		n += of(c.machine)
	}
	if sum == Steady {
		return n
	}
	for _, i := range m.instances {
		if !i.gone && !m.holds(i, without) {
			n += of(i.Machine)
		}
	}
	return n
}

// holds says whether a claim accounts for an instance already.
func (m *model) holds(i *modelInstance, without *modelClaim) bool {
	return slices.ContainsFunc(m.claims, func(c *modelClaim) bool {
		return c != without && !c.vanished && c.asks() && c.attempt() == i.Attempt
	})
}

func gpusOf(m Machine) int64 { return m.GPUs }
func nodesOf(Machine) int64  { return 1 }
func microsOf(m Machine) int64 {
	if m.HasPrice {
		return int64(m.Price)
	}
	return 0
}
func unpricedOf(m Machine) int64 {
	if m.HasPrice {
		return 0
	}
	return 1
}

// verdict is the rule: which limit refuses a new machine for a claim, by which sum. Empty: none does.
func (m *model) verdict(c *modelClaim, machine Machine) string {
	surge := m.limits.Surge
	for _, sum := range []Sum{Steady, Outstanding} {
		extra := map[Limit]int64{}
		if sum == Outstanding {
			extra = map[Limit]int64{GPUs: surge.GPUs, Nodes: surge.Nodes, HourlyCost: int64(surge.HourlyCost)}
		}
		if m.limits.GPUs != nil && m.sum(sum, c, gpusOf)+machine.GPUs > *m.limits.GPUs+extra[GPUs] {
			return "GPUs " + string(sum)
		}
		if m.limits.Nodes != nil && m.sum(sum, c, nodesOf)+1 > *m.limits.Nodes+extra[Nodes] {
			return "Nodes " + string(sum)
		}
		if m.limits.HourlyCost == nil {
			continue
		}
		if !machine.HasPrice || m.sum(sum, c, unpricedOf) > 0 {
			return "UnknownPrice " + string(sum)
		}
		if m.sum(sum, c, microsOf)+int64(machine.Price) > int64(*m.limits.HourlyCost)+extra[HourlyCost] {
			return "HourlyCost " + string(sum)
		}
	}
	return ""
}

// world is what a controller reads: claims with their journals, and the cloud's list.
func (m *model) world() World {
	var w World
	for _, c := range m.claims {
		claim := c.claim()
		claim.Leaving = c.leaving
		switch {
		case c.vanished:
			continue
		case c.phase == journaled:
			claim.State = Reserved
		case c.phase == running:
			claim.State = Launched
		}
		if claim.State == Unasked {
			claim = Claim{UID: c.uid, Leaving: c.leaving}
		}
		w.Claims = append(w.Claims, claim)
	}
	for _, i := range m.instances {
		if !i.gone {
			w.Instances = append(w.Instances, i.Instance)
		}
	}
	return w
}

// start makes the instance of a claim's attempt, or finds the one that it made before.
func (m *model) start(c *modelClaim) *modelInstance {
	if made := m.made(c); made != nil {
		return made
	}
	m.nextID++
	made := &modelInstance{Instance: Instance{ID: fmt.Sprintf("i-%d", m.nextID), Claim: c.uid, Attempt: c.attempt(), Machine: c.machine}}
	m.instances = append(m.instances, made)
	return made
}

// made is the instance of a claim's attempt, gone or not.
func (m *model) made(c *modelClaim) *modelInstance {
	for _, i := range m.instances {
		if i.Attempt == c.attempt() {
			return i
		}
	}
	return nil
}

// physical counts the GPUs that run and were granted.
func (m *model) physical() int64 {
	var n int64
	for _, i := range m.instances {
		if !i.gone && !i.foreign {
			n += i.Machine.GPUs
		}
	}
	return n
}
