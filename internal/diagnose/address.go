package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Meant says whether a pod is meant for pools of ours: it selects a label of ours, or tolerates the taint of a workload
// class by name. Others may be meant for other nodes of the cluster, and are left alone.
func Meant(pod *corev1.Pod) bool {
	for key := range pod.Spec.NodeSelector {
		if ours(key) {
			return true
		}
	}
	for _, term := range requiredTerms(pod) {
		if slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return ours(r.Key) }) {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintWorkload })
}

func ours(key string) bool { return strings.HasPrefix(key, v1alpha1.Group+"/") }

// noPool is what the message of a stray begins with, in place of a pool.
const noPool = "no pool: "

// Stray is the verdict on a pod that names none of the pools that exist. Pools is what each pool's nodes offer, by name.
func Stray(pod *corev1.Pod, pools map[string]corev1.ResourceList) Verdict {
	asked := demandOf(pod)
	v := Verdict{Pod: pod, Requests: asked.requests, Since: WaitingSince(pod)}
	c := Cause{Reason: v1alpha1.HoldSelectorMismatch, Remedy: "select a pool: nodeSelector " + v1alpha1.LabelPool}
	named := NamedPools(pod)
	if len(named) == 0 {
		c.Message = noPool + "the pod selects none by the label " + v1alpha1.LabelPool
	} else {
		c.Message = fmt.Sprintf(noPool+"the pod selects %s=%s, and there is no such GPUNodePool", v1alpha1.LabelPool, strings.Join(named, " or "))
	}
	var all, offering []string
	for name, resources := range pools {
		all = append(all, name)
		if hasAny(asked.gpuRequests(), resources) {
			offering = append(offering, name)
		}
	}
	slices.Sort(all)
	slices.Sort(offering)
	switch {
	case len(offering) > 0:
		c.Message += fmt.Sprintf("; %s offers what it asks for", strings.Join(offering, ", "))
		c.Remedy += ": " + offering[0]
	case len(all) > 0:
		c.Message += fmt.Sprintf("; none of %s offers what it asks for", strings.Join(all, ", "))
		c.Remedy = "ask for what a pool offers, and select the pool by " + v1alpha1.LabelPool + "; or look to whoever offers " + inWords(asked.gpuRequests())
	default:
		c.Message += "; there is none at all"
		c.Remedy = "declare a GPUNodePool, and select it by " + v1alpha1.LabelPool
	}
	c.Evidence = []Fact{{"asked", inWords(asked.gpuRequests())}, {"pools", strings.Join(all, ", ")}}
	nobodys := &decision{pool: &Pool{}}
	v.Causes = append(nobodys.gated(asked), c)
	for i := range v.Causes {
		v.Causes[i].shorten()
	}
	return v
}

// Unnamed is the verdict on a pod that names no pool, of what it would be as a stray and of one for each pool. Karpenter
// considers such a pod for every pool whose taints it tolerates: where it could run as it stands, that pool speaks for it.
func Unnamed(stray Verdict, verdicts []Verdict) Verdict {
	if PinnedTo(stray.Pod) != "" && len(verdicts) > 0 {
		return Nearest(verdicts) // its node is that pool's
	}
	right := slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return slices.ContainsFunc(v.Causes, ofThePod) })
	if len(right) == 0 {
		return stray
	}
	return Nearest(right)
}

// Nearest is the verdict of the pool that is nearest to serving a pod, of one for each pool that the pod names: one that
// can be expected to take it, else the one whose reason comes last in the order of precedence; the first of equals.
func Nearest(verdicts []Verdict) Verdict {
	nearest := verdicts[0]
	for _, v := range verdicts[1:] {
		if (v.Expected && !nearest.Expected) || (v.Expected == nearest.Expected && firstOf(v.Causes) > firstOf(nearest.Causes)) {
			nearest = v
		}
	}
	return nearest
}
