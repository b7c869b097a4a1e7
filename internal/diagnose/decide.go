package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// Decide gives each pod that waits for GPUs of the pool its verdict, in the order in which the scheduler takes them. Pods
// that do not wait, or ask for no GPU, get none. It fills the pool's places.
func Decide(cluster Cluster, pool Pool, pods []*corev1.Pod) []Verdict {
	d := &decision{pool: &pool, claims: newClaims(cluster, pool.Places), cluster: cluster, plans: map[string]*Plan{}}
	d.places = slices.DeleteFunc(slices.Clone(pool.Places), func(p *Place) bool { return p.State == Refused })
	for i := range pool.Offers {
		d.refusals, d.bySize = append(d.refusals, pool.Usage.Fits(pool.Offers[i].Machine)), append(d.bySize, i)
	}
	slices.SortStableFunc(d.bySize, func(i, j int) int { return cmp.Compare(pool.Offers[i].Machine.GPUs, pool.Offers[j].Machine.GPUs) })
	var verdicts []Verdict
	for _, pod := range inTurn(pods) {
		asked := demandOf(pod)
		if Waits(pod) && (HasGPUs(asked.requests) || len(d.claims.of(pod)) > 0) {
			verdicts = append(verdicts, d.verdict(asked))
		}
	}
	return verdicts
}

// decision is one pass over a pool.
type decision struct {
	cluster Cluster
	pool    *Pool
	claims  *claims
	// places are those that can be expected to take pods.
	places []*Place
	// refusals are why the ledger admits no machine of each offer; nil where it does.
	refusals []error
	// held are the pods that hold GPUs of the pool, once they are counted.
	held map[corev1.ResourceName]map[int32]int
	// plans are those that were looked for, by what they are for.
	plans map[string]*Plan
	// bySize are the offers' indexes, that of the machine with the fewest GPUs first.
	bySize []int
}

func (d *decision) verdict(asked demand) Verdict {
	v := Verdict{Pod: asked.pod, Pool: d.pool.Name, Requests: asked.requests, Since: WaitingSince(asked.pod)}
	own := slices.Concat(d.gated(asked), d.notAllowed(asked))
	if len(own) == 0 {
		if place := d.place(asked); place != nil {
			return d.expected(v, place)
		}
	}
	offer, causes := d.launch(asked)
	v.Offer = offer
	unproved := d.notVerified(asked)
	launchable := offer != nil && len(own)+len(causes) == 0 && d.pool.Trouble == ""
	if launchable && !d.awaits(asked) {
		return d.expected(v, nil)
	}
	v.Causes = slices.Concat(own, d.trouble(), causes, unproved, d.fragmented(asked))
	if slices.ContainsFunc(v.Causes, ofThePod) && slices.ContainsFunc(d.places, d.pool.open) {
		// Once the pod is right, a node with room may take it: that no machine may be launched need not stand in its way.
		v.Causes = slices.DeleteFunc(v.Causes, func(c Cause) bool { return !ofThePod(c) })
	}
	for i := range v.Causes {
		if v.Causes[i].Limit != nil {
			v.Causes[i].Evidence = append(v.Causes[i].Evidence, d.preemption(asked)...)
		}
		v.Causes[i].shorten()
	}
	slices.SortStableFunc(v.Causes, func(a, b Cause) int {
		return cmp.Compare(v1alpha1.PrecedenceOf(a.Reason), v1alpha1.PrecedenceOf(b.Reason))
	})
	return v
}

// place is where the pod can be expected; nil where nowhere. What the pod needs there is taken.
func (d *decision) place(asked demand) *Place {
	for i, p := range d.places {
		if !p.takes(asked) || !d.claims.fit(asked.pod, p) {
			continue
		}
		p.put(asked)
		d.claims.take(asked.pod, p)
		if !d.pool.open(p) && !d.claims.any() {
			d.places = slices.Delete(d.places, i, i+1)
		}
		return p
	}
	return nil
}

// awaits says whether Karpenter counts on a node for the pod that is not what was ordered, so that it launches none. What the
// pod needs there is taken.
func (d *decision) awaits(asked demand) bool {
	for _, p := range d.pool.Places {
		if p.State == Refused && p.Awaited && p.takes(asked) {
			p.put(asked)
			return true
		}
	}
	return false
}

// expected is the verdict on a pod that a place has room for, or that a machine may be launched for: but not for ever.
func (d *decision) expected(v Verdict, place *Place) Verdict {
	since, watched := d.cluster.Expected[v.Pod.UID]
	if !watched {
		since = v.Since
	}
	waited := d.cluster.Now.Sub(since)
	if waited <= Patience || (place != nil && place.State == Coming) {
		v.Expected = true
		return v
	}
	v.Overdue, v.Causes = true, []Cause{d.overdue(v.Pod, place)}
	return v
}

