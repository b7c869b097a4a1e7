package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestStatus_ShowsPoolsAndWhatIsHeld(t *testing.T) {
	w := newWorld(t, full()...)
	w.run(t, "status").want(t, exitHeld, `POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE  HEADROOM      COST  AGE  HELD
inference  Inference    1/1   8/8  8 verified     0 GPUs    $55.04/h   3h  1 LimitReached

Held
POOL       REASON        PODS  GPUS  FOR  WHY
inference  LimitReached     1     1   4m  limit gpus 8 is reached: 8 in use, 8 asked
`, "")
}

// fleetOfThree has a pool whose machines are in every state, one that launches nothing, and pods that name no pool.
func fleetOfThree() []runtime.Object {
	draining := node("i-0c5", "research", "p5.4xlarge", true, amounts(whole, 1))
	draining.Spec.Unschedulable = true
	leaving := claim("research-6", "research", "p5.4xlarge", "i-0c6", time.Hour)
	leaving.SetDeletionTimestamp(&metav1.Time{Time: noon})
	leaving.SetFinalizers([]string{v1alpha1.FinalizerInstance})
	return with(full(), exclusive(),
		poolNamed("batch", "gone", v1alpha1.WorkloadBatch, "p5.48xlarge"),
		poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		claim("research-1", "research", "p5.4xlarge", "", 10*time.Second),
		claim("research-2", "research", "p5.4xlarge", "i-0c2", time.Minute),
		claim("research-3", "research", "p5.4xlarge", "i-0c3", 2*time.Minute),
		node("i-0c3", "research", "p5.4xlarge", false, nil),
		claim("research-4", "research", "p5.4xlarge", "i-0c4", 3*time.Minute),
		node("i-0c4", "research", "p5.4xlarge", false, nil),
		gpuNode("i-0c4", "research", "p5.4xlarge", 1, whole, condition(v1alpha1.ConditionVerified, metav1.ConditionFalse, v1alpha1.FindingWrongGPU, "GPU 0 is an A100", time.Minute)),
		claim("research-5", "research", "p5.4xlarge", "i-0c5", time.Hour), draining,
		gpuNode("i-0c5", "research", "p5.4xlarge", 1, whole, verified()),
		leaving,
		waiting(pod("lost", whole, 1, "reserch"), time.Minute),
		waiting(pod("for-batch", whole, 1, "batch"), 2*time.Minute),
		// It asks for a GPU of nobody's in particular, and is none of ours.
		waiting(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "foreign", UID: "foreign"},
			Spec:       corev1.PodSpec{Containers: pod("x", whole, 1).Spec.Containers},
		}, time.Minute),
	)
}

func TestStatus_ShowsEveryStateAndPodsThatNameNoPool(t *testing.T) {
	w := newWorld(t, fleetOfThree()...)
	w.run(t, "status").want(t, exitHeld, `POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE                                                          HEADROOM       COST  AGE  HELD
batch      Batch        0/0     0                                                                         no limit    $0.00/h   3h  1 PoolNotReady
inference  Inference    1/1   8/8  8 verified                                                             0 GPUs     $55.04/h   3h  1 LimitReached
research   Research     1/5     6  1 launching, 1 joining, 1 verifying, 1 refused, 1 cordoned, 1 leaving  no limit  $130.72/h   3h  0

batch launches nothing: node class "gone" does not exist: declare it, or name one that does

Held
POOL       REASON            PODS  GPUS  FOR  WHY
batch      PoolNotReady         1     0   2m  node class "gone" does not exist: declare it, or name one that does
inference  LimitReached         1     1   4m  limit gpus 8 is reached: 8 in use, 8 asked
(none)     SelectorMismatch     1     0   1m  the pod selects gpufleet.dev/pool=reserch, and there is no such GPUNodePool; research offers what it asks for
`, "")
}

func TestStatus_NothingIsHeld(t *testing.T) {
	w := newWorld(t, with(mig(), lease(time.Second), poolNamed("inference", "h100-mig", v1alpha1.WorkloadInference, "p5.48xlarge"))...)
	w.run(t, "status").want(t, exitNothingHeld, `POOL       WORKLOAD   NODES  GPUS  GPUS BY STATE  HEADROOM     COST  AGE  HELD
inference  Inference    0/0     0                 no limit  $0.00/h   3h  0

Nothing is held.
`, "")
}

