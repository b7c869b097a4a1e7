package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestExplainPod_HeldByALimit(t *testing.T) {
	newWorld(t, full()...).run(t, "explain", "pod", "waits").want(t, exitHeld, `Pod default/waits is held: LimitReached, for 4m.

  pool inference: limit gpus 8 is reached: 8 in use, 8 asked

  Remedy     raise limits.gpus of GPUNodePool inference to 16 or more, or wait until a machine of the pool is gone
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  limit       gpus
  value       8
  used        8
  asked       8
  preemption  none is evicted: what it needs is held by 1 pod of its own priority, 0
`, "")
}

func TestExplainPod_WrapsOnATerminalAndKeepsTheColumns(t *testing.T) {
	w := newWorld(t, full()...)
	w.terminal, w.env["NO_COLOR"] = &screen{width: 60, height: 40}, "1"
	w.run(t, "explain", "pod", "waits").want(t, exitHeld, `Pod default/waits is held: LimitReached, for 4m.

  pool inference: limit gpus 8 is reached: 8 in use, 8 asked

  Remedy     raise limits.gpus of GPUNodePool inference to
             16 or more, or wait until a machine of the pool
             is gone
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient
             nvidia.com/mig-1g.10gb.

Evidence
  limit       gpus
  value       8
  used        8
  asked       8
  preemption  none is evicted: what it needs is held by 1
              pod of its own priority, 0
`, "")
}

// batchToo adds a pool whose GPUs are whole, and has no limits.
func batchToo(objects []runtime.Object) []runtime.Object {
	return with(objects, exclusive(), poolNamed("batch", "whole", v1alpha1.WorkloadBatch, "p5.48xlarge"))
}

func TestExplainPod_OfSeveralPoolsTheNearestGivesTheReason(t *testing.T) {
	w := newWorld(t, with(batchToo(full()), waiting(pod("either", slice, 1, "inference", "batch"), 3*time.Minute))...)
	w.run(t, "explain", "pod", "either").want(t, exitHeld, `Pod default/either is held: LimitReached, for 3m.

  pool inference: limit gpus 8 is reached: 8 in use, 8 asked

  Remedy     raise limits.gpus of GPUNodePool inference to 16 or more, or wait until a machine of the pool is gone
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  limit       gpus
  value       8
  used        8
  asked       8
  preemption  none is evicted: what it needs is held by 1 pod of its own priority, 0

Pools that it names
  batch                NameMismatch: the pod asks for nvidia.com/mig-1g.10gb: 1, and nodes on p5.48xlarge offer nvidia.com/gpu: 8
  inference (nearest)  LimitReached: limit gpus 8 is reached: 8 in use, 8 asked
`, "")
	var r podReport
	w.json(t, &r, "explain", "pod", "either")
	if len(r.Pools) != 2 || r.Pools[0].Name != "batch" || r.Pools[0].Nearest || r.Pools[0].Causes[0].Reason != v1alpha1.HoldNameMismatch || !r.Pools[1].Nearest {
		t.Errorf("pools %+v", r.Pools)
	}
}

func TestExplainPod_OneOfSeveralPoolsExpectsIt(t *testing.T) {
	w := newWorld(t, with(batchToo(full()), waiting(pod("either", whole, 1, "inference", "batch"), time.Minute))...)
	w.run(t, "explain", "pod", "either").want(t, exitNothingHeld, `Pod default/either waits for 1m, and nothing holds it.

  Asks       nvidia.com/gpu: 1
  Where      a machine of pool batch may be launched for it: p5.48xlarge, 8 GPUs, $55.04/h
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Pools that it names
  batch (nearest)  can be expected to take it
  inference        NameMismatch: the pod asks for nvidia.com/gpu: 1, and nodes on p5.48xlarge offer nvidia.com/mig-1g.10gb: 56: its GPUs are cut by layout seven
`, "")
}

