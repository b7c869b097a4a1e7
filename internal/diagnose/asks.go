package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// gated is what holds the pod back before a node is sought for it.
func (d *decision) gated(asked demand) []Cause {
	pod := asked.pod
	if !gated(pod) {
		return nil
	}
	var gates []string
	for _, gate := range pod.Spec.SchedulingGates {
		gates = append(gates, gate.Name)
	}
	all := strings.Join(gates, ", ")
	message := fmt.Sprintf("the scheduling gates %s hold the pod back", all)
	switch len(gates) {
	case 0:
		message = fmt.Sprintf("scheduler %s has not looked for a node yet", pod.Spec.SchedulerName)
	case 1:
		message = fmt.Sprintf("the scheduling gate %s holds the pod back", all)
	}
	c := d.cause(v1alpha1.HoldGated, "%s", message)
	c.Evidence = []Fact{{"schedulingGates", all}, {"schedulerName", pod.Spec.SchedulerName}}
	switch {
	case len(gates) == 0:
		c.Remedy = fmt.Sprintf("look whether scheduler %s runs, and at the pod group or queue that it keeps the pod in", pod.Spec.SchedulerName)
	case slices.ContainsFunc(gates, ofKueue):
		c.Remedy = fmt.Sprintf("look at the Kueue Workload of the pod: kubectl describe workloads.kueue.x-k8s.io -n %s", pod.Namespace)
	default:
		c.Remedy = fmt.Sprintf("look at who sets the gates %s: it removes them when it admits the pod", all)
	}
	return []Cause{c}
}

// ofKueue says whether a gate is Kueue's (sigs.k8s.io/kueue, pkg/controller/constants: kueue.x-k8s.io/admission,
// kueue.x-k8s.io/topology).
func ofKueue(gate string) bool { return strings.HasPrefix(gate, "kueue.x-k8s.io/") }

// names are GPU resources that a node of the offer does not have by that name.
func (d *decision) names(asked demand, offer *Offer) []Cause {
	var causes []Cause
	for _, name := range asked.gpus() {
		if _, offered := offer.Blueprint.Resources[name]; offered {
			continue
		}
		quantity := asked.requests[name]
		what := fmt.Sprintf("the pod asks for %s: %s, and nodes on %s offer %s", name, quantity.String(), offer.Blueprint.InstanceType, inWords(offer.Blueprint.Resources))
		reason, remedy := v1alpha1.HoldNameMismatch, "ask for "+namesOf(offer.Blueprint.Resources)+" instead"
		if profile, slice := migProfile(name); slice && offer.Blueprint.Sharing == v1alpha1.SharingMIG && mixed(offer) {
			reason = v1alpha1.HoldProfileNotOffered
			remedy = fmt.Sprintf("ask for %s, or declare a layout with %s", namesOf(offer.Blueprint.Resources), profile)
		}
		c := d.cause(reason, "%s", what+d.whole(name, offer))
		c.Remedy, c.Evidence = remedy, []Fact{{"asked", fmt.Sprintf("%s: %s", name, quantity.String())}, {"offered", inWords(offer.Blueprint.Resources)}}
		causes = append(causes, c)
	}
	return causes
}

// whole says why whole GPUs are not there where they are cut or shared.
func (d *decision) whole(name corev1.ResourceName, offer *Offer) string {
	if !strings.HasSuffix(string(name), "/gpu") {
		return ""
	}
	switch offer.Blueprint.Sharing {
	case v1alpha1.SharingMIG:
		if offer.Blueprint.Layout != nil {
			return fmt.Sprintf(": its GPUs are cut by layout %s", offer.Blueprint.Layout.Name)
		}
	case v1alpha1.SharingTimeSlicing:
		return fmt.Sprintf(": each of its GPUs is shared by %d pods under another name", offer.Blueprint.Replicas)
	}
	return ""
}

func mixed(offer *Offer) bool { return offer.Blueprint.MIGStrategy != v1alpha1.MIGSingle }

// migProfile is 1g.10gb of nvidia.com/mig-1g.10gb.
func migProfile(name corev1.ResourceName) (string, bool) {
	_, kind, _ := strings.Cut(string(name), "/")
	profile, slice := strings.CutPrefix(kind, "mig-")
	return profile, slice && !strings.HasSuffix(profile, ".shared")
}

