package holds

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

func selects(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector[key] = value }
}

// limited is the verdict on a pod of a machine of one GPU that a limit holds.
func limited(name string, limit ledger.Limit, asked int64, since time.Duration) diagnose.Verdict {
	offer := &diagnose.Offer{}
	offer.Blueprint.GPU.Count, offer.Blueprint.Resources = 1, list(gpu, 1)
	refusal := &ledger.Refusal{Pool: "inf", Limit: limit, Value: 2, Used: 2, Asked: asked}
	return diagnose.Verdict{
		Pod: newPod(name, "inf", list(gpu, 1)), Pool: "inf", Offer: offer, Requests: list(gpu, 1), Since: began.Add(since),
		Causes: []diagnose.Cause{{Reason: v1alpha1.HoldLimitReached, Message: refusal.Error(), Limit: refusal}},
	}
}

// mistaken is one of a pod that its own mistake holds.
func mistaken(name, reason string) diagnose.Verdict {
	return diagnose.Verdict{
		Pod: newPod(name, "inf", list(gpu, 1)), Pool: "inf", Requests: list(gpu, 1), Since: began,
		Causes: []diagnose.Cause{{Reason: reason, Message: "pool inf: " + name + " is wrong"}},
	}
}

func TestConditionOf_ALimitIsTheReason(t *testing.T) {
	h := diagnose.Holds([]diagnose.Verdict{limited("a", ledger.HourlyCost, 3, 0), limited("b", ledger.Nodes, 2, 0), limited("c", ledger.Nodes, 1, 0)})
	if got := conditionOf(v1alpha1.HoldReasons[v1alpha1.PrecedenceOf(v1alpha1.HoldLimitReached)], &h[0]).Reason; got != "Nodes" {
		t.Errorf("reason is %s, want Nodes: it holds two pods of three", got)
	}
}

// Every reason of the closed list is said in all places alike, also those that nothing brings about yet.
func TestEveryReason_IsSaidInAllPlaces(t *testing.T) {
	for _, reason := range v1alpha1.HoldReasons {
		t.Run(reason.Name, func(t *testing.T) {
			w := newWorld(t, newPool("inf", "whole", "g6.xlarge"), whole())
			verdict := mistaken("pod", reason.Name)
			verdict.Causes[0].Remedy = reason.Remedy
			if reason.Name == v1alpha1.HoldLimitReached {
				verdict = limited("pod", ledger.Nodes, 1, 0)
				verdict.Causes[0].Remedy = reason.Remedy
			}
			h, pool := held(diagnose.Holds([]diagnose.Verdict{verdict})), w.pool(t, "inf")
			w.clock.Step(time.Minute)
			measure(looked{pool: diagnose.Pool{Name: "inf"}}, h, w.clock.Now())
			w.Controller.notify(pool, h)
			told := w.events.tellPods("inf", h)
			if written, err := w.write(t.Context(), pool, ledger.Usage{}, h, nil); !told || !written || err != nil {
				t.Fatalf("told %t, written %t, %v", told, written, err)
			}
			message, kind := "pod is wrong (1 waiting pod)", "Warning"
			if reason.Name == v1alpha1.HoldLimitReached {
				message = "limit nodes 2 is reached: 2 in use, 1 asked for 1 waiting pod"
			}
			if reason.Name == v1alpha1.HoldGated {
				kind = "Normal" // to queue is no trouble
			}
			wantLines(t, w.said.take(), fmt.Sprintf("GPUNodePool inf %s %s %s", kind, reason.Name, message),
				fmt.Sprintf("Pod pod %s %s %s; %s", kind, reason.Name, verdict.Causes[0].Message, reason.Remedy))
			wantSeries(t, "inf", map[string]float64{
				"gpufleet_pool_held_pods{reason=" + reason.Name + "}": 1, "gpufleet_pool_held_oldest_seconds{reason=" + reason.Name + "}": 60,
			})
			if notice := w.notices.last["inf "+reason.Name]; !notice.Held || notice.Message != message || notice.Remedy != reason.Remedy {
				t.Errorf("notice is %+v", notice)
			}
			stored := w.pool(t, "inf").Status
			if len(stored.Holds) != 1 || stored.Holds[0].Reason != reason.Name || stored.Holds[0].Message != message {
				t.Errorf("holds are %+v", stored.Holds)
			}
			trouble := map[string]bool{v1alpha1.ConditionPodsHeld: true}
			if reason.Condition != "" {
				trouble[reason.Condition] = true
			}
			for _, condition := range stored.Conditions {
				if (condition.Status == "True") != trouble[condition.Type] || (condition.Status == "True" && condition.Message != message) {
					t.Errorf("%s is %s: %s", condition.Type, condition.Status, condition.Message)
				}
			}
			if len(stored.Conditions) != 4 {
				t.Errorf("%d conditions, want PodsHeld, LimitReached, CapacityUnavailable and VerifyFailing", len(stored.Conditions))
			}
		})
	}
}