// A pod that names no pool and could run in one is expected there, and what the pool has stays as it is.
func TestExplainPod_NamesNoPoolAndHasRoomInOne(t *testing.T) {
	objects := full()
	for _, o := range objects {
		if n, is := o.(*corev1.Node); is {
			n.Status.Allocatable = amounts(slice, 60)
		}
	}
	objects = with(objects, waiting(pod("anywhere", slice, 3), time.Minute))
	var explained podReport
	newWorld(t, objects...).json(t, &explained, "explain", "pod", "anywhere")
	if explained.State != PodExpected || explained.Place == nil || explained.Place.Name != "i-0a1" {
		t.Errorf("state %s, place %+v; want it expected on node i-0a1", explained.State, explained.Place)
	}
	var pool poolReport
	newWorld(t, objects...).json(t, &pool, "explain", "pool", "inference")
	if len(pool.Free) != 1 || pool.Free[0].Free != 4 || pool.Machines[0].Resources[0].Free != 4 {
		t.Errorf("free %+v, machines %+v; want 4 slices left", pool.Free, pool.Machines)
	}
}

func TestExplainPod_NamesNoPoolThatExists(t *testing.T) {
	w := newWorld(t, with(full(), waiting(pod("lost", slice, 1, "inferense"), 2*time.Minute))...)
	w.run(t, "explain", "pod", "lost").want(t, exitHeld, `Pod default/lost is held: SelectorMismatch, for 2m.

  no pool: the pod selects gpufleet.dev/pool=inferense, and there is no such GPUNodePool; inference offers what it asks for

  Remedy     select a pool: nodeSelector gpufleet.dev/pool: inference
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  asked  nvidia.com/mig-1g.10gb: 1
  pools  inference
`, "")
}

// A pod that names nothing of ours may be somebody else's: asked about, it is explained, and status leaves it alone.
func TestExplainPod_OfNobodyInParticular(t *testing.T) {
	stranger := waiting(pod("stranger", whole, 1), 2*time.Minute)
	stranger.Spec.Tolerations = nil
	w := newWorld(t, with(full(), stranger)...)
	w.run(t, "explain", "pod", "stranger").want(t, exitHeld, `Pod default/stranger is held: SelectorMismatch, for 2m.

  no pool: the pod selects none by the label gpufleet.dev/pool; none of inference offers what it asks for

  Remedy     ask for what a pool offers, and select the pool by gpufleet.dev/pool; or look to whoever offers nvidia.com/gpu: 1
  Asks       nvidia.com/gpu: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  asked  nvidia.com/gpu: 1
  pools  inference

The pod names nothing of gpufleet: it may be meant for other nodes of the cluster, of which nothing is known here.
`, "")
	var r statusReport
	if w.json(t, &r, "status"); len(r.Holds) != 1 {
		t.Errorf("status shows %+v", r.Holds)
	}
}

