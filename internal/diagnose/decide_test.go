package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const kueue = "kueue.x-k8s.io/admission"

func gate(names ...string) change {
	return ofPod(func(p *corev1.Pod) {
		p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		for _, name := range names {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		}
	})
}

func scheduler(name string, looked bool) change {
	return ofPod(func(p *corev1.Pod) {
		p.Spec.SchedulerName = name
		if !looked {
			p.Status.Conditions = nil
		}
	})
}

func tolerationsLeft(n int) change {
	return ofPod(func(p *corev1.Pod) { p.Spec.Tolerations = p.Spec.Tolerations[:n] })
}

func dollars(limit, surge ledger.Money) ledger.Limits {
	return ledger.Limits{HourlyCost: &limit, Surge: ledger.Amounts{HourlyCost: surge}}
}

func nodeLimit(n int64) ledger.Limits {
	return ledger.Limits{Nodes: &n, Surge: ledger.Amounts{Nodes: 1}}
}

const (
	quotaWords    = "VcpuLimitExceeded: the limit is 192 vCPUs"
	shortageWords = "InsufficientInstanceCapacity: none left"
	fullNode      = "gpu 8, cpu 192, memory 2048Gi, pods 110"
)

var ml = Budget{Name: "ml", Used: "$42.10/h", Cap: "$60.00/h", Refuses: []string{"p5.48xlarge"}, Ends: noon.Add(12 * time.Hour)}

// row is one situation with its verdict: the reason and the message, "expected" alone where nothing holds the pod. also are the
// other reasons; remedy is looked at where it is given.
type row struct {
	name          string
	changes       []change
	want, message string
	also          string
	remedy        string
}

// decideRows decides each of some situations.
func decideRows(t *testing.T, rows []row) {
	t.Helper()
	for _, tc := range rows {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, newSituation(t, tc.changes...).verdict(t)) })
	}
}

func (r row) check(t *testing.T, v Verdict) {
	t.Helper()
	if v.Expected {
		if r.want != "expected" || len(v.Causes) > 0 || v.Held() {
			t.Errorf("expected, with %v; want %s", v.Causes, r.want)
		}
		return
	}
	if v.Reason() != r.want || v.Causes[0].Message != r.message {
		t.Errorf("\n got %s: %s\nwant %s: %s", v.Reason(), v.Causes[0].Message, r.want, r.message)
	}
	if got := strings.Join(reasons(v)[1:], " "); got != r.also {
		t.Errorf("also %q, want %q", got, r.also)
	}
	if r.remedy != "" && v.Causes[0].Remedy != r.remedy {
		t.Errorf("\nremedy %s\n  want %s", v.Causes[0].Remedy, r.remedy)
	}
	for _, cause := range v.Causes {
		if cause.Remedy == "" || strings.Contains(cause.Remedy, "\n") {
			t.Errorf("%s has the remedy %q, want one sentence", cause.Reason, cause.Remedy)
		}
	}
}

