package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func (r *poolReport) held() bool { return len(r.Holds) > 0 }

func (r *poolReport) text(p *page) {
	verdict := p.styled(green, "holds nothing back")
	if held := r.poolSummary.Held; held.Pods > 0 {
		why := held.Reason
		if held.ReasonPods < held.Pods {
			why = held.String()
		}
		verdict = p.styled(red, fmt.Sprintf("holds %s back: %s", count(held.Pods, "pod"), why))
	}
	p.line("Pool %s %s.", r.Name, verdict)
	p.gap()
	var trouble string
	if r.Trouble != "" {
		trouble = "it launches nothing: " + r.Trouble
	}
	p.fields(2, []field{
		{"Workload", string(r.Workload)}, {"Class", r.Class}, {"Nodes", fmt.Sprintf("%d, %d verified", r.Nodes.Total, r.Nodes.Verified)},
		{"GPUs", strings.TrimSuffix(fmt.Sprintf("%d: %s", r.GPUs.Total, r.byState()), ": ")}, {"Cost", r.costInWords()}, {"Trouble", trouble},
	})
	r.holds(p)
	r.limits(p)
	r.offers(p)
	r.unavailable(p)
	r.machines(p)
	r.free(p)
	r.conditions(p)
}

func (r *poolReport) costInWords() string {
	if r.Unpriced > 0 {
		return fmt.Sprintf("%s, and %s whose price is not known", r.HourlyCost, count(r.Unpriced, "machine"))
	}
	return r.HourlyCost
}

func (r *poolReport) holds(p *page) {
	for _, h := range r.Holds {
		p.head("Held: " + h.Reason)
		p.fields(2, []field{
			{"Pods", r.pods(h)}, {"GPUs", strconv.FormatInt(h.GPUs, 10)}, {"For", age(r.At.Sub(h.Since.Time))},
			{"Why", h.Message}, {"Remedy", h.Remedy},
		})
	}
}

