package holds

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podresources "k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// place is a node of the pool, or a machine on its way to it, with what it has left.
type place struct {
	// node has the labels; nil while it is not known which they will be.
	node   *corev1.Node
	taints []corev1.Taint
	free   corev1.ResourceList
	// pods are there or can be expected there.
	pods []*corev1.Pod
}

// demand is what one pod asks of a node.
type demand struct {
	pod      *corev1.Pod
	requests corev1.ResourceList
	affinity nodeaffinity.RequiredNodeAffinity
}

func demandOf(pod *corev1.Pod) demand {
	return demand{pod: pod, requests: requestsOf(pod), affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// requestsOf counts a pod as the scheduler does: init containers, sidecars, overhead, and the pod itself.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// tolerates looks at the taints that keep a pod from being placed.
func (d demand) tolerates(taints []corev1.Taint) bool {
	keepsAway := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, d.pod.Spec.Tolerations, keepsAway, false)
	return !untolerated
}

// selects looks at the pod's node selector and required node affinity. One that cannot be read selects nothing.
func (d demand) selects(node *corev1.Node) bool {
	matches, err := d.affinity.Match(node)
	return err == nil && matches
}

// takes says whether the place can be expected to take the pod.
func (p *place) takes(asked demand) bool {
	return fits(asked.requests, p.free) && asked.tolerates(p.taints) &&
		(p.node == nil || asked.selects(p.node)) && !p.repels(asked.pod)
}

// put expects the pod on the place.
func (p *place) put(asked demand) {
	subtract(p.free, asked.requests)
	p.pods = append(p.pods, asked.pod)
}

// fits says whether there is enough of everything that is asked. An extended resource that is not listed is not there;
// CPU, memory and the like may just not be known.
func fits(requests, free corev1.ResourceList) bool {
	for name, asked := range requests {
		have, listed := free[name]
		if !listed && !strings.Contains(string(name), "/") {
			continue
		}
		if asked.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// subtract takes requests from what is listed.
func subtract(free, requests corev1.ResourceList) {
	for name, asked := range requests {
		if have, listed := free[name]; listed {
			have.Sub(asked)
			free[name] = have
		}
	}
}

// repels says whether required anti-affinity by host keeps the pod from the place: its own, or that of a pod there. One
// pod a node is how replicas are spread, and there a full pool has GPUs left that its limit of nodes still holds back.
func (p *place) repels(pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.pods, func(there *corev1.Pod) bool { return avoids(pod, there) || avoids(there, pod) })
}

func avoids(pod, other *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(term corev1.PodAffinityTerm) bool {
		if term.TopologyKey != corev1.LabelHostname || !inNamespaces(term, pod.Namespace, other.Namespace) {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		return err == nil && selector.Matches(labels.Set(other.Labels))
	})
}

// inNamespaces says whether a term looks into a namespace. A selector of namespaces is known to match only where it
// matches all: the labels of namespaces are not looked at.
func inNamespaces(term corev1.PodAffinityTerm, own, other string) bool {
	switch {
	case slices.Contains(term.Namespaces, other):
		return true
	case term.NamespaceSelector != nil:
		return len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) == 0
	}
	return len(term.Namespaces) == 0 && own == other
}
