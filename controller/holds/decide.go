package holds

import (
	"cmp"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// seen is a pool at one moment.
type seen struct {
	usage ledger.Usage
	// offers are the machines that the pool may launch, in order of preference; none where it may launch nothing.
	offers []offer
	// places are its nodes, and the machines on their way to it.
	places []*place
	// pods are those that wait and name the pool.
	pods []*corev1.Pod
}

// offer is one machine that the pool may launch.
type offer struct {
	blueprint v1alpha1.Blueprint
	machine   ledger.Machine
	// most is what a pod can have of it.
	most corev1.ResourceList
	// nodes are what a node of it may be: one for each zone and capacity type.
	nodes []*corev1.Node
}

// verdict is what one waiting pod can expect of the pool.
type verdict struct {
	pod *corev1.Pod
	// expected: a node, or a machine on its way, can be expected to take it, or a machine may still be launched for it.
	expected bool
	// refusal is why the smallest machine that could serve it may not be launched. A pod with one is held by the limit.
	// With neither, something else holds the pod: nothing that the pool may launch would serve it.
	refusal *ledger.Refusal
	// offer is that machine, requests what the pod asks of it.
	offer    *offer
	requests corev1.ResourceList
}

// decide gives each pod that waits for the pool its verdict: those that ask for what the pool's nodes offer and tolerate
// their taints, in the order in which the scheduler takes them. It fills the places of what it is given.
func decide(pool seen) []verdict {
	refusals := pool.refusals()
	places := slices.DeleteFunc(slices.Clone(pool.places), func(p *place) bool { return !pool.open(p) })
	var verdicts []verdict
	for _, pod := range inTurn(pool.pods) {
		asked := demandOf(pod)
		if !pool.wanted(asked) {
			continue
		}
		taken := slices.IndexFunc(places, func(p *place) bool { return p.takes(asked) })
		if taken < 0 {
			verdicts = append(verdicts, pool.refuse(asked, refusals))
			continue
		}
		verdicts = append(verdicts, verdict{pod: pod, expected: true})
		places[taken].put(asked)
		if !pool.open(places[taken]) {
			places = slices.Delete(places, taken, taken+1)
		}
	}
	return verdicts
}

// inTurn is the scheduler's order: priority, then age. Names make it the same each time.
func inTurn(pods []*corev1.Pod) []*corev1.Pod {
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(corehelpers.PodPriority(b), corehelpers.PodPriority(a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// wanted says whether a pod wants nodes of the pool: one of its offers has what the pod asks for, and taints that the pod
// tolerates.
func (s seen) wanted(asked demand) bool {
	return slices.ContainsFunc(s.offers, func(o offer) bool {
		return hasAny(asked.requests, o.blueprint.Resources) && asked.tolerates(o.blueprint.Taints)
	})
}

// hasAny says whether there is something of any of the resources in a list.
func hasAny(list, resources corev1.ResourceList) bool {
	for name := range resources {
		if quantity := list[name]; quantity.Sign() > 0 {
			return true
		}
	}
	return false
}

// open says whether a place has anything left of what the pool's pods ask for.
func (s seen) open(p *place) bool {
	return slices.ContainsFunc(s.offers, func(o offer) bool { return hasAny(p.free, o.blueprint.Resources) })
}

// refusals are why each offer may not be launched. nil: it may be. An error that is no *ledger.Refusal is of a machine
// that cannot be counted, and no limit.
func (s seen) refusals() []error {
	refusals := make([]error, len(s.offers))
	for i, o := range s.offers {
		refusals[i] = s.usage.Fits(o.machine)
	}
	return refusals
}

// refuse is the verdict on a pod that no place takes.
func (s seen) refuse(asked demand, refusals []error) verdict {
	held := verdict{pod: asked.pod, requests: asked.requests}
	for i := range s.offers {
		o := &s.offers[i]
		if !o.serves(asked) {
			continue
		}
		var refusal *ledger.Refusal
		switch {
		case refusals[i] == nil:
			return verdict{pod: asked.pod, expected: true}
		case !errors.As(refusals[i], &refusal):
		case held.offer == nil || o.machine.GPUs < held.offer.machine.GPUs:
			held.refusal, held.offer = refusal, o
		}
	}
	return held
}

// serves says whether a machine of the offer could take the pod.
func (o *offer) serves(asked demand) bool {
	return fits(asked.requests, o.most) && asked.tolerates(o.blueprint.Taints) &&
		slices.ContainsFunc(o.nodes, asked.selects)
}
