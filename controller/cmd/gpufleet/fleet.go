package main

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// fleet is a snapshot with what follows from it.
type fleet struct {
	*snapshot
	cluster diagnose.Cluster
	// pools are by name.
	pools []*pool
	// verdicts are those on each pod that waits for GPUs, one for each pool that it names and that exists.
	verdicts map[types.UID][]diagnose.Verdict
	// strays are the verdicts on pods that are meant for pools of ours and name none that exists.
	strays []diagnose.Verdict
}

// pool is one pool with what waits for it.
type pool struct {
	object *v1alpha1.GPUNodePool
	// is is the pool before any waiting pod was thought of in it.
	is diagnose.Pool
	// expected says where each waiting pod can be expected; a pod that a machine may be launched for is not in it.
	expected map[types.UID]*diagnose.Place
	// held are the verdicts on pods that are held, and that no other pool is nearer to.
	held     []diagnose.Verdict
	machines []*machine
}

// understand draws the conclusions.
func understand(s *snapshot) *fleet {
	f := &fleet{snapshot: s, verdicts: map[types.UID][]diagnose.Verdict{}, cluster: diagnose.Cluster{
		Now: s.at, Quotas: s.quotas, Claims: s.resourceClaims, Templates: s.templates, Classes: s.deviceClasses, Slices: s.slices,
		Volumes: s.volumes,
	}}
	waiting, naming := f.waiting(), map[string][]*corev1.Pod{}
	for _, pod := range waiting {
		for _, name := range diagnose.NamedPools(pod) {
			naming[name] = append(naming[name], pod)
		}
	}
	for _, object := range s.pools {
		f.pools = append(f.pools, f.look(object, naming[object.Name]))
	}
	slices.SortFunc(f.pools, func(a, b *pool) int { return cmp.Compare(a.object.Name, b.object.Name) })
	for _, pod := range waiting {
		f.settle(pod)
	}
	return f
}

// waiting are the pods that wait for GPUs.
func (f *fleet) waiting() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.unbound), func(pod *corev1.Pod) bool {
		return !diagnose.Waits(pod) || !diagnose.AsksGPUs(f.cluster, pod)
	})
}

// look decides one pool for all pods that name it.
func (f *fleet) look(object *v1alpha1.GPUNodePool, naming []*corev1.Pod) *pool {
	p := &pool{object: object, expected: map[types.UID]*diagnose.Place{}}
	p.is = assemble(f.source(object))
	p.machines = f.machinesOf(object.Name, p.is)
	for _, verdict := range f.decide(p, naming) {
		f.verdicts[verdict.Pod.UID] = append(f.verdicts[verdict.Pod.UID], verdict)
	}
	return p
}

// decide gives some pods their verdicts, and notes where they can be expected. It fills a pool of its own.
func (f *fleet) decide(p *pool, pods []*corev1.Pod) []diagnose.Verdict {
	cluster, filled := f.cluster, assemble(f.source(p.object))
	cluster.Expected = f.expectedSince(p.object, pods)
	verdicts := diagnose.Decide(cluster, filled, pods)
	for _, place := range filled.Places {
		for _, pod := range place.Pods {
			if pod.Spec.NodeName == "" {
				p.expected[pod.UID] = place
			}
		}
	}
	return verdicts
}

// assemble puts a pool together. What keeps it from being put together keeps it from launching too.
func assemble(source diagnose.Source) diagnose.Pool {
	p, err := diagnose.Assemble(source)
	if err != nil {
		return diagnose.Pool{Name: source.Pool.Name, Workload: source.Pool.Spec.Workload, Trouble: err.Error()}
	}
	return p
}

func (f *fleet) source(object *v1alpha1.GPUNodePool) diagnose.Source {
	source := diagnose.Source{
		Pool: object, Layouts: map[string]*v1alpha1.MIGLayout{},
		Bound: func(node string) []*corev1.Pod { return f.bound[node] }, Leaving: func(node string) []*corev1.Pod { return f.leaving[node] },
		Now: f.at,
	}
	for _, class := range f.classes {
		if class.Name == object.Spec.NodeClassRef.Name {
			source.Class = class
		}
	}
	for _, layout := range f.layouts {
		if source.Class != nil && slices.Contains(source.Class.Spec.Sharing.Layouts, layout.Name) {
			source.Layouts[layout.Name] = layout
		}
	}
	for _, claim := range f.claims {
		if claim.Labels[v1alpha1.LabelPool] == object.Name {
			source.Claims = append(source.Claims, claim.diagnosed())
		}
	}
	for _, node := range f.nodes {
		if node.Labels[v1alpha1.LabelPool] == object.Name {
			source.Nodes = append(source.Nodes, node)
		}
	}
	for _, node := range f.gpuNodes {
		if node.Spec.Pool == object.Name {
			source.GPUNodes = append(source.GPUNodes, node)
		}
	}
	return source
}

