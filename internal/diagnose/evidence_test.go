package diagnose

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// fact is the value of a cause's evidence.
func (c Cause) fact(name string) string {
	at := slices.IndexFunc(c.Evidence, func(f Fact) bool { return f.Name == name })
	if at < 0 {
		return ""
	}
	return c.Evidence[at].Value
}

func TestDecide_TellsWhoeverGatesThePod(t *testing.T) {
	for name, tc := range map[string]struct {
		change change
		want   string
	}{
		"Kueue":                 {gate(kueue), "look at the Kueue Workload of the pod: kubectl describe workloads.kueue.x-k8s.io -n default"},
		"somebody":              {gate("example.com/data"), "look at who sets the gates example.com/data: it removes them when it admits the pod"},
		"a scheduler of others": {scheduler("kai-scheduler", false), "look whether scheduler kai-scheduler runs, and at the pod group or queue that it keeps the pod in"},
	} {
		if got := newSituation(t, tc.change).verdict(t).Causes[0].Remedy; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Pods of lower priority may be evicted; of the same, never: a person who waits for that waits for ever.
func TestDecide_SaysWhetherPodsOfLowerPriorityHoldWhatIsNeeded(t *testing.T) {
	priority := func(n int32) change { return ofPod(func(p *corev1.Pod) { p.Spec.Priority = &n }) }
	never := ofPod(func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) })
	for name, tc := range map[string]struct {
		changes []change
		want    string
	}{
		"lower":            {[]change{priority(1001)}, "2 pods of lower priority may hold what it needs: the scheduler may evict them"},
		"lower, and never": {[]change{priority(1001), never}, "2 pods of lower priority may hold what it needs, and its preemptionPolicy is Never"},
		"equal":            {[]change{priority(1000)}, "none is evicted: what it needs is held by 2 pods of its own priority, 1000"},
		"higher":           {[]change{priority(999)}, ""},
	} {
		changes := append([]change{asking("gpu 4"), used(gpuLimit(16, 8), 2, 8), node("n1", fullNode, "gpu 6", 1000), node("n2", fullNode, "gpu 6", 1000)}, tc.changes...)
		v := newSituation(t, changes...).verdict(t)
		if got := v.Causes[0].fact("preemption"); v.Reason() != v1alpha1.HoldFragmented || got != tc.want {
			t.Errorf("%s: %s, %q; want Fragmented, %q", name, v.Reason(), got, tc.want)
		}
	}
}

// The same stands beside a limit: who waits for an eviction there waits for ever too.
func TestDecide_SaysOfALimitWhetherAnybodyIsEvicted(t *testing.T) {
	v := newSituation(t, fullPool(), node("n1", fullNode, "gpu 8", 0)).verdict(t)
	if got, want := v.Causes[0].fact("preemption"), "none is evicted: what it needs is held by 1 pod of its own priority, 0"; v.Reason() != v1alpha1.HoldLimitReached || got != want {
		t.Errorf("%s: %q, want LimitReached: %q", v.Reason(), got, want)
	}
}

// The devices of a claim are on one node, and what one pod of the pass gets another does not.
func TestDecide_OfClaimsEachDeviceServesOnePod(t *testing.T) {
	s := newSituation(t, fullPool(), node("n1", fullNode, "cpu 1", 0), deviceClass("gpu.nvidia.com"), publishing("n1", 8, 6))
	var pods []*corev1.Pod
	for _, name := range []string{"first", "second"} {
		pod := waiter(name, "cpu 1")
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		s.cluster.Claims = append(s.cluster.Claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: devicesOf("gpu.nvidia.com", 2)})
		pods = append(pods, pod)
	}
	verdicts := Decide(s.cluster, s.pool, pods)
	if !verdicts[0].Expected || verdicts[1].Reason() != v1alpha1.HoldDRAUnsupported || !strings.Contains(verdicts[1].Causes[0].Message, "of 8 devices that match 0 are free") {
		t.Errorf("verdicts are %+v", verdicts)
	}
	if got := verdicts[1].Causes[0].fact("preemption"); !strings.Contains(got, "does not apply to resource claims") {
		t.Errorf("of preemption it says %q", got)
	}
}

