package ledger

import (
	"errors"
	"fmt"
)

// World is all that exists of a pool.
type World struct {
	// Claims are the pool's NodeClaims, those that have asked for nothing among them.
	Claims []Claim
	// Instances are what the cloud lists with the pool's tags. One whose machine nobody knows counts as the pool's largest,
	// without a price.
	Instances []Instance
}

func (w World) check() error {
	var errs []error
	for _, claim := range w.Claims {
		errs = append(errs, claim.check())
	}
	for _, instance := range w.Instances {
		errs = append(errs, instance.check())
	}
	return errors.Join(errs...)
}

// Rebuild counts pools anew from what read returns, by pool name. Pools that it does not return stay as they are, and so
// do all of them if it fails, and one whose world cannot be counted.
//
// Nothing but the next Rebuild waits while read runs. What Reserve and the others change meanwhile stands, since no list
// can be trusted to show it; so read must look at the API server and the cloud themselves, not at a cache that may be older
// than the call.
func (l *Ledger) Rebuild(read func() (map[string]World, error)) error {
	l.rebuilds.Lock()
	defer l.rebuilds.Unlock()
	since := l.begin()
	worlds, err := read()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = false
	if err != nil {
		return fmt.Errorf("counting claims and instances: %w", err)
	}
	var errs []error
	for name, world := range worlds {
		if err := world.check(); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: counting claims and instances: %w", name, err))
			continue
		}
		l.pool(name).rebuild(world, since)
	}
	return errors.Join(errs...)
}

// begin returns when the reading begins, on the ledger's own count of changes.
func (l *Ledger) begin() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = true
	return l.changes
}

// rebuild replaces the accounts by the world, but for those that changed since it was asked for.
func (p *pool) rebuild(world World, since uint64) {
	next := world.accounts()
	for uid, own := range p.accounts {
		seen, listed := next[uid]
		switch {
		case own.changed <= since && !listed:
			continue
		case !listed:
			next[uid] = own
			continue
		case own.claimed > since, seen.claim.UID != "" && seen.claim.State == Unasked:
			seen.claim = own.claim
		}
		if own.changed > since {
			for _, instance := range own.instances {
				seen.see(instance)
			}
		}
	}
	p.accounts, p.sums, p.rebuilt = map[string]*account{}, sums{}, true
	for uid, a := range next {
		if a.empty() {
			continue
		}
		a.counted = a.count()
		p.accounts[uid], p.sums = a, p.sums.plus(a.counted)
	}
}

// accounts puts claims and their instances together.
func (w World) accounts() map[string]*account {
	accounts := make(map[string]*account, len(w.Claims))
	at := func(uid string) *account {
		if accounts[uid] == nil {
			accounts[uid] = &account{}
		}
		return accounts[uid]
	}
	for _, claim := range w.Claims {
		at(claim.UID).claim = claim
	}
	for _, instance := range w.Instances {
		at(instance.Claim).see(instance)
	}
	return accounts
}
