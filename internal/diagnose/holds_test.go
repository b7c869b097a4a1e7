package diagnose

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// limited is the verdict on a pod of a machine of one GPU that a limit of 2 holds.
func limited(name string, limit ledger.Limit, asked int64, since time.Duration) Verdict {
	offer := &Offer{}
	offer.Blueprint.GPU.Count, offer.Blueprint.Resources = 1, listed("gpu 1")
	refusal := &ledger.Refusal{Pool: "inf", Limit: limit, Value: 2, Used: 2, Asked: asked}
	return Verdict{
		Pod: waiter(name, "gpu 1"), Pool: "inf", Offer: offer, Requests: listed("gpu 1"), Since: noon.Add(since),
		Causes: []Cause{{Reason: v1alpha1.HoldLimitReached, Message: refusal.Error(), Limit: refusal}},
	}
}

// mistaken is one of a pod that its own mistake holds.
func mistaken(name, reason string) Verdict {
	return Verdict{
		Pod: waiter(name, "gpu 1"), Pool: "inf", Requests: listed("gpu 1"), Since: noon,
		Causes: []Cause{{Reason: reason, Message: "pool inf: " + name + " is wrong", Remedy: "correct " + name}},
	}
}

func TestHolds_CountFromThePodThatBeganToWaitFirst(t *testing.T) {
	holds := Holds([]Verdict{
		limited("a", ledger.GPUs, 1, 2*time.Minute), limited("b", ledger.GPUs, 1, time.Minute), limited("c", ledger.GPUs, 1, 3*time.Minute),
	})
	if got, want := holds[0].Since, noon.Add(time.Minute); !got.Equal(want) || holds[0].Pods[0].Pod.Name != "b" {
		t.Errorf("since %s, pod %s; want %s, b", got, holds[0].Pods[0].Pod.Name, want)
	}
}

func TestHolds_SayTheLimitThatHoldsTheMostFirst(t *testing.T) {
	holds := Holds([]Verdict{limited("a", ledger.HourlyCost, 3, 0), limited("b", ledger.Nodes, 2, 0), limited("c", ledger.Nodes, 1, 0)})
	if want := "limit nodes 2 is reached: 2 in use, 1 asked for 2 waiting pods; limit hourlyCost $0.000002/h is reached: $0.000002/h in use, $0.000003/h asked for 1 waiting pod"; holds[0].Message != want {
		t.Errorf("message is\n%s\nwant\n%s", holds[0].Message, want)
	}
	if want := "limit nodes 2 is reached: 2 in use, 1 asked (2 pods); limit hourlyCost $0.000002/h is reached: $0.000002/h in use, $0.000003/h asked (1 pod)"; holds[0].Words != want {
		t.Errorf("words are\n%s\nwant\n%s", holds[0].Words, want)
	}
	if got := Holds([]Verdict{limited("a", ledger.Nodes, 2, 0)})[0].Words; got != "limit nodes 2 is reached: 2 in use, 2 asked" {
		t.Errorf("words of one limit are %q", got)
	}
	if got := fmt.Sprint(holds[0].Limits); got != "[Nodes HourlyCost]" {
		t.Errorf("limits are %s", got)
	}
}

// The reason that holds the most pods comes first, and of equals the one that comes first in precedence.
func TestHolds_AreGroupedByReason(t *testing.T) {
	holds := Holds([]Verdict{
		mistaken("a", v1alpha1.HoldNotTolerated), limited("b", ledger.GPUs, 1, 0), limited("c", ledger.GPUs, 1, 0), mistaken("d", v1alpha1.HoldNameMismatch),
		{Pod: waiter("e", "gpu 1"), Expected: true},
	})
	got := ""
	for _, hold := range holds {
		got += fmt.Sprintf("%s %d pods %d GPUs: %s\n", hold.Reason, len(hold.Pods), hold.GPUs, hold.Message)
	}
	want := `LimitReached 2 pods 2 GPUs: limit gpus 2 is reached: 2 in use, 1 asked for 2 waiting pods
NameMismatch 1 pods 0 GPUs: d is wrong (1 waiting pod)
NotTolerated 1 pods 0 GPUs: a is wrong (1 waiting pod)
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if holds[1].Remedy != "correct d" {
		t.Errorf("remedy is %q", holds[1].Remedy)
	}
}

// 60 pods of one slice each wait for the same machine: nine GPUs, and not sixty.
func TestHolds_AddUpWhatPodsAskBeforeTheyCountGPUs(t *testing.T) {
	offer := offerOf(t, cut("Mixed"), "p5.48xlarge")
	var verdicts []Verdict
	for i := range 60 {
		v := limited(fmt.Sprint(i), ledger.GPUs, 8, 0)
		v.Offer, v.Requests = &offer, listed("nvidia.com/mig-1g.10gb 1")
		verdicts = append(verdicts, v)
	}
	if got := Holds(verdicts)[0].GPUs; got != 9 {
		t.Errorf("%d GPUs, want 9", got)
	}
}

// One pod speaks for pods with mistakes of their own, and says so.
func TestHolds_TheFirstPodSpeaksForOthersAndSaysSo(t *testing.T) {
	holds := Holds([]Verdict{mistaken("a", v1alpha1.HoldNameMismatch), mistaken("b", v1alpha1.HoldNameMismatch)})
	if want := "a is wrong (the first of 2 waiting pods; each has its own words)"; holds[0].Message != want {
		t.Errorf("message is %q, want %q", holds[0].Message, want)
	}
	if want := "a is wrong (the first pod; each has its own words)"; holds[0].Words != want {
		t.Errorf("words are %q, want %q", holds[0].Words, want)
	}
}
