package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestExplainNode_Verified(t *testing.T) {
	other := running(pod("logs", "cpu", 1), "i-0a1", time.Hour)
	newWorld(t, with(full(), other)...).run(t, "explain", "node", "i-0a1").want(t, exitNothingHeld, `Node i-0a1 of pool inference is verified: exactly what was ordered.

  8 x H100-80GB-SXM as ordered, cut by layout seven; allocatable has nvidia.com/mig-1g.10gb: 56

  NodeClaim  inference-0-abcde
  Instance   i-0a1
  Machine    p5.48xlarge, on-demand, us-east-1a, $55.04/h
  Asked for  2h ago
  Proved     1h50m ago, for the first time
  Agent      saw the last change 2h ago
  Offers     nvidia.com/mig-1g.10gb: 0 of 56 free

Ordered and found
               ORDERED                             FOUND
  GPUs         8                                   8
  Model        H100-80GB-SXM, cut by layout seven  NVIDIA H100 80GB HBM3
  Driver       550 or later                        570.86.15
  Allocatable  nvidia.com/mig-1g.10gb: 56          nvidia.com/mig-1g.10gb: 56

GPUs, as NVML sees them
  GPU  PRODUCT                   MEMORY  MIG INSTANCES (START)        STILL FITS  UUID
    0  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-0
    1  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-1
    2  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-2
    3  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-3
    4  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-4
    5  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-5
    6  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-6
    7  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)  nothing     GPU-7

Pods that hold its GPUs
  POD             HOLDS                       FOR  PHASE
  default/served  nvidia.com/mig-1g.10gb: 56   1h  Running
  others, that hold none: 1
`, "")
}

// wrong is a pool of one node that lost its only GPU to another model; more has what waits.
func wrong(more ...runtime.Object) []runtime.Object {
	p := poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge")
	p.Spec.Limits = &v1alpha1.LimitsSpec{Nodes: new(int64(1))}
	p.Status.Limits = []v1alpha1.LimitStatus{{Name: v1alpha1.ReasonNodes, Limit: "1", WithSurge: "2", Used: "1", Outstanding: "1", Headroom: "0"}}
	message := "GPU 0 is NVIDIA A100-SXM4-80GB, want NVIDIA H100 80GB HBM3"
	finding := v1alpha1.Finding{Reason: v1alpha1.FindingWrongGPU, GPU: new(int32(0)), Expected: "NVIDIA H100 80GB HBM3", Found: "NVIDIA A100-SXM4-80GB", Message: message}
	judged := gpuNode("ip-10-0-0-7", "research", "p5.4xlarge", 1, whole, condition(v1alpha1.ConditionVerified, metav1.ConditionFalse, v1alpha1.FindingWrongGPU, message, time.Minute), finding)
	judged.Status.Inventory.GPUs[0].ProductName = "NVIDIA A100-SXM4-80GB"
	joined := node("ip-10-0-0-7", "research", "p5.4xlarge", false, nil)
	joined.Spec.ProviderID = "aws:///us-east-1a/i-0bad"
	return append([]runtime.Object{exclusive(), lease(time.Second), p, claim("research-1", "research", "p5.4xlarge", "i-0bad", 5*time.Minute), joined, judged}, more...)
}

func TestExplainNode_NotWhatWasOrderedWhilePodsWaitIsHeld(t *testing.T) {
	w := newWorld(t, wrong(waiting(pod("notebook", whole, 1, "research"), 2*time.Minute))...)
	w.run(t, "explain", "node", "ip-10-0-0-7").want(t, exitHeld, `Node ip-10-0-0-7 of pool research is not what was ordered: WrongGPU.

  GPU 0 is NVIDIA A100-SXM4-80GB, want NVIDIA H100 80GB HBM3

  NodeClaim  research-1
  Instance   i-0bad
  Machine    p5.4xlarge, on-demand, us-east-1a, $55.04/h
  Asked for  5m ago
  Agent      saw the last change 2h ago

Findings
  WrongGPU  GPU 0 is NVIDIA A100-SXM4-80GB, want NVIDIA H100 80GB HBM3
    Expected  NVIDIA H100 80GB HBM3
    Found     NVIDIA A100-SXM4-80GB
    Remedy    replace the machine; check the instance type against the table of GPU models

Ordered and found
               ORDERED            FOUND
  GPUs         1                  1
  Model        H100-80GB-SXM      NVIDIA A100-SXM4-80GB
  Driver       550 or later       570.86.15
  Allocatable  nvidia.com/gpu: 1  nvidia.com/gpu: 0

GPUs, as NVML sees them
  GPU  PRODUCT                   MEMORY  MIG INSTANCES (START)  STILL FITS  UUID
    0  NVIDIA A100-SXM4-80GB  81559 MiB  whole                              GPU-0

Pods that hold its GPUs
  none

Held, since it is not what was ordered: 1 pod
  default/notebook, for 2m
`, "")
}