func (c *nodeClaim) diagnosed() diagnose.Claim {
	return diagnose.Claim{
		Name: c.Name, Labels: c.Labels, Types: c.instanceTypes(), ProviderID: c.Status.ProviderID, Taints: c.Spec.Taints,
		Requests: c.Spec.Resources.Requests, Allocatable: c.Status.Allocatable, Created: c.CreationTimestamp.Time, Leaving: !c.DeletionTimestamp.IsZero(),
	}
}

// instanceTypes are what a claim may become, or has become.
func (c *nodeClaim) instanceTypes() []string {
	if chosen := c.Labels[corev1.LabelInstanceTypeStable]; chosen != "" {
		return []string{chosen}
	}
	for _, requirement := range c.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable && requirement.Operator == corev1.NodeSelectorOpIn {
			return requirement.Values
		}
	}
	return nil
}

// expectedSince is since when pods can be expected in a pool. The controller has watched them, so while it is heard of and
// says that none has been expected for too long, that is so. Otherwise a pod can have been expected at most since what held
// pods of the pool was said to be over, or since the pool was declared as it is.
func (f *fleet) expectedSince(object *v1alpha1.GPUNodePool, pods []*corev1.Pod) map[types.UID]time.Time {
	since := latest(ended(object), declared(object))
	says := slices.ContainsFunc(object.Status.Holds, func(h v1alpha1.Hold) bool { return h.Reason == v1alpha1.HoldOther })
	if alive := f.heard().Alive; alive != nil && *alive && !says {
		since = f.at
	}
	times := map[types.UID]time.Time{}
	for _, pod := range pods {
		times[pod.UID] = latest(since, diagnose.WaitingSince(pod))
	}
	return times
}

// holdConditions are those that say what holds pods, and are True only while it does.
var holdConditions = []string{
	v1alpha1.ConditionPodsHeld, v1alpha1.ConditionLimitReached, v1alpha1.ConditionCapacityUnavailable, v1alpha1.ConditionVerifyFailing,
}

// ended is when the last of the conditions that say what holds pods became False.
func ended(object *v1alpha1.GPUNodePool) time.Time {
	var last time.Time
	for _, kind := range holdConditions {
		if c := meta.FindStatusCondition(object.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			last = latest(last, c.LastTransitionTime.Time)
		}
	}
	return last
}

// declared is when the pool's spec was written last, by the API server's own record.
func declared(object *v1alpha1.GPUNodePool) time.Time {
	last := object.CreationTimestamp.Time
	for _, entry := range object.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil {
			last = latest(last, entry.Time.Time)
		}
	}
	return last
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// settle gives a waiting pod to the pool that is nearest to serving it.
func (f *fleet) settle(pod *corev1.Pod) {
	verdicts := f.verdicts[pod.UID]
	switch {
	case f.elsewhere(pod):
		return
	case len(verdicts) == 0:
		meant := diagnose.Meant(pod) || diagnose.PinnedTo(pod) != ""
		if v := f.unnamed(pod); meant && v.Held() {
			f.strays = append(f.strays, v)
		}
		return
	}
	if nearest := diagnose.Nearest(verdicts); nearest.Held() {
		p := f.pool(nearest.Pool)
		p.held = append(p.held, nearest)
	}
}

// elsewhere says whether a pod is of a DaemonSet, and for a node that no pool has, or that is on its way out.
func (f *fleet) elsewhere(pod *corev1.Pod) bool {
	node := diagnose.PinnedTo(pod)
	return node != "" && !slices.ContainsFunc(f.pools, func(p *pool) bool {
		return slices.ContainsFunc(p.is.Places, func(place *diagnose.Place) bool { return place.Machine == nil && place.Name == node })
	})
}

// unnamed is the verdict on a pod that names no pool that exists. One that names none at all may be served by any.
func (f *fleet) unnamed(pod *corev1.Pod) diagnose.Verdict {
	var verdicts []diagnose.Verdict
	if len(diagnose.NamedPools(pod)) == 0 {
		for _, p := range f.pools {
			verdicts = append(verdicts, f.decide(p, []*corev1.Pod{pod})...)
		}
	}
	return diagnose.Unnamed(f.stray(pod), verdicts)
}

// stray is the verdict on a pod that names no pool that exists.
func (f *fleet) stray(pod *corev1.Pod) diagnose.Verdict {
	offered := map[string]corev1.ResourceList{}
	for _, p := range f.pools {
		resources := corev1.ResourceList{}
		for _, offer := range p.is.Offers {
			for name, quantity := range offer.Blueprint.Resources {
				resources[name] = quantity
			}
		}
		offered[p.object.Name] = resources
	}
	return diagnose.Stray(pod, offered)
}

// pool is the pool of a name, nil where there is none.
func (f *fleet) pool(name string) *pool {
	for _, p := range f.pools {
		if p.object.Name == name {
			return p
		}
	}
	return nil
}

// poolNames are those of the pools that exist.
func (f *fleet) poolNames() []string {
	names := make([]string, len(f.pools))
	for i, p := range f.pools {
		names[i] = p.object.Name
	}
	return names
}