// Expected messages are written by hand from the situation: 8 GPUs and 56 slices a p5.48xlarge (AWS), 192 vCPUs, 2048 GiB.
func TestDecide_GivesEachSituationItsOneReasonWithTheNumbers(t *testing.T) {
	decideRows(t, []row{
		// Nothing holds it.
		{name: "a machine may be launched", want: "expected"},
		{name: "a node has room", changes: []change{fullPool(), node("n1", fullNode, "gpu 7", 0)}, want: "expected"},
		{name: "a machine is on its way", changes: []change{fullPool(), coming("c1", fullNode)}, want: "expected"},
		{name: "a machine is on its way for an hour", changes: []change{fullPool(), coming("c1", fullNode), waitingFor(time.Hour)}, want: "expected"},
		{name: "one of two zones has capacity", changes: []change{refusing("NoCapacity", "us-east-1a", shortageWords)}, want: "expected"},
		{name: "what was refused is tried again", changes: []change{refusingBoth("NoCapacity", shortageWords), func(s *situation) { s.cluster.Now = noon.Add(3 * time.Minute) }}, want: "expected"},
		{name: "an affinity that the pool meets", changes: []change{ofPod(requiring("gpufleet.dev/gpu-model", "H100-80GB-SXM"))}, want: "expected"},
		{name: "it tolerates everything", changes: []change{ofPod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })}, want: "expected"},
		{name: "a claim that a node's free device satisfies", changes: []change{fullPool(), asking("cpu 1"), node("n1", fullNode, "cpu 1", 0), deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 2, `device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100 80GB HBM3'`), publishing("n1", 8, 6)}, want: "expected"},
		{name: "another scheduler found no node, and one may be launched", changes: []change{scheduler("kai-scheduler", true)}, want: "expected"},

		// Gated.
		{name: "Kueue has not admitted it", changes: []change{gate(kueue)}, want: "Gated", message: "pool inf: the scheduling gate kueue.x-k8s.io/admission holds the pod back"},
		{name: "two gates", changes: []change{gate(kueue, "example.com/data")}, want: "Gated", message: "pool inf: the scheduling gates kueue.x-k8s.io/admission, example.com/data hold the pod back"},
		{name: "KAI has not looked at it", changes: []change{scheduler("kai-scheduler", false)}, want: "Gated", message: "pool inf: scheduler kai-scheduler has not looked for a node yet"},
		{name: "a gate on a full pool", changes: []change{gate(kueue), fullPool()}, want: "Gated", message: "pool inf: the scheduling gate kueue.x-k8s.io/admission holds the pod back", also: "LimitReached"},

		{name: "a gate, and a node has room", changes: []change{gate(kueue), fullPool(), node("n1", fullNode, "gpu 7", 0)}, want: "Gated", message: "pool inf: the scheduling gate kueue.x-k8s.io/admission holds the pod back"},
		{name: "a gate, and the node is full", changes: []change{gate(kueue), fullPool(), node("n1", fullNode, "gpu 8", 0)}, want: "Gated", message: "pool inf: the scheduling gate kueue.x-k8s.io/admission holds the pod back", also: "LimitReached"},
		{name: "no toleration, and a node of the full pool has room", changes: []change{tolerationsLeft(1), fullPool(), node("n1", fullNode, "gpu 7", 0), func(s *situation) { s.pool.Places[0].Taints = s.pool.Offers[0].Blueprint.Taints }},
			want: "NotTolerated", message: "pool inf: the pod does not tolerate gpufleet.dev/workload=Inference:NoSchedule, 1 of the 2 taints of the pool's nodes"},

		{name: "a zone that no machine on its way can be in", changes: []change{claimed("c1"), selectsToo("topology.kubernetes.io/zone", "us-west-2a")},
			want: "SelectorMismatch", message: "pool inf: the pod selects topology.kubernetes.io/zone=us-west-2a, and its nodes have us-east-1a or us-east-1b"},
		{name: "a zone that the machine on its way may come to be in", changes: []change{fullPool(), claimed("c1"), selectsToo("topology.kubernetes.io/zone", "us-east-1b")}, want: "expected"},

		// NotAllowed.
		{name: "the quota of the device class is used up", changes: []change{asking("cpu 1"), deviceClass("gpu.nvidia.com"), templated("gpu.nvidia.com", 2), quota("default", "gpus", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices", "8", "7")},
			want: "NotAllowed", message: "pool inf: ResourceQuota gpus of namespace default admits no claim from template template: gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 7 of 8 used, 2 asked", also: "DRAUnsupported"},
		{name: "the quota of claims is used up", changes: []change{asking("cpu 1"), deviceClass("gpu.nvidia.com"), templated("gpu.nvidia.com", 1), quota("default", "objects", "count/resourceclaims.resource.k8s.io", "10", "10")},
			want: "NotAllowed", message: "pool inf: ResourceQuota objects of namespace default admits no claim from template template: count/resourceclaims.resource.k8s.io: 10 of 10 used, 1 asked", also: "DRAUnsupported"},
		{name: "the quota is another namespace's", changes: []change{asking("cpu 1"), deviceClass("gpu.nvidia.com"), templated("gpu.nvidia.com", 2), quota("others", "gpus", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices", "8", "8")},
			want: "DRAUnsupported", message: "pool inf: claim template asks for 2 of device class gpu.nvidia.com; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},
		{name: "the quota has room", changes: []change{asking("cpu 1"), deviceClass("gpu.nvidia.com"), templated("gpu.nvidia.com", 1), quota("default", "gpus", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices", "8", "7")},
			want: "DRAUnsupported", message: "pool inf: claim template asks for 1 of device class gpu.nvidia.com; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},

		// NameMismatch.
		{name: "C20: a whole GPU where it is renamed", changes: []change{withOffers(sliced(4, true), "g6.12xlarge")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/gpu: 1, and nodes on g6.12xlarge offer nvidia.com/gpu.shared: 16: each of its GPUs is shared by 4 pods under another name"},
		{name: "a share where it is not renamed", changes: []change{withOffers(sliced(4, false), "g6.12xlarge"), asking("nvidia.com/gpu.shared 1")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/gpu.shared: 1, and nodes on g6.12xlarge offer nvidia.com/gpu: 16"},
		{name: "a whole GPU where they are cut", changes: []change{withOffers(cut("Mixed"), "p5.48xlarge")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/gpu: 1, and nodes on p5.48xlarge offer nvidia.com/mig-1g.10gb: 56: its GPUs are cut by layout h100-7x1g10gb"},
		{name: "a slice where they are whole", changes: []change{asking("nvidia.com/mig-1g.10gb 1")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/mig-1g.10gb: 1, and nodes on p5.48xlarge offer nvidia.com/gpu: 8"},
		{name: "a slice by its profile where all have one name", changes: []change{withOffers(cut("Single"), "p5.48xlarge"), asking("nvidia.com/mig-1g.10gb 1")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/mig-1g.10gb: 1, and nodes on p5.48xlarge offer nvidia.com/gpu: 56"},
		{name: "a share of a slice", changes: []change{withOffers(cut("Mixed"), "p5.48xlarge"), asking("nvidia.com/mig-1g.10gb.shared 2")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/mig-1g.10gb.shared: 2, and nodes on p5.48xlarge offer nvidia.com/mig-1g.10gb: 56"},
		{name: "GPUs of another maker", changes: []change{asking("amd.com/gpu 1")},
			want: "NameMismatch", message: "pool inf: the pod asks for amd.com/gpu: 1, and nodes on p5.48xlarge offer nvidia.com/gpu: 8"},
		{name: "a wrong name on a full pool that it does not tolerate", changes: []change{asking("amd.com/gpu 1"), fullPool(), tolerationsLeft(1)},
			want: "NameMismatch", message: "pool inf: the pod asks for amd.com/gpu: 1, and nodes on p5.48xlarge offer nvidia.com/gpu: 8", also: "NotTolerated LimitReached"},

		// ProfileNotOffered.
		{name: "a profile that the layout has not", changes: []change{withOffers(cut("Mixed"), "p5.48xlarge"), asking("nvidia.com/mig-3g.40gb 1")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for nvidia.com/mig-3g.40gb: 1, and nodes on p5.48xlarge offer nvidia.com/mig-1g.10gb: 56"},
		{name: "more GPUs than one machine has", changes: []change{asking("gpu 9")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for nvidia.com/gpu: 9 on one node, and a node on p5.48xlarge has 8 at most"},
		{name: "more slices than one machine has", changes: []change{withOffers(cut("Mixed"), "p5.48xlarge"), asking("nvidia.com/mig-1g.10gb 57")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for nvidia.com/mig-1g.10gb: 57 on one node, and a node on p5.48xlarge has 56 at most"},
		{name: "more CPUs than the machine has", changes: []change{asking("gpu 1, cpu 193")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for cpu: 193 on one node, and a node on p5.48xlarge has 191450m at most"},
		{name: "more memory than the machine has", changes: []change{asking("gpu 1, memory 2049Gi")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for memory: 2049Gi on one node, and a node on p5.48xlarge has 1938300Mi at most"},
		{name: "another device that the machine has not", changes: []change{asking("gpu 1, vpc.amazonaws.com/efa 4")},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for vpc.amazonaws.com/efa: 4, and nodes on p5.48xlarge have none"},
		{name: "two GPUs, and the machine that is nearest has one", changes: []change{withOffers(exclusive(), "g6.xlarge"), asking("gpu 2"), fullPool()},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for nvidia.com/gpu: 2 on one node, and a node on g6.xlarge has 1 at most", also: "LimitReached"},

		// DRAUnsupported.
		{name: "a claim on a pool of the device plugin", changes: []change{asking("cpu 1"), deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 1)},
			want: "DRAUnsupported", message: "pool inf: claim claim asks for 1 of device class gpu.nvidia.com; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},
		{name: "a device class that does not exist", changes: []change{asking("cpu 1"), claiming("mig.nvidia.com", 1)},
			want: "DRAUnsupported", message: "pool inf: claim claim asks for 1 of device class mig.nvidia.com, which does not exist; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},
		{name: "no published device matches", changes: []change{asking("cpu 1"), node("n1", fullNode, "cpu 1", 0), deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 1, `device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H200'`), publishing("n1", 8, 0)},
			want: "DRAUnsupported", message: "pool inf: claim claim asks for 1 of device class gpu.nvidia.com: none of the 8 devices that the pool's nodes publish matches; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},
		{name: "the devices that match are taken", changes: []change{asking("cpu 1"), node("n1", fullNode, "cpu 1", 0), deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 3), publishing("n1", 8, 6)},
			want: "DRAUnsupported", message: "pool inf: claim claim asks for 3 of device class gpu.nvidia.com: of 8 devices that match 2 are free, on no node enough; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"},

		// SelectorMismatch.
		{name: "a zone that the pool has not", changes: []change{selectsToo("topology.kubernetes.io/zone", "us-west-2a")},
			want: "SelectorMismatch", message: "pool inf: the pod selects topology.kubernetes.io/zone=us-west-2a, and its nodes have us-east-1a or us-east-1b"},
		{name: "a capacity type that the pool has not", changes: []change{selectsToo("karpenter.sh/capacity-type", "spot")},
			want: "SelectorMismatch", message: "pool inf: the pod selects karpenter.sh/capacity-type=spot, and its nodes have on-demand"},
		{name: "a model that the pool has not", changes: []change{selectsToo("gpufleet.dev/gpu-model", "A100-40GB")},
			want: "SelectorMismatch", message: "pool inf: the pod selects gpufleet.dev/gpu-model=A100-40GB, and its nodes have H100-80GB-SXM"},
		{name: "a label that nodes do not have", changes: []change{selectsToo("team", "vision")},
			want: "SelectorMismatch", message: "pool inf: the pod selects team=vision, a label that its nodes do not have"},
		{name: "the product's name, with the suffix of shared GPUs", changes: []change{withOffers(sliced(4, false), "g6.12xlarge"), selectsToo("nvidia.com/gpu.product", "NVIDIA-L4")},
			want: "SelectorMismatch", message: "pool inf: the pod selects nvidia.com/gpu.product=NVIDIA-L4; a node on g6.12xlarge is labelled NVIDIA-L4-SHARED, and only once it runs, so that no node is ever launched for it"},
		{name: "the product's name, with the suffix of the one profile", changes: []change{withOffers(cut("Single"), "p5.48xlarge"), selectsToo("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")},
			want: "SelectorMismatch", message: "pool inf: the pod selects nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3; a node on p5.48xlarge is labelled NVIDIA-H100-80GB-HBM3-MIG-1g.10gb, and only once it runs, so that no node is ever launched for it"},
		{name: "an affinity that the pool does not meet", changes: []change{ofPod(requiring("gpufleet.dev/gpu-model", "A100-40GB"))},
			want: "SelectorMismatch", message: "pool inf: the pod selects its required node affinity (gpufleet.dev/gpu-model In A100-40GB) admits no node of the pool"},

		{name: "the machine that is nearest to what it asks for speaks", changes: []change{withOffers(exclusive(), "g6.xlarge", "p5.48xlarge"), asking("gpu 2"), selectsToo("topology.kubernetes.io/zone", "us-west-2a")},
			want: "SelectorMismatch", message: "pool inf: the pod selects topology.kubernetes.io/zone=us-west-2a, and its nodes have us-east-1a or us-east-1b"},
		{name: "the zone is right, and another label is not", changes: []change{selectsToo("topology.kubernetes.io/zone", "us-east-1b"), selectsToo("team", "vision")},
			want: "SelectorMismatch", message: "pool inf: the pod selects team=vision, a label that its nodes do not have"},
		{name: "the product's name, without the suffix where it is renamed", changes: []change{withOffers(sliced(4, true), "g6.12xlarge"), asking("nvidia.com/gpu.shared 1"), selectsToo("nvidia.com/gpu.product", "NVIDIA-L4-SHARED")},
			want: "SelectorMismatch", message: "pool inf: the pod selects nvidia.com/gpu.product=NVIDIA-L4-SHARED; a node on g6.12xlarge is labelled NVIDIA-L4, and only once it runs, so that no node is ever launched for it"},

		// NotTolerated.
		{name: "it tolerates no taint", changes: []change{tolerationsLeft(0)},
			want: "NotTolerated", message: "pool inf: the pod does not tolerate nvidia.com/gpu=present:NoSchedule and gpufleet.dev/workload=Inference:NoSchedule, 2 of the 2 taints of the pool's nodes"},
		{name: "it does not tolerate the workload", changes: []change{tolerationsLeft(1)},
			want: "NotTolerated", message: "pool inf: the pod does not tolerate gpufleet.dev/workload=Inference:NoSchedule, 1 of the 2 taints of the pool's nodes"},
		{name: "it tolerates another workload, on a full pool", changes: []change{ofPod(func(p *corev1.Pod) { p.Spec.Tolerations[1].Value = "Batch" }), fullPool()},
			want: "NotTolerated", message: "pool inf: the pod does not tolerate gpufleet.dev/workload=Inference:NoSchedule, 1 of the 2 taints of the pool's nodes", also: "LimitReached"},

		// PoolNotReady.
		{name: "the pool is not accepted", changes: []change{trouble("Accepted is False (InvalidLayout): no placement")}, want: "PoolNotReady", message: "pool inf: Accepted is False (InvalidLayout): no placement"},
		{name: "the pool has no offers at all", changes: []change{trouble("it is being deleted"), func(s *situation) { s.pool.Offers = nil }}, want: "PoolNotReady", message: "pool inf: it is being deleted"},
		{name: "the ledger has not counted", changes: []change{func(s *situation) { s.pool.Usage.Ready = false }},
			want: "PoolNotReady", message: "pool inf: its limits, claims and instances have not been counted since the controller started: nothing is launched before that"},
		{name: "it is being deleted, and the ledger has not counted", changes: []change{trouble("it is being deleted"), func(s *situation) { s.pool.Usage.Ready = false }},
			want: "PoolNotReady", message: "pool inf: it is being deleted", also: "PoolNotReady"},
		{name: "the cloud takes the launch for wrong", changes: []change{refusingBoth("LaunchRejected", "InvalidAMIID.NotFound: no such image")},
			want: "PoolNotReady", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1a until 12:03:00: InvalidAMIID.NotFound: no such image (no other of the 2 ways to buy it is open)"},
		{name: "in trouble, but a node has room", changes: []change{trouble("it is being deleted"), node("n1", fullNode, "gpu 7", 0)}, want: "expected"},

		// NotVerified.
		{name: "its node is not what was ordered", changes: []change{fullPool(), refusedNode("n1", "GPUCountMismatch: 8 expected, 7 found")},
			want: "NotVerified", message: "pool inf: node n1 is not what was ordered: GPUCountMismatch: 8 expected, 7 found", also: "LimitReached"},
		{name: "two such nodes", changes: []change{used(gpuLimit(16, 8), 2, 8), refusedNode("n1", "PartialLayout: 56 expected, 55 found"), refusedNode("n2", "x")},
			want: "NotVerified", message: "pool inf: 2 nodes are not what was ordered; the first, n1: PartialLayout: 56 expected, 55 found", also: "LimitReached"},
		{name: "a bad node that would have no room either", changes: []change{fullPool(), refusedNode("n1", "x"), func(s *situation) { s.pool.Places[0].Free = listed("gpu 0, cpu 192, pods 110") }},
			want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked"},
		{name: "a node that was good once, and another may be launched", changes: []change{refusedNode("n1", "x")}, want: "expected"},
		{name: "a node that never was good, which Karpenter waits for", changes: []change{refusedNode("n1", "x"), func(s *situation) { s.pool.Places[0].Awaited = true }},
			want: "NotVerified", message: "pool inf: node n1 is not what was ordered: x"},

		// Fragmented.
		{name: "C77: 2 free on each of 4 nodes, 8 asked", changes: []change{asking("gpu 8"), used(gpuLimit(32, 8), 4, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 6", 0), node("n3", fullNode, "gpu 6", 0), node("n4", fullNode, "gpu 6", 0)},
			want: "Fragmented", message: "pool inf: the pod needs nvidia.com/gpu: 8 on one node; 8 are free in total, and 2 on the node that has the most", also: "LimitReached"},
		{name: "C77: with room in the limit a node is launched instead", changes: []change{asking("gpu 8"), used(gpuLimit(40, 8), 4, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 6", 0), node("n3", fullNode, "gpu 6", 0), node("n4", fullNode, "gpu 6", 0)}, want: "expected"},
		{name: "GPUs are free, and the CPUs beside them are not", changes: []change{asking("gpu 1, cpu 8"), fullPool(), node("n1", fullNode, "gpu 4, cpu 188", 0)},
			want: "Fragmented", message: "pool inf: node n1 has nvidia.com/gpu: 4 free, and of cpu only 4 of the 8 that the pod needs", also: "LimitReached"},
		{name: "not enough in total is not fragmented", changes: []change{asking("gpu 8"), used(gpuLimit(16, 8), 2, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 6", 0)},
			want: "LimitReached", message: "pool inf: limit gpus 16 is reached: 16 in use, 8 asked"},
		{name: "what is on its way is not free yet", changes: []change{asking("gpu 8"), used(gpuLimit(16, 8), 2, 8), coming("c1", "gpu 4, pods 110"), coming("c2", "gpu 4, pods 110")},
			want: "LimitReached", message: "pool inf: limit gpus 16 is reached: 16 in use, 8 asked"},
		{name: "free on nodes that the pod does not select", changes: []change{asking("gpu 4"), used(gpuLimit(16, 8), 2, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 6", 0), selectsToo("topology.kubernetes.io/zone", "us-east-1b")},
			want: "LimitReached", message: "pool inf: limit gpus 16 is reached: 16 in use, 8 asked"},
		{name: "scattered, and the cloud has none", changes: []change{asking("gpu 4"), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 6", 0), refusingBoth("NoCapacity", shortageWords)},
			want: "Fragmented", message: "pool inf: the pod needs nvidia.com/gpu: 4 on one node; 4 are free in total, and 2 on the node that has the most", also: "NoCapacity"},

		// BudgetReached.
		{name: "a budget", changes: []change{budget(ml)}, want: "BudgetReached", message: "pool inf: budget ml is reached: $42.10/h of $60.00/h used, until 2026-11-30T00:00:00Z"},
		{name: "a budget that admits the smaller machine", changes: []change{withOffers(exclusive(), "p5.48xlarge", "g6.xlarge"), budget(ml)}, want: "expected"},
		{name: "a budget and a limit", changes: []change{budget(ml), fullPool()}, want: "BudgetReached", message: "pool inf: budget ml is reached: $42.10/h of $60.00/h used, until 2026-11-30T00:00:00Z", also: "LimitReached"},

		// LimitReached.
		{name: "the limit of GPUs", changes: []change{fullPool()}, want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked"},
		{name: "the limit of nodes", changes: []change{used(nodeLimit(3), 3, 8)}, want: "LimitReached", message: "pool inf: limit nodes 3 is reached: 3 in use, 1 asked"},
		{name: "the limit of dollars", changes: []change{used(dollars(60*ledger.Dollar, 56*ledger.Dollar), 1, 8)}, want: "LimitReached", message: "pool inf: limit hourlyCost $60.00/h would be passed: $8.00/h in use, $55.04/h asked"},
		{name: "the smallest machine speaks", changes: []change{withOffers(exclusive(), "p5.48xlarge", "g6.xlarge"), fullPool()}, want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 1 asked"},
		{name: "the small machine would fit the limit and not the pod", changes: []change{withOffers(exclusive(), "g6.xlarge", "p5.48xlarge"), asking("gpu 2"), used(gpuLimit(8, 8), 4, 1)}, want: "LimitReached", message: "pool inf: limit gpus 8 would be passed: 4 in use, 8 asked"},
		{name: "a limit of nothing", changes: []change{used(gpuLimit(0, 8), 0, 0)}, want: "LimitReached", message: "pool inf: limit gpus 0 is reached: 0 in use, 8 asked"},
		{name: "a limit and a shortage", changes: []change{fullPool(), refusingBoth("NoCapacity", shortageWords)}, want: "LimitReached", message: "pool inf: limit gpus 8 is reached: 8 in use, 8 asked", also: "NoCapacity"},

		// ReservationUnavailable, QuotaExceeded, NoCapacity.
		{name: "the reservation is full", changes: []change{refusingBoth("ReservationUnavailable", "ReservationCapacityExceeded: 0 left")},
			want: "ReservationUnavailable", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1a until 12:03:00: ReservationCapacityExceeded: 0 left (no other of the 2 ways to buy it is open)"},
		{name: "the reservation is full and the quota too", changes: []change{refusing("ReservationUnavailable", "us-east-1a", "full"), refusing("QuotaExceeded", "us-east-1b", quotaWords)},
			want: "ReservationUnavailable", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1a until 12:03:00: full (no other of the 2 ways to buy it is open)", also: "QuotaExceeded"},
		{name: "C05: the quota", changes: []change{refusingBoth("QuotaExceeded", quotaWords)},
			want: "QuotaExceeded", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1a until 12:03:00: VcpuLimitExceeded: the limit is 192 vCPUs (no other of the 2 ways to buy it is open)"},
		{name: "the quota here and a shortage there", changes: []change{refusing("QuotaExceeded", "us-east-1b", quotaWords), refusing("NoCapacity", "us-east-1a", shortageWords)},
			want: "QuotaExceeded", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1b until 12:03:00: VcpuLimitExceeded: the limit is 192 vCPUs (no other of the 2 ways to buy it is open)", also: "NoCapacity"},
		{name: "a shortage in both zones", changes: []change{refusingBoth("NoCapacity", shortageWords)},
			want: "NoCapacity", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1a until 12:03:00: InsufficientInstanceCapacity: none left (no other of the 2 ways to buy it is open)"},
		{name: "a shortage in the one zone that it selects", changes: []change{refusing("NoCapacity", "us-east-1b", shortageWords), selectsToo("topology.kubernetes.io/zone", "us-east-1b")},
			want: "NoCapacity", message: "pool inf: the cloud refuses p5.48xlarge on-demand in us-east-1b until 12:03:00: InsufficientInstanceCapacity: none left"},

		{name: "spot is short, and on demand is not", changes: []change{onSpotToo(), func(s *situation) {
			for _, zone := range []string{"us-east-1a", "us-east-1b"} {
				s.pool.Blocked = append(s.pool.Blocked, Blocked{InstanceType: "p5.48xlarge", Zone: zone, CapacityType: "spot", Reason: "NoCapacity", Until: noon.Add(time.Minute)})
			}
		}}, want: "expected"},

		// Other: nothing that is known.
		{name: "a node has room, and the scheduler does not see it", changes: []change{node("n1", fullNode, "gpu 7", 0), waitingFor(6 * time.Minute)},
			want: "Other", message: "pool inf: node n1 has room for the pod, for longer than 5m0s; the scheduler says: 0/3 nodes are available"},
	})
}

// makers make each reason hold by itself; Other is of what is left when none does.
var makers = map[string]change{
	v1alpha1.HoldGated: gate(kueue),
	v1alpha1.HoldNotAllowed: func(s *situation) {
		templated("gpu.nvidia.com", 1)(s)
		quota("default", "objects", "count/resourceclaims.resource.k8s.io", "1", "1")(s)
	},
	v1alpha1.HoldNameMismatch:      func(s *situation) { s.add("amd.com/gpu", "1") },
	v1alpha1.HoldProfileNotOffered: func(s *situation) { s.add("cpu", "193") },
	v1alpha1.HoldDRAUnsupported: func(s *situation) {
		deviceClass("gpu.nvidia.com")(s)
		if len(s.pod.Spec.ResourceClaims) == 0 {
			claiming("gpu.nvidia.com", 1)(s)
		}
	},
	v1alpha1.HoldSelectorMismatch: selectsToo("topology.kubernetes.io/zone", "us-west-2a"),
	v1alpha1.HoldNotTolerated:     tolerationsLeft(1),
	v1alpha1.HoldPoolNotReady:     trouble("it is being deleted"),
	v1alpha1.HoldNotVerified: func(s *situation) {
		fullPool()(s)
		refusedNode("bad", "x")(s)
		s.pool.Places[len(s.pool.Places)-1].Taints = nil
	},
	v1alpha1.HoldFragmented: func(s *situation) {
		s.add("nvidia.com/gpu", "4")
		if s.pool.Usage.Limits.GPUs == nil {
			used(gpuLimit(16, 8), 2, 8)(s)
		}
		node("n1", fullNode, "gpu 6", 0)(s)
		node("n2", fullNode, "gpu 6", 0)(s)
	},
	v1alpha1.HoldBudgetReached:          budget(ml),
	v1alpha1.HoldLimitReached:           fullPool(),
	v1alpha1.HoldReservationUnavailable: refusingToo("ReservationUnavailable", "full"),
	v1alpha1.HoldQuotaExceeded:          refusingToo("QuotaExceeded", quotaWords),
	v1alpha1.HoldNoCapacity:             refusingToo("NoCapacity", shortageWords),
}

// refusingToo refuses both zones, or the second where the first is refused for another reason.
func refusingToo(reason, message string) change {
	return func(s *situation) {
		if len(s.pool.Blocked) > 0 {
			s.pool.Blocked = s.pool.Blocked[:1]
			refusing(reason, "us-east-1b", message)(s)
			return
		}
		refusingBoth(reason, message)(s)
	}
}

// add makes the pod ask for something more.
func (s *situation) add(name, quantity string) {
	for resource, asked := range listed(name + " " + quantity) {
		s.pod.Spec.Containers[0].Resources.Requests[resource] = asked
	}
}

// Of any two reasons that hold a pod together, the one that comes first in the list is the pod's.
func TestDecide_OfTwoReasonsTheFirstInPrecedenceIsThePods(t *testing.T) {
	pairs := 0
	for i, first := range v1alpha1.HoldReasons {
		for _, second := range v1alpha1.HoldReasons[i+1:] {
			one, two := makers[first.Name], makers[second.Name]
			if one == nil || two == nil {
				continue
			}
			pairs++
			t.Run(first.Name+" before "+second.Name, func(t *testing.T) {
				for order, changes := range map[string][]change{"one": {one, two}, "other": {two, one}} {
					v := newSituation(t, changes...).verdict(t)
					if v.Reason() != first.Name {
						t.Errorf("in the %s order the reason is %q (%v), want %s", order, v.Reason(), reasons(v), first.Name)
					}
				}
			})
		}
	}
	if pairs != 15*14/2 {
		t.Errorf("%d pairs were tried, want all of 15 reasons", pairs)
	}
	for name, only := range makers {
		v := newSituation(t, only).verdict(t)
		if v.Reason() != name {
			t.Errorf("%s alone gives %q", name, v.Reason())
		}
	}
}

func reasons(v Verdict) []string {
	var names []string
	for _, cause := range v.Causes {
		names = append(names, cause.Reason)
	}
	return names
}

// Every reason of the closed list is made by a row of this file, and Other by one.
func TestDecide_MakesEveryReason(t *testing.T) {
	for _, reason := range v1alpha1.HoldReasons {
		if makers[reason.Name] == nil && reason.Name != v1alpha1.HoldOther {
			t.Errorf("nothing makes %s", reason.Name)
		}
	}
}

// The pod of 6 on n1 fits n2 beside the 2 there, and the pod of 2 on n2 fits n1: one move either way, so the first node's.
func TestDecide_PlansTheFewestMovesForAPodThatFragmentationHolds(t *testing.T) {
	changes := []change{asking("gpu 8"), used(gpuLimit(16, 8), 2, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 2", 0)}
	v := newSituation(t, changes...).verdict(t)
	if v.Reason() != v1alpha1.HoldFragmented || v.Causes[0].Moves == nil || len(v.Causes[0].Moves.Moves) != 1 {
		t.Fatalf("verdict is %+v, want Fragmented with one move", v)
	}
	if want := "move 1 pod off node n1 (kubectl gpufleet explain pod shows which), or raise the limit that keeps the pool from launching a node"; v.Causes[0].Remedy != want {
		t.Errorf("remedy is %q, want %q", v.Causes[0].Remedy, want)
	}
	batch := newSituation(t, append(changes, func(s *situation) { s.pool.Workload = v1alpha1.WorkloadBatch })...).verdict(t)
	if batch.Causes[0].Moves != nil {
		t.Errorf("a running job would lose its work: %+v", batch.Causes[0].Moves)
	}
}

// Pods of one owner share a plan, and a pass looks for a few only.
func TestDecide_LooksForFewPlans(t *testing.T) {
	s := newSituation(t, used(gpuLimit(16, 8), 2, 8), node("n1", fullNode, "gpu 6", 0), node("n2", fullNode, "gpu 2", 0))
	var pods []*corev1.Pod
	owner := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true)}}
		}
	}
	for i := range 10 {
		pods = append(pods, waiter(fmt.Sprintf("a-%d", i), "gpu 8", owner("one")), waiter(fmt.Sprintf("b-%d", i), "gpu 8", owner(fmt.Sprint(i))))
	}
	planned := map[string]int{}
	for _, v := range Decide(s.cluster, s.pool, pods) {
		if v.Reason() == v1alpha1.HoldFragmented && v.Causes[0].Moves != nil {
			planned[v.Pod.OwnerReferences[0].Name]++
		}
	}
	if len(planned) != maxPlans || planned["one"] != 10 {
		t.Errorf("plans are %v, want 10 of the first owner and %d owners", planned, maxPlans)
	}
}

// Karpenter counts on a node that never was verified for as many pods as it was to take, and launches for the others.
func TestDecide_LaunchesForThePodsThatABadNodeWasNotToTake(t *testing.T) {
	s := newSituation(t, refusedNode("n1", "x"), func(s *situation) { s.pool.Places[0].Awaited = true })
	verdicts := Decide(s.cluster, s.pool, []*corev1.Pod{waiter("a", "gpu 6"), waiter("b", "gpu 6")})
	if verdicts[0].Reason() != v1alpha1.HoldNotVerified || !verdicts[1].Expected {
		t.Errorf("verdicts are %+v, want the first NotVerified and the second expected", verdicts)
	}
}

func TestDecide_TakesPodsInTheSchedulersOrder(t *testing.T) {
	older := waiter("z-older", "gpu 1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) })
	urgent := waiter("y-urgent", "gpu 1", func(p *corev1.Pod) { p.Spec.Priority = new(int32(300_000)) })
	plain := waiter("a-plain", "gpu 1")
	for left, want := range []string{"", "y-urgent", "y-urgent z-older"} {
		s := newSituation(t, fullPool())
		s.pool.Places = []*Place{{State: Verified, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gpufleet.dev/pool": "inf"}}}, Free: corev1.ResourceList{wholeGPU: *quantityOf(int64(left))}}}
		var got []string
		for _, v := range Decide(s.cluster, s.pool, []*corev1.Pod{plain, older, urgent}) {
			if v.Expected {
				got = append(got, v.Pod.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d GPUs left go to %q, want %q", left, got, want)
		}
	}
}
