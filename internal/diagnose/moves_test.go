package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// listed reads "gpu 2, cpu 500m"; gpu is nvidia.com/gpu.
func listed(words string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, each := range strings.Split(words, ", ") {
		if name, quantity, found := strings.Cut(each, " "); found {
			if name == "gpu" {
				name = v1alpha1.ResourceGPU
			}
			list[corev1.ResourceName(name)] = resource.MustParse(quantity)
		}
	}
	return list
}

// bare is a pod that nobody makes anew.
func bare(name, asks string, change ...func(*corev1.Pod)) *corev1.Pod {
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = "default", name
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Resources: corev1.ResourceRequirements{Requests: listed(asks)}},
		}},
	}
	for _, each := range change {
		each(pod)
	}
	return pod
}

// replica is a pod of a Deployment.
func replica(name, asks string, change ...func(*corev1.Pod)) *corev1.Pod {
	return bare(name, asks, slices.Insert(change, 0, ownedBy("ReplicaSet", true))...)
}

// replicas are several that are alike: name0 and on.
func replicas(n int, name, asks string, change ...func(*corev1.Pod)) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = replica(fmt.Sprint(name, i), asks, change...)
	}
	return out
}

func ownedBy(kind string, controller bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: &controller}}
	}
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
}

// alone says that no two pods of a group stand on one node.
func alone(group string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"group": group}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": group}},
			}},
		}}
	}
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

// requiring is a required node affinity.
func requiring(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
			}}},
		}}
	}
}

func tolerating(key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

// verifiedNode is a node with what it has altogether, and pods: they are bound to it unless they say otherwise.
func verifiedNode(name, has string, pods ...*corev1.Pod) *Place {
	place := &Place{Name: name, State: Verified, Free: listed(has), Has: listed(has), Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, "zone": "zone-" + name}},
	}}
	for _, pod := range pods {
		there := pod.DeepCopy()
		there.Spec.NodeName = cmp.Or(pod.Spec.NodeName, name)
		place.Pods = append(place.Pods, there)
		for resourceName, asked := range requestsOf(pod) {
			if free, has := place.Free[resourceName]; has {
				free.Sub(asked)
				place.Free[resourceName] = free
			}
		}
	}
	return place
}

func (p *Place) with(change func(*Place)) *Place {
	change(p)
	return p
}