func TestExplainNode_NotWhatWasOrderedThatNobodyWaitsForIsNotHeld(t *testing.T) {
	if a := newWorld(t, wrong()...).run(t, "explain", "node", "ip-10-0-0-7"); a.code != exitNothingHeld || !strings.HasPrefix(a.stdout, "Node ip-10-0-0-7 of pool research is not what was ordered") {
		t.Errorf("exit code %d, printed\n%s", a.code, a.stdout)
	}
}

// A pod that the node could not take anyway is held by something else.
func TestExplainNode_APodThatItCouldNotTakeIsNotHeldByIt(t *testing.T) {
	var r nodeReport
	a := newWorld(t, wrong(waiting(pod("large", whole, 8, "research"), 2*time.Minute))...).json(t, &r, "explain", "node", "ip-10-0-0-7")
	if a.code != exitNothingHeld || len(r.HeldPods) != 0 {
		t.Errorf("exit code %d, held %+v", a.code, r.HeldPods)
	}
}

func TestExplainNode_ByEveryNameThatItHas(t *testing.T) {
	for _, name := range []string{"ip-10-0-0-7", "i-0bad", "research-1", "node/ip-10-0-0-7"} {
		if a := newWorld(t, wrong()...).run(t, "explain", "node", name); !strings.HasPrefix(a.stdout, "Node ip-10-0-0-7 of pool research ") {
			t.Errorf("%s: exit code %d, printed %q, said %q", name, a.code, a.stdout, a.stderr)
		}
	}
	newWorld(t, wrong()...).run(t, "explain", "node", "ip-10-0-0-8").
		want(t, exitError, "", "gpufleet: no node, GPUNode, NodeClaim or instance of a pool is called ip-10-0-0-8; there is ip-10-0-0-7\n")
}

func TestExplainNode_ThatHasNotJoined(t *testing.T) {
	objects := []runtime.Object{exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		claim("research-1", "research", "p5.4xlarge", "i-0c1", 20*time.Second), claim("research-2", "research", "p5.4xlarge", "", 10*time.Second)}
	newWorld(t, objects...).run(t, "explain", "node", "i-0c1").want(t, exitNothingHeld, `Machine research-1 of pool research is started, and has not joined yet.

  NodeClaim  research-1
  Instance   i-0c1
  Machine    p5.4xlarge, on-demand, us-east-1a, $6.88/h
  Asked for  20s ago
  Offers     nvidia.com/gpu: 1 promised
`, "")
	newWorld(t, objects...).run(t, "explain", "node", "research-2").want(t, exitNothingHeld, `Machine research-2 of pool research is being launched.

  NodeClaim  research-2
  Machine    p5.4xlarge, $6.88/h
  Asked for  10s ago
  Offers     nvidia.com/gpu: 1 promised
`, "")
}

func TestExplainNode_WhatTheAgentSays(t *testing.T) {
	verdict := condition(v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingInventory, "the agent on this node has not reported yet", time.Minute)
	judged := gpuNode("i-0c1", "research", "p5.4xlarge", 1, whole, verdict)
	judged.Status.Inventory = nil
	objects := func() []runtime.Object {
		return []runtime.Object{exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
			claim("research-1", "research", "p5.4xlarge", "i-0c1", time.Minute), node("i-0c1", "research", "p5.4xlarge", false, nil), judged}
	}
	a := newWorld(t, objects()...).run(t, "explain", "node", "i-0c1")
	if !strings.HasPrefix(a.stdout, "Node i-0c1 of pool research is not judged yet: AwaitingInventory.\n\n  the agent on this node has not reported yet\n") || strings.Contains(a.stdout, "NVML") {
		t.Errorf("printed\n%s", a.stdout)
	}
	judged.Status.Inventory = &v1alpha1.Inventory{ObservedAt: ago(time.Minute), Failure: &v1alpha1.AgentFailure{Step: "load-nvml", Message: "no such file"}}
	if a = newWorld(t, objects()...).run(t, "explain", "node", "i-0c1"); !strings.Contains(a.stdout, "  Failure    of the agent in step load-nvml: no such file\n") {
		t.Errorf("printed\n%s", a.stdout)
	}
}

