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
// that do not wait, or ask for no GPU, or are of a DaemonSet and for a node of others, get none. It fills the pool's places.
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
		if pinned := PinnedTo(pod); pinned != "" && d.node(pinned) == nil {
			continue // it is for a node that is none of the pool's
		}
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
	own := slices.Concat(d.gated(asked), d.volumes(asked.pod), d.notAllowed(asked))
	if len(own) == 0 {
		if place := d.place(asked); place != nil {
			return d.expected(v, asked, place)
		}
		if d.beingEvicted(asked.pod) {
			v.Expected = true
			return v
		}
	}
	there := d.node(PinnedTo(asked.pod))
	switch {
	case there != nil:
		v.Offer, v.Causes = d.ofDaemonSet(asked, there)
		v.Causes = slices.Concat(own, v.Causes)
	case d.fromNew(&v, asked, own):
		return d.expected(v, asked, nil)
	}
	d.refine(v.Causes, asked)
	return v
}

// fromNew finds what keeps a machine from being launched for a pod that no place takes. It is true where nothing does.
func (d *decision) fromNew(v *Verdict, asked demand, own []Cause) bool {
	offer, causes := d.launch(asked)
	v.Offer = offer
	unproved, absent := d.notVerified(asked), d.notJoined(asked)
	v.Joining = len(own) == 0 && len(absent) > 0
	awaited := len(own) == 0 && d.awaits(asked)
	if offer != nil && len(own)+len(causes) == 0 && d.pool.Trouble == "" && !awaited {
		v.Causes = d.stuck(asked)
		return len(v.Causes) == 0
	}
	v.Causes = slices.Concat(own, d.trouble(), causes, unproved, absent, d.fragmented(asked))
	if slices.ContainsFunc(v.Causes, ofThePod) && slices.ContainsFunc(d.places, d.pool.open) {
		// Once the pod is right, a node with room may take it: that no machine may be launched need not stand in its way.
		v.Causes = slices.DeleteFunc(v.Causes, func(c Cause) bool { return !ofThePod(c) })
	}
	return false
}

// refine puts the causes of a pod that is held in order, with what else is known.
func (d *decision) refine(causes []Cause, asked demand) {
	d.nominated(causes, asked)
	for i := range causes {
		if causes[i].Limit != nil {
			causes[i].Evidence = append(causes[i].Evidence, d.preemption(asked)...)
		}
		causes[i].shorten()
	}
	slices.SortStableFunc(causes, func(a, b Cause) int {
		return cmp.Compare(v1alpha1.PrecedenceOf(a.Reason), v1alpha1.PrecedenceOf(b.Reason))
	})
}

// place is where the pod can be expected; nil where nowhere. What the pod needs there is taken. The node that the scheduler
// keeps for a pod comes first, and a pod of a DaemonSet is for one node only.
func (d *decision) place(asked demand) *Place {
	pinned := PinnedTo(asked.pod)
	if first := cmp.Or(pinned, asked.pod.Status.NominatedNodeName); first != "" {
		at := slices.IndexFunc(d.places, func(p *Place) bool { return p.is(first) })
		if at >= 0 && d.takes(asked, d.places[at]) {
			return d.put(asked, at)
		}
	}
	for i, p := range d.places {
		if pinned == "" && d.takes(asked, p) {
			return d.put(asked, i)
		}
	}
	return nil
}

func (d *decision) takes(asked demand, p *Place) bool {
	return p.takes(asked) && d.claims.fit(asked.pod, p)
}

// put expects the pod on one of the places.
func (d *decision) put(asked demand, at int) *Place {
	p := d.places[at]
	p.put(asked)
	d.claims.take(asked.pod, p)
	if !d.pool.open(p) && !d.claims.any() {
		d.places = slices.Delete(d.places, at, at+1)
	}
	return p
}

// node is the pool's node of a name; nil where there is none.
func (d *decision) node(name string) *Place {
	at := slices.IndexFunc(d.pool.Places, func(p *Place) bool { return p.is(name) })
	if name == "" || at < 0 {
		return nil
	}
	return d.pool.Places[at]
}

// awaits says whether Karpenter counts for the pod on a machine that nothing is expected of, so that it launches none. What
// the pod needs there is taken.
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
func (d *decision) expected(v Verdict, asked demand, place *Place) Verdict {
	v.Joining = place != nil && place.Machine != nil
	v.Causes = d.overdue(v, asked, place)
	v.Overdue = len(v.Causes) > 0
	v.Expected = !v.Overdue
	for i := range v.Causes {
		v.Causes[i].shorten()
	}
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
	return slices.Concat(d.names(asked, offer), d.amounts(asked, offer), d.dra(asked, offer), d.selectors(asked, offer), d.taints(asked, offer.Blueprint.Taints))
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