func TestExplainPod_SaysWhereItCanBeExpected(t *testing.T) {
	research := func(objects ...runtime.Object) []runtime.Object {
		return append([]runtime.Object{exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
			waiting(pod("notebook", whole, 1, "research"), time.Minute)}, objects...)
	}
	verdict := condition(v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingInventory, "the agent has not reported", time.Minute)
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		want    string
	}{
		{"a machine may be launched", research(), "a machine of pool research may be launched for it: p5.4xlarge, 1 GPU, $6.88/h"},
		{"a machine is being launched", research(claim("research-1", "research", "p5.4xlarge", "", 20*time.Second)),
			"machine research-1 of pool research: launching, asked for 20s ago, p5.4xlarge, 1 GPU, $6.88/h"},
		{"a machine is on its way", research(claim("research-1", "research", "p5.4xlarge", "i-0c1", 20*time.Second)),
			"machine research-1 of pool research: joining, asked for 20s ago, p5.4xlarge, 1 GPU, $6.88/h"},
		{"a node is not judged yet", research(claim("research-1", "research", "p5.4xlarge", "i-0c1", 20*time.Second),
			node("i-0c1", "research", "p5.4xlarge", false, nil), gpuNode("i-0c1", "research", "p5.4xlarge", 1, whole, verdict)),
			"node i-0c1 of pool research: verifying, asked for 20s ago, p5.4xlarge, 1 GPU, $55.04/h"},
		{"a node has room", research(claim("research-1", "research", "p5.4xlarge", "i-0c1", time.Hour),
			node("i-0c1", "research", "p5.4xlarge", true, amounts(whole, 1)), gpuNode("i-0c1", "research", "p5.4xlarge", 1, whole, verified())),
			"node i-0c1 of pool research: verified, asked for 1h ago, p5.4xlarge, 1 GPU, $55.04/h"},
	} {
		a := newWorld(t, tc.objects...).run(t, "explain", "pod", "notebook")
		want := "Pod default/notebook waits for 1m, and nothing holds it.\n\n  Asks       nvidia.com/gpu: 1\n  Where      " + tc.want +
			"\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"
		if a.code != exitNothingHeld || a.stdout != want {
			t.Errorf("%s: exit code %d, printed\n%s\nwant\n%s", tc.name, a.code, a.stdout, want)
		}
	}
}

func TestExplainPod_SaysHowLongAMachineHasBeenOnItsWay(t *testing.T) {
	var r podReport
	newWorld(t, exclusive(), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		waiting(pod("notebook", whole, 1, "research"), time.Minute), claim("research-1", "research", "p5.4xlarge", "", 20*time.Second)).
		json(t, &r, "explain", "pod", "notebook")
	since := ago(20 * time.Second)
	want := &placeReport{Kind: "Machine", Name: "research-1", Pool: "research", InstanceType: "p5.4xlarge", GPUs: 1, PricePerHour: "$6.88/h", State: StateLaunching, Since: &since}
	if diff := cmp.Diff(want, r.Place, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
		t.Error(diff)
	}
}

func TestExplainPod_OfEveryOtherState(t *testing.T) {
	change := func(p *corev1.Pod, f func(*corev1.Pod)) *corev1.Pod {
		f(p)
		return p
	}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"runs on a node of ours", running(pod("p", slice, 1, "inference"), "i-0a1", time.Hour),
			"Pod default/p is on node i-0a1 (Running), for 1h.\n\n  Asks   nvidia.com/mig-1g.10gb: 1\n  Where  node i-0a1 of pool inference: verified, asked for 2h ago, p5.48xlarge, 8 GPUs, $55.04/h\n"},
		{"runs elsewhere", running(pod("p", "cpu", 1), "worker-1", time.Hour),
			"Pod default/p is on node worker-1 (Running), for 1h.\n\n  Where  node worker-1, of no pool of gpufleet\n"},
		{"has a node, and its image does not come", change(running(pod("p", slice, 1, "inference"), "i-0a1", time.Minute), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		}), "Pod default/p is on node i-0a1 (Pending, container main: ImagePullBackOff), for 1m.\n\n  Asks   nvidia.com/mig-1g.10gb: 1\n  Where  node i-0a1 of pool inference: verified, asked for 2h ago, p5.48xlarge, 8 GPUs, $55.04/h\n"},
		{"has finished", change(running(pod("p", slice, 1, "inference"), "i-0a1", time.Hour), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			"Pod default/p has finished: Succeeded.\n\n  Asks  nvidia.com/mig-1g.10gb: 1\n"},
		{"is being deleted", change(waiting(pod("p", slice, 1, "inference"), time.Minute), func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
		}), "Pod default/p is being deleted.\n\n  Asks       nvidia.com/mig-1g.10gb: 1\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"},
		{"others are evicted for it", change(waiting(pod("p", slice, 1, "inference"), 10*time.Second), func(p *corev1.Pod) { p.Status.NominatedNodeName = "i-0a1" }),
			"Pod default/p waits for node i-0a1, where the scheduler makes room for it.\n\n  Asks       nvidia.com/mig-1g.10gb: 1\n  Where      node i-0a1 of pool inference: verified, asked for 2h ago, p5.48xlarge, 8 GPUs, $55.04/h\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"},
		{"others are evicted for it elsewhere, and it asks for no GPU", change(waiting(pod("p", "cpu", 1), time.Hour), func(p *corev1.Pod) { p.Status.NominatedNodeName = "worker-1" }),
			"Pod default/p waits for node worker-1, where the scheduler makes room for it.\n\n  Where      node worker-1, of no pool of gpufleet\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"},
		{"is of a DaemonSet, for a node of nobody's", ofDaemonSet(waiting(pod("p", slice, 1), time.Hour), "worker-1"),
			"Pod default/p is of a DaemonSet and waits for node worker-1, which no pool has, or which is on its way out.\n\n  Asks       nvidia.com/mig-1g.10gb: 1\n  Where      node worker-1, of no pool of gpufleet\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"},
		{"is new", pod("p", slice, 1, "inference"),
			"Pod default/p waits for 5m, and the scheduler has not looked at it yet.\n\n  Asks  nvidia.com/mig-1g.10gb: 1\n"},
		{"asks for no GPU", waiting(pod("p", "cpu", 1000), time.Minute),
			"Pod default/p waits for 1m. It asks for no GPU, and nothing of gpufleet holds it.\n\n  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			newWorld(t, with(full(), tc.pod)...).run(t, "explain", "pod", "p").want(t, exitNothingHeld, tc.want, "")
		})
	}
}