func TestDecide_OfClaims(t *testing.T) {
	alternatives := func(s *situation) {
		claiming("gpu.nvidia.com", 1)(s)
		s.cluster.Claims[len(s.cluster.Claims)-1].Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{
			{Name: "large", DeviceClassName: "gpu.nvidia.com", Count: 2}, {Name: "small", DeviceClassName: "gpu.nvidia.com", Count: 1},
		}}
	}
	allocated := func(s *situation) {
		s.cluster.Claims[len(s.cluster.Claims)-1].Status.Allocation = &resourcev1.AllocationResult{}
	}
	const plugin = "; no machine is launched for it, since nodes on p5.48xlarge offer their GPUs by the device plugin, as nvidia.com/gpu"
	for name, tc := range map[string]struct {
		changes []change
		want    string // the message of DRAUnsupported, or nothing
	}{
		"a network card's is no GPU's":  {[]change{claiming("nic.example.com", 1)}, ""},
		"a class that selects NVIDIA's": {[]change{claiming("big-gpus", 1, `device.driver == 'gpu.nvidia.com'`)}, "pool inf: claim claim asks for 1 of device class big-gpus, which does not exist" + plugin},
		"alternatives count by the first": {[]change{deviceClass("gpu.nvidia.com"), alternatives},
			"pool inf: claim claim asks for 2 of device class gpu.nvidia.com" + plugin},
		"devices are allocated to it": {[]change{deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 1), allocated}, ""},
		"the claim is made, so that no quota matters": {[]change{deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 1), quota("default", "objects", "count/resourceclaims.resource.k8s.io", "1", "1")},
			"pool inf: claim claim asks for 1 of device class gpu.nvidia.com" + plugin},
		"enough are free, on no one node": {[]change{fullPool(), node("n1", fullNode, "cpu 1", 0), node("n2", fullNode, "cpu 1", 0), asking("cpu 1"), deviceClass("gpu.nvidia.com"),
			claiming("gpu.nvidia.com", 2), publishing("n1", 8, 7), publishing("n2", 8, 7)},
			"pool inf: claim claim asks for 2 of device class gpu.nvidia.com: of 16 devices that match 2 are free, on no node enough" + plugin},
	} {
		t.Run(name, func(t *testing.T) {
			v := newSituation(t, tc.changes...).verdict(t)
			switch {
			case tc.want == "" && !v.Expected:
				t.Errorf("held: %+v", v.Causes)
			case tc.want != "" && (v.Reason() != v1alpha1.HoldDRAUnsupported || v.Causes[0].Message != tc.want):
				t.Errorf("\n got %s: %+v\nwant %s", v.Reason(), v.Causes, tc.want)
			}
		})
	}
}

func TestDecide_ASelectorThatDoesNotCompileIsSaid(t *testing.T) {
	v := newSituation(t, asking("cpu 1"), node("n1", fullNode, "cpu 1", 0), publishing("n1", 1, 0), deviceClass("gpu.nvidia.com"), claiming("gpu.nvidia.com", 1, `device.atributes == 1`)).verdict(t)
	if got := v.Causes[0].Message; v.Reason() != v1alpha1.HoldDRAUnsupported || !strings.Contains(got, `the expression "device.atributes == 1" does not compile`) || !strings.Contains(got, "undefined field 'atributes'") {
		t.Errorf("%s: %s", v.Reason(), got)
	}
}

// What a pod says is bounded: a condition that is too long would keep the pool's whole status from being written.
func TestDecide_BoundsWhatAPodCanSay(t *testing.T) {
	values := make([]string, 1000)
	for i := range values {
		values[i] = strings.Repeat("ä", 60)
	}
	v := newSituation(t, ofPod(func(p *corev1.Pod) {
		requiring("zone", "x")(p)
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values = values
		for range 150 {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/" + strings.Repeat("g", 60)})
		}
	})).verdict(t)
	if len(v.Causes) != 2 {
		t.Fatalf("causes are %v", reasons(v))
	}
	for _, cause := range v.Causes {
		if len(cause.Message)+len(cause.Remedy) > 1000 || !strings.HasSuffix(cause.Message, "...") || !utf8.ValidString(cause.Message) {
			t.Errorf("%s says %d and %d bytes: %s", cause.Reason, len(cause.Message), len(cause.Remedy), cause.Message)
		}
	}
}

