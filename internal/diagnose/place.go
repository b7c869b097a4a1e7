package diagnose

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// takes says whether the place can be expected to take the pod.
func (p *Place) takes(asked demand) bool {
	return fits(asked.requests, p.Free) && asked.tolerates(p.Taints) &&
		p.mayBeSelected(asked) && !p.repels(asked.pod)
}

func (p *Place) mayBeSelected(asked demand) bool {
	if p.Node != nil {
		return asked.selects(p.Node)
	}
	return len(p.MayBe) == 0 || slices.ContainsFunc(p.MayBe, asked.selects)
}

// is says whether the place is the node of a name.
func (p *Place) is(name string) bool { return p.Machine == nil && p.Name == name }

// put expects the pod on the place.
func (p *Place) put(asked demand) {
	subtract(p.Free, asked.requests)
	p.Pods = append(p.Pods, asked.pod)
}

// fits says whether there is enough of everything that is asked.
func fits(requests, free corev1.ResourceList) bool {
	for name, asked := range requests {
		have, listed := free[name]
		if !listed && !counted(name) {
			continue
		}
		if asked.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// counted says whether a resource that is not listed is not there: extended ones, and huge pages, which a node has only where
// it was booted so. CPU, memory and the like may just not be known.
func counted(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
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

// hasAny says whether there is something of any of the resources in a list.
func hasAny(list, resources corev1.ResourceList) bool {
	for name := range resources {
		if quantity := list[name]; quantity.Sign() > 0 {
			return true
		}
	}
	return false
}

// repels says whether required anti-affinity by host keeps the pod from the place: its own, or that of a pod there. One
// pod a node is how replicas are spread, and there a full pool has GPUs left that its limit of nodes still holds back.
func (p *Place) repels(pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.Pods, func(there *corev1.Pod) bool { return avoids(pod, there) || avoids(there, pod) })
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