// scattered are two nodes with room for three more instances each, and a pod that needs five on one.
func scattered() []runtime.Object {
	p := poolNamed("inference", "h100-mig", v1alpha1.WorkloadInference, "p5.4xlarge")
	p.Spec.Limits = &v1alpha1.LimitsSpec{Nodes: new(int64(2))}
	p.Status.Limits = []v1alpha1.LimitStatus{{Name: v1alpha1.ReasonNodes, Limit: "2", WithSurge: "3", Used: "2", Outstanding: "2", Headroom: "0"}}
	p.Status.Holds = []v1alpha1.Hold{{Reason: v1alpha1.HoldFragmented, Pods: 1}}
	owned := func(p *corev1.Pod) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
		return p
	}
	return with(mig(), p, lease(time.Second),
		claim("inference-a", "inference", "p5.4xlarge", "i-0a", time.Hour), node("i-0a", "inference", "p5.4xlarge", true, amounts(slice, 7)),
		gpuNode("i-0a", "inference", "p5.4xlarge", 1, slice, verified()),
		claim("inference-b", "inference", "p5.4xlarge", "i-0b", time.Hour), node("i-0b", "inference", "p5.4xlarge", true, amounts(slice, 7)),
		gpuNode("i-0b", "inference", "p5.4xlarge", 1, slice, verified()),
		running(owned(pod("a-1", slice, 1, "inference")), "i-0a", time.Hour), running(owned(pod("a-2", slice, 1, "inference")), "i-0a", time.Hour),
		running(owned(pod("a-3", slice, 1, "inference")), "i-0a", time.Hour), running(owned(pod("a-4", slice, 1, "inference")), "i-0a", time.Hour),
		running(owned(pod("b-1", slice, 4, "inference")), "i-0b", time.Hour),
		waiting(pod("large", slice, 5, "inference"), 3*time.Minute))
}