// amounts are resources of which a node of the offer has too little even when it is empty.
func (d *decision) amounts(asked demand, offer *Offer) []Cause {
	var causes []Cause
	for _, name := range sortedNames(asked.requests) {
		quantity := asked.requests[name]
		most, listed := offer.Most[name]
		if quantity.Cmp(most) <= 0 || (!listed && (isGPU(name) || !counted(name))) {
			continue
		}
		if has := d.hasPages(name, quantity); has != nil {
			causes = append(causes, d.noPages(name, quantity, has))
			continue
		}
		c := d.cause(v1alpha1.HoldProfileNotOffered, "the pod asks for %s: %s on one node, and a node on %s has %s at most", name, quantity.String(), offer.Blueprint.InstanceType, most.String())
		c.Remedy = fmt.Sprintf("ask for %s or less of %s, or let the pool use larger machines", most.String(), name)
		if name == corev1.ResourceEphemeralStorage {
			c.Remedy = fmt.Sprintf("ask for %s or less of %s, or raise rootVolume.sizeGiB of the GPUNodeClass", most.String(), name)
		}
		if !listed {
			c = d.cause(v1alpha1.HoldProfileNotOffered, "the pod asks for %s: %s, and nodes on %s have none", name, quantity.String(), offer.Blueprint.InstanceType)
			c.Remedy = fmt.Sprintf("leave %s out, or let the pool use machines that have it", name)
		}
		if hugePages(name) {
			c.Remedy = fmt.Sprintf("leave %s out: a node has huge pages only where they are reserved as it boots, and no machine is launched for them", name)
		}
		c.Evidence = []Fact{{"asked", fmt.Sprintf("%s: %s", name, quantity.String())}, {"most", most.String()}}
		causes = append(causes, c)
	}
	return causes
}

// hasPages is a verified node that has as many huge pages as a pod asks for, in use or not; nil where there is none.
func (d *decision) hasPages(name corev1.ResourceName, asked resource.Quantity) *Place {
	at := slices.IndexFunc(d.pool.Places, func(p *Place) bool {
		has := p.Has[name]
		return hugePages(name) && p.State == Verified && asked.Cmp(has) <= 0
	})
	if at < 0 {
		return nil
	}
	return d.pool.Places[at]
}

// noPages is of huge pages that a node has, and that no new one is known to have.
func (d *decision) noPages(name corev1.ResourceName, asked resource.Quantity, p *Place) Cause {
	has, free := p.Has[name], p.Free[name]
	c := d.cause(v1alpha1.HoldFragmented, "the pod asks for %s: %s, of which node %s has %s, %s free, and it has no room for the pod", name, asked.String(), p.Name, has.String(), free.String())
	c.Remedy = fmt.Sprintf("free node %s, or leave %s out: no machine is launched for huge pages", p.Name, name)
	c.Evidence = []Fact{{"asked", fmt.Sprintf("%s: %s", name, asked.String())}, {"has", has.String()}, {"free", free.String()}}
	return c
}

// taints are those of some nodes that the pod does not tolerate.
func (d *decision) taints(asked demand, all []corev1.Taint) []Cause {
	var missing []string
	for _, taint := range all {
		if !asked.tolerates([]corev1.Taint{taint}) {
			missing = append(missing, taint.ToString())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	c := d.cause(v1alpha1.HoldNotTolerated, "the pod does not tolerate %s, %d of the %d taints of the pool's nodes", strings.Join(missing, " and "), len(missing), len(all))
	c.Remedy = "add tolerations for " + strings.Join(missing, " and ") + " to the pod: Terraform shows them as tolerations of the gpufleet_node_pool"
	c.Evidence = []Fact{{"notTolerated", strings.Join(missing, ", ")}}
	return []Cause{c}
}

// inWords writes resources as people do: "nvidia.com/gpu: 8, nvidia.com/mig-1g.10gb: 56".
func inWords(list corev1.ResourceList) string {
	var words []string
	for _, name := range sortedNames(list) {
		quantity := list[name]
		words = append(words, fmt.Sprintf("%s: %s", name, quantity.String()))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func namesOf(list corev1.ResourceList) string {
	var names []string
	for _, name := range sortedNames(list) {
		names = append(names, string(name))
	}
	return strings.Join(names, " or ")
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
