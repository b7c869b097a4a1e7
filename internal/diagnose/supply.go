package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// trouble is why the pool launches nothing at all.
func (d *decision) trouble() []Cause {
	if d.pool.Trouble == "" {
		return nil
	}
	return []Cause{d.cause(v1alpha1.HoldPoolNotReady, "%s", d.pool.Trouble)}
}

// refusing are the places that would take the pod if they were what was ordered: nodes, or machines that have not joined.
func (d *decision) refusing(asked demand, joined bool) []*Place {
	var found []*Place
	for _, p := range d.pool.Places {
		if p.State == Refused && (p.Machine == nil) == joined && p.takes(asked) {
			found = append(found, p)
		}
	}
	return found
}

// notJoined are the machines that would take the pod if they had joined in time.
func (d *decision) notJoined(asked demand) []Cause {
	found := d.refusing(asked, false)
	if len(found) == 0 {
		return nil
	}
	message := found[0].Finding
	if len(found) > 1 {
		message = fmt.Sprintf("%d machines have not joined; the first: %s", len(found), found[0].Finding)
	}
	c := d.cause(v1alpha1.HoldNotVerified, "%s", message)
	c.Remedy = found[0].Machine.remedy()
	for _, p := range found {
		c.Evidence = append(c.Evidence, Fact{"machine " + p.Name, p.Finding})
	}
	return []Cause{c}
}

// notVerified are the nodes that would take the pod if they were what was ordered.
func (d *decision) notVerified(asked demand) []Cause {
	found := d.refusing(asked, true)
	if len(found) == 0 {
		return nil
	}
	message := fmt.Sprintf("node %s is not what was ordered: %s", found[0].Name, found[0].Finding)
	if len(found) > 1 {
		message = fmt.Sprintf("%d nodes are not what was ordered; the first, %s: %s", len(found), found[0].Name, found[0].Finding)
	}
	c := d.cause(v1alpha1.HoldNotVerified, "%s", message)
	c.Remedy = fmt.Sprintf("look at GPUNode %s; a node that was never proved is replaced after the class's verification timeout", found[0].Name)
	for _, p := range found {
		c.Evidence = append(c.Evidence, Fact{"node " + p.Name, p.Finding})
	}
	return []Cause{c}
}

// fragmented says whether the pool's verified nodes have enough free in total, but none of them has it alone.
func (d *decision) fragmented(asked demand) []Cause {
	var reachable []*Place
	for _, p := range d.pool.Places {
		if p.State == Verified && asked.tolerates(p.Taints) && asked.selects(p.Node) && !p.repels(asked.pod) {
			reachable = append(reachable, p)
		}
	}
	for _, name := range asked.gpus() {
		if message, facts := scattered(name, quantity(asked.requests, name), reachable); message != "" {
			return []Cause{d.fragments(asked, message, facts)}
		}
	}
	if message, facts := stranded(asked, reachable); message != "" {
		return []Cause{d.fragments(asked, message, facts)}
	}
	return nil
}

func (d *decision) fragments(asked demand, message string, facts []Fact) Cause {
	c := d.cause(v1alpha1.HoldFragmented, "%s", message)
	c.Evidence = slices.Concat(facts, d.preemption(asked))
	c.Moves = d.plan(asked)
	if c.Moves != nil {
		c.Remedy = fmt.Sprintf("move %s off node %s (kubectl gpufleet explain pod shows which), or raise the limit that keeps the pool from launching a node",
			count(len(c.Moves.Moves), "pod"), c.Moves.Node)
	}
	return c
}

// maxPlans bounds what one pass looks for: a plan may take 25 ms, and thousands of pods may wait.
const maxPlans = 4

// plan is the fewest moves that make room for the pod, the same for pods of one owner that ask for the same.
func (d *decision) plan(asked demand) *Plan {
	key := string(asked.pod.UID)
	if owner := metav1.GetControllerOf(asked.pod); owner != nil {
		key = string(owner.UID) + " " + inWords(asked.requests)
	}
	plan, known := d.plans[key]
	if !known && len(d.plans) < maxPlans {
		plan = PlanMoves(*d.pool, asked.pod, asked.requests)
		d.plans[key] = plan
	}
	return plan
}