func TestExplainPod_FragmentedShowsThePlanAndWhatElse(t *testing.T) {
	newWorld(t, scattered()...).run(t, "explain", "pod", "large").want(t, exitHeld, `Pod default/large is held: Fragmented, for 3m.

  pool inference: the pod needs nvidia.com/mig-1g.10gb: 5 on one node; 6 are free in total, and 3 on the node that has the most

  Remedy     move 2 pods off node i-0a (kubectl gpufleet explain pod shows which), or raise the limit that keeps the pool from launching a node
  Asks       nvidia.com/mig-1g.10gb: 5
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  needed        5
  free          6
  largestBlock  3
  freeByNode    i-0a: 3, i-0b: 3
  preemption    none is evicted: what it needs is held by 5 pods of its own priority, 0

These moves would make room on node i-0a (a dry run: nothing is moved)
  POD          FROM  TO
  default/a-1  i-0a  i-0b
  default/a-2  i-0a  i-0b

What else stands in its way
  LimitReached  pool inference: limit nodes 2 is reached: 2 in use, 1 asked
    Remedy: raise limits.nodes of GPUNodePool inference to 3 or more, or wait until a machine of the pool is gone
`, "")
	var r podReport
	newWorld(t, scattered()...).json(t, &r, "explain", "pod", "large")
	if r.Reason != v1alpha1.HoldFragmented || r.Moves == nil || r.Moves.Moves[0].Pod != "a-1" || len(r.Also) != 1 || r.Also[0].Reason != v1alpha1.HoldLimitReached {
		t.Errorf("%+v", r)
	}
}

func event(name string, reason, message, source string, last time.Duration) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "waits", UID: "waits"},
		Reason:         reason, Message: message, Source: corev1.EventSource{Component: source}, LastTimestamp: ago(last),
	}
}