func tainted(key string) func(*Place) {
	return func(p *Place) {
		p.Taints = append(p.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

func inState(state State) func(*Place) { return func(p *Place) { p.State = state } }

func inferencePool(places ...*Place) Pool {
	return Pool{Name: "inf", Workload: v1alpha1.WorkloadInference, Places: places}
}

// told writes a plan as "node: pod>to pod>to"; empty where there is none.
func told(plan *Plan) string {
	if plan == nil {
		return ""
	}
	out := plan.Node + ":"
	for _, move := range plan.Moves {
		out += " " + strings.TrimPrefix(move.Namespace+"/"+move.Pod, "default/") + ">" + move.To
		if move.From != plan.Node {
			out += " from " + move.From
		}
	}
	return out
}

// wantPlan compares the plan for a pod.
func wantPlan(t *testing.T, pool Pool, pod *corev1.Pod, want string) {
	t.Helper()
	if got := told(PlanMoves(pool, pod, requestsOf(pod))); got != want {
		t.Errorf("plan is %q, want %q", got, want)
	}
}

// kubernetes-sigs/kueue#5243: 8 GPUs idle, 2 a node, and a pod that asks for 8. Six GPUs have to be freed on one node, and
// the other three nodes have just six left.
func TestC77_PlanMoves_MakesRoomForAPodThatNeedsAWholeNode(t *testing.T) {
	whole := replica("job", "gpu 8")
	var small, paired []*Place
	for _, node := range []string{"a", "b", "c", "d"} {
		small = append(small, verifiedNode(node, "gpu 8", replicas(6, node, "gpu 1")...))
		paired = append(paired, verifiedNode(node, "gpu 8", replicas(3, node, "gpu 2")...))
	}
	wantPlan(t, inferencePool(small...), whole, "a: a0>b a1>b a2>c a3>c a4>d a5>d")
	wantPlan(t, inferencePool(paired...), whole, "a: a0>b a1>c a2>d")
	wantPlan(t, inferencePool(small[:3]...), whole, "") // two other nodes have four left
}

func TestPlanMoves_MovesAsFewPodsAsItCan(t *testing.T) {
	for _, tc := range []struct {
		name, asks string
		places     []*Place
		want       string
	}{
		{"a node where one pod has to go comes before one where two do", "gpu 4", []*Place{
			verifiedNode("a", "gpu 8", replicas(6, "a", "gpu 1")...),
			verifiedNode("b", "gpu 8", replica("b0", "gpu 3"), replica("b1", "gpu 3")),
			verifiedNode("c", "gpu 3"),
		}, "b: b0>c"},
		{"one big pod, not two small ones of the same node", "gpu 4", []*Place{
			verifiedNode("a", "gpu 8", replica("a0", "gpu 1", tolerating("closed")), replica("a1", "gpu 1", tolerating("closed")),
				replica("a2", "gpu 4", tolerating("closed"))),
			verifiedNode("b", "gpu 4").with(tainted("closed")),
		}, "a: a2>b"},
		{"two small ones where the big one has nowhere to go", "gpu 4", []*Place{
			verifiedNode("a", "gpu 8", replica("a0", "gpu 4"), replica("a1", "gpu 1"), replica("a2", "gpu 1")),
			verifiedNode("b", "gpu 3"),
		}, "a: a1>b a2>b"},
		{"of nodes the first by name, of pods the first by namespace and name", "gpu 2", []*Place{
			verifiedNode("d", "gpu 2", replica("d0", "gpu 1")),
			verifiedNode("c", "gpu 4", replica("z/c0", "gpu 1"), replica("c2", "gpu 1"), replica("c1", "gpu 1")),
		}, "c: c1>d"},
		{"the namespace of what moves is told", "gpu 2", []*Place{
			verifiedNode("a", "gpu 2", replica("z/a0", "gpu 1")), verifiedNode("b", "gpu 1"),
		}, "a: z/a0>b"},
		{"pods that move must fit together where they go", "gpu 4", []*Place{
			verifiedNode("a", "gpu 4", replica("a0", "gpu 2"), replica("a1", "gpu 2")), verifiedNode("b", "gpu 3"), verifiedNode("c", "gpu 2"),
		}, "a: a0>b a1>c"},
		{"the one with a choice leaves room to the one without", "gpu 5", []*Place{
			verifiedNode("a", "gpu 5", replica("a0", "gpu 2"), replica("a1", "gpu 3")), verifiedNode("b", "gpu 3"), verifiedNode("c", "gpu 2"),
		}, "a: a0>c a1>b"},
		{"what went to the first node that takes it goes to another when the rest has none", "gpu 7", []*Place{
			verifiedNode("a", "gpu 7", replica("a0", "gpu 3", tolerating("closed")), replica("a1", "gpu 2"), replica("a2", "gpu 2")),
			verifiedNode("b", "gpu 3"), verifiedNode("c", "gpu 3").with(tainted("closed")), verifiedNode("d", "gpu 2"),
		}, "a: a0>c a1>b a2>d"},
		{"of two that hold as much the one that has another place to go to", "gpu 3", []*Place{
			verifiedNode("a", "gpu 4", replica("a0", "gpu 1", selecting("zone", "zone-c")), replica("a1", "gpu 1"),
				replica("a2", "gpu 2", selecting("zone", "zone-c"))),
			verifiedNode("b", "gpu 1"), verifiedNode("c", "gpu 2"),
		}, "a: a1>b a2>c"},
		{"each fits somewhere, and the two do not fit together", "gpu 4", []*Place{
			verifiedNode("a", "gpu 4", replica("a0", "gpu 2"), replica("a1", "gpu 2")), verifiedNode("b", "gpu 3"), verifiedNode("c", "gpu 1"),
		}, ""},
		{"the others have enough in total, and none enough for one pod", "gpu 4", []*Place{
			verifiedNode("a", "gpu 4", replica("a0", "gpu 2"), replica("a1", "gpu 2")),
			verifiedNode("b", "gpu 1"), verifiedNode("c", "gpu 1"), verifiedNode("d", "gpu 1"), verifiedNode("e", "gpu 1"),
		}, ""},
		{"CPUs are short as well: a pod without GPUs goes too", "gpu 1, cpu 8", []*Place{
			verifiedNode("a", "gpu 2, cpu 10", replica("a0", "gpu 2, cpu 1"), replica("a1", "cpu 4")), verifiedNode("b", "gpu 2, cpu 6"),
		}, "a: a0>b a1>b"},
		{"where it would go memory is short", "gpu 2, memory 1Gi", []*Place{
			verifiedNode("a", "gpu 2, memory 8Gi", replica("a0", "gpu 1, memory 4Gi")), verifiedNode("b", "gpu 1, memory 3Gi"),
		}, ""},
		{"thousandths of a CPU", "gpu 1, cpu 1500m", []*Place{
			verifiedNode("a", "gpu 1, cpu 2", replica("a0", "cpu 501m")), verifiedNode("b", "gpu 0, cpu 501m"),
		}, "a: a0>b"},
		{"a node that takes no more pods", "gpu 1", []*Place{
			verifiedNode("a", "gpu 1, pods 2", replica("a0", ""), replica("a1", "")), verifiedNode("b", "gpu 0, pods 1"),
		}, "a: a0>b"},
		{"memory that a node says nothing of is not short", "gpu 2, memory 9Gi", []*Place{
			verifiedNode("a", "gpu 2", replica("a0", "gpu 1, memory 9Gi")), verifiedNode("b", "gpu 1"),
		}, "a: a0>b"},
		{"a node that lost a GPU has one less than nothing", "gpu 3", []*Place{
			verifiedNode("a", "gpu 3", replicas(4, "a", "gpu 1")...), verifiedNode("b", "gpu 2"), verifiedNode("c", "gpu 2"),
		}, "a: a0>b a1>b a2>c a3>c"},
		{"a node that no longer lists GPUs has none, whoever moves", "gpu 1", []*Place{
			verifiedNode("a", "cpu 8", replica("a0", "gpu 1", tolerating("closed"))), verifiedNode("b", "gpu 1").with(tainted("closed")),
		}, ""},
		{"pods of other nodes are not moved about: b0 could go to c, and a0 take its place", "gpu 4", []*Place{
			verifiedNode("a", "gpu 4", replica("a0", "gpu 2")), verifiedNode("b", "gpu 2", replica("b0", "gpu 1")), verifiedNode("c", "gpu 1"),
		}, ""},
		{"a node has room as it is: nothing is to be moved", "gpu 2", []*Place{
			verifiedNode("a", "gpu 2", replica("a0", "gpu 1")), verifiedNode("b", "gpu 2"),
		}, ""},
		{"no node", "gpu 1", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { wantPlan(t, inferencePool(tc.places...), bare("new", tc.asks), tc.want) })
	}
}

// One pod has to go from a, which has one GPU left, and b has room for it.
func TestPlanMoves_MovesOnlyPodsThatMayMove(t *testing.T) {
	const doNotDisrupt = "karpenter.sh/do-not-disrupt"
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"of a ReplicaSet":                 {replica("x", "gpu 1"), "a: x>b"},
		"of a StatefulSet":                {bare("x", "gpu 1", ownedBy("StatefulSet", true)), "a: x>b"},
		"bare":                            {bare("x", "gpu 1"), ""},
		"owned, and controlled by no one": {bare("x", "gpu 1", ownedBy("ReplicaSet", false)), ""},
		"of a DaemonSet":                  {bare("x", "gpu 1", ownedBy("DaemonSet", true)), ""},
		"static":                          {bare("x", "gpu 1", ownedBy("Node", true)), ""},
		"the mirror of a static pod":      {replica("x", "gpu 1", annotated("kubernetes.io/config.mirror", "hash")), ""},
		"not to be disrupted":             {replica("x", "gpu 1", annotated(doNotDisrupt, "true")), ""},
		"not to be disrupted for a while": {replica("x", "gpu 1", annotated(doNotDisrupt, "4h")), ""},
		"to be disrupted":                 {replica("x", "gpu 1", annotated(doNotDisrupt, "false")), "a: x>b"},
		"on its way out":                  {replica("x", "gpu 1", func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }), ""},
		"bound elsewhere":                 {replica("x", "gpu 1", func(pod *corev1.Pod) { pod.Spec.NodeName = "z" }), ""},
		"with devices of a claim": {replica("x", "gpu 1", func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic"}}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantPlan(t, inferencePool(verifiedNode("a", "gpu 2", tc.pod), verifiedNode("b", "gpu 1")), bare("new", "gpu 2"), tc.want)
		})
	}
}

// A pod that is expected on a node is not there: there is nothing to move.
func TestPlanMoves_LeavesPodsThatAreOnlyExpected(t *testing.T) {
	notBound := func(p *Place) { p.Pods[0].Spec.NodeName = "" }
	wantPlan(t, inferencePool(verifiedNode("a", "gpu 2", replica("x", "gpu 1")).with(notBound), verifiedNode("b", "gpu 1")), bare("new", "gpu 2"), "")
}

func TestPlanMoves_MovesNothingThatTheWorkloadClassKeepsWhereItIs(t *testing.T) {
	for workload, want := range map[v1alpha1.Workload]string{
		v1alpha1.WorkloadInference: "a: x>b", v1alpha1.WorkloadBatch: "", v1alpha1.WorkloadResearch: "",
	} {
		pool := inferencePool(verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1"))
		pool.Workload = workload
		t.Run(string(workload), func(t *testing.T) { wantPlan(t, pool, bare("new", "gpu 2"), want) })
	}
}

// Devices of claims are not among a node's amounts: whether moves would free them is not known.
func TestPlanMoves_PlansNothingForAPodWithClaims(t *testing.T) {
	claiming := func(pod *corev1.Pod) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }
	pool := inferencePool(verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1"))
	wantPlan(t, pool, bare("new", "gpu 2", claiming), "")
}

// On a a pod of one GPU has to go; b, or what the case makes of it, has room for it.
func TestPlanMoves_KeepsWhatPodsAndNodesAskForBesideAmounts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		places []*Place
		want   string
	}{
		{"a machine on its way cannot be moved to", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1").with(inState(Coming)),
		}, ""},
		{"nor a node that was refused", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1").with(inState(Refused)),
		}, ""},
		{"nor is room made on one", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")).with(inState(Refused)), verifiedNode("b", "gpu 1"),
		}, ""},
		{"a taint keeps what moves from b", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1").with(tainted("closed")),
		}, ""},
		{"a taint that it tolerates does not", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1", tolerating("closed"))), verifiedNode("b", "gpu 1").with(tainted("closed")),
		}, "a: x>b"},
		{"a taint keeps the pod from a", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")).with(tainted("closed")), verifiedNode("b", "gpu 1"),
		}, ""},
		{"a node selector keeps what moves from b", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1", selecting("zone", "zone-c"))), verifiedNode("b", "gpu 1"), verifiedNode("c", "gpu 1"),
		}, "a: x>c"},
		{"so does a required node affinity", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1", requiring("zone", "zone-c"))), verifiedNode("b", "gpu 1"), verifiedNode("c", "gpu 1"),
		}, "a: x>c"},
		{"the pod's own keeps it from a", bare("new", "gpu 2", requiring("zone", "zone-c")), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1")), verifiedNode("b", "gpu 1"), verifiedNode("c", "gpu 2", replica("y", "gpu 1")),
		}, "c: y>a"},
		{"a replica that stands alone does not go to another of its group", bare("new", "gpu 2"), []*Place{
			verifiedNode("a", "gpu 2", replica("x", "gpu 1", alone("web"))), verifiedNode("b", "gpu 2", replica("y", "gpu 1", alone("web"))),
			verifiedNode("c", "gpu 1"),
		}, "a: x>c"},
		{"nor do two that move go to one node", bare("new", "gpu 3"), []*Place{
			verifiedNode("a", "gpu 3", replica("x", "gpu 1", alone("web")), replica("y", "gpu 1", alone("web"))),
			verifiedNode("b", "gpu 2"), verifiedNode("c", "gpu 1"),
		}, "a: x>b y>c"},
		{"and where there is only one node, none moves", bare("new", "gpu 3"), []*Place{
			verifiedNode("a", "gpu 3", replica("x", "gpu 1", alone("web")), replica("y", "gpu 1", alone("web"))), verifiedNode("b", "gpu 2"),
		}, ""},
		{"of two that hold as much the one that stands beside what has to move too", bare("new", "gpu 4"), []*Place{
			verifiedNode("a", "gpu 5", replica("x", "gpu 1", alone("web")), replica("y", "gpu 1"), replica("z", "gpu 2", alone("web"))),
			verifiedNode("b", "gpu 3"),
		}, "a: y>b z>b"},
		{"what the pod cannot stand beside has to go, whatever it holds", bare("new", "gpu 2", alone("web")), []*Place{
			verifiedNode("a", "gpu 4", replica("w", "gpu 1"), replica("x", "gpu 1", alone("web"))), verifiedNode("b", "gpu 1"),
		}, "a: x>b"},
		{"it counts as one of the moves", bare("new", "gpu 3", alone("web")), []*Place{
			verifiedNode("a", "gpu 3", replica("w", "", alone("web")), replica("x", "gpu 1")), verifiedNode("b", "gpu 1"),
		}, "a: w>b x>b"},
		{"and where it must stay, no room is made", bare("new", "gpu 2", alone("web")), []*Place{
			verifiedNode("a", "gpu 2", replica("w", "gpu 1"), bare("x", "", alone("web"))), verifiedNode("b", "gpu 1"),
		}, ""},
		{"nor where it has nowhere to go", bare("new", "gpu 2", alone("web")), []*Place{
			verifiedNode("a", "gpu 2", replica("w", "gpu 1"), replica("x", "cpu 1", alone("web"))), verifiedNode("b", "gpu 1, cpu 0"),
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { wantPlan(t, inferencePool(tc.places...), tc.pod, tc.want) })
	}
}