// scattered: enough of a resource is free, on several nodes.
func scattered(name corev1.ResourceName, need int64, places []*Place) (string, []Fact) {
	var free, largest int64
	var each []string
	for _, p := range places {
		left := max(quantity(p.Free, name), 0)
		free, largest = free+left, max(largest, left)
		each = append(each, fmt.Sprintf("%s: %d", p.Name, left))
	}
	if need <= 0 || largest >= need || free < need {
		return "", nil
	}
	return fmt.Sprintf("the pod needs %s: %d on one node; %d are free in total, and %d on the node that has the most", name, need, free, largest), []Fact{
		{"needed", fmt.Sprint(need)}, {"free", fmt.Sprint(free)}, {"largestBlock", fmt.Sprint(largest)}, {"freeByNode", strings.Join(each, ", ")},
	}
}

// stranded: a node has the GPUs that the pod needs left, but not the CPU, the memory or the places for pods.
func stranded(asked demand, places []*Place) (string, []Fact) {
	gpus := asked.gpus()
	for _, p := range places {
		if len(gpus) == 0 || slices.ContainsFunc(gpus, func(name corev1.ResourceName) bool { return quantity(p.Free, name) < quantity(asked.requests, name) }) {
			continue
		}
		for _, name := range sortedNames(asked.requests) {
			need, left := asked.requests[name], p.Free[name]
			if _, listed := p.Free[name]; !isGPU(name) && listed && need.Cmp(left) > 0 {
				return fmt.Sprintf("node %s has %s: %d free, and of %s only %s of the %s that the pod needs", p.Name, gpus[0], quantity(p.Free, gpus[0]), name, left.String(), need.String()),
					[]Fact{{"needed", fmt.Sprintf("%s: %s", name, need.String())}, {"free", fmt.Sprintf("%s: %s", name, left.String())}}
			}
		}
	}
	return "", nil
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}

// preemption says whether pods of lower priority hold what the pod needs.
func (d *decision) preemption(asked demand) []Fact {
	own, lower, equal := corehelpers.PodPriority(asked.pod), 0, 0
	for _, name := range asked.gpus() {
		for priority, pods := range d.holders()[name] {
			switch {
			case priority < own:
				lower += pods
			case priority == own:
				equal += pods
			}
		}
	}
	never := asked.pod.Spec.PreemptionPolicy != nil && *asked.pod.Spec.PreemptionPolicy == corev1.PreemptNever
	switch {
	case lower > 0 && never:
		return []Fact{{"preemption", fmt.Sprintf("%s of lower priority may hold what it needs, and its preemptionPolicy is Never", count(lower, "pod"))}}
	case lower > 0:
		return []Fact{{"preemption", fmt.Sprintf("%s of lower priority may hold what it needs: the scheduler may evict them", count(lower, "pod"))}}
	case equal > 0:
		return []Fact{{"preemption", fmt.Sprintf("none is evicted: what it needs is held by %s of its own priority, %d", count(equal, "pod"), own)}}
	}
	return nil
}

// holders are how many pods hold something of each GPU resource on the pool's verified nodes, by their priority. They are
// counted once a pass: thousands of pods may wait.
func (d *decision) holders() map[corev1.ResourceName]map[int32]int {
	if d.held != nil {
		return d.held
	}
	d.held = map[corev1.ResourceName]map[int32]int{}
	for _, p := range d.pool.Places {
		for _, there := range p.Pods {
			if p.State != Verified || there.Spec.NodeName == "" {
				continue
			}
			for _, name := range demandOf(there).gpus() {
				if d.held[name] == nil {
					d.held[name] = map[int32]int{}
				}
				d.held[name][corehelpers.PodPriority(there)]++
			}
		}
	}
	return d.held
}

// gpuRequests are the GPU resources that the pod asks for.
func (d demand) gpuRequests() corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range d.gpus() {
		list[name] = d.requests[name]
	}
	return list
}

