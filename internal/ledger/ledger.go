package ledger

import (
	"fmt"
	"slices"
	"sync"
)

// Ledger keeps what every pool has asked for. Its methods may be called from any goroutine. The zero value is ready to use
// and refuses everything: nothing was counted yet.
type Ledger struct {
	// mu guards that each pool's sums are the sums of its accounts, and that nothing comes between a decision and its entry.
	mu    sync.Mutex
	pools map[string]*pool
	// changes counts changes: Rebuild tells by it what happened while it read.
	changes uint64
	// reading says that a Rebuild reads: accounts that end meanwhile are kept, so that it does not bring them back.
	reading bool
	// rebuilds lets one Rebuild in at a time, so that no older answer takes the place of a newer one.
	rebuilds sync.Mutex
}

// New returns a ledger in which nothing was counted yet.
func New() *Ledger { return &Ledger{} }

type pool struct {
	limits *Limits
	// rebuilt says that the accounts are all there is.
	rebuilt  bool
	accounts map[string]*account
	sums     sums
}

// SetLimits sets what a pool may have, from now on. Limits below what is in use end nothing: they refuse what is new.
func (l *Ledger) SetLimits(pool string, limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pool(pool).limits = new(limits.copied())
}

// Drop forgets a pool that is gone, with all of its instances. One of the same name starts from nothing, not ready.
func (l *Ledger) Drop(pool string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pools, pool)
}

// Counted says whether Rebuild has counted a pool since the start, or since one of its name was dropped.
func (l *Ledger) Counted(pool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.pools[pool]
	return known && p.rebuilt
}

// Usage is the pool now.
func (l *Ledger) Usage(pool string) Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.pools[pool]
	if !known {
		return Usage{Pool: pool}
	}
	usage := p.usage(pool, p.sums)
	usage.Limits = usage.Limits.copied()
	return usage
}

