package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestExplainPool_ShowsAllOfIt(t *testing.T) {
	newWorld(t, full()...).run(t, "explain", "pool", "inference").want(t, exitHeld, `Pool inference holds 1 pod back: LimitReached.

  Workload  Inference
  Class     h100-mig
  Nodes     1, 1 verified
  GPUs      8: 8 verified
  Cost      $55.04/h

Held: LimitReached
  Pods    1: default/waits
  GPUs    1
  For     4m
  Why     limit gpus 8 is reached: 8 in use, 8 asked
  Remedy  raise limits.gpus of GPUNodePool inference to 16 or more, or wait until a machine of the pool is gone

Limits
  LIMIT  VALUE  USED  WITH SURGE  OUTSTANDING  HEADROOM
  GPUs       8     8          16            8         0

May launch, in order of preference
  TYPE         MODEL          GPUS     PRICE  BOUGHT     ZONES                  A NODE OFFERS               REFUSED BY
  p5.48xlarge  H100-80GB-SXM     8  $55.04/h  on-demand  us-east-1a,us-east-1b  nvidia.com/mig-1g.10gb: 56  limit gpus 8 is reached: 8 in use, 8 asked

Nodes, and machines on their way
  NAME   STATE     TYPE         ZONE        BOUGHT     AGE  OFFERS
  i-0a1  Verified  p5.48xlarge  us-east-1a  on-demand   2h  nvidia.com/mig-1g.10gb: 0 of 56 free

Free on verified nodes
  RESOURCE                FREE  MOST ON ONE NODE  SCATTERED
  nvidia.com/mig-1g.10gb     0                 0         0%

Conditions
  CONDITION     STATUS  REASON  FOR  MESSAGE
  Accepted      True    Valid    3h  p5.48xlarge offers nvidia.com/mig-1g.10gb: 56
  LimitReached  True    GPUs     4m  as above
`, "")
}

func TestExplainPool_MachinesInEveryState(t *testing.T) {
	newWorld(t, fleetOfThree()...).run(t, "explain", "pool", "research").want(t, exitNothingHeld, `Pool research holds nothing back.

  Workload  Research
  Class     whole
  Nodes     5, 1 verified
  GPUs      6: 1 launching, 1 joining, 1 verifying, 1 refused, 1 cordoned, 1 leaving
  Cost      $130.72/h

Limits
  none

May launch, in order of preference
  TYPE        MODEL          GPUS    PRICE  BOUGHT          ZONES                  A NODE OFFERS
  p5.4xlarge  H100-80GB-SXM     1  $6.88/h  spot,on-demand  us-east-1a,us-east-1b  nvidia.com/gpu: 1

Nodes, and machines on their way
  NAME        STATE      TYPE        ZONE        BOUGHT     AGE  OFFERS                      FINDING
  i-0c5       Cordoned   p5.4xlarge  us-east-1a  on-demand   1h
  research-6  Leaving    p5.4xlarge  us-east-1a  on-demand   1h
  i-0c4       Refused    p5.4xlarge  us-east-1a  on-demand   3m                              WrongGPU: GPU 0 is an A100
  i-0c3       Verifying  p5.4xlarge  us-east-1a  on-demand   2m  nvidia.com/gpu: 1 promised
  research-2  Joining    p5.4xlarge  us-east-1a  on-demand   1m  nvidia.com/gpu: 1 promised
  research-1  Launching  p5.4xlarge                         10s  nvidia.com/gpu: 1 promised

Free on verified nodes
  RESOURCE        FREE  MOST ON ONE NODE  SCATTERED
  nvidia.com/gpu     0                 0         0%
`, "")
}

