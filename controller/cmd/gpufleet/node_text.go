package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func (r *nodeReport) held() bool { return len(r.HeldPods) > 0 }

func (r *nodeReport) text(p *page) {
	p.line("%s %s of pool %s is %s.", r.kind(), r.machineReport.Name, r.Pool, p.styled(stateStyle(r.State), r.verdict()))
	p.gap()
	if r.Message != "" {
		p.prose(2, r.Message)
		p.gap()
	}
	p.fields(2, r.fields())
	r.findings(p)
	r.shapes(p)
	r.boards(p)
	r.pods(p)
	r.heldPods(p)
}

func (r *nodeReport) kind() string {
	if r.GPUNode == "" {
		return "Machine"
	}
	return "Node"
}

// verdict is the state in words, with the reason of one that is refused.
func (r *nodeReport) verdict() string {
	switch r.State {
	case StateRefused:
		return "not what was ordered: " + r.Reason
	case StateVerified:
		return "verified: exactly what was ordered"
	case StateVerifying:
		return strings.TrimSuffix("not judged yet: "+r.Reason, ": ")
	case StateLaunching:
		return "being launched"
	case StateJoining:
		return "started, and has not joined yet"
	case StateCordoned:
		return "cordoned: no pod is placed there"
	}
	return "being deleted"
}

func (r *nodeReport) fields() []field {
	all := []field{
		{"NodeClaim", r.NodeClaim}, {"Instance", r.InstanceID},
		{"Machine", strings.Join(nonEmpty(r.InstanceType, r.CapacityType, r.Zone, r.PricePerHour), ", ")},
		{"Asked for", age(r.At.Sub(r.Since.Time)) + " ago"},
	}
	if r.VerifiedAt != nil {
		all = append(all, field{"Proved", age(r.At.Sub(r.VerifiedAt.Time)) + " ago, for the first time"})
	}
	if r.ObservedAt != nil {
		all = append(all, field{"Agent", "saw the last change " + age(r.At.Sub(r.ObservedAt.Time)) + " ago"})
	}
	if r.Failure != nil {
		all = append(all, field{"Failure", fmt.Sprintf("of the agent in step %s: %s", r.Failure.Step, r.Failure.Message)})
	}
	return append(all, field{"Offers", r.offers()})
}

func nonEmpty(texts ...string) []string {
	var out []string
	for _, text := range texts {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

func (r *nodeReport) findings(p *page) {
	if len(r.Findings) == 0 {
		return
	}
	p.head("Findings")
	for _, f := range r.Findings {
		p.hanging("  "+f.Reason+"  ", red, f.Message)
		p.fields(4, []field{{"Expected", f.Expected}, {"Found", f.Found}, {"Remedy", f.Remedy}})
	}
}

// shapes sets what was ordered against what was found.
func (r *nodeReport) shapes(p *page) {
	if r.Ordered == nil {
		return
	}
	p.head("Ordered and found")
	model := r.Ordered.GPUModel
	if r.Ordered.Layout != "" {
		model += ", cut by layout " + r.Ordered.Layout
	}
	rows := [][]cell{
		cells("GPUs", strconv.Itoa(int(r.Ordered.GPUs)), strconv.Itoa(r.Found.GPUs)), cells("Model", model, strings.Join(r.Found.Products, " and ")),
	}
	driver := "any"
	if r.Ordered.DriverMinVersion != "" {
		driver = r.Ordered.DriverMinVersion + " or later"
	}
	rows = append(rows, cells("Driver", driver, r.Found.DriverVersion), cells("Allocatable", asked(r.Ordered.Resources), asked(r.Found.Resources)))
	p.table(2, []column{{head: ""}, {head: "ORDERED"}, {head: "FOUND"}}, rows)
}

func (r *nodeReport) boards(p *page) {
	if len(r.Boards) == 0 {
		return
	}
	p.head("GPUs, as NVML sees them")
	var rows [][]cell
	for _, b := range r.Boards {
		rows = append(rows, cells(strconv.Itoa(int(b.Index)), b.ProductName, fmt.Sprintf("%d MiB", b.MemoryMiB), b.cut(), b.fits(), b.UUID))
	}
	p.table(2, []column{
		{head: "GPU", right: true}, {head: "PRODUCT", spare: 2}, {head: "MEMORY", right: true, spare: 3}, {head: "MIG INSTANCES (START)"}, {head: "STILL FITS"},
		{head: "UUID", spare: 4},
	}, rows)
}

// cut lists the MIG instances of a board, each profile with the memory slices that its instances begin at.
func (b boardReport) cut() string {
	switch {
	case b.MIG == nil || (!b.MIG.Enabled && !b.MIG.PendingEnabled):
		return "whole"
	case b.MIG.Enabled != b.MIG.PendingEnabled:
		return "MIG changes at the next reboot"
	case len(b.MIG.Instances) == 0:
		return "none"
	}
	var parts []string
	for _, profile := range profiles(b.MIG.Instances) {
		var starts []string
		for _, instance := range b.MIG.Instances {
			if instance.Profile == profile {
				starts = append(starts, strconv.Itoa(int(instance.Start)))
			}
		}
		parts = append(parts, fmt.Sprintf("%d x %s (%s)", len(starts), profile, strings.Join(starts, ",")))
	}
	return strings.Join(parts, ", ")
}

// profiles are those of some instances, in their order, each once.
func profiles(instances []v1alpha1.MIGInstance) []string {
	var names []string
	for _, instance := range instances {
		names = addNew(names, instance.Profile)
	}
	return names
}

// fits is the largest profile that could still be placed on a board, nothing where that is not known.
func (b boardReport) fits() string {
	switch {
	case b.Room == nil:
		return ""
	case b.Room.LargestPlaceable == "":
		return "nothing"
	}
	return b.Room.LargestPlaceable
}

func (r *nodeReport) pods(p *page) {
	if r.GPUNode == "" {
		return
	}
	p.head("Pods that hold its GPUs")
	if len(r.Pods) == 0 {
		p.prose(2, "none")
	} else {
		var rows [][]cell
		for _, pod := range r.Pods {
			rows = append(rows, cells(pod.Namespace+"/"+pod.Name, asked(pod.Holds), age(r.At.Sub(pod.Since.Time)), pod.Phase))
		}
		p.table(2, []column{{head: "POD"}, {head: "HOLDS"}, {head: "FOR", right: true}, {head: "PHASE"}}, rows)
	}
	if r.OtherPods > 0 {
		p.prose(2, fmt.Sprintf("others, that hold none: %d", r.OtherPods))
	}
}

func (r *nodeReport) heldPods(p *page) {
	if len(r.HeldPods) == 0 {
		return
	}
	p.head(fmt.Sprintf("Held, since it is not what was ordered: %s", count(len(r.HeldPods), "pod")))
	for i, pod := range r.HeldPods {
		if i == firstPods {
			p.prose(2, fmt.Sprintf("and %d more", len(r.HeldPods)-i))
			break
		}
		p.prose(2, fmt.Sprintf("%s/%s, for %s", pod.Namespace, pod.Name, age(r.At.Sub(pod.Since.Time))))
	}
}