// Reserve holds the claim's machine for an attempt that is about to be made, or says why it may not be made: ErrNotReady,
// ErrLeaving, *Refusal, or an error of a claim that cannot be counted. A refusal changes nothing.
//
// The attempt that the claim holds already is granted again and not counted again: its machine may run. Another attempt
// takes its place, since the one before came to nothing; it is a new launch and is held to the limits as one. So does the
// first attempt of a claim that room was held for before it was made. The claim's State is not looked at.
func (l *Ledger) Reserve(pool string, claim Claim) error {
	claim.State = Reserved
	if err := claim.check(); err != nil {
		return fmt.Errorf("pool %s: %w", pool, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[pool]
	if !p.ready() {
		return fmt.Errorf("pool %s: claim %s: %w", pool, claim.UID, ErrNotReady)
	}
	a, known := p.accounts[claim.UID]
	if !known {
		a = &account{}
	}
	if claim.Leaving || a.claim.Leaving {
		return fmt.Errorf("pool %s: claim %s: %w", pool, claim.UID, ErrLeaving)
	}
	if a.holds(claim.Attempt) {
		return nil
	}
	beside := p.beside(a, claim)
	admission, admitted := p.accounts[claim.Admission]
	admitted = admitted && claim.Admission != "" // that of "" holds the instances without a claim
	if admitted {
		beside = beside.minus(admission.counted)
	}
	if err := p.usage(pool, beside).Fits(claim.Machine); err != nil {
		return err
	}
	if admitted {
		l.change(p, claim.Admission, func(a *account) { a.claim = Claim{} })
	}
	l.change(p, claim.UID, func(a *account) { a.claim = claim })
	return nil
}

// Settle records that a machine runs for the claim. It is a fact and never refused: the machine of an earlier try, which
// nobody has reserved since the start, counts too. The claim's State is not looked at, and Leaving only of a new one.
func (l *Ledger) Settle(pool string, claim Claim) error {
	claim.State = Launched
	if err := claim.check(); err != nil {
		return fmt.Errorf("pool %s: %w", pool, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change(l.pool(pool), claim.UID, func(a *account) {
		if a.claim.State != Unasked {
			claim.Leaving = a.claim.Leaving
		}
		a.claim = claim
	})
	return nil
}

// Release gives back a reservation of which nothing came, as the cloud's answer proves. While the outcome is not known,
// or for a claim that launched, there is nothing to give back: a launched claim stays.
func (l *Ledger) Release(pool, uid string) {
	l.edit(pool, uid, func(a *account) {
		if a.claim.State == Reserved {
			a.claim = Claim{}
		}
	})
}

// SetLeaving says whether a claim is being deleted or marked for disruption. Disruption can be given up again: the claim
// is then steady once more, even where that passes a limit. A claim that holds nothing has nothing to mark.
func (l *Ledger) SetLeaving(pool, uid string, leaving bool) {
	l.edit(pool, uid, func(a *account) { a.claim.Leaving = leaving })
}

// Forget ends a claim whose instance is confirmed gone. For a claim that vanished without that there is Rebuild: its
// instance still counts.
func (l *Ledger) Forget(pool, uid string) {
	l.edit(pool, uid, func(a *account) {
		a.instances = slices.DeleteFunc(a.instances, func(i Instance) bool { return a.holds(i.Attempt) })
		a.claim = Claim{}
	})
}

// Observe counts an instance that is not gone, as one that started and ended again before its claim's next attempt.
func (l *Ledger) Observe(pool string, instance Instance) error {
	if err := instance.check(); err != nil {
		return fmt.Errorf("pool %s: %w", pool, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change(l.pool(pool), instance.Claim, func(a *account) { a.see(instance) })
	return nil
}

// Gone takes away an instance that is confirmed gone. It does not end a claim: see Forget.
func (l *Ledger) Gone(pool, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.pools[pool]
	if !known {
		return
	}
	for uid, a := range p.accounts {
		if a.index(id) >= 0 {
			l.change(p, uid, func(a *account) { a.drop(id) })
			return
		}
	}
}

// edit changes a claim that the ledger holds; of any other there is nothing to say.
func (l *Ledger) edit(pool, uid string, edit func(*account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.pools[pool]
	if !known {
		return
	}
	if a, known := p.accounts[uid]; known && a.claim.State != Unasked {
		l.change(p, uid, edit)
	}
}

// pool returns the pool of a name; mu is held.
func (l *Ledger) pool(name string) *pool {
	if l.pools == nil {
		l.pools = map[string]*pool{}
	}
	p, known := l.pools[name]
	if !known {
		p = &pool{accounts: map[string]*account{}}
		l.pools[name] = p
	}
	return p
}

// change is the one way to an account: it keeps the pool's sums in step. mu is held.
func (l *Ledger) change(p *pool, uid string, edit func(*account)) {
	l.changes++
	a, known := p.accounts[uid]
	if !known {
		a = &account{}
		p.accounts[uid] = a
	}
	held, before := a.claim.State != Unasked, a.counted
	edit(a)
	a.counted, a.changed = a.count(), l.changes
	if held || a.claim.State != Unasked {
		a.claimed = l.changes
	}
	p.sums = p.sums.minus(before).plus(a.counted)
	if a.empty() && !l.reading {
		delete(p.accounts, uid)
	}
}

func (p *pool) ready() bool { return p != nil && p.rebuilt && p.limits != nil }

// beside is what counts beside the machine that a claim asks for: the other accounts, and the claim's own instances of
// other attempts.
func (p *pool) beside(a *account, claim Claim) sums {
	asking := account{claim: claim, instances: a.instances}
	stray := asking.count().stray
	return p.sums.minus(a.counted).plus(sums{outstanding: stray, stray: stray})
}

func (p *pool) usage(name string, s sums) Usage {
	usage := Usage{Pool: name, Ready: p.ready(), Steady: s.steady, Outstanding: s.outstanding, Stray: s.stray}
	if p.limits != nil {
		usage.Limits = *p.limits
	}
	return usage
}
