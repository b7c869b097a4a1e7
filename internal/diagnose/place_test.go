package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestDecide_CountsInitContainersAndSidecarsAsTheSchedulerDoes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	s := newSituation(t, fullPool(), node("n1", "gpu 1, cpu 192, pods 110", "cpu 1", 0), ofPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: listed("gpu 1")}}}
	}))
	if got := s.verdict(t).Reason(); got != v1alpha1.HoldLimitReached {
		t.Errorf("a pod of 1 GPU with a sidecar of 1 has reason %q on a node with 1 left, want LimitReached", got)
	}
}

func TestPlace_RequiredAntiAffinityByHostKeepsPodsApart(t *testing.T) {
	term := func(change func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "web"}
			required := corev1.PodAffinityTerm{
				TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}
			change(&required)
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{required}}}
		}
	}
	web := func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "web"} }
	elsewhere := func(pod *corev1.Pod) { web(pod); pod.Namespace = "elsewhere" }
	same := func(*corev1.PodAffinityTerm) {}
	for name, tc := range map[string]struct {
		pod, there func(*corev1.Pod)
		want       bool
	}{
		"it avoids the other":             {term(same), web, true},
		"the other avoids it":             {web, term(same), true},
		"neither":                         {web, web, false},
		"the other has other labels":      {term(same), func(*corev1.Pod) {}, false},
		"in another namespace":            {term(same), elsewhere, false},
		"in a namespace that it names":    {term(func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"elsewhere"} }), elsewhere, true},
		"in one that it does not name":    {term(func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"third"} }), web, false},
		"in any namespace":                {term(func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }), elsewhere, true},
		"by zone, which no host decides":  {term(func(t *corev1.PodAffinityTerm) { t.TopologyKey = "topology.kubernetes.io/zone" }), web, false},
		"by a selector that is not given": {term(func(t *corev1.PodAffinityTerm) { t.LabelSelector = nil }), web, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Place{Pods: []*corev1.Pod{waiter("there", "", tc.there)}}
			if got := p.repels(waiter("pod", "", tc.pod)); got != tc.want {
				t.Errorf("repels: %t, want %t", got, tc.want)
			}
		})
	}
}

// Pods that are put on a place count there: two that avoid each other do not both fit one empty node.
func TestDecide_CountsThePodsThatItExpectsOnAPlace(t *testing.T) {
	s := newSituation(t, fullPool(), node("n1", "gpu 8, cpu 192, pods 110", "cpu 1", 0))
	verdicts := Decide(s.cluster, s.pool, []*corev1.Pod{waiter("a", "gpu 1", alone("web")), waiter("b", "gpu 1", alone("web"))})
	if !verdicts[0].Expected || verdicts[1].Reason() != v1alpha1.HoldLimitReached {
		t.Errorf("verdicts are %+v, want the first expected and the second held by the limit", verdicts)
	}
}

func TestDecide_LooksOnlyAtPodsThatWaitForGPUs(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"it runs":               func(p *corev1.Pod) { p.Spec.NodeName = "n1" },
		"it has ended":          func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"it is on its way out":  func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} },
		"nobody has looked yet": func(p *corev1.Pod) { p.Status.Conditions = nil },
		"it asks for no GPU":    func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = listed("cpu 1") },
		"it is of a DaemonSet and for a node of others": func(p *corev1.Pod) { daemon("elsewhere")(p) },
		"it asks for 0 GPUs":                            func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = listed("gpu 0") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSituation(t, fullPool(), ofPod(change))
			if verdicts := Decide(s.cluster, s.pool, []*corev1.Pod{s.pod}); len(verdicts) > 0 {
				t.Errorf("verdicts are %+v, want none", verdicts)
			}
		})
	}
}