func TestStatus_NoPools(t *testing.T) {
	newWorld(t, lease(time.Second)).run(t, "status").want(t, exitNothingHeld, "There is no GPUNodePool.\n", "")
}

// The machine's price is not in the table: the sum says so.
func TestStatus_AnUnknownPriceIsNotNothing(t *testing.T) {
	w := newWorld(t, with(full(), claim("inference-0-fghij", "inference", "p9.48xlarge", "i-0a2", time.Hour))...)
	a := w.run(t, "status")
	if !strings.Contains(a.stdout, "  $55.04/h+?  ") {
		t.Errorf("printed\n%s\nwant $55.04/h+?", a.stdout)
	}
	var r statusReport
	w.json(t, &r, "status")
	if r.Pools[0].HourlyCost != "$55.04/h" || r.Pools[0].Unpriced != 1 || r.Pools[0].Nodes.Total != 2 {
		t.Errorf("%+v", r.Pools[0])
	}
}

// json reads what a command prints with -o json.
func (w *world) json(t *testing.T, into any, args ...string) answer {
	t.Helper()
	a := w.run(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(a.stdout), into); err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, a.stdout, a.stderr)
	}
	return a
}

func TestStatus_JSON(t *testing.T) {
	w := newWorld(t, full()...)
	w.run(t, "status", "-o", "json").want(t, exitHeld, `{
  "at": "2026-12-01T12:00:00Z",
  "controller": {
    "alive": true,
    "lastSeen": "2026-12-01T11:59:59.000000Z"
  },
  "pools": [
    {
      "name": "inference",
      "workload": "Inference",
      "created": "2026-12-01T09:00:00Z",
      "nodes": {
        "total": 1,
        "verified": 1
      },
      "gpus": {
        "total": 8,
        "byState": {
          "Verified": 8
        }
      },
      "limits": [
        {
          "name": "GPUs",
          "limit": "8",
          "withSurge": "16",
          "used": "8",
          "outstanding": "8",
          "headroom": "0"
        }
      ],
      "hourlyCost": "$55.04/h",
      "held": {
        "pods": 1,
        "gpus": 1,
        "reason": "LimitReached",
        "reasonPods": 1
      }
    }
  ],
  "holds": [
    {
      "pool": "inference",
      "reason": "LimitReached",
      "pods": 1,
      "gpus": 1,
      "since": "2026-12-01T11:56:00Z",
      "message": "limit gpus 8 is reached: 8 in use, 8 asked",
      "remedy": "raise limits.gpus of GPUNodePool inference to 16 or more, or wait until a machine of the pool is gone",
      "firstPods": [
        {
          "namespace": "default",
          "name": "waits",
          "since": "2026-12-01T11:56:00Z"
        }
      ]
    }
  ]
}
`, "")
}

func TestStatus_YAMLSaysTheSameAsJSON(t *testing.T) {
	w := newWorld(t, fleetOfThree()...)
	for _, args := range [][]string{
		{"status"}, {"explain", "pod", "waits"}, {"explain", "pool", "research"}, {"explain", "node", "i-0a1"},
	} {
		asJSON, asYAML := w.run(t, append(args, "-o", "json")...), w.run(t, append(args, "-o", "yaml")...)
		converted, err := yaml.YAMLToJSON([]byte(asYAML.stdout))
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		var one, other any
		if err := json.Unmarshal([]byte(asJSON.stdout), &one); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if err := json.Unmarshal(converted, &other); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if diff := cmp.Diff(one, other); diff != "" || asJSON.code != asYAML.code {
			t.Errorf("%v: JSON (-) and YAML (+), exit codes %d and %d:\n%s", args, asJSON.code, asYAML.code, diff)
		}
	}
}

func TestStatus_AdaptsToTheTerminal(t *testing.T) {
	w := newWorld(t, full()...)
	w.env["NO_COLOR"] = "1"
	for _, tc := range []struct {
		width int
		want  string
	}{
		{80, `POOL       NODES  GPUS  GPUS BY STATE  HEADROOM      COST  AGE  HELD
inference    1/1   8/8  8 verified     0 GPUs    $55.04/h   3h  1 LimitReached

Held
POOL       REASON        PODS  GPUS  WHY
inference  LimitReached     1     1  limit gpus 8 is reached: 8 in use, 8 asked
`},
		{50, `POOL       NODES  GPUS  HEADROOM  HELD
inference    1/1   8/8  0 GPUs    1 LimitReached

Held
POOL       REASON        PODS  WHY
inference  LimitReached     1  limit gpus 8 is re…
`},
	} {
		w.terminal = &screen{width: tc.width, height: 40}
		w.run(t, "status").want(t, exitHeld, tc.want, "")
	}
}

