package holds

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// newSeen is a pool with some offers and pods, and a ledger's answer.
func newSeen(t testing.TB, class *nodeclass.Object, usage ledger.Usage, waiting []*corev1.Pod, instanceTypes ...string) seen {
	t.Helper()
	_, layout := mig()
	inputs := fleet.Pool{
		Pool: newPool("inf", class.Name, instanceTypes...), Class: class, Layouts: map[string]*v1alpha1.MIGLayout{layout.Name: layout},
	}
	s := seen{usage: usage, pods: waiting}
	for _, instanceType := range inputs.InstanceTypes() {
		bp, err := inputs.Blueprint(instanceType)
		if err != nil {
			t.Fatal(err)
		}
		s.offers = append(s.offers, newOffer(inputs, bp))
	}
	return s
}

// used is a pool of so many nodes of so many GPUs, limited.
func used(limits ledger.Limits, nodes, gpusEach int64) ledger.Usage {
	totals := ledger.Totals{Amounts: ledger.Amounts{GPUs: nodes * gpusEach, Nodes: nodes}}
	return ledger.Usage{Pool: "inf", Ready: true, Limits: limits, Steady: totals, Outstanding: totals}
}

func several(n int, requests corev1.ResourceList, change ...func(*corev1.Pod)) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = newPod(fmt.Sprintf("pod-%03d", i), "inf", requests, change...)
	}
	return out
}

// Outcomes of a pod.
const (
	isHeld     = "held"
	isExpected = "expected"
	isOther    = "something else holds it"
	isIgnored  = "ignored"
)

func outcome(verdicts []verdict) string {
	switch {
	case len(verdicts) == 0:
		return isIgnored
	case verdicts[0].refusal != nil:
		return isHeld
	case verdicts[0].expected:
		return isExpected
	}
	return isOther
}

func TestDecide_HoldsThePodsThatALimitHoldsAndNoOther(t *testing.T) {
	eight := gpus(8)
	for name, tc := range map[string]struct {
		limits        ledger.Limits
		nodes, each   int64
		instanceTypes []string
		pod           func(*corev1.Pod)
		requests      corev1.ResourceList
		want          string
	}{
		"the pool is full":                              {limits: eight, nodes: 1, each: 8, want: isHeld},
		"the ledger admits a machine":                   {limits: gpus(16), nodes: 1, each: 8, want: isExpected},
		"the pool is not limited":                       {nodes: 1, each: 8, want: isExpected},
		"the limit admits nothing":                      {limits: gpus(0), want: isHeld},
		"the ledger admits the small machine only":      {limits: eight, nodes: 4, each: 1, instanceTypes: []string{"p5.48xlarge", "g6.xlarge"}, want: isExpected},
		"the small machine that it admits is too small": {limits: eight, nodes: 4, each: 1, instanceTypes: []string{"g6.xlarge", "p5.48xlarge"}, requests: list(gpu, 2), want: isHeld},
		"no machine is large enough":                    {limits: eight, nodes: 1, each: 8, requests: list(gpu, 9), want: isOther},
		"no machine has so many CPUs":                   {limits: eight, nodes: 1, each: 8, requests: list(gpu, 1, "cpu", 193), want: isOther},
		"all CPUs of a machine":                         {limits: eight, nodes: 1, each: 8, requests: list(gpu, 1, "cpu", 192), want: isHeld},
		"no machine has so much memory":                 {limits: eight, nodes: 1, each: 8, requests: list(gpu, 1, "memory", "2049Gi"), want: isOther},
		"another resource too, which no machine has":    {limits: eight, nodes: 1, each: 8, requests: list(gpu, 1, "vpc.amazonaws.com/efa", 1), want: isOther},
		"a resource that the pool does not offer":       {limits: eight, nodes: 1, each: 8, requests: list(slice, 1), want: isIgnored},
		"no GPU":                                          {limits: eight, nodes: 1, each: 8, requests: list("cpu", 1), want: isIgnored},
		"a quantity of 0":                                 {limits: eight, nodes: 1, each: 8, requests: list(gpu, 0), want: isIgnored},
		"it does not tolerate the pool's taints":          {limits: eight, nodes: 1, each: 8, pod: func(p *corev1.Pod) { p.Spec.Tolerations = p.Spec.Tolerations[:1] }, want: isIgnored},
		"it tolerates everything":                         {limits: eight, nodes: 1, each: 8, pod: func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, want: isHeld},
		"a zone that the pool has":                        {limits: eight, nodes: 1, each: 8, pod: selects(corev1.LabelTopologyZone, "us-east-1b"), want: isHeld},
		"a zone that the pool does not have":              {limits: eight, nodes: 1, each: 8, pod: selects(corev1.LabelTopologyZone, "us-west-2a"), want: isOther},
		"a model that the pool does not have":             {limits: eight, nodes: 1, each: 8, pod: selects("gpufleet.dev/gpu-model", "A100-40GB"), want: isOther},
		"a capacity type that the pool does not have":     {limits: eight, nodes: 1, each: 8, pod: selects("karpenter.sh/capacity-type", "spot"), want: isOther},
		"an instance type, which is refused":              {limits: eight, nodes: 4, each: 1, instanceTypes: []string{"g6.xlarge", "p5.48xlarge"}, pod: selects("node.kubernetes.io/instance-type", "p5.48xlarge"), want: isHeld},
		"an architecture that the pool does not have":     {limits: eight, nodes: 1, each: 8, pod: selects("kubernetes.io/arch", "arm64"), want: isOther},
		"a node selector beside a required affinity":      {limits: eight, nodes: 1, each: 8, pod: requires("gpufleet.dev/gpu-model", "H100-80GB-SXM"), want: isHeld},
		"a required affinity that no machine of it meets": {limits: eight, nodes: 1, each: 8, pod: requires("gpufleet.dev/gpu-model", "A100-40GB"), want: isOther},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.requests == nil {
				tc.requests = list(gpu, 1)
			}
			if tc.instanceTypes == nil {
				tc.instanceTypes = []string{"p5.48xlarge"}
			}
			pod := newPod("pod", "inf", tc.requests)
			if tc.pod != nil {
				tc.pod(pod)
			}
			if got := outcome(decide(newSeen(t, whole(), used(tc.limits, tc.nodes, tc.each), []*corev1.Pod{pod}, tc.instanceTypes...))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func selects(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector[key] = value }
}

func requires(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}},
		}}}
	}
}

