package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

func (r *podReport) held() bool { return r.State == PodHeld }

func (r *podReport) text(p *page) {
	pod, since := fmt.Sprintf("Pod %s/%s ", r.Namespace, r.Name), age(r.At.Sub(r.Since.Time))
	switch r.State {
	case PodHeld:
		p.line("%sis held: %s, for %s.", pod, p.styled(red, r.Reason), since)
	case PodExpected:
		p.line("%swaits for %s, and %s.", pod, since, p.styled(green, "nothing holds it"))
	case PodPlaced:
		p.line("%sis on node %s (%s), for %s.", pod, p.styled(green, r.Place.Name), clean(r.Phase), since)
	case PodNominated:
		p.line("%swaits for node %s, where the scheduler makes room for it.", pod, r.Place.Name)
	case PodUnseen:
		p.line("%swaits for %s, and the scheduler has not looked at it yet.", pod, since)
	case PodElsewhere:
		p.line("%sis of a DaemonSet and waits for node %s, which no pool has, or which is on its way out.", pod, r.Place.Name)
	case PodNoGPU:
		p.line("%swaits for %s. It asks for no GPU, and nothing of gpufleet holds it.", pod, since)
	case PodLeaving:
		p.line("%sis being deleted.", pod)
	case PodFinished:
		p.line("%shas finished: %s.", pod, r.Phase)
	}
	p.gap()
	if r.Cause != nil {
		p.prose(2, r.Message)
		p.gap()
	}
	p.fields(2, r.fields())
	if r.Cause != nil {
		evidence(p, r.Evidence)
		moves(p, r.Moves)
	}
	r.pools(p)
	r.also(p)
	r.controller(p)
	if r.Hint != "" {
		p.gap()
		p.prose(0, strings.ToUpper(r.Hint[:1])+r.Hint[1:]+".")
	}
}

func (r *podReport) fields() []field {
	var all []field
	if r.Cause != nil {
		all = append(all, field{"Remedy", r.Remedy})
	}
	all = append(all, field{"Asks", asked(r.Asks)}, field{"Claims", strings.Join(r.Claims, ", ")})
	if r.Place != nil {
		all = append(all, field{"Where", r.where()})
	}
	return append(all, field{"Scheduler", r.Scheduler})
}

func asked(list map[corev1.ResourceName]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		parts = append(parts, fmt.Sprintf("%s: %s", name, list[name]))
	}
	return strings.Join(parts, ", ")
}

// where is the place in words.
func (r *podReport) where() string {
	place := r.Place
	machine := strings.Join(nonEmpty(place.InstanceType, gpusOf(place.GPUs), place.PricePerHour), ", ")
	switch {
	case place.Kind == placeMayBeLaunched:
		return strings.TrimSuffix(fmt.Sprintf("a machine of pool %s may be launched for it: %s", place.Pool, machine), ": ")
	case place.Pool == "":
		return fmt.Sprintf("node %s, of no pool of gpufleet", place.Name)
	}
	return fmt.Sprintf("%s %s of pool %s: %s, asked for %s ago, %s", strings.ToLower(place.Kind), place.Name, place.Pool,
		strings.ToLower(string(place.State)), age(r.At.Sub(place.Since.Time)), machine)
}

func gpusOf(n int64) string {
	if n == 0 {
		return ""
	}
	return count(int(n), "GPU")
}

func evidence(p *page, facts []diagnose.Fact) {
	var all []field
	for i, fact := range facts {
		text := fact.Value
		if i > 0 && text == facts[i-1].Value && len(text) > minimal {
			// A cloud says the same of each zone, at length.
			text = "the same"
		}
		all = append(all, field{fact.Name, text})
	}
	if len(all) > 0 {
		p.head("Evidence")
		p.fields(2, all)
	}
}

// moves is a plan, and says that it is none of ours to carry out.
func moves(p *page, plan *diagnose.Plan) {
	if plan == nil {
		return
	}
	p.head(fmt.Sprintf("These moves would make room on node %s (a dry run: nothing is moved)", plan.Node))
	rows := make([][]cell, len(plan.Moves))
	for i, move := range plan.Moves {
		rows[i] = cells(move.Namespace+"/"+move.Pod, move.From, move.To)
	}
	p.table(2, []column{{head: "POD"}, {head: "FROM"}, {head: "TO"}}, rows)
}

func (r *podReport) pools(p *page) {
	if len(r.Pools) == 0 {
		return
	}
	p.head("Pools that it names")
	var all []field
	for _, pool := range r.Pools {
		one := field{pool.Name, "can be expected to take it"}
		if len(pool.Causes) > 0 {
			_, why, _ := strings.Cut(pool.Causes[0].Message, ": ")
			one.text = pool.Causes[0].Reason + ": " + why
		}
		if pool.Nearest {
			one.label += " (nearest)"
		}
		all = append(all, one)
	}
	p.fields(2, all)
}

func (r *podReport) also(p *page) {
	if len(r.Also) == 0 {
		return
	}
	p.head("What else stands in its way")
	for _, cause := range r.Also {
		p.hanging("  "+cause.Reason+"  ", yellow, cause.Message)
		p.prose(4, "Remedy: "+cause.Remedy)
	}
}

func (r *podReport) controller(p *page) {
	if len(r.ControllerSaid) == 0 {
		return
	}
	p.head("The controller says otherwise")
	for _, word := range r.ControllerSaid {
		text := word.Message
		if word.Reason != "" {
			text = word.Reason + ": " + text
		}
		if word.At != nil {
			text = age(r.At.Sub(word.At.Time)) + " ago, " + text
		}
		p.prose(2, text)
	}
}

// price is a machine's, empty where it is not known.
func price(m ledger.Machine) string {
	if !m.HasPrice {
		return ""
	}
	return m.Price.String()
}