func TestExplainPod_TheControllersWordWhereItDiffers(t *testing.T) {
	const header = "\nThe controller says otherwise\n"
	others := event("other", v1alpha1.HoldOther, "of another pod", v1alpha1.ControllerName, time.Second)
	others.InvolvedObject.UID = "other"
	for _, tc := range []struct {
		name   string
		events []runtime.Object
		holds  []v1alpha1.Hold
		want   string
	}{
		{"it says the same", []runtime.Object{event("1", v1alpha1.HoldLimitReached, "limit", v1alpha1.ControllerName, time.Minute)},
			[]v1alpha1.Hold{{Reason: v1alpha1.HoldLimitReached, Pods: 1}}, ""},
		{"its newest event differs", []runtime.Object{
			event("1", v1alpha1.HoldLimitReached, "limit", v1alpha1.ControllerName, 3*time.Minute),
			event("2", v1alpha1.HoldNotTolerated, "pool inference: taints", v1alpha1.ControllerName, time.Minute),
		}, []v1alpha1.Hold{{Reason: v1alpha1.HoldLimitReached, Pods: 1}}, header + "  1m ago, NotTolerated: pool inference: taints\n"},
		{"its status differs", nil, []v1alpha1.Hold{{Reason: v1alpha1.HoldNoCapacity, Pods: 2}, {Reason: v1alpha1.HoldGated, Pods: 1}},
			header + "  status.holds of GPUNodePool inference has no LimitReached, but NoCapacity for 2 pods, Gated for 1 pod\n"},
		{"its status has nothing", nil, nil, header + "  status.holds of GPUNodePool inference has no LimitReached\n"},
		// Karpenter core speaks by the controller's name too; and others have a say in nothing.
		{"others say something", []runtime.Object{
			event("1", "FailedScheduling", "no", v1alpha1.ControllerName, time.Second), event("2", v1alpha1.HoldOther, "hm", "default-scheduler", time.Second), others,
		}, []v1alpha1.Hold{{Reason: v1alpha1.HoldLimitReached, Pods: 1}}, ""},
	} {
		objects := full()
		for _, o := range objects {
			if p, is := o.(*v1alpha1.GPUNodePool); is {
				p.Status.Holds = tc.holds
			}
		}
		a := newWorld(t, with(objects, tc.events...)...).run(t, "explain", "pod", "waits")
		_, got, _ := strings.Cut(a.stdout, "of its own priority, 0\n")
		if got != tc.want {
			t.Errorf("%s: printed %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestExplainPod_AnEventThatIsOverIsShownForAnExpectedPod(t *testing.T) {
	w := newWorld(t, exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		waiting(pod("waits", whole, 1, "research"), time.Minute), event("1", v1alpha1.HoldLimitReached, "limit", v1alpha1.ControllerName, 30*time.Second))
	var r podReport
	w.json(t, &r, "explain", "pod", "waits")
	if len(r.ControllerSaid) != 1 || r.ControllerSaid[0].Reason != v1alpha1.HoldLimitReached || r.State != PodExpected {
		t.Errorf("%s, %+v", r.State, r.ControllerSaid)
	}
}

// How long a pod could have been expected, and was not placed, is what the controller has watched; without it, what the
// objects say.
func TestExplainPod_IsOverdueOnlyWhereThatIsKnown(t *testing.T) {
	const long = 20 * time.Minute
	cleared := func(since time.Duration) metav1.Condition {
		return condition(v1alpha1.ConditionPodsHeld, metav1.ConditionFalse, v1alpha1.ReasonNothingHeld, "", since)
	}
	for _, tc := range []struct {
		name   string
		lease  time.Duration
		change func(*v1alpha1.GPUNodePool)
		want   PodState
	}{
		{"the controller is there and says nothing of it", time.Second, nil, PodExpected},
		{"the controller says so", time.Second, func(p *v1alpha1.GPUNodePool) { p.Status.Holds = []v1alpha1.Hold{{Reason: v1alpha1.HoldOther, Pods: 1}} }, PodHeld},
		{"the controller is silent", time.Hour, nil, PodHeld},
		{"silent, and what held pods is over for a minute", time.Hour, func(p *v1alpha1.GPUNodePool) {
			p.Status.Conditions = []metav1.Condition{cleared(time.Minute)}
		}, PodExpected},
		{"silent, and what held pods is over for long", time.Hour, func(p *v1alpha1.GPUNodePool) {
			p.Status.Conditions = []metav1.Condition{cleared(long)}
		}, PodHeld},
		{"silent, and the pool was changed a minute ago", time.Hour, func(p *v1alpha1.GPUNodePool) {
			changed := ago(time.Minute)
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "gpufleet-terraform", Time: &changed}}
		}, PodExpected},
		{"silent, and only its status was changed", time.Hour, func(p *v1alpha1.GPUNodePool) {
			status := ago(time.Second)
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Subresource: "status", Time: &status}}
		}, PodHeld},
	} {
		p := poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge")
		if tc.change != nil {
			tc.change(p)
		}
		var r podReport
		newWorld(t, exclusive(), lease(tc.lease), p, waiting(pod("notebook", whole, 1, "research"), long)).json(t, &r, "explain", "pod", "notebook")
		if r.State != tc.want || (tc.want == PodHeld && r.Reason != v1alpha1.HoldOther) {
			t.Errorf("%s: %s, want %s", tc.name, r.State, tc.want)
		}
	}
}

// A list may come from a cache that has not seen the pod yet.
func TestExplainPod_IsAnsweredThoughTheListDoesNotHaveItYet(t *testing.T) {
	w := newWorld(t, full()...)
	w.core.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, &corev1.PodList{}, nil })
	if a := w.run(t, "explain", "pod", "waits"); a.code == exitError || !strings.HasPrefix(a.stdout, "Pod default/waits waits for 4m, and nothing holds it.\n") ||
		!strings.Contains(a.stdout, "Where      node i-0a1 of pool inference") {
		t.Errorf("exit code %d, printed\n%s", a.code, a.stdout)
	}
}