func TestDecide_ALedgerThatIsNotReadyHoldsNothing(t *testing.T) {
	usage := used(gpus(8), 1, 8)
	usage.Ready = false
	if got := outcome(decide(newSeen(t, whole(), usage, several(1, list(gpu, 1)), "p5.48xlarge"))); got != isOther {
		t.Errorf("%s, want %s", got, isOther)
	}
}

func TestDecide_NamesTheRefusalOfTheSmallestMachineThatWouldServe(t *testing.T) {
	for name, tc := range map[string]struct {
		requests corev1.ResourceList
		asked    int64
	}{
		"one GPU":   {list(gpu, 1), 1},
		"two GPUs":  {list(gpu, 2), 4},
		"five GPUs": {list(gpu, 5), 8},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := decide(newSeen(t, whole(), used(gpus(8), 1, 8), several(1, tc.requests), "p5.48xlarge", "g6.12xlarge", "g6.xlarge"))
			if got := verdicts[0].refusal.Asked; got != tc.asked {
				t.Errorf("asks for %d GPUs, want %d", got, tc.asked)
			}
		})
	}
}

func TestDecide_GivesWhatIsLeftToThePodThatTheSchedulerTakesFirst(t *testing.T) {
	older := newPod("z-older", "inf", list(gpu, 1), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(began.Add(-time.Hour)) })
	urgent := newPod("y-urgent", "inf", list(gpu, 1), func(p *corev1.Pod) { p.Spec.Priority = new(int32(300_000)) })
	plain := newPod("a-plain", "inf", list(gpu, 1))
	for left, want := range []string{"", "y-urgent", "y-urgent z-older"} {
		s := newSeen(t, whole(), used(gpus(8), 1, 8), []*corev1.Pod{plain, older, urgent}, "p5.48xlarge")
		s.places = []*place{{free: list(gpu, left)}}
		got := ""
		for _, each := range decide(s) {
			if each.expected {
				if got != "" {
					got += " "
				}
				got += each.pod.Name
			}
		}
		if got != want {
			t.Errorf("%d GPUs left go to %q, want %q", left, got, want)
		}
	}
}

func TestDecide_CountsInitContainersAndSidecarsAsTheSchedulerDoes(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := newPod("sidecar", "inf", list(gpu, 1), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list(gpu, 1)}}}
	})
	s := newSeen(t, whole(), used(gpus(8), 1, 8), []*corev1.Pod{sidecar}, "p5.48xlarge")
	s.places = []*place{{free: list(gpu, 1)}}
	if got := outcome(decide(s)); got != isHeld {
		t.Errorf("a pod of 1 GPU with a sidecar of 1 is %s on a node with 1 left, want %s", got, isHeld)
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
			p := &place{pods: []*corev1.Pod{newPod("there", "inf", nil, tc.there)}}
			if got := p.repels(newPod("pod", "inf", nil, tc.pod)); got != tc.want {
				t.Errorf("repels: %t, want %t", got, tc.want)
			}
		})
	}
}

