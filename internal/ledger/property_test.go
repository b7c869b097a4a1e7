package ledger

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLedger_NeverPassesEitherSum plays a controller and a cloud at random: launches whose answers are lost, machines that
// end at once, claims that leave or vanish, crashes, limits that change, and counts that are late. What the ledger grants,
// the model must grant too; and while no count was late, what it refuses, the model must refuse for the same reason.
func TestLedger_NeverPassesEitherSum(t *testing.T) {
	granted, refused := 0, map[string]int{}
	for range 20 { // rapid plays a hundred times of its own accord
		rapid.Check(t, func(t *rapid.T) {
			p := &play{t: t, refused: refused}
			p.limits()
			p.crash()
			t.Repeat(p.actions())
			granted += p.granted
		})
	}
	// A play in which nothing is granted, or nothing is refused, proves nothing.
	if granted < 100 {
		t.Errorf("%d grants in all plays: too few to prove anything", granted)
	}
	for _, reason := range []string{"GPUs Steady", "GPUs Outstanding", "Nodes Steady", "Nodes Outstanding", "HourlyCost Steady", "HourlyCost Outstanding", "UnknownPrice Steady", "UnknownPrice Outstanding"} {
		if refused[reason] == 0 {
			t.Errorf("no play was refused by %s: %v", reason, refused)
		}
	}
}

type play struct {
	t      *rapid.T
	ledger *Ledger
	model  model
	// exact says that the ledger knows all there is. After a late count, or a claim that vanished, it may count more.
	exact bool
	// ceiling is the most GPUs that any limits allowed so far; unlimited, once there was no limit.
	ceiling   int64
	unlimited bool
	granted   int
	refused   map[string]int
}

func (p *play) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	for name, do := range map[string]func(){
		"": p.check, "admit": p.admit, "reserve": p.reserve, "reserve too": p.reserve, "retry": p.retry, "next": p.next, "journal": p.journal,
		"launch": p.launch, "fail": p.fail, "mark": p.mark, "delete": p.remove, "vanish": p.vanish, "orphan": p.orphan,
		"gone": p.gone, "limits": p.limits, "crash": p.crash, "rebuild": p.rebuild,
	} {
		actions[name] = func(t *rapid.T) {
			p.t = t
			do()
		}
	}
	return actions
}

