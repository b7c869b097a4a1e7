package diagnose

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemon makes a pod one of a DaemonSet, for a node.
func daemon(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}}
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}
	}
}

// daemonOn is the pod as one of a DaemonSet, for a node.
func daemonOn(node string) change { return ofPod(daemon(node)) }

// ofType labels the last node with its instance type.
func ofType(instanceType string) change {
	return func(s *situation) {
		s.pool.Places[len(s.pool.Places)-1].Node.Labels["node.kubernetes.io/instance-type"] = instanceType
	}
}

// What a DaemonSet's pod asks for is on the one node that it is for, or nowhere: limits, quotas and other nodes do not matter.
func TestDecide_APodOfADaemonSetIsForOneNode(t *testing.T) {
	const message = "pool inf: the pod of a DaemonSet needs nvidia.com/gpu: 1 on node n1, which has 0 of 8 free"
	const remedy = "lower what the DaemonSet asks for, or free node n1: no machine is launched for a pod of a DaemonSet"
	decideRows(t, []row{
		{name: "the node has room", changes: []change{daemonOn("n1"), fullPool(), node("n1", fullNode, "gpu 7", 0)}, want: "expected"},
		{name: "the node is full, and so is the pool", changes: []change{daemonOn("n1"), fullPool(), node("n1", fullNode, "gpu 8", 0)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the node is full, and a machine could be launched", changes: []change{daemonOn("n1"), node("n1", fullNode, "gpu 8", 0)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the node is full, and another has room", changes: []change{daemonOn("n1"), node("n1", fullNode, "gpu 8", 0), node("n2", fullNode, "cpu 1", 0)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the node is full, and a machine is on its way", changes: []change{daemonOn("n1"), node("n1", fullNode, "gpu 8", 0), asked("c1", "i-0abc", time.Minute)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the node is full, and the cloud has none", changes: []change{daemonOn("n1"), node("n1", fullNode, "gpu 8", 0), refusingBoth("NoCapacity", shortageWords)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the node is full, and the quota too", changes: []change{daemonOn("n1"), node("n1", fullNode, "gpu 8", 0), refusingBoth("QuotaExceeded", quotaWords)}, want: "Fragmented", message: message, remedy: remedy},
		{name: "the CPUs are short", changes: []change{daemonOn("n1"), asking("gpu 1, cpu 8"), node("n1", fullNode, "gpu 4, cpu 188", 0)},
			want: "Fragmented", message: "pool inf: the pod of a DaemonSet needs cpu: 8 on node n1, which has 4 of 192 free", remedy: remedy},
		{name: "the node is not what was ordered", changes: []change{daemonOn("n1"), fullPool(), refusedNode("n1", "GPUCountMismatch: 8 expected, 7 found"), refusedNode("n2", "y")},
			want: "NotVerified", message: "pool inf: node n1 is not what was ordered: GPUCountMismatch: 8 expected, 7 found"},
		{name: "it asks by another name than its node offers", changes: []change{daemonOn("n1"), withOffers(cut("Mixed"), "p5.48xlarge"), node("n1", "nvidia.com/mig-1g.10gb 56, cpu 192, pods 110", "cpu 1", 0), ofType("p5.48xlarge")},
			want: "NameMismatch", message: "pool inf: the pod asks for nvidia.com/gpu: 1, and nodes on p5.48xlarge offer nvidia.com/mig-1g.10gb: 56: its GPUs are cut by layout h100-7x1g10gb"},
		{name: "it does not tolerate its node's taints", changes: []change{daemonOn("n1"), tolerationsLeft(1), node("n1", fullNode, "gpu 7", 0), func(s *situation) { s.pool.Places[0].Taints = s.pool.Offers[0].Blueprint.Taints }},
			want: "NotTolerated", message: "pool inf: the pod does not tolerate gpufleet.dev/workload=Inference:NoSchedule, 1 of the 2 taints of the pool's nodes"},
		{name: "a gate, and its node has room", changes: []change{daemonOn("n1"), gate(kueue), node("n1", fullNode, "gpu 7", 0)},
			want: "Gated", message: "pool inf: the scheduling gate kueue.x-k8s.io/admission holds the pod back"},
		{name: "it and a pod of its node repel each other", changes: []change{ofPod(alone("web")), daemonOn("n1"), node("n1", fullNode, "cpu 1", 0), func(s *situation) { alone("web")(s.pool.Places[0].Pods[0]) }},
			want: "Other", message: "pool inf: node n1, which the pod of a DaemonSet is for, has room for it and does not take it"},
		{name: "others of its node are evicted for it", changes: []change{daemonOn("n1"), keptFor("n1"), node("n1", fullNode, "cpu 1", 0), leaving("gpu 8"), waitingFor(time.Hour)}, want: "expected"},
	})
}

func TestPinnedTo_IsTheNodeOfADaemonSetsPodOnly(t *testing.T) {
	if got := PinnedTo(waiter("pod", "gpu 1", daemon("n1"))); got != "n1" {
		t.Errorf("of a DaemonSet: %q, want n1", got)
	}
	bare := waiter("pod", "gpu 1", daemon("n1"), func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })
	if got := PinnedTo(bare); got != "" {
		t.Errorf("of a ReplicaSet: %q, want none", got)
	}
}