// Pods that are put on a place count there: two that avoid each other do not both fit one empty node.
func TestDecide_CountsThePodsThatItExpectsOnAPlace(t *testing.T) {
	apart := func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": "web"}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}}}
	}
	s := newSeen(t, whole(), used(gpus(8), 1, 8), several(2, list(gpu, 1), apart), "p5.48xlarge")
	s.places = []*place{{free: list(gpu, 8)}}
	verdicts := decide(s)
	if !verdicts[0].expected || verdicts[1].refusal == nil {
		t.Errorf("verdicts are %+v, want the first expected and the second held", verdicts)
	}
}

func TestSummarize_CountsPhysicalGPUsByShare(t *testing.T) {
	migClass, _ := mig()
	sliced := newClass("sliced", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4)), RenameByDefault: true})
	for name, tc := range map[string]struct {
		class    *nodeclass.Object
		kind     string
		pods     int
		requests corev1.ResourceList
		want     int64
	}{
		"8 whole GPUs":                          {whole(), "p5.48xlarge", 8, list(gpu, 1), 8},
		"3 pods of 2 GPUs":                      {whole(), "p5.48xlarge", 3, list(gpu, 2), 6},
		"7 slices are one GPU":                  {migClass, "p5.48xlarge", 7, list(slice, 1), 1},
		"8 slices are two":                      {migClass, "p5.48xlarge", 8, list(slice, 1), 2},
		"60 slices are nine":                    {migClass, "p5.48xlarge", 60, list(slice, 1), 9},
		"4 pods share one GPU":                  {sliced, "g6.12xlarge", 4, list(share4, 1), 1},
		"6 pods of 4 replicas are one and half": {sliced, "g6.12xlarge", 6, list(share4, 1), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeen(t, tc.class, used(gpus(0), 0, 0), several(tc.pods, tc.requests), tc.kind)
			if got := summarize(decide(s)); got.gpus != tc.want || got.pods() != tc.pods {
				t.Errorf("%d pods need %d GPUs, want %d pods and %d GPUs", got.pods(), got.gpus, tc.pods, tc.want)
			}
		})
	}
}

func TestSummarize_CountsFromThePodThatBeganToWaitFirst(t *testing.T) {
	waiting := several(3, list(gpu, 1))
	for i, since := range []time.Duration{2, 1, 3} {
		waiting[i].Status.Conditions[0].LastTransitionTime = metav1.NewTime(began.Add(since * time.Minute))
	}
	if got, want := summarize(decide(newSeen(t, whole(), used(gpus(0), 0, 0), waiting, "p5.48xlarge"))).since, began.Add(time.Minute); !got.Equal(want) {
		t.Errorf("since %s, want %s", got, want)
	}
}

// A machine has all of its resources at once: 28 x 1g.10gb and 8 x 3g.40gb on 8 GPUs are one set of GPUs, not two.
func TestShare_TakesTheScarcestOfAMachinesResources(t *testing.T) {
	const half = corev1.ResourceName("nvidia.com/mig-3g.40gb")
	bp := v1alpha1.Blueprint{GPU: v1alpha1.GPUBlueprint{Count: 8}, Resources: list(slice, 32, half, 8)}
	if got := share(bp, list(slice, 8, half, 6)); got != 6 {
		t.Errorf("%d GPUs, want 6", got)
	}
}

func TestSummarize_SaysTheLimitThatHoldsTheMostFirst(t *testing.T) {
	var verdicts []verdict
	for i, limit := range []ledger.Limit{ledger.HourlyCost, ledger.Nodes, ledger.Nodes} {
		verdicts = append(verdicts, verdict{
			pod: newPod(fmt.Sprint(i), "inf", nil), refusal: &ledger.Refusal{Pool: "inf", Limit: limit, Value: 2, Used: 2, Asked: int64(3 - i)},
			offer: &offer{},
		})
	}
	h := summarize(verdicts)
	if h.reason() != "Nodes" {
		t.Errorf("reason is %s, want Nodes: it holds two pods of three", h.reason())
	}
	if want := "limit nodes 2 is reached: 2 in use, 1 asked for 2 waiting pods; limit hourlyCost $0.000002/h is reached: $0.000002/h in use, $0.000003/h asked for 1 waiting pod"; h.message() != want {
		t.Errorf("message is %q, want %q", h.message(), want)
	}
}

func BenchmarkDecide_5000PodsOnAFullPoolOf100Nodes(b *testing.B) {
	waiting := several(5000, list(gpu, 1, "cpu", 8, "memory", "64Gi"))
	s := newSeen(b, whole(), used(gpus(800), 100, 8), waiting, "p5.48xlarge", "p4d.24xlarge", "g6.12xlarge")
	for b.Loop() {
		s.places = nil
		for range 100 {
			s.places = append(s.places, &place{
				node: s.offers[0].nodes[0], taints: nodeTaints(), free: list(gpu, 1, "cpu", 100, "memory", "1000Gi", "pods", 100),
			})
		}
		if got := summarize(decide(s)); got.pods() != 4900 {
			b.Fatalf("%d pods held, want 4900", got.pods())
		}
	}
}