// one draws a claim for which ok holds, or nil.
func (p *play) one(ok func(*modelClaim) bool) *modelClaim {
	var fit []*modelClaim
	for _, c := range p.model.claims {
		if !c.vanished && ok(c) {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return rapid.SampledFrom(fit).Draw(p.t, "claim")
}

func (p *play) machine() Machine {
	return rapid.SampledFrom([]Machine{p5, p5, p5, g6, g6, p5en, {GPUs: 4, Price: 10 * Dollar, HasPrice: true}, nameless}).Draw(p.t, "machine")
}

func (p *play) reserve() {
	c := p.one(func(c *modelClaim) bool { return !c.asks() })
	if c == nil || rapid.Bool().Draw(p.t, "new claim") {
		c = &modelClaim{uid: fmt.Sprint("c", len(p.model.claims))}
		p.model.claims = append(p.model.claims, c)
	}
	p.ask(c)
}

// admit holds room for a claim that is not made yet. Nothing comes of some.
func (p *play) admit() {
	if c := p.one(func(c *modelClaim) bool { return c.phase == admitted }); c != nil && rapid.Bool().Draw(p.t, "give up") {
		p.ledger.Release(inference, c.admission())
		c.phase = idle
		return
	}
	c := &modelClaim{uid: fmt.Sprint("c", len(p.model.claims))}
	p.model.claims = append(p.model.claims, c)
	machine := p.machine()
	verdict := p.model.verdict(c, machine)
	if err := p.ledger.Reserve(inference, Claim{UID: c.admission(), Attempt: c.admission(), Machine: machine}); err != nil {
		p.compare(err, verdict)
		return
	}
	if verdict != "" {
		p.t.Fatalf("claim %s is admitted with %+v past %s", c.uid, machine, verdict)
	}
	p.granted++
	c.machine, c.phase, c.admitted = machine, admitted, true
}

// ask makes the next attempt of a claim that has no machine, or whose machine was observed to end.
func (p *play) ask(c *modelClaim) {
	machine := p.machine()
	asked := Claim{UID: c.uid, Admission: c.admission(), Attempt: fmt.Sprintf("%s/%d", c.uid, c.attempts+1), Machine: machine, Leaving: c.leaving}
	verdict := p.model.verdict(c, machine)
	fits := p.ledger.Usage(inference).Fits(machine)
	err := p.ledger.Reserve(inference, asked)
	if errors.Is(err, ErrLeaving) && c.leaving {
		return
	}
	if (fits == nil) != (err == nil) && c.phase == idle && !c.admitted {
		p.t.Fatalf("reserve says %v, fits says %v", err, fits)
	}
	if err != nil {
		p.compare(err, verdict)
		return
	}
	if verdict != "" {
		p.t.Fatalf("claim %s is granted %+v past %s", c.uid, machine, verdict)
	}
	p.granted++
	c.attempts, c.machine, c.phase = c.attempts+1, machine, reserved
}

// compare holds a refusal to the model's verdict.
func (p *play) compare(err error, verdict string) {
	var r *Refusal
	if !errors.As(err, &r) {
		p.t.Fatalf("%v, want a refusal", err)
	}
	got := string(r.Limit) + " " + string(r.Sum)
	if r.UnknownPrice {
		got = "UnknownPrice " + string(r.Sum)
	}
	if p.exact && got != verdict {
		p.t.Fatalf("refused by %q (%v), want %q", got, r, verdict)
	}
	p.refused[got]++
}

// retry makes the same attempt again, as Create does after a lost answer: never refused by a limit.
func (p *play) retry() {
	c := p.one((*modelClaim).asks)
	if c == nil {
		return
	}
	err := p.ledger.Reserve(inference, c.claim())
	if (c.leaving && !errors.Is(err, ErrLeaving)) || (!c.leaving && err != nil) {
		p.t.Fatalf("claim %s again, leaving %v: %v", c.uid, c.leaving, err)
	}
}

// next is an attempt after one that came to nothing, or whose machine ends.
func (p *play) next() {
	c := p.one(func(c *modelClaim) bool { return c.asks() && !c.leaving })
	if c == nil {
		return
	}
	if made := p.model.made(c); made != nil && !made.gone {
		p.must(p.ledger.Observe(inference, made.Instance))
	}
	p.ask(c)
}

func (p *play) journal() {
	if c := p.one(func(c *modelClaim) bool { return c.phase == reserved }); c != nil {
		c.phase = journaled
	}
}

// launch makes the journal's attempt. Its answer may be lost.
func (p *play) launch() {
	c := p.one(func(c *modelClaim) bool { return c.phase == journaled })
	if c == nil {
		return
	}
	made := p.model.start(c)
	if made.gone || rapid.Bool().Draw(p.t, "answer is lost") {
		return
	}
	p.must(p.ledger.Settle(inference, c.claim()))
	c.phase = running
}

// fail is the cloud's answer that nothing comes of an attempt.
func (p *play) fail() {
	c := p.one(func(c *modelClaim) bool {
		return (c.phase == reserved || c.phase == journaled) && p.model.made(c) == nil
	})
	if c != nil {
		p.ledger.Release(inference, c.uid)
		c.phase = idle
	}
}

func (p *play) mark() {
	if c := p.one((*modelClaim).asks); c != nil {
		c.leaving = !c.leaving
		p.ledger.SetLeaving(inference, c.uid, c.leaving)
	}
}

// remove ends a claim: its instance is confirmed gone first.
func (p *play) remove() {
	c := p.one(func(c *modelClaim) bool { return c.leaving })
	if c == nil {
		return
	}
	if made := p.model.made(c); made != nil {
		made.gone = true
	}
	p.ledger.Forget(inference, c.uid)
	p.model.claims = slices.DeleteFunc(p.model.claims, func(o *modelClaim) bool { return o == c })
	p.model.claims = append(p.model.claims, &modelClaim{uid: c.uid + "'", vanished: true}) // names are not used again
}

func (p *play) vanish() {
	if c := p.one(func(c *modelClaim) bool { return true }); c != nil {
		c.vanished, p.exact = true, false
	}
}

// orphan is an instance with the pool's tags that nobody here asked for.
func (p *play) orphan() {
	p.model.nextID++
	made := &modelInstance{Instance: Instance{ID: fmt.Sprintf("i-%d", p.model.nextID), Machine: p.machine()}, foreign: true}
	p.model.instances = append(p.model.instances, made)
	p.must(p.ledger.Observe(inference, made.Instance))
}

// gone confirms the end of an instance that no claim accounts for.
func (p *play) gone() {
	var stray []*modelInstance
	for _, i := range p.model.instances {
		if !i.gone && !p.model.holds(i, nil) {
			stray = append(stray, i)
		}
	}
	if len(stray) > 0 {
		i := rapid.SampledFrom(stray).Draw(p.t, "instance")
		i.gone = true
		p.ledger.Gone(inference, i.ID)
	}
}

func (p *play) limits() {
	draw := func(name string, choices ...int64) *int64 {
		if i := rapid.IntRange(0, len(choices)).Draw(p.t, name); i < len(choices) {
			return new(choices[i])
		}
		return nil
	}
	l := Limits{GPUs: draw("gpus", 0, 8, 16, 17, 24, 40), Nodes: draw("nodes", 0, 1, 2, 3, 5)}
	if micros := draw("cost", int64(60*Dollar), 110_080_000, int64(200*Dollar)); micros != nil {
		l.HourlyCost = new(Money(*micros))
	}
	l.Surge = Surge(rapid.Int64Range(0, 2).Draw(p.t, "surge"), p5, p5en)
	p.model.limits = l
	if p.ledger != nil {
		p.ledger.SetLimits(inference, l)
	}
	if l.GPUs == nil {
		p.unlimited = true
		return
	}
	p.ceiling = max(p.ceiling, *l.GPUs+l.Surge.GPUs)
}

// crash loses the ledger, and every reservation that was not written down: nothing was asked for it.
func (p *play) crash() {
	for _, c := range p.model.claims {
		if c.phase == admitted || c.phase == reserved {
			c.phase = idle
		}
	}
	p.ledger = New()
	p.ledger.SetLimits(inference, p.model.limits)
	if err := p.ledger.Reserve(inference, first("early", g6)); !errors.Is(err, ErrNotReady) {
		p.t.Fatalf("before anything was counted: %v, want ErrNotReady", err)
	}
	p.must(p.ledger.Rebuild(reading(p.model.world())))
	p.exact = true
}

// rebuild counts anew while the world goes on, before and after it was read.
func (p *play) rebuild() {
	late := false
	// A claim that room was held for should be made by now, or never is: the room is not held any longer.
	for _, c := range p.model.claims {
		if c.phase == admitted {
			c.phase, p.exact = idle, false
		}
	}
	goOn := func(when string) {
		actions := []func(){p.reserve, p.next, p.journal, p.launch, p.fail, p.mark, p.remove, p.vanish, p.orphan, p.gone}
		for range rapid.IntRange(0, 3).Draw(p.t, when) {
			rapid.SampledFrom(actions).Draw(p.t, when+" action")()
			late = true
		}
	}
	p.must(p.ledger.Rebuild(func() (map[string]World, error) {
		goOn("before")
		world := p.model.world()
		goOn("after")
		return map[string]World{inference: world}, nil
	}))
	p.exact = !late
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// check holds the ledger's sums to the model's: the same, or more where it cannot know better.
func (p *play) check() {
	u := p.ledger.Usage(inference)
	for _, sum := range []Sum{Steady, Outstanding} {
		got := u.sum(sum)
		for _, q := range []struct {
			name string
			got  int64
			of   func(Machine) int64
		}{{"GPUs", got.GPUs, gpusOf}, {"nodes", got.Nodes, nodesOf}, {"micro-dollars", int64(got.HourlyCost), microsOf}, {"unpriced", got.Unpriced, unpricedOf}} {
			want := p.model.sum(sum, nil, q.of)
			if q.got < want || (p.exact && q.got != want) {
				p.t.Fatalf("%s: %d %s, truly %d (exact: %v)", sum, q.got, q.name, want, p.exact)
			}
		}
	}
	if n := p.model.physical(); !p.unlimited && n > p.ceiling {
		p.t.Fatalf("%d GPUs run, and no limit ever allowed more than %d", n, p.ceiling)
	}
}