func TestExplainPool_WhatTheCloudRefusesUntilItIsTriedAgain(t *testing.T) {
	p := poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge")
	p.Spec.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeOnDemand}
	p.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionCapacityUnavailable, metav1.ConditionTrue, v1alpha1.HoldNoCapacity, "at length", time.Minute),
		condition(v1alpha1.ConditionVerifyFailing, metav1.ConditionTrue, v1alpha1.HoldNotVerified, "of nodes", time.Minute),
		condition(v1alpha1.ConditionPodsHeld, metav1.ConditionFalse, v1alpha1.ReasonNothingHeld, "no waiting pod is held back", time.Minute),
	}
	p.Status.Unavailable = []v1alpha1.UnavailableOffering{
		{InstanceType: "p5.4xlarge", Zone: "us-east-1b", CapacityType: "on-demand", Reason: v1alpha1.HoldNoCapacity, Message: "InsufficientInstanceCapacity: none", Until: metav1.NewTime(noon.Add(2 * time.Minute))},
		{InstanceType: "p5.4xlarge", Zone: "us-east-1a", CapacityType: "on-demand", Reason: v1alpha1.HoldNoCapacity, Message: "InsufficientInstanceCapacity: none", Until: metav1.NewTime(noon.Add(2 * time.Minute))},
		{InstanceType: "p5.4xlarge", Zone: "us-east-1b", CapacityType: "spot", Reason: v1alpha1.HoldNoCapacity, Message: "over", Until: ago(time.Second)},
	}
	w := newWorld(t, exclusive(), lease(time.Second), p, waiting(pod("notebook", whole, 1, "research"), time.Minute))
	a := w.run(t, "explain", "pool", "research")
	const want = `
Held: NoCapacity
  Pods    1: default/notebook
  GPUs    1
  For     1m
  Why     the cloud refuses p5.4xlarge on-demand in us-east-1a until 12:02:00: InsufficientInstanceCapacity: none (no other of the 2 ways to buy it is open)
  Remedy  wait, or let the pool use more zones, purchase options or instance types
`
	const refused = `
Refused by the cloud now
  TYPE        BOUGHT     ZONES                  UNTIL      REASON      THE CLOUD SAYS
  p5.4xlarge  on-demand  us-east-1b,us-east-1a  12:02:00Z  NoCapacity  InsufficientInstanceCapacity: none

`
	const conditions = `
Conditions
  CONDITION            STATUS  REASON       FOR  MESSAGE
  CapacityUnavailable  True    NoCapacity    1m  as above
  VerifyFailing        True    NotVerified   1m  of nodes
  PodsHeld             False   NothingHeld   1m  no waiting pod is held back
`
	const evidence = `
Evidence
  p5.4xlarge on-demand in us-east-1a  NoCapacity: InsufficientInstanceCapacity: none
  p5.4xlarge on-demand in us-east-1b  the same
`
	if e := w.run(t, "explain", "pod", "notebook"); !strings.Contains(e.stdout, evidence) {
		t.Errorf("printed\n%s\nwant%s", e.stdout, evidence)
	}
	if a.code != exitHeld || !strings.Contains(a.stdout, want) || !strings.Contains(a.stdout, refused) || !strings.HasSuffix(a.stdout, conditions) {
		t.Errorf("exit code %d, printed\n%s\nwant%s%s%s", a.code, a.stdout, want, refused, conditions)
	}
}

func TestExplainPool_SaysHowFarWhatIsFreeIsScattered(t *testing.T) {
	var r poolReport
	a := newWorld(t, scattered()...).json(t, &r, "explain", "pool", "inference")
	if len(r.Free) != 1 || r.Free[0].Block.Free != 6 || r.Free[0].Largest != 3 || r.Free[0].Scattered != 0.5 {
		t.Errorf("%+v", r.Free)
	}
	for _, field := range []string{`"free": 6,`, `"largest": 3,`, `"scattered": 0.5`, `"resource": "nvidia.com/mig-1g.10gb"`} {
		if !strings.Contains(a.stdout, field) {
			t.Errorf("no %s in\n%s", field, a.stdout)
		}
	}
	text := newWorld(t, scattered()...).run(t, "explain", "pool", "inference").stdout
	if !strings.Contains(text, "\n  nvidia.com/mig-1g.10gb     6                 3        50%\n") {
		t.Errorf("printed\n%s", text)
	}
}