// What is asked is what the caller says, and not what the pod's containers do.
func TestPlanMoves_MakesRoomForTheRequestsItIsGiven(t *testing.T) {
	pool := inferencePool(verifiedNode("a", "gpu 4", replicas(3, "a", "gpu 1")...), verifiedNode("b", "gpu 2"))
	if got := told(PlanMoves(pool, bare("new", "gpu 1"), listed("gpu 3"))); got != "a: a0>b a1>b" {
		t.Errorf("plan is %q", got)
	}
}

// crate is a pod in small numbers, for an oracle that shares nothing with the search.
type crate struct {
	name, node string
	gpus, cpus int
	// group is empty, or a group of which no two stand on one node.
	group string
	// stays says that it may not move, strong that it goes to closed nodes too.
	stays, strong bool
}

func (c crate) pod() *corev1.Pod {
	var asks []string
	if c.gpus > 0 {
		asks = append(asks, fmt.Sprint("gpu ", c.gpus))
	}
	if c.cpus > 0 {
		asks = append(asks, fmt.Sprint("cpu ", c.cpus))
	}
	pod := replica(c.name, strings.Join(asks, ", "))
	if c.group != "" {
		alone(c.group)(pod)
	}
	if c.strong {
		tolerating("closed")(pod)
	}
	if c.stays {
		annotated("karpenter.sh/do-not-disrupt", "true")(pod)
	}
	return pod
}

