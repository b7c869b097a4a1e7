package diagnose

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// PinnedTo is the one node that a pod of a DaemonSet is for; empty for any other pod. The DaemonSet controller names it in the
// pod's required node affinity (k8s.io/kubernetes, pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity).
func PinnedTo(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "DaemonSet" {
		return ""
	}
	for _, term := range requiredTerms(pod) {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// ofDaemonSet is what keeps a pod from the one node that it is for, with the machine that the node is. Karpenter launches
// nothing for pods of DaemonSets (pkg/utils/pod/scheduling.go, IsProvisionable), so limits and shortages do not matter.
func (d *decision) ofDaemonSet(asked demand, p *Place) (*Offer, []Cause) {
	var causes []Cause
	offer := d.offerOf(p)
	if offer != nil {
		causes = slices.Concat(d.names(asked, offer), d.amounts(asked, offer), d.dra(asked, offer))
	}
	causes = slices.Concat(causes, d.taints(asked, p.Taints), d.notVerified(asked))
	if len(causes) == 0 {
		causes = d.lacks(asked, p)
	}
	if len(causes) == 0 && !p.takes(asked) {
		causes = []Cause{d.cause(v1alpha1.HoldOther, "node %s, which the pod of a DaemonSet is for, has room for it and does not take it", p.Name)}
	}
	return offer, causes
}

// offerOf is what the pool offers that a node is; nil where it offers that no more.
func (d *decision) offerOf(p *Place) *Offer {
	at := slices.IndexFunc(d.pool.Offers, func(o Offer) bool { return o.Blueprint.InstanceType == p.Node.Labels[corev1.LabelInstanceTypeStable] })
	if at < 0 {
		return nil
	}
	return &d.pool.Offers[at]
}

// lacks is the first thing, GPUs before all, of which a node has less left than a pod of a DaemonSet needs.
func (d *decision) lacks(asked demand, p *Place) []Cause {
	for _, name := range slices.Concat(asked.gpus(), sortedNames(asked.requests)) {
		need, free, has := asked.requests[name], p.Free[name], p.Has[name]
		if _, listed := p.Free[name]; (!listed && !counted(name)) || need.Cmp(free) <= 0 {
			continue
		}
		c := d.cause(v1alpha1.HoldFragmented, "the pod of a DaemonSet needs %s: %s on node %s, which has %s of %s free", name, need.String(), p.Name, free.String(), has.String())
		c.Remedy = fmt.Sprintf("lower what the DaemonSet asks for, or free node %s: no machine is launched for a pod of a DaemonSet", p.Name)
		c.Evidence = []Fact{{"node", p.Name}, {"needed", fmt.Sprintf("%s: %s", name, need.String())}, {"free", free.String()}, {"has", has.String()}}
		return []Cause{c}
	}
	return nil
}