// launch is the smallest machine that would serve the pod, with what keeps every such machine from being launched: nothing
// where one may be. Where no machine of the pool would serve it, it is the one that is nearest to it, with what is wrong:
// the one whose first obstacle comes last in the order of precedence. It is nil where the pool has no offers.
func (d *decision) launch(asked demand) (*Offer, []Cause) {
	var (
		serving, nearest *Offer
		supply, wrong    []Cause
	)
	for _, i := range d.bySize {
		offer := &d.pool.Offers[i]
		mistakes := d.mistakes(asked, offer)
		obstacles := d.obstacles(asked, offer, d.refusals[i])
		switch {
		case len(mistakes)+len(obstacles) == 0:
			return offer, nil
		case len(mistakes) == 0:
			if serving == nil {
				serving = offer
			}
			supply = addNew(supply, obstacles)
		case nearest == nil || firstOf(mistakes) > firstOf(wrong):
			nearest, wrong = offer, slices.Concat(mistakes, obstacles)
		}
	}
	if serving != nil {
		return serving, supply
	}
	return nearest, wrong
}

// addNew adds the causes of reasons that are not there yet: the smallest machine speaks for the others.
func addNew(causes, more []Cause) []Cause {
	known := len(causes)
	for _, cause := range more {
		if !slices.ContainsFunc(causes[:known], func(c Cause) bool { return c.Reason == cause.Reason }) {
			causes = append(causes, cause)
		}
	}
	return causes
}

// firstOf is the place in the order of precedence of the first of some causes; no cause comes after all.
func firstOf(causes []Cause) int {
	first := len(v1alpha1.HoldReasons)
	for _, cause := range causes {
		first = min(first, v1alpha1.PrecedenceOf(cause.Reason))
	}
	return first
}

// mistakes are why no machine of an offer could ever serve the pod as it stands.
func (d *decision) mistakes(asked demand, offer *Offer) []Cause {
	return slices.Concat(d.names(asked, offer), d.amounts(asked, offer), d.dra(asked, offer), d.selectors(asked, offer), d.taints(asked, offer))
}

// obstacles are what keeps a machine of an offer from being launched now.
func (d *decision) obstacles(asked demand, offer *Offer, refusal error) []Cause {
	return slices.Concat(d.budgets(offer), d.limit(refusal), d.blocked(asked, offer))
}

// Most characters of what is said: an event holds 1,024 bytes and a condition 32,768, and pods say what their owners wrote.
const (
	maxMessage = 600
	maxRemedy  = 300
	maxValue   = 1000
)

// shorten bounds what a cause says.
func (c *Cause) shorten() {
	c.Message, c.Remedy = shortened(c.Message, maxMessage), shortened(c.Remedy, maxRemedy)
	for i := range c.Evidence {
		c.Evidence[i].Value = shortened(c.Evidence[i].Value, maxValue)
	}
}

func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// ofThePod says whether a cause is the pod's own, or of who admits it.
func ofThePod(c Cause) bool {
	return v1alpha1.PrecedenceOf(c.Reason) < v1alpha1.PrecedenceOf(v1alpha1.HoldPoolNotReady)
}

// limit is the ledger's refusal.
func (d *decision) limit(err error) []Cause {
	var refusal *ledger.Refusal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNotReady):
		return []Cause{d.cause(v1alpha1.HoldPoolNotReady, "%s", ledger.ErrNotReady)}
	case !errors.As(err, &refusal):
		return []Cause{d.cause(v1alpha1.HoldOther, "%s", err)}
	}
	c := Cause{Reason: v1alpha1.HoldLimitReached, Message: refusal.Error(), Limit: refusal, Remedy: remedyOf(refusal)}
	c.Evidence = []Fact{
		{"limit", refusal.Limit.Field()}, {"value", refusal.Words(refusal.Value)}, {"used", refusal.Words(refusal.Used)},
		{"asked", refusal.Words(refusal.Asked)},
	}
	if refusal.Surge > 0 {
		c.Evidence = append(c.Evidence, Fact{"surge", refusal.Words(refusal.Surge)})
	}
	return []Cause{c}
}

// remedyOf says how far the limit must be raised.
func remedyOf(r *ledger.Refusal) string {
	field := "limits." + r.Limit.Field()
	switch {
	case r.UnknownPrice:
		return fmt.Sprintf("lift %s of GPUNodePool %s, or use instance types whose price is known", field, r.Pool)
	case r.Sum == ledger.Outstanding:
		return "wait until the machines that are leaving are gone"
	}
	return fmt.Sprintf("raise %s of GPUNodePool %s to %s or more, or wait until a machine of the pool is gone", field, r.Pool, r.Number(r.Used+r.Asked))
}

// cause is one of the pool, whose name stands in front, with the remedy of its reason.
func (d *decision) cause(reason, format string, args ...any) Cause {
	return Cause{
		Reason: reason, Message: prefix(d.pool.Name) + fmt.Sprintf(format, args...),
		Remedy: v1alpha1.HoldReasons[v1alpha1.PrecedenceOf(reason)].Remedy,
	}
}

// prefix is what messages of a pool begin with, as the ledger's refusals do; nothing for a pod of no pool.
func prefix(pool string) string {
	if pool == "" {
		return ""
	}
	return fmt.Sprintf("pool %s: ", pool)
}