// yard is a small pool: what its nodes have altogether, and which are closed.
type yard struct {
	nodes      []string
	gpus, cpus map[string]int
	closed     map[string]bool
	crates     []crate
}

func (y yard) pool() Pool {
	var places []*Place
	for _, node := range y.nodes {
		var pods []*corev1.Pod
		for _, c := range y.crates {
			if c.node == node {
				pods = append(pods, c.pod())
			}
		}
		place := verifiedNode(node, fmt.Sprintf("gpu %d, cpu %d, pods 110", y.gpus[node], y.cpus[node]), pods...)
		if y.closed[node] {
			place.with(tainted("closed"))
		}
		places = append(places, place)
	}
	return inferencePool(places...)
}

// someYard is a pool where most nodes have a little left.
func someYard(t *rapid.T) yard {
	y := yard{gpus: map[string]int{}, cpus: map[string]int{}, closed: map[string]bool{}}
	y.nodes = []string{"a", "b", "c", "d"}[:one(t, "nodes", 2, 3, 3, 4)]
	for _, node := range y.nodes {
		for i := range one(t, "pods", 1, 2, 3, 4) {
			c := someCrate(t, fmt.Sprint(node, i))
			c.node = node
			y.gpus[node] += c.gpus
			y.cpus[node] += c.cpus
			y.crates = append(y.crates, c)
		}
		y.gpus[node] = max(0, y.gpus[node]+one(t, "GPUs left", -1, 0, 1, 1, 2, 2, 3))
		y.cpus[node] = max(0, y.cpus[node]+one(t, "CPUs left", -1, 0, 1, 2, 2, 3))
		y.closed[node] = one(t, "closed", true, false, false, false, false, false, false)
	}
	return y
}