func TestExplainNode_WhatCouldStillBePlaced(t *testing.T) {
	instance := func(profile string, start, size int32) v1alpha1.MIGInstance {
		return v1alpha1.MIGInstance{Profile: profile, Start: start, Size: size}
	}
	judged := gpuNode("i-0a1", "inference", "p5.48xlarge", 8, slice, verified())
	boards := judged.Status.Inventory.GPUs
	boards[0].MIG.Instances = []v1alpha1.MIGInstance{instance("1g.10gb", 0, 1), instance("3g.40gb", 4, 4), instance("1g.10gb", 1, 1)}
	boards[1].MIG.Instances = nil
	boards[2].MIG = &v1alpha1.MIGInventory{PendingEnabled: true}
	boards[3].MIG = nil
	boards[4].ProductName = "NVIDIA A100-SXM4-80GB"
	var r nodeReport
	objects := full()
	for i, o := range objects {
		if _, is := o.(*v1alpha1.GPUNode); is {
			objects[i] = judged
		}
	}
	w := newWorld(t, objects...)
	w.json(t, &r, "explain", "node", "i-0a1")
	for i, want := range []struct {
		free    int
		largest string
	}{{2, "2g.20gb"}, {8, "7g.80gb"}, {-1, ""}, {-1, ""}, {-1, ""}, {1, ""}} {
		room := r.Boards[i].Room
		if (room == nil) != (want.free < 0) || (room != nil && (len(room.FreeSlices) != want.free || room.LargestPlaceable != want.largest)) {
			t.Errorf("GPU %d: room %+v, want %d free slices and %q", i, room, want.free, want.largest)
		}
	}
	const want = `
    0  NVIDIA H100 80GB HBM3  81559 MiB  2 x 1g.10gb (0,1), 1 x 3g.40gb (4)  2g.20gb     GPU-0
    1  NVIDIA H100 80GB HBM3  81559 MiB  none                                7g.80gb     GPU-1
    2  NVIDIA H100 80GB HBM3  81559 MiB  MIG changes at the next reboot                  GPU-2
    3  NVIDIA H100 80GB HBM3  81559 MiB  whole                                           GPU-3
    4  NVIDIA A100-SXM4-80GB  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)                     GPU-4
    5  NVIDIA H100 80GB HBM3  81559 MiB  7 x 1g.10gb (0,1,2,3,4,5,6)         nothing     GPU-5
`
	if a := w.run(t, "explain", "node", "i-0a1"); !strings.Contains(a.stdout, want) {
		t.Errorf("printed\n%s\nwant%s", a.stdout, want)
	}
}

// A pod that has ended holds nothing; one that is ending holds until its grace period is over.
func TestExplainNode_PodsThatHoldNothingAnyMore(t *testing.T) {
	finished := running(pod("finished", slice, 1, "inference"), "i-0a1", time.Hour)
	finished.Status.Phase = corev1.PodFailed
	ending := running(pod("ending", slice, 1, "inference"), "i-0a1", time.Hour)
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: noon.Add(time.Second)}, []string{"example.com/wait"}
	late := running(pod("late", slice, 1, "inference"), "i-0a1", time.Hour)
	late.DeletionTimestamp, late.Finalizers = &metav1.Time{Time: noon.Add(-time.Second)}, []string{"example.com/wait"}
	var r nodeReport
	newWorld(t, with(full(), finished, ending, late)...).json(t, &r, "explain", "node", "i-0a1")
	var names []string
	for _, p := range r.Pods {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "late served" {
		t.Errorf("pods %s, want late served", got)
	}
}