func TestStatus_ColoursOnlyWhereATerminalWantsThem(t *testing.T) {
	const escape = "\x1b["
	terminal := &screen{width: 120, height: 40}
	for _, tc := range []struct {
		name     string
		terminal *screen
		env      map[string]string
		args     []string
		want     bool
	}{
		{"terminal", terminal, nil, nil, true},
		{"pipe", nil, nil, nil, false},
		{"NO_COLOR", terminal, map[string]string{"NO_COLOR": "1"}, nil, false},
		{"NO_COLOR that is empty", terminal, map[string]string{"NO_COLOR": ""}, nil, true},
		{"--no-color", terminal, nil, []string{"--no-color"}, false},
		{"dumb terminal", terminal, map[string]string{"TERM": "dumb"}, nil, false},
		{"JSON", terminal, nil, []string{"-o", "json"}, false},
	} {
		w := newWorld(t, full()...)
		w.terminal = tc.terminal
		for key, value := range tc.env {
			w.env[key] = value
		}
		if a := w.run(t, append([]string{"status"}, tc.args...)...); strings.Contains(a.stdout, escape) != tc.want {
			t.Errorf("%s: colours %t, want %t:\n%q", tc.name, !tc.want, tc.want, a.stdout)
		}
	}
}

func TestStatus_ColoursDoNotMoveColumns(t *testing.T) {
	w := newWorld(t, full()...)
	w.terminal = &screen{width: 120, height: 40}
	coloured := w.run(t, "status").stdout
	plain := w.run(t, "status", "--no-color").stdout
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m"} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	// Spaces at the end of a line stand inside its colour.
	var lines []string
	for _, line := range strings.Split(coloured, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	if diff := cmp.Diff(plain, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("without colours (-) and with (+):\n%s", diff)
	}
}

func TestStatus_CountsTheGPUsOfAllPodsOfAReasonTogether(t *testing.T) {
	objects := full()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		objects = with(objects, waiting(pod(name, slice, 1, "inference"), 3*time.Minute))
	}
	w := newWorld(t, objects...)
	var r statusReport
	w.json(t, &r, "status")
	// Eight of seven instances a GPU are two GPUs.
	if h := r.Holds[0]; h.Pods != 8 || h.GPUs != 2 || len(h.FirstPods) != 5 || h.FirstPods[0].Name != "waits" || h.FirstPods[1].Name != "a" {
		t.Errorf("%+v", h)
	}
}

// Of two limits that hold pods each speaks, with its pods; of one limit the pod that asks for the smallest machine does.
func TestStatus_EachLimitSpeaks(t *testing.T) {
	p := limited(poolNamed("mixed", "whole", v1alpha1.WorkloadInference, "p5.48xlarge", "p5.4xlarge"), 8, 8)
	cost := "60"
	p.Spec.Limits.HourlyCost = cost
	p.Status.Limits = append(p.Status.Limits, v1alpha1.LimitStatus{
		Name: v1alpha1.ReasonHourlyCost, Limit: "$60.00/h", WithSurge: "$115.04/h", Used: "$55.04/h", Outstanding: "$55.04/h", Headroom: "$4.96/h",
	})
	// Room for one GPU more, and not for its price.
	*p.Spec.Limits.GPUs = 10
	w := newWorld(t, exclusive(), p, lease(time.Second),
		waiting(pod("large", whole, 8, "mixed"), 4*time.Minute), waiting(pod("large-2", whole, 8, "mixed"), 3*time.Minute),
		waiting(pod("small", whole, 1, "mixed"), 2*time.Minute))
	var r statusReport
	w.json(t, &r, "status")
	want := "limit gpus 10 would be passed: 8 in use, 8 asked (2 pods); limit hourlyCost $60.00/h would be passed: $55.04/h in use, $6.88/h asked (1 pod)"
	if len(r.Holds) != 1 || r.Holds[0].Message != want {
		t.Errorf("%+v, want %s", r.Holds, want)
	}
}