func TestExplainPod_NamesAndNamespaces(t *testing.T) {
	elsewhere := waiting(pod("elsewhere", slice, 1, "inference"), time.Minute)
	elsewhere.Namespace = "research"
	objects := with(full(), elsewhere, pod("inference-6d9f7c-x2x1z", slice, 1), pod("inference-6d9f7c-q8w7e", slice, 1))
	for _, tc := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"pod", "elsewhere", "-n", "research"}, exitHeld, "Pod research/elsewhere is held", ""},
		{[]string{"pod/elsewhere", "-n", "research"}, exitHeld, "Pod research/elsewhere is held", ""},
		{[]string{"po/waits"}, exitHeld, "Pod default/waits is held", ""},
		{[]string{"pod", "pod/waits"}, exitHeld, "Pod default/waits is held", ""},
		{[]string{"pods", "waits"}, exitHeld, "Pod default/waits is held", ""},
		{[]string{"pod", "research/elsewhere"}, exitHeld, "Pod research/elsewhere is held", ""},
		{[]string{"pod", "elsewhere"}, exitError, "", "gpufleet: pod default/elsewhere does not exist; there is research/elsewhere\n"},
		{[]string{"pod", "inference-6d9f7c-zzzzz"}, exitError, "", "gpufleet: pod default/inference-6d9f7c-zzzzz does not exist; there is default/inference-6d9f7c-x2x1z, default/inference-6d9f7c-q8w7e\n"},
		{[]string{"pod", "waiting"}, exitError, "", "gpufleet: pod default/waiting does not exist; there is default/waits\n"},
		{[]string{"pod", "nothing-like-it"}, exitError, "", "gpufleet: pod default/nothing-like-it does not exist\n"},
		{[]string{"pod"}, exitError, "", "gpufleet: give the name of one pod; there are 0\n"},
		{[]string{"pod", "a", "b"}, exitError, "", "gpufleet: give the name of one pod; there are 2\n"},
		{[]string{}, exitError, "", "gpufleet: say what to explain: pod, pool or node, and its name; --help shows examples\n"},
		{[]string{"deployment/web"}, exitError, "", "gpufleet: say what to explain: pod, pool or node, and its name; --help shows examples\n"},
	} {
		a := newWorld(t, objects...).run(t, append([]string{"explain"}, tc.args...)...)
		if a.code != tc.code || !strings.HasPrefix(a.stdout, tc.stdout) || (tc.stdout == "" && a.stdout != "") || a.stderr != tc.stderr {
			t.Errorf("explain %v: exit code %d, printed %.60q, said %q; want %d, %q, %q", tc.args, a.code, a.stdout, a.stderr, tc.code, tc.stdout, tc.stderr)
		}
	}
}

// claiming is a pod that asks for a GPU by a claim that is not made yet, and what the claim is made from.
func claiming() []runtime.Object {
	template := "gpu"
	p := waiting(pod("claims", "cpu", 1, "inference"), 2*time.Minute)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team"}}
	name := corev1.ResourceName("gpu.nvidia.com" + corev1.ResourceClaimsPerClass)
	quota.Status.Hard, quota.Status.Used = corev1.ResourceList{name: resource.MustParse("2")}, corev1.ResourceList{name: resource.MustParse("2")}
	return []runtime.Object{p, quota, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", Count: 1}},
		}}}},
	}}
}

func TestExplainPod_ThatClaimsIsHeldByAQuota(t *testing.T) {
	var r podReport
	a := newWorld(t, with(full(), claiming()...)...).json(t, &r, "explain", "pod", "claims")
	want := "pool inference: ResourceQuota team of namespace default admits no claim from template gpu: gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 2 of 2 used, 1 asked"
	if a.code != exitHeld || r.Reason != v1alpha1.HoldNotAllowed || r.Message != want || fmt.Sprint(r.Claims) != "[gpu]" || a.stderr != "" {
		t.Errorf("exit code %d, %s: %s, claims %v, said %q", a.code, r.Reason, r.Message, r.Claims, a.stderr)
	}
}