func someCrate(t *rapid.T, name string) crate {
	return crate{
		name: name, gpus: one(t, "GPUs", 0, 1, 1, 2, 3), cpus: one(t, "CPUs", 0, 0, 0, 1, 2), group: one(t, "group", "", "", "", "web", "llm"),
		stays: one(t, "stays", true, false, false, false, false, false, false), strong: one(t, "strong", true, false, false),
	}
}

// one is one of some values, each as likely as the others.
func one[V any](t *rapid.T, label string, of ...V) V { return rapid.SampledFrom(of).Draw(t, label) }

// wanted asks as a rule for more GPUs than any node has left.
func (y yard) wanted(t *rapid.T) crate {
	left := maps.Clone(y.gpus)
	for _, c := range y.crates {
		left[c.node] -= c.gpus
	}
	wanted := someCrate(t, "new")
	wanted.gpus = max(1, slices.Max(slices.Collect(maps.Values(left)))+one(t, "GPUs more", 0, 1, 1, 1, 1, 2))
	return wanted
}

// stands says whether a crate may stand on a node beside the other crates there. Where there is less than nothing of
// something, nothing stands that asks for it.
func (y yard) stands(c crate, node string, crates []crate) bool {
	gpus, cpus := y.gpus[node]-c.gpus, y.cpus[node]-c.cpus
	for _, other := range crates {
		if other.node != node || other.name == c.name {
			continue
		}
		gpus, cpus = gpus-other.gpus, cpus-other.cpus
		if c.group != "" && c.group == other.group {
			return false
		}
	}
	return (gpus >= 0 || c.gpus == 0) && (cpus >= 0 || c.cpus == 0) && (c.strong || !y.closed[node])
}