func TestMeant_IsOfPodsThatSelectALabelOfOursOrTolerateOurTaint(t *testing.T) {
	nothing := func(p *corev1.Pod) { p.Spec.NodeSelector, p.Spec.Tolerations = nil, nil }
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"it selects a pool": {func(p *corev1.Pod) { p.Spec.Tolerations = nil }, true},
		"it selects a model of ours": {func(p *corev1.Pod) {
			nothing(p)
			p.Spec.NodeSelector = map[string]string{"gpufleet.dev/gpu-model": "x"}
		}, true},
		"its affinity does":       {func(p *corev1.Pod) { nothing(p); requiring("gpufleet.dev/pool", "x")(p) }, true},
		"it tolerates a workload": {func(p *corev1.Pod) { p.Spec.NodeSelector = nil }, true},
		"it tolerates everything": {func(p *corev1.Pod) {
			nothing(p)
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, false},
		"it tolerates GPUs":               {func(p *corev1.Pod) { nothing(p); tolerating("nvidia.com/gpu")(p) }, false},
		"it selects a label of others":    {func(p *corev1.Pod) { nothing(p); selecting("team", "x")(p) }, false},
		"its affinity is for others":      {func(p *corev1.Pod) { nothing(p); requiring("team", "x")(p) }, false},
		"a label that only looks like it": {func(p *corev1.Pod) { nothing(p); selecting("gpufleet.developers/pool", "x")(p) }, false},
	} {
		if got := Meant(waiter("pod", "gpu 1", tc.change)); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestNearest_IsThePoolWhoseReasonComesLastInPrecedence(t *testing.T) {
	of := func(pool string, reasons ...string) Verdict {
		v := Verdict{Pool: pool, Expected: len(reasons) == 0}
		for _, reason := range reasons {
			v.Causes = append(v.Causes, Cause{Reason: reason})
		}
		return v
	}
	for name, tc := range map[string]struct {
		verdicts []Verdict
		want     string
	}{
		"one can be expected to":  {[]Verdict{of("a", v1alpha1.HoldNoCapacity), of("b")}, "b"},
		"the first can":           {[]Verdict{of("a"), of("b", v1alpha1.HoldNoCapacity)}, "a"},
		"the nearer is the last":  {[]Verdict{of("a", v1alpha1.HoldNameMismatch), of("b", v1alpha1.HoldLimitReached)}, "b"},
		"the nearer is the first": {[]Verdict{of("a", v1alpha1.HoldLimitReached), of("b", v1alpha1.HoldNotTolerated, v1alpha1.HoldNoCapacity)}, "a"},
		"the first of equals":     {[]Verdict{of("a", v1alpha1.HoldLimitReached), of("b", v1alpha1.HoldLimitReached)}, "a"},
	} {
		if got := Nearest(tc.verdicts).Pool; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Karpenter launches for a pod that names no pool where it tolerates the taints of one.
func TestUnnamed_APoolThatCouldServeThePodSpeaksForIt(t *testing.T) {
	unnamed := ofPod(func(p *corev1.Pod) { p.Spec.NodeSelector = nil })
	for name, tc := range map[string]struct {
		changes []change
		want    string
	}{
		"a machine may be launched":   {[]change{unnamed}, ""},
		"the pool is full":            {[]change{unnamed, fullPool()}, v1alpha1.HoldLimitReached},
		"it does not tolerate it":     {[]change{unnamed, tolerationsLeft(1)}, v1alpha1.HoldSelectorMismatch},
		"it asks by another name":     {[]change{unnamed, asking("amd.com/gpu 1")}, v1alpha1.HoldSelectorMismatch},
		"it is gated, and named none": {[]change{unnamed, gate(kueue)}, v1alpha1.HoldGated},
		"it is of a DaemonSet, and asks for what its node has not": {[]change{unnamed, daemonOn("n1"), asking("amd.com/gpu 1"), node("n1", fullNode, "cpu 1", 0), ofType("p5.48xlarge")},
			v1alpha1.HoldNameMismatch},
	} {
		s := newSituation(t, tc.changes...)
		stray := Stray(s.pod, map[string]corev1.ResourceList{"inf": listed("gpu 8")})
		if got := Unnamed(stray, []Verdict{s.verdict(t)}); got.Reason() != tc.want || got.Expected != (tc.want == "") {
			t.Errorf("%s: %q, want %q", name, got.Reason(), tc.want)
		}
	}
}

func TestStray_NamesThePoolsThatOfferWhatIsAsked(t *testing.T) {
	pools := map[string]corev1.ResourceList{"cut": listed("nvidia.com/mig-1g.10gb 56"), "whole": listed("gpu 8"), "also-whole": listed("gpu 4")}
	unnamed := func(p *corev1.Pod) { p.Spec.NodeSelector = nil }
	for name, tc := range map[string]struct {
		pod             *corev1.Pod
		pools           map[string]corev1.ResourceList
		message, remedy string
	}{
		"it names none": {waiter("pod", "gpu 1", unnamed), pools,
			"no pool: the pod selects none by the label gpufleet.dev/pool; also-whole, whole offers what it asks for", "select a pool: nodeSelector gpufleet.dev/pool: also-whole"},
		"it names one that there is not": {waiter("pod", "nvidia.com/mig-1g.10gb 1"), pools,
			"no pool: the pod selects gpufleet.dev/pool=inf, and there is no such GPUNodePool; cut offers what it asks for", "select a pool: nodeSelector gpufleet.dev/pool: cut"},
		"none offers it": {waiter("pod", "amd.com/gpu 1"), pools,
			"no pool: the pod selects gpufleet.dev/pool=inf, and there is no such GPUNodePool; none of also-whole, cut, whole offers what it asks for",
			"ask for what a pool offers, and select the pool by gpufleet.dev/pool; or look to whoever offers amd.com/gpu: 1"},
		"there is none at all": {waiter("pod", "gpu 1"), nil,
			"no pool: the pod selects gpufleet.dev/pool=inf, and there is no such GPUNodePool; there is none at all", "declare a GPUNodePool, and select it by gpufleet.dev/pool"},
	} {
		v := Stray(tc.pod, tc.pools)
		if v.Reason() != v1alpha1.HoldSelectorMismatch || v.Causes[0].Message != tc.message || v.Causes[0].Remedy != tc.remedy || v.Pool != "" {
			t.Errorf("%s: %+v", name, v.Causes)
		}
	}
	gated := waiter("pod", "gpu 1", unnamed)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue}}
	if v := Stray(gated, pools); v.Reason() != v1alpha1.HoldGated || v.Causes[0].Message != "the scheduling gate kueue.x-k8s.io/admission holds the pod back" || len(v.Causes) != 2 {
		t.Errorf("gated: %+v", v.Causes)
	}
}