// A pod that waits holds nothing yet, wherever it can be expected.
func TestExplainPool_CountsOnlyWhatPodsHold(t *testing.T) {
	a := newWorld(t, exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		claim("research-1", "research", "p5.4xlarge", "i-0c1", time.Hour), node("i-0c1", "research", "p5.4xlarge", true, amounts(whole, 1)),
		gpuNode("i-0c1", "research", "p5.4xlarge", 1, whole, verified()), waiting(pod("notebook", whole, 1, "research"), time.Second)).
		run(t, "explain", "pool", "research")
	if !strings.Contains(a.stdout, "nvidia.com/gpu: 1 of 1 free\n") || !strings.Contains(a.stdout, "\n  nvidia.com/gpu     1                 1         0%\n") {
		t.Errorf("printed\n%s", a.stdout)
	}
}

func TestExplainPool_SaysWhyItLaunchesNothing(t *testing.T) {
	a := newWorld(t, fleetOfThree()...).run(t, "explain", "pool", "batch")
	const want = "  Trouble   it launches nothing: node class \"gone\" does not exist: declare it, or name one that does\n"
	if a.code != exitHeld || !strings.Contains(a.stdout, want) || !strings.Contains(a.stdout, "\nMay launch, in order of preference\n  nothing\n\nNodes, and machines on their way\n  none\n") {
		t.Errorf("exit code %d, printed\n%s", a.code, a.stdout)
	}
}

// A pod that may use several pools is counted once: by the pool that is nearest to serving it.
func TestExplainPool_APodCountsWhereItIsNearest(t *testing.T) {
	objects := with(batchToo(full()), waiting(pod("either", slice, 1, "inference", "batch"), 3*time.Minute))
	var r poolReport
	if newWorld(t, objects...).json(t, &r, "explain", "pool", "batch"); len(r.Holds) != 0 {
		t.Errorf("batch holds %+v", r.Holds)
	}
	r = poolReport{}
	if newWorld(t, objects...).json(t, &r, "explain", "pool", "inference"); len(r.Holds) != 1 || r.Holds[0].Pods != 2 {
		t.Errorf("inference holds %+v", r.Holds)
	}
}

// One that another pool can be expected to take is not held.
func TestExplainPool_APodThatAnotherPoolExpectsIsNotHeld(t *testing.T) {
	var r poolReport
	a := newWorld(t, with(batchToo(full()), waiting(pod("either", whole, 1, "inference", "batch"), 3*time.Minute))...).
		json(t, &r, "explain", "pool", "inference")
	if len(r.Holds) != 1 || r.Holds[0].Pods != 1 || r.Holds[0].FirstPods[0].Name != "waits" || a.code != exitHeld {
		t.Errorf("%+v", r.Holds)
	}
}

func TestExplainPool_NamesTheFirstPodsAndCountsTheRest(t *testing.T) {
	objects := full()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		objects = with(objects, waiting(pod(name, slice, 1, "inference"), 3*time.Minute))
	}
	a := newWorld(t, objects...).run(t, "explain", "pool", "inference")
	mixed := newWorld(t, with(objects, waiting(pod("named-wrong", whole, 1, "inference"), time.Minute))...)
	if a := mixed.run(t, "explain", "pool", "inference"); !strings.HasPrefix(a.stdout, "Pool inference holds 8 pods back: 7 LimitReached, 1 other.\n") {
		t.Errorf("printed\n%s", a.stdout)
	}
	if a := mixed.run(t, "status"); !strings.Contains(a.stdout, "  7 LimitReached, 1 other\n") {
		t.Errorf("printed\n%s", a.stdout)
	}
	if want := "  Pods    7: default/waits, default/a, default/b, default/c, default/d and 2 more\n"; !strings.Contains(a.stdout, want) {
		t.Errorf("printed\n%s\nwant %s", a.stdout, want)
	}
}

func TestExplainPool_ThatThereIsNot(t *testing.T) {
	for _, tc := range []struct {
		objects []runtime.Object
		want    string
	}{
		{full(), "gpufleet: no GPUNodePool is called inferenze; there is inference\n"},
		{with(mig(), poolNamed("a", "h100-mig", v1alpha1.WorkloadBatch), poolNamed("b", "h100-mig", v1alpha1.WorkloadBatch)), "gpufleet: no GPUNodePool is called inferenze; there is a, b\n"},
		{mig(), "gpufleet: no GPUNodePool is called inferenze\n"},
	} {
		newWorld(t, tc.objects...).run(t, "explain", "pool", "inferenze").want(t, exitError, "", tc.want)
	}
}