// pods names the first pods of a hold.
func (r *poolReport) pods(h holdReport) string {
	names := make([]string, len(h.FirstPods))
	for i, pod := range h.FirstPods {
		names[i] = pod.Namespace + "/" + pod.Name
	}
	text := fmt.Sprintf("%d: %s", h.Pods, strings.Join(names, ", "))
	if more := h.Pods - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (r *poolReport) limits(p *page) {
	p.head("Limits")
	if len(r.Limits) == 0 {
		p.prose(2, "none")
		return
	}
	var rows [][]cell
	for _, limit := range r.Limits {
		rows = append(rows, cells(limit.Name, limit.Limit, limit.Used, limit.WithSurge, limit.Outstanding, limit.Headroom))
	}
	p.table(2, []column{
		{head: "LIMIT"}, {head: "VALUE", right: true}, {head: "USED", right: true}, {head: "WITH SURGE", right: true, spare: 1},
		{head: "OUTSTANDING", right: true, spare: 2}, {head: "HEADROOM", right: true},
	}, rows)
}

func (r *poolReport) offers(p *page) {
	p.head("May launch, in order of preference")
	if len(r.Offers) == 0 {
		p.prose(2, "nothing")
		return
	}
	var rows [][]cell
	for _, offer := range r.Offers {
		row := cells(offer.InstanceType, offer.GPUModel, strconv.Itoa(int(offer.GPUs)), orUnknown(offer.PricePerHour), joined(offer.CapacityTypes),
			strings.Join(offer.Zones, ","), asked(offer.Resources), offer.Refused)
		row[7].style = red
		rows = append(rows, row)
	}
	heads := []column{
		{head: "TYPE"}, {head: "MODEL", spare: 2}, {head: "GPUS", right: true}, {head: "PRICE", right: true}, {head: "BOUGHT", spare: 3},
		{head: "ZONES", spare: 4}, {head: "A NODE OFFERS"}, {head: "REFUSED BY", spare: 1},
	}
	if !slices.ContainsFunc(r.Offers, func(o offerReport) bool { return o.Refused != "" }) {
		heads = heads[:len(heads)-1]
	}
	p.table(2, heads, rows)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

func joined(types []v1alpha1.CapacityType) string {
	parts := make([]string, len(types))
	for i, each := range types {
		parts[i] = string(each)
	}
	return strings.Join(parts, ",")
}

func (r *poolReport) unavailable(p *page) {
	if len(r.Unavailable) == 0 {
		return
	}
	p.head("Refused by the cloud now")
	// A cloud refuses a quota in every zone, in the same words.
	type refusal struct {
		instanceType, bought, until, reason, message string
	}
	var refusals []refusal
	zones := map[refusal][]string{}
	for _, u := range r.Unavailable {
		one := refusal{u.InstanceType, string(u.CapacityType), u.Until.UTC().Format(time.TimeOnly) + "Z", u.Reason, u.Message}
		refusals, zones[one] = addNew(refusals, one), append(zones[one], u.Zone)
	}
	var rows [][]cell
	for _, one := range refusals {
		row := cells(one.instanceType, one.bought, strings.Join(zones[one], ","), one.until, one.reason, one.message)
		row[4].style = red
		rows = append(rows, row)
	}
	p.table(2, []column{
		{head: "TYPE"}, {head: "BOUGHT"}, {head: "ZONES"}, {head: "UNTIL"}, {head: "REASON"}, {head: "THE CLOUD SAYS"},
	}, rows)
}

func (r *poolReport) machines(p *page) {
	p.head("Nodes, and machines on their way")
	if len(r.Machines) == 0 {
		p.prose(2, "none")
		return
	}
	var rows [][]cell
	for _, m := range r.Machines {
		row := cells(m.Name, string(m.State), m.InstanceType, m.Zone, m.CapacityType, age(r.At.Sub(m.Since.Time)), m.offers(), m.Finding)
		row[1].style = stateStyle(m.State)
		rows = append(rows, row)
	}
	heads := []column{
		{head: "NAME"}, {head: "STATE"}, {head: "TYPE", spare: 2}, {head: "ZONE", spare: 4}, {head: "BOUGHT", spare: 5}, {head: "AGE", right: true, spare: 3},
		{head: "OFFERS"}, {head: "FINDING", spare: 1},
	}
	if !slices.ContainsFunc(r.Machines, func(m machineReport) bool { return m.Finding != "" }) {
		heads = heads[:len(heads)-1]
	}
	p.table(2, heads, rows)
}

// offers is what a machine has left of what it has, or what it promises.
func (m machineReport) offers() string {
	var parts []string
	for _, each := range m.Resources {
		if m.State == StateVerified {
			parts = append(parts, fmt.Sprintf("%s: %d of %d free", each.Resource, each.Free, each.Has))
		} else {
			parts = append(parts, fmt.Sprintf("%s: %d promised", each.Resource, each.Has))
		}
	}
	return strings.Join(parts, ", ")
}

func stateStyle(state State) style {
	switch state {
	case StateVerified:
		return green
	case StateRefused:
		return red
	}
	return yellow
}

func (r *poolReport) free(p *page) {
	if len(r.Free) == 0 {
		return
	}
	p.head("Free on verified nodes")
	var rows [][]cell
	for _, f := range r.Free {
		rows = append(rows, cells(string(f.Resource), strconv.FormatInt(f.Block.Free, 10), strconv.FormatInt(f.Largest, 10), fmt.Sprintf("%.0f%%", 100*f.Scattered)))
	}
	p.table(2, []column{{head: "RESOURCE"}, {head: "FREE", right: true}, {head: "MOST ON ONE NODE", right: true}, {head: "SCATTERED", right: true}}, rows)
}

func (r *poolReport) conditions(p *page) {
	if len(r.Conditions) == 0 {
		return
	}
	p.head("Conditions")
	var rows [][]cell
	for _, c := range r.Conditions {
		row := cells(c.Type, string(c.Status), c.Reason, age(r.At.Sub(c.LastTransitionTime.Time)), r.said(c))
		row[1].style = conditionStyle(c)
		rows = append(rows, row)
	}
	p.table(2, []column{{head: "CONDITION"}, {head: "STATUS"}, {head: "REASON"}, {head: "FOR", right: true, spare: 1}, {head: "MESSAGE"}}, rows)
}

// said is a condition's message. What it says of pods that are held stands above.
func (r *poolReport) said(c metav1.Condition) string {
	about := []string{c.Reason}
	if c.Type == v1alpha1.ConditionLimitReached {
		// Its reasons are the limits.
		about = []string{v1alpha1.HoldLimitReached}
	}
	holds := slices.ContainsFunc(r.Holds, func(h holdReport) bool { return slices.Contains(about, h.Reason) })
	if c.Status == metav1.ConditionTrue && slices.Contains(holdConditions, c.Type) && holds {
		return "as above"
	}
	return c.Message
}

// conditionStyle: Accepted and Ready say that all is well, all others are a trouble.
func conditionStyle(c metav1.Condition) style {
	well := c.Type == v1alpha1.ConditionAccepted || c.Type == v1alpha1.ConditionReady
	switch {
	case c.Status == metav1.ConditionUnknown:
		return yellow
	case well == (c.Status == metav1.ConditionTrue):
		return green
	}
	return red
}