// budgets are those that admit no more machine of an offer.
func (d *decision) budgets(offer *Offer) []Cause {
	var causes []Cause
	for _, b := range d.pool.Budgets {
		if !slices.Contains(b.Refuses, offer.Blueprint.InstanceType) {
			continue
		}
		c := d.cause(v1alpha1.HoldBudgetReached, "budget %s is reached: %s of %s used, until %s", b.Name, b.Used, b.Cap, b.Ends.UTC().Format(time.RFC3339))
		c.Remedy = fmt.Sprintf("raise the cap of budget %s, or wait until %s", b.Name, b.Ends.UTC().Format(time.RFC3339))
		c.Evidence = []Fact{{"budget", b.Name}, {"used", b.Used}, {"cap", b.Cap}}
		causes = append(causes, c)
	}
	return causes
}

// blocked is why the cloud sells no machine of the offer by any way that the pod admits: a cause for each reason.
func (d *decision) blocked(asked demand, offer *Offer) []Cause {
	var causes []Cause
	ways := offer.waysFor(asked)
	for _, way := range ways {
		block, found := d.block(offer, way)
		if !found {
			return nil
		}
		reason := block.Reason
		if reason == v1alpha1.ReasonLaunchRejected {
			reason = v1alpha1.HoldPoolNotReady
		}
		tried := Fact{fmt.Sprintf("%s %s in %s", block.InstanceType, way.CapacityType, way.Zone), block.Reason + ": " + block.Message}
		at := slices.IndexFunc(causes, func(c Cause) bool { return c.Reason == reason })
		if at < 0 {
			at = len(causes)
			c := d.cause(reason, "the cloud refuses %s %s in %s until %s: %s", block.InstanceType, way.CapacityType, way.Zone, block.Until.UTC().Format(time.TimeOnly), block.Message)
			if len(ways) > 1 {
				c.Message += fmt.Sprintf(" (no other of the %d ways to buy it is open)", len(ways))
			}
			causes = append(causes, c)
		}
		causes[at].Evidence = append(causes[at].Evidence, tried)
	}
	return causes
}

func (d *decision) block(offer *Offer, way Way) (Blocked, bool) {
	at := slices.IndexFunc(d.pool.Blocked, func(b Blocked) bool {
		return b.InstanceType == offer.Blueprint.InstanceType && b.Zone == way.Zone && b.CapacityType == way.CapacityType && d.cluster.Now.Before(b.Until)
	})
	if at < 0 {
		return Blocked{}, false
	}
	return d.pool.Blocked[at], true
}

// overdue is of a pod that could be placed for longer than that takes; nothing where it is not so. Its words stay the same
// while the pod waits on. A node that comes up is judged in time, and pods that leave a node are gone in time or counted there
// again: of those there is an end without us.
func (d *decision) overdue(v Verdict, asked demand, place *Place) []Cause {
	since, watched := d.cluster.Expected[v.Pod.UID]
	if !watched {
		since = v.Since
	}
	switch {
	case v.Joining:
		return d.neverJoined(v.Pod, place.Machine)
	case place != nil && (place.State == Coming || place.emptied(asked)), d.cluster.Now.Sub(since) <= Patience:
		return nil
	}
	where := "a machine may be launched for the pod, and none is"
	if place != nil {
		where = fmt.Sprintf("node %s has room for the pod", place.Name)
	}
	said := "the scheduler says nothing"
	if scheduled := PodScheduled(v.Pod); scheduled != nil && scheduled.Message != "" {
		said = "the scheduler says: " + scheduled.Message
	}
	return []Cause{d.cause(v1alpha1.HoldOther, "%s, for longer than %s; %s", where, Patience, said)}
}

// neverJoined is of a pod whose machine is in time, and was preceded by others that did not join: together they may take as
// long as one may take to be launched and to join.
func (d *decision) neverJoined(pod *corev1.Pod, machine *Claim) []Cause {
	since, watched := d.cluster.Joining[pod.UID]
	if !watched || d.cluster.Now.Sub(since) <= Patience+JoinPatience {
		return nil
	}
	c := d.cause(v1alpha1.HoldNotVerified, "machines have been expected to take the pod for longer than %s, and none has; the last, %s, was asked for at %s UTC",
		Patience+JoinPatience, machine.inWords(), machine.Created.UTC().Format(time.TimeOnly))
	c.Remedy = machine.remedy()
	c.Evidence = []Fact{{"machine " + machine.Name, machine.inWords()}}
	return []Cause{c}
}