// way is a way to make room: "node: pod pod".
type way struct {
	moves int
	told  string
}

// ways are all ways to make room on a node by moving crates off it, from the i-th on.
func (y yard) ways(wanted crate, node string, crates []crate, i int, moved []crate) []way {
	if i == len(crates) {
		told := node + ":"
		for _, c := range moved {
			if !y.stands(c, c.node, crates) {
				return nil
			}
			told += " " + c.name
		}
		if !y.stands(wanted, node, crates) {
			return nil
		}
		return []way{{len(moved), told}}
	}
	ways := y.ways(wanted, node, crates, i+1, moved)
	if crates[i].node != node || crates[i].stays {
		return ways
	}
	for _, to := range y.nodes {
		if to != node {
			after := slices.Clone(crates)
			after[i].node = to
			ways = append(ways, y.ways(wanted, node, after, i+1, append(slices.Clone(moved), after[i]))...)
		}
	}
	return ways
}

// fewest is the first of the ways with the fewest moves; empty where there is none, and where none is needed.
func (y yard) fewest(wanted crate) string {
	var ways []way
	for _, node := range y.nodes {
		ways = append(ways, y.ways(wanted, node, y.crates, 0, nil)...)
	}
	if len(ways) == 0 {
		return ""
	}
	best := slices.MinFunc(ways, func(a, b way) int { return cmp.Or(cmp.Compare(a.moves, b.moves), cmp.Compare(a.told, b.told)) })
	if best.moves == 0 {
		return ""
	}
	return best.told
}

