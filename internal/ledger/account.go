package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// State is how far the launch of a claim has come.
type State string

// States of a claim.
const (
	// Unasked claims hold nothing: no attempt is open for them in the journal. Only Rebuild is told of them: what the
	// ledger itself knows of such a claim stands, since a reservation precedes the journal.
	Unasked State = ""
	// Reserved claims asked, or are about to, and the outcome is not known.
	Reserved State = "Reserved"
	// Launched claims have a machine.
	Launched State = "Launched"
)

// Claim is one NodeClaim: at most one machine.
type Claim struct {
	UID string
	// Admission is the UID under which room was held for the claim before it was made: what it then asks for takes that
	// room's place. Empty where none was.
	Admission string
	// Attempt names the launch, as the journal's token does: the same attempt asked again is the same machine. A claim
	// holds one attempt at a time.
	Attempt string
	Machine Machine
	State   State
	// Leaving says that the claim is being deleted or is marked for disruption: outstanding, and not steady.
	Leaving bool
}

// Instance is a machine that the cloud lists, in any state but terminated.
type Instance struct {
	ID string
	// Claim is the UID of the claim that it was launched for, and Attempt the launch; empty where it carries none. An
	// instance that its claim does not hold counts beside the claims.
	Claim, Attempt string
	Machine        Machine
}

func (c Claim) check() error {
	switch {
	case c.UID == "":
		return errors.New("a claim without a UID cannot be counted")
	case c.State == Unasked:
		return nil
	case c.Attempt == "":
		return fmt.Errorf("claim %s: a launch without an attempt's name cannot be told from the next: give its token", c.UID)
	}
	if err := c.Machine.check(); err != nil {
		return fmt.Errorf("claim %s: %w", c.UID, err)
	}
	return nil
}

func (i Instance) check() error {
	if i.ID == "" {
		return errors.New("an instance without an id cannot be counted")
	}
	if err := i.Machine.check(); err != nil {
		return fmt.Errorf("instance %s: %w", i.ID, err)
	}
	return nil
}

// sums are what accounts add to their pool.
type sums struct{ steady, outstanding, stray Totals }

func (s sums) plus(o sums) sums {
	return sums{s.steady.plus(o.steady), s.outstanding.plus(o.outstanding), s.stray.plus(o.stray)}
}

func (s sums) minus(o sums) sums {
	return sums{s.steady.minus(o.steady), s.outstanding.minus(o.outstanding), s.stray.minus(o.stray)}
}

// account is a claim with the instances that carry its UID. The account of "" holds those that carry none.
type account struct {
	claim     Claim
	instances []Instance
	// counted is what the account adds to the pool's sums.
	counted sums
	// changed is when the account last changed, on the ledger's own count of changes, and claimed when it last did with a
	// claim that holds something, before or after.
	changed, claimed uint64
}

// holds says whether the claim holds an attempt.
func (a *account) holds(attempt string) bool {
	return a.claim.State != Unasked && a.claim.Attempt == attempt
}

func (a *account) empty() bool { return a.claim.State == Unasked && len(a.instances) == 0 }

// count adds the account up. A claim that holds something accounts for one instance of its attempt.
func (a *account) count() sums {
	var s sums
	found := false
	for _, instance := range a.instances {
		if !found && a.holds(instance.Attempt) {
			found = true
			continue
		}
		s.stray.add(instance.Machine)
	}
	s.outstanding = s.stray
	if a.claim.State != Unasked {
		s.outstanding.add(a.claim.Machine)
		if !a.claim.Leaving {
			s.steady.add(a.claim.Machine)
		}
	}
	return s
}

// see adds an instance, or replaces what was known of it.
func (a *account) see(seen Instance) {
	if i := a.index(seen.ID); i >= 0 {
		a.instances[i] = seen
		return
	}
	a.instances = append(a.instances, seen)
}

func (a *account) drop(id string) {
	if i := a.index(id); i >= 0 {
		a.instances = slices.Delete(a.instances, i, i+1)
	}
}

func (a *account) index(id string) int {
	return slices.IndexFunc(a.instances, func(i Instance) bool { return i.ID == id })
}