// The scheduler says nothing of a pod whose claim is not made.
func TestWaits_APodWhoseClaimIsNotMade(t *testing.T) {
	s := newSituation(t, templated("gpu.nvidia.com", 1), ofPod(func(p *corev1.Pod) { p.Status.Conditions = nil }))
	if !Waits(s.pod) {
		t.Error("it does not wait without a claim")
	}
	s.pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("made")}}
	if Waits(s.pod) {
		t.Error("it waits with its claim, and nobody has looked yet")
	}
}

// 7 slices are one GPU, 60 of a machine that cuts 8 into 56 are nine; a machine has all of its resources at once.
func TestOffer_ShareIsThePhysicalGPUsBehindAnAmount(t *testing.T) {
	mixed := Offer{}
	mixed.Blueprint.GPU.Count, mixed.Blueprint.Resources = 8, listed("nvidia.com/mig-1g.10gb 32, nvidia.com/mig-3g.40gb 8")
	for name, tc := range map[string]struct {
		offer  Offer
		amount string
		want   int64
	}{
		"8 whole GPUs":                    {offerOf(t, exclusive(), "p5.48xlarge"), "gpu 8", 8},
		"7 slices":                        {offerOf(t, cut("Mixed"), "p5.48xlarge"), "nvidia.com/mig-1g.10gb 7", 1},
		"8 slices":                        {offerOf(t, cut("Mixed"), "p5.48xlarge"), "nvidia.com/mig-1g.10gb 8", 2},
		"60 slices":                       {offerOf(t, cut("Mixed"), "p5.48xlarge"), "nvidia.com/mig-1g.10gb 60", 9},
		"4 shares of 4":                   {offerOf(t, sliced(4, true), "g6.12xlarge"), "nvidia.com/gpu.shared 4", 1},
		"6 shares of 4":                   {offerOf(t, sliced(4, true), "g6.12xlarge"), "nvidia.com/gpu.shared 6", 2},
		"the scarcest of two":             {mixed, "nvidia.com/mig-1g.10gb 8, nvidia.com/mig-3g.40gb 6", 6},
		"what the machine does not offer": {mixed, "nvidia.com/gpu 8", 0},
	} {
		if got := tc.offer.Share(listed(tc.amount)); got != tc.want {
			t.Errorf("%s: %d GPUs, want %d", name, got, tc.want)
		}
	}
}

func TestJoined_ANodeIsAsFarAsItsVerdict(t *testing.T) {
	offers := []Offer{offerOf(t, exclusive(), "p5.48xlarge")}
	claim := Claim{Name: "claim", Types: []string{"p5.48xlarge"}, ProviderID: "aws:///us-east-1a/i-1"}
	tainted := func(keys ...string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "i-1"}, Status: corev1.NodeStatus{Allocatable: listed("gpu 7")}}
		for _, key := range keys {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return node
	}
	judged := func(status metav1.ConditionStatus) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionVerified, Status: status, Reason: "GPUCountMismatch", Message: "8 expected, 7 found"},
		}}}
	}
	for name, tc := range map[string]struct {
		node    *corev1.Node
		gpuNode *v1alpha1.GPUNode
		state   State
		finding string
		free    int64
		taints  int
	}{
		"not judged":           {tainted("gpufleet.dev/unverified"), nil, Coming, "", 8, 0},
		"being looked at":      {tainted("gpufleet.dev/unverified", "karpenter.sh/unregistered"), judged("Unknown"), Coming, "", 8, 0},
		"not what was ordered": {tainted("gpufleet.dev/unverified"), judged("False"), Refused, "GPUCountMismatch: 8 expected, 7 found", 8, 0},
		"verified":             {tainted("team"), judged("True"), Verified, "", 7, 1},
	} {
		p := Joined(claim, tc.node, tc.gpuNode, nil, offers)
		if p.State != tc.state || p.Finding != tc.finding || p.Awaited != (tc.state == Refused) || quantity(p.Free, wholeGPU) != tc.free || len(p.Taints) != tc.taints {
			t.Errorf("%s: state %d, finding %q, %d GPUs, taints %v", name, p.State, p.Finding, quantity(p.Free, wholeGPU), p.Taints)
		}
	}
}
