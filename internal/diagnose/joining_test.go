package diagnose

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// asked is a machine of 8 GPUs that was asked for a while ago and has not joined; without an instance it is not launched.
func asked(name, instance string, ago time.Duration) change {
	return func(s *situation) {
		claim := Claim{Name: name, Types: []string{"p5.48xlarge"}, Created: noon.Add(-ago)}
		if instance != "" {
			claim.ProviderID, claim.Labels = "aws:///us-east-1a/"+instance, map[string]string{"gpufleet.dev/pool": "inf"}
		}
		s.pool.Places = append(s.pool.Places, OnItsWay(claim, s.pool.Offers, noon))
	}
}

// machinesFor is since how long machines have been expected to take the pod.
func machinesFor(d time.Duration) change {
	return func(s *situation) { s.cluster.Joining = map[types.UID]time.Time{s.pod.UID: noon.Add(-d)} }
}

func TestDecide_AMachineThatDoesNotJoin(t *testing.T) {
	const late = 10*time.Minute + time.Second
	const console = "look at the console output of instance i-0abc and at what its kubelet says as it boots; Karpenter replaces it 15 minutes after its launch"
	decideRows(t, []row{
		{name: "for 10 minutes", changes: []change{fullPool(), asked("c1", "i-0abc", 10*time.Minute)}, want: "expected"},
		{name: "for longer", changes: []change{fullPool(), asked("c1", "i-0abc", late)},
			want: "NotVerified", message: "pool inf: NodeClaim c1 (instance i-0abc) has no node since 11:49:59 UTC, when it was asked for", also: "LimitReached", remedy: console},
		{name: "and was not even launched", changes: []change{fullPool(), asked("c1", "", late)},
			want: "NotVerified", message: "pool inf: NodeClaim c1 has no node since 11:49:59 UTC, when it was asked for", also: "LimitReached",
			remedy: "look at the events of NodeClaim c1; Karpenter gives it up and asks for another"},
		{name: "two of them", changes: []change{used(gpuLimit(16, 8), 2, 8), asked("c1", "i-0abc", late), asked("c2", "i-0def", 11*time.Minute)},
			want: "NotVerified", message: "pool inf: 2 machines have not joined; the first: NodeClaim c1 (instance i-0abc) has no node since 11:49:59 UTC, when it was asked for", also: "LimitReached"},
		{name: "and Karpenter, which counts on it, launches no other", changes: []change{asked("c1", "i-0abc", late)},
			want: "NotVerified", message: "pool inf: NodeClaim c1 (instance i-0abc) has no node since 11:49:59 UTC, when it was asked for"},
		{name: "and is too small for the pod", changes: []change{fullPool(), asking("gpu 8, cpu 8"), asked("c1", "i-0abc", late), func(s *situation) { s.pool.Places[0].Free = listed("gpu 4, cpu 192, pods 110") }},
			want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked"},
		{name: "while another is in time", changes: []change{used(gpuLimit(16, 8), 2, 8), asked("c1", "i-0abc", late), asked("c2", "i-0def", time.Minute)}, want: "expected"},
		{name: "beside a node that is not what was ordered", changes: []change{used(gpuLimit(16, 8), 2, 8), asked("c1", "i-0abc", late), refusedNode("n1", "x")},
			want: "NotVerified", message: "pool inf: node n1 is not what was ordered: x", also: "NotVerified LimitReached"},

		{name: "one after the other, for 15 minutes in all", changes: []change{fullPool(), asked("c2", "i-0abc", time.Minute), machinesFor(15 * time.Minute)}, want: "expected"},
		{name: "one after the other, for longer", changes: []change{fullPool(), asked("c2", "i-0abc", time.Minute), machinesFor(15*time.Minute + time.Second)},
			want: "NotVerified", message: "pool inf: machines have been expected to take the pod for longer than 15m0s, and none has; the last, NodeClaim c2 (instance i-0abc), was asked for at 11:59:00 UTC", remedy: console},
		{name: "one after the other, and the last has joined", changes: []change{fullPool(), coming("n2", fullNode), machinesFor(time.Hour)}, want: "expected"},
	})
}

// A machine that does not join was to take so many pods: the others hear of what keeps another from being launched.
func TestDecide_AMachineThatDoesNotJoinHoldsThePodsThatItWasToTake(t *testing.T) {
	pods := []*corev1.Pod{waiter("a", "gpu 6"), waiter("b", "gpu 6")}
	s := newSituation(t, fullPool(), asked("c1", "i-0abc", 11*time.Minute))
	verdicts := Decide(s.cluster, s.pool, pods)
	if verdicts[0].Reason() != v1alpha1.HoldNotVerified || verdicts[1].Reason() != v1alpha1.HoldLimitReached {
		t.Errorf("in a full pool: %v and %v, want NotVerified and LimitReached", reasons(verdicts[0]), reasons(verdicts[1]))
	}
	s = newSituation(t, asked("c1", "i-0abc", 11*time.Minute))
	verdicts = Decide(s.cluster, s.pool, pods)
	if verdicts[0].Reason() != v1alpha1.HoldNotVerified || !verdicts[1].Expected {
		t.Errorf("where one may be launched: %v and %v, want NotVerified and expected", reasons(verdicts[0]), reasons(verdicts[1]))
	}
}

// Whoever remembers since when pods wait for machines is told which do, whether the machine is in time or not.
func TestDecide_SaysWhichPodsWaitForAMachineToJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		changes []change
		want    bool
	}{
		"it is in time":               {[]change{asked("c1", "i-0abc", time.Minute)}, true},
		"it is late":                  {[]change{asked("c1", "i-0abc", time.Hour)}, true},
		"it was the last of several":  {[]change{asked("c1", "i-0abc", time.Minute), machinesFor(time.Hour)}, true},
		"it has joined":               {[]change{fullPool(), coming("n1", fullNode)}, false},
		"it may be launched":          {nil, false},
		"a limit holds it":            {[]change{fullPool()}, false},
		"it is late, and a gate shut": {[]change{asked("c1", "i-0abc", time.Hour), gate(kueue)}, false},
	} {
		if got := newSituation(t, tc.changes...).verdict(t).Joining; got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