// check carries a plan out, and says which pods it moves: "node: pod pod".
func (y yard) check(t *rapid.T, plan *Plan, wanted crate) string {
	if plan == nil {
		return ""
	}
	told, crates := plan.Node+":", slices.Clone(y.crates)
	for _, move := range plan.Moves {
		told += " " + move.Pod
		i := slices.IndexFunc(crates, func(c crate) bool { return c.name == move.Pod && c.node == move.From })
		if i < 0 || crates[i].stays {
			t.Fatalf("%s is not on %s, or may not move", move.Pod, move.From)
		}
		crates[i].node = move.To
	}
	for _, move := range plan.Moves {
		i := slices.IndexFunc(crates, func(c crate) bool { return c.name == move.Pod })
		if !y.stands(crates[i], move.To, crates) {
			t.Errorf("%s does not fit on %s", move.Pod, move.To)
		}
	}
	if !y.stands(wanted, plan.Node, crates) {
		t.Errorf("no room on %s after %v", plan.Node, plan.Moves)
	}
	return told
}

// A plan, carried out, makes room; every pod fits where it goes; and no other way to move pods of one node needs fewer.
func TestPlanMoves_AgreesWithEveryWayToMoveThePodsOfOneNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := someYard(t)
		wanted := y.wanted(t)
		pod := wanted.pod()
		got := y.check(t, PlanMoves(y.pool(), pod, requestsOf(pod)), wanted)
		if want := y.fewest(wanted); got != want {
			t.Errorf("moves %q, want %q", got, want)
		}
	})
}

func TestPlanMoves_ChangesNothingAndDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := someYard(t)
		pool, pod := y.pool(), y.wanted(t).pod()
		want := told(PlanMoves(pool, pod, requestsOf(pod)))
		if diff := gocmp.Diff(y.pool(), pool); diff != "" {
			t.Error("the pool is another one now: " + diff)
		}
		y.nodes = rapid.Permutation(y.nodes).Draw(t, "nodes, shuffled")
		y.crates = rapid.Permutation(y.crates).Draw(t, "pods, shuffled")
		if got := told(PlanMoves(y.pool(), pod, requestsOf(pod))); got != want {
			t.Errorf("plan is %q, and %q in another order", want, got)
		}
	})
}

// dense are nodes with pods on them that differ in their CPUs, so that none can stand for another.
func dense(nodes, pods int, asks, left string) Pool {
	var places []*Place
	for n := range nodes {
		node := fmt.Sprintf("n%02d", n)
		there := make([]*corev1.Pod, pods)
		for i := range there {
			there[i] = replica(fmt.Sprintf("%s-%d", node, i), fmt.Sprintf("%s, cpu %dm, memory 10Gi", asks, 1000+n*pods+i))
		}
		place := verifiedNode(node, "gpu 0, cpu 190, memory 1900Gi, pods 110", there...)
		place.Free[v1alpha1.ResourceGPU] = listed(left)[v1alpha1.ResourceGPU]
		places = append(places, place)
	}
	return inferencePool(places...)
}

// hardest are 64 nodes of which three have room for one more pod each: from any node four would have to go, and nowhere is
// room for four. Every set of pods is looked at, and every place for each pod.
func hardest() Pool {
	pool := dense(64, 8, "gpu 3", "gpu 0")
	for _, place := range pool.Places[:3] {
		place.Free[v1alpha1.ResourceGPU] = resource.MustParse("5")
	}
	return pool
}

// maxSteps says of it that it takes half. In a full pool nothing is to be looked for.
func TestPlanMoves_LooksThrough64NodesWith8PodsEach(t *testing.T) {
	for _, tc := range []struct {
		pool  Pool
		steps int
	}{{hardest(), maxSteps / 2}, {dense(64, 8, "gpu 3", "gpu 0"), 0}} {
		s := newSearch(tc.pool.Places, demandOf(bare("new", "gpu 12")))
		if plan := s.fewest(); plan != nil || s.steps > tc.steps {
			t.Errorf("plan is %q after %d steps, want none after at most %d", told(plan), s.steps, tc.steps)
		}
	}
}

