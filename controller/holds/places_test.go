package holds

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A pool at its limit of 8 GPUs, with one machine of 8, in every state that the machine can have. Three pods of 4 GPUs
// wait: a machine that can be expected to take pods takes two.
func TestPlaces_AMachineTakesPodsIfItCanBeExpectedTo(t *testing.T) {
	eight := list(gpu, 8, "cpu", 190, "memory", "1900Gi", "pods", 110)
	launched := func() *karpv1.NodeClaim { return newClaim("node-1", "inf", "p5.48xlarge", eight) }
	asked := func() *karpv1.NodeClaim {
		claim := launched()
		claim.Status = karpv1.NodeClaimStatus{}
		delete(claim.Labels, corev1.LabelTopologyZone)
		return claim
	}
	going := func(claim *karpv1.NodeClaim) *karpv1.NodeClaim {
		claim.Finalizers, claim.DeletionTimestamp = []string{"gpufleet.dev/instance"}, &metav1.Time{Time: began}
		return claim
	}
	tainted := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	requests := list(gpu, 4, "cpu", 1)
	for name, tc := range map[string]struct {
		objects []client.Object
		held    int
	}{
		"verified and empty": {[]client.Object{launched(), newNode(launched(), eight)}, 1},
		"verified, half of it in use": {[]client.Object{
			launched(), newNode(launched(), eight), newPod("running", "inf", requests, on("node-1"))}, 2},
		"verified, and a pod on it has finished": {[]client.Object{
			launched(), newNode(launched(), eight), newPod("done", "inf", requests, on("node-1"), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })}, 1},
		"verified, and a pod on it ends within its grace period": {[]client.Object{
			launched(), newNode(launched(), eight), newPod("ending", "inf", requests, on("node-1"), terminating(time.Minute))}, 1},
		"verified, and a pod on it has outstayed its grace period": {[]client.Object{
			launched(), newNode(launched(), eight), newPod("stuck", "inf", requests, on("node-1"), terminating(-time.Second))}, 2},
		"verified, one GPU lost":          {[]client.Object{launched(), newNode(launched(), list(gpu, 7))}, 2},
		"verified and cordoned":           {[]client.Object{launched(), newNode(launched(), eight, func(n *corev1.Node) { n.Spec.Unschedulable = true })}, 3},
		"verified and being replaced":     {[]client.Object{launched(), newNode(launched(), eight, tainted("karpenter.sh/disrupted"))}, 3},
		"verified and not ready":          {[]client.Object{launched(), newNode(launched(), eight, tainted("node.kubernetes.io/not-ready"))}, 3},
		"going":                           {[]client.Object{going(launched()), newNode(launched(), eight)}, 3},
		"its claim is gone":               {[]client.Object{newNode(launched(), eight)}, 3},
		"joined and not verified":         {[]client.Object{launched(), newNode(launched(), nil, unverified)}, 1},
		"not verified and being replaced": {[]client.Object{launched(), newNode(launched(), nil, unverified, tainted("karpenter.sh/disrupted"))}, 3},
		"not verified, a pod still on it": {[]client.Object{launched(), newNode(launched(), nil, unverified), newPod("running", "inf", requests, on("node-1"))}, 2},
		"launched and not joined":         {[]client.Object{launched()}, 1},
		"asked for and not launched":      {[]client.Object{asked()}, 1},
		"asked for, of a type of another pool, for one of the pods": {[]client.Object{asked(), func() client.Object {
			claim := asked()
			claim.Name, claim.Labels[corev1.LabelInstanceTypeStable] = "node-2", "p4d.24xlarge"
			claim.Spec.Resources.Requests = requests
			return claim
		}()}, 0},
		"another pool's": {[]client.Object{func() client.Object {
			claim := launched()
			claim.Labels["gpufleet.dev/pool"] = "other"
			return claim
		}()}, 3},
		"there is none": {nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append([]client.Object{newPool("inf", "whole", "p5.48xlarge"), whole()}, pods(3, "waiting", "inf", requests)...)
			w := newWorld(t, append(objects, tc.objects...)...)
			w.count(t, "inf", gpus(8), boards(8))
			w.reconcile(t, "inf")
			reason := "GPUs"
			if tc.held == 0 {
				reason = ""
			}
			w.wantHeld(t, "inf", reason, tc.held)
		})
	}
}

// A claim that Karpenter made and that is not launched may become any of its types: the least of them is sure.
func TestPlaces_AClaimOfSeveralTypesPromisesTheLeast(t *testing.T) {
	claim := newClaim("node-1", "inf", "", nil)
	claim.Labels = map[string]string{"gpufleet.dev/pool": "inf"}
	claim.Status = karpv1.NodeClaimStatus{}
	claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: "node.kubernetes.io/instance-type", Operator: corev1.NodeSelectorOpIn, Values: []string{"g6.12xlarge", "g6.xlarge"}},
	}
	w := newWorld(t, append(pods(3, "waiting", "inf", list(gpu, 1)), newPool("inf", "whole", "g6.xlarge,g6.12xlarge"), whole(), claim)...)
	w.count(t, "inf", gpus(4), boards(4))
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "GPUs", 2)
}

// The launch decides a claim's labels: a pod of another zone is not for it.
func TestPlaces_AMachineInAnotherZoneTakesNoPodOfThisOne(t *testing.T) {
	inZone := func(zone string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.NodeSelector[corev1.LabelTopologyZone] = zone }
	}
	claim := newClaim("node-1", "inf", "p5.48xlarge", list(gpu, 8))
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), claim,
		newPod("here", "inf", list(gpu, 1), inZone("us-east-1a")), newPod("there", "inf", list(gpu, 1), inZone("us-east-1b")))
	w.count(t, "inf", gpus(8), boards(8))
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "GPUs", 1)
	if lines := w.said.take(); len(lines) != 2 || !strings.HasPrefix(lines[0], "Pod there Warning LimitReached pool inf: limit gpus 8 is reached: 8 in use, 8 asked") {
		t.Errorf("events are %q", lines)
	}
}

// Before the launch the zone is not decided: the pod that the claim was made for is not held meanwhile.
func TestPlaces_AClaimThatIsNotLaunchedTakesPodsOfAnyZone(t *testing.T) {
	claim := newClaim("node-1", "inf", "p5.48xlarge", nil)
	claim.Status = karpv1.NodeClaimStatus{}
	delete(claim.Labels, corev1.LabelTopologyZone)
	w := newWorld(t, newPool("inf", "whole", "p5.48xlarge"), whole(), claim, newPod("zonal", "inf", list(gpu, 8), selects(corev1.LabelTopologyZone, "us-east-1b")))
	w.count(t, "inf", gpus(8), boards(8))
	w.reconcile(t, "inf")
	w.wantHeld(t, "inf", "", 0)
}

// terminating is a pod that was deleted; its grace period ends after a while.
func terminating(after time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Finalizers = []string{"example.com/keep"}
		pod.DeletionTimestamp = &metav1.Time{Time: began.Add(after)}
	}
}