// Twelve of 24 pods that are alike have to go. Those of a may only go to c, where eleven have room: that is seen at the
// first twelve. Those of b may go to d as well.
func TestPlanMoves_TriesPodsThatAreAlikeOnce(t *testing.T) {
	pool := inferencePool(
		verifiedNode("a", "gpu 24", replicas(24, "a", "gpu 1", selecting("zone", "zone-c"))...),
		verifiedNode("b", "gpu 24", replicas(24, "b", "gpu 1")...), verifiedNode("c", "gpu 11"), verifiedNode("d", "gpu 1"),
	)
	wantPlan(t, pool, bare("new", "gpu 12"),
		"b: b0>c b1>c b10>c b11>c b12>c b13>c b14>c b15>c b16>c b17>c b18>c b19>d")
}

// Of 2n pods on a n have to go, and only the n last by name, with the fewest CPUs, have room together: 1 + ... + n on b. Of
// 24 pods there are 2.7 million sets of 12.
func TestPlanMoves_SaysNothingWhereItDidNotLookAtEverything(t *testing.T) {
	for n, want := range map[int]string{4: "a: x04>b x05>b x06>b x07>b", 12: ""} {
		var pods []*corev1.Pod
		for i := range 2 * n {
			pods = append(pods, replica(fmt.Sprintf("x%02d", i), fmt.Sprintf("gpu 1, cpu %d", 2*n-i), tolerating("closed")))
		}
		b := verifiedNode("b", fmt.Sprintf("gpu %d, cpu %d", n, n*(n+1)/2)).with(tainted("closed"))
		s := newSearch([]*Place{verifiedNode("a", fmt.Sprintf("gpu %d", 2*n), pods...), b}, demandOf(bare("new", fmt.Sprint("gpu ", n))))
		if got := told(s.fewest()); got != want || s.steps > 2*maxSteps {
			t.Errorf("plan is %q after %d steps, want %q", got, s.steps, want)
		}
	}
}

// Ten pods have to go, and each of nine places has room for one: for the GPUs of an even one, or for the CPUs of an odd
// one. Ways to divide ten pods up among nine places are many, unless five are like each other, and the other five too.
func TestPlanMoves_EndsWherePodsCanBeDividedUpInManyWays(t *testing.T) {
	for more, steps := range map[int]int{0: maxSteps / 2, 1: 2 * maxSteps} { // thousandths of a CPU from one pod to the next
		var pods []*corev1.Pod
		for i := range 10 {
			asks := fmt.Sprintf("gpu 3, cpu %dm", 1000+more*i)
			if i%2 == 1 {
				asks = fmt.Sprintf("gpu 1, cpu %dm", 9500+more*i)
			}
			pods = append(pods, replica(fmt.Sprint("x", i), asks))
		}
		places := []*Place{verifiedNode("a", "gpu 20, cpu 100", pods...)}
		for i := range 9 {
			places = append(places, verifiedNode(fmt.Sprint("b", i), "gpu 3, cpu 10"))
		}
		s := newSearch(places, demandOf(bare("new", "gpu 20")))
		if got := told(s.fewest()); got != "" || s.steps > steps {
			t.Errorf("%dm apart: plan is %q after %d steps, want none after at most %d", more, got, s.steps, steps)
		}
	}
}

func BenchmarkPlanMoves(b *testing.B) {
	for name, tc := range map[string]struct {
		pool  Pool
		asks  string
		moves int
	}{
		"two of eight pods":          {dense(64, 8, "gpu 1", "gpu 2"), "gpu 4, cpu 8", 2},
		"all of eight pods":          {dense(64, 8, "gpu 1", "gpu 2"), "gpu 10, cpu 8", 8},
		"none, every node is full":   {dense(64, 8, "gpu 1", "gpu 0"), "gpu 8, cpu 8", 0},
		"none, pods are too big":     {dense(64, 8, "gpu 2", "gpu 1"), "gpu 8, cpu 8", 0},
		"none, the hardest to prove": {hardest(), "gpu 12, cpu 8", 0},
	} {
		b.Run(name, func(b *testing.B) {
			pod := bare("new", tc.asks)
			b.ReportAllocs()
			for b.Loop() {
				plan := PlanMoves(tc.pool, pod, requestsOf(pod))
				if moves := plan.moves(); moves != tc.moves {
					b.Fatalf("%d moves, want %d", moves, tc.moves)
				}
			}
		})
	}
}

func (p *Plan) moves() int {
	if p == nil {
		return 0
	}
	return len(p.Moves)
}
