package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const (
	researchPool = "research"
	lostPool     = "lost"
)

// heldPod is one way to hold a pod on the stack.
type heldPod struct {
	reason string
	// pool is the pool that speaks of it.
	pool string
	// numbers are what the message must say.
	numbers []string
	// pod changes a pod that would run in its pool.
	pod func(*corev1.Pod)
	// before brings about what holds it, and after takes it away.
	before, after func(context.Context, *Scene) error
}

// The pods ask for a slice of pool inference, or for a share of pool research: 4 GPUs x 4 replicas a g6.12xlarge.
var heldPods = []heldPod{
	{
		reason: v1alpha1.HoldGated, pool: poolName, numbers: []string{"kueue.x-k8s.io/admission"},
		pod: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		},
	},
	{
		reason: v1alpha1.HoldNotAllowed, pool: poolName, numbers: []string{"ResourceQuota claims", "count/resourceclaims.resource.k8s.io: 0 of 0 used, 1 asked"},
		before: func(ctx context.Context, s *Scene) error {
			return s.create(ctx, deviceClass(), claimTemplate(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "claims", Namespace: "default"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/resourceclaims.resource.k8s.io": resource.MustParse("0")}},
			})
		},
		pod: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
		},
		after: func(ctx context.Context, s *Scene) error {
			return s.remove(ctx, deviceClass(), claimTemplate(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims", Namespace: "default"}})
		},
	},
	{
		reason: v1alpha1.HoldNameMismatch, pool: poolName, numbers: []string{"nvidia.com/gpu: 1", "nvidia.com/mig-1g.10gb: 56", "h100-7x1g10gb"},
		pod: asks("nvidia.com/gpu", 1),
	},
	{
		reason: v1alpha1.HoldProfileNotOffered, pool: poolName, numbers: []string{"nvidia.com/mig-3g.40gb: 1", "nvidia.com/mig-1g.10gb: 56"},
		pod: asks("nvidia.com/mig-3g.40gb", 1),
	},
	{
		reason: v1alpha1.HoldDRAUnsupported, pool: poolName, numbers: []string{"claim gpu asks for 1 of device class gpu.nvidia.com", "nvidia.com/mig-1g.10gb"},
		before: func(ctx context.Context, s *Scene) error {
			return s.create(ctx, deviceClass(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "default"}, Spec: oneDevice()})
		},
		pod: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
		},
		after: func(ctx context.Context, s *Scene) error {
			return s.remove(ctx, deviceClass(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "default"}})
		},
	},
	{
		reason: v1alpha1.HoldSelectorMismatch, pool: poolName, numbers: []string{"topology.kubernetes.io/zone=us-west-2a", "us-east-1a"},
		pod: func(p *corev1.Pod) { p.Spec.NodeSelector["topology.kubernetes.io/zone"] = "us-west-2a" },
	},
	{
		reason: v1alpha1.HoldNotTolerated, pool: poolName, numbers: []string{"gpufleet.dev/workload=Inference:NoSchedule", "1 of the 2 taints"},
		pod: func(p *corev1.Pod) { p.Spec.Tolerations = p.Spec.Tolerations[:1] },
	},
	{
		reason: v1alpha1.HoldPoolNotReady, pool: lostPool, numbers: []string{`node class "nowhere" does not exist`},
		before: func(ctx context.Context, s *Scene) error {
			return s.create(ctx, &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: lostPool}, Spec: v1alpha1.GPUNodePoolSpec{
				Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: "nowhere"},
				Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
			}})
		},
		pod: func(p *corev1.Pod) { p.Spec.NodeSelector[v1alpha1.LabelPool] = lostPool },
	},
	{
		reason: v1alpha1.HoldLimitReached, pool: poolName, numbers: []string{"limit gpus 0 is reached: 0 in use, 8 asked"},
		before: limitGPUs(0),
		after:  limitGPUs(8),
	},
	{
		reason: v1alpha1.HoldNotVerified, pool: poolName, numbers: []string{"GPUCountMismatch", "8", "7"},
		before: func(ctx context.Context, s *Scene) error {
			return s.SetFault(ctx, "missing-gpu", map[string]any{"gpu": 7})
		},
		after: func(ctx context.Context, s *Scene) error {
			return errors.Join(s.ClearFault(ctx, "missing-gpu"), s.noMachines(ctx))
		},
	},
	{
		reason: v1alpha1.HoldQuotaExceeded, pool: poolName, numbers: []string{"VcpuLimitExceeded", "limit of 100", "p5.48xlarge on-demand", "L-417A185B"},
		before: func(ctx context.Context, s *Scene) error {
			return s.admin(ctx, http.MethodPut, "/v1/quotas", `[{"bucket": "P", "capacityType": "on-demand", "vcpus": 100}]`)
		},
		after: func(ctx context.Context, s *Scene) error { return s.admin(ctx, http.MethodPut, "/v1/quotas", `[]`) },
	},
	{
		reason: v1alpha1.HoldFragmented, pool: researchPool, numbers: []string{"nvidia.com/gpu: 12 on one node; 12 are free in total, and 6 on the node that has the most"},
		before: scatter,
		pod:    inResearch(12),
		after: func(ctx context.Context, s *Scene) error {
			return errors.Join(s.removePods(ctx, "large-0", "large-1"), s.limitNodes(ctx, nil), s.noMachines(ctx))
		},
	},
	{
		reason: v1alpha1.HoldNoCapacity, pool: researchPool, numbers: []string{"InsufficientInstanceCapacity", "g6.12xlarge"},
		before: func(ctx context.Context, s *Scene) error { return s.admin(ctx, http.MethodPut, "/v1/capacity", sold()) },
		pod:    inResearch(1),
		after:  func(ctx context.Context, s *Scene) error { return s.admin(ctx, http.MethodPut, "/v1/capacity", `[]`) },
	},
}

// elsewhere are the reasons that are not brought about here, with where they are.
var elsewhere = map[string]string{
	v1alpha1.HoldBudgetReached:          "controller/holds, by a verdict made by hand: there are no budgets yet",
	v1alpha1.HoldReservationUnavailable: "controller/holds, by a verdict made by hand: no reserved capacity is bought yet",
	v1alpha1.HoldOther:                  "controller/holds, with a clock of its own: it takes five minutes",
}

// TestReasons_AgreeInAllPlaces_C80 brings about each reason and wants it said alike as condition, on the pool's list, as
// events on pod and pool, as metric, by an alert and by the command line; and cleared when it ends.
func TestReasons_AgreeInAllPlaces_C80(t *testing.T) {
	for _, reason := range v1alpha1.HoldReasons {
		here := slices.ContainsFunc(heldPods, func(h heldPod) bool { return h.reason == reason.Name })
		if _, there := elsewhere[reason.Name]; here == there {
			t.Errorf("%s is brought about here: %t, and elsewhere: %t", reason.Name, here, there)
		}
	}
	ctx, scene := start(t, stack.Options{LeaderElection: true})
	if _, err := scene.Terraform.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := scene.awaitNodePool(ctx); err != nil {
		t.Fatal(err)
	}
	for _, each := range heldPods {
		t.Run(each.reason, func(t *testing.T) { each.run(ctx, t, scene) })
	}
	t.Run("the command line without the controller", func(t *testing.T) { explainAlone(ctx, t, scene) })
}

func (h heldPod) run(ctx context.Context, t *testing.T, scene *Scene) {
	if h.before != nil {
		if err := h.before(ctx, scene); err != nil {
			t.Fatal(err)
		}
	}
	pod := slicePod("held-" + strings.ToLower(h.reason))
	if h.pod != nil {
		h.pod(pod)
	}
	if err := scene.create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	seen, err := await(ctx, 90*time.Second, h.reason+" in all places", func(ctx context.Context) (string, bool, error) { return h.said(ctx, scene, pod) })
	if err != nil {
		t.Error(err)
	}
	t.Log(seen)
	if err := scene.removePods(ctx, pod.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := await(ctx, 30*time.Second, "the end of "+h.reason, func(ctx context.Context) (string, bool, error) { return h.cleared(ctx, scene) }); err != nil {
		t.Error(err)
	}
	if h.after != nil {
		if err := h.after(ctx, scene); err != nil {
			t.Fatal(err)
		}
	}
}

// said compares what every place says.
func (h heldPod) said(ctx context.Context, scene *Scene, pod *corev1.Pod) (string, bool, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := scene.Client.Get(ctx, client.ObjectKey{Name: h.pool}, pool); err != nil {
		return "", false, err
	}
	if len(pool.Status.Holds) != 1 || pool.Status.Holds[0].Reason != h.reason || pool.Status.Holds[0].Pods != 1 {
		return fmt.Sprintf("holds %+v", pool.Status.Holds), false, nil
	}
	message := pool.Status.Holds[0].Message
	for _, number := range h.numbers {
		if !strings.Contains(message, number) {
			return "", false, fmt.Errorf("the message %q does not say %q", message, number)
		}
	}
	for _, kind := range h.conditions() {
		if !meta.IsStatusConditionTrue(pool.Status.Conditions, kind) {
			return fmt.Sprintf("%s is not True: %+v", kind, pool.Status.Conditions), false, nil
		}
	}
	onPod, err := scene.eventOn(ctx, "Pod", pod.Name, h.reason)
	if err != nil || onPod == "" {
		return "no event on the pod", false, err
	}
	onPool, err := scene.eventOn(ctx, v1alpha1.KindGPUNodePool, h.pool, h.reason)
	if err != nil || onPool == "" {
		return "no event on the pool", false, err
	}
	metric, err := scene.Metric(ctx, fmt.Sprintf(`gpufleet_pool_held_pods{pool=%q,reason=%q}`, h.pool, h.reason))
	if err != nil || metric != "1" {
		return "gpufleet_pool_held_pods is " + metric, false, err
	}
	if err := alerted(h.reason); err != nil {
		return "", false, err
	}
	explained, err := scene.explain(ctx, pod.Name)
	if err != nil || explained.Reason != h.reason || explained.code != 2 {
		return fmt.Sprintf("explain exits %d with %q: %s", explained.code, explained.Reason, explained.Message), false, err
	}
	// The pod's own words, on the pool without the pool's name, and the same by the command line.
	words := strings.TrimPrefix(explained.Message, "pool "+h.pool+": ")
	if !strings.HasPrefix(onPod, explained.Message) || !strings.HasPrefix(message, words) || !strings.HasPrefix(onPool, words) {
		return "", false, fmt.Errorf("not the same words:\n explain: %s\n pod:     %s\n hold:    %s\n pool:    %s", explained.Message, onPod, message, onPool)
	}
	return explained.Message, true, nil
}

// conditions are those that must be True.
func (h heldPod) conditions() []string {
	kinds := []string{v1alpha1.ConditionPodsHeld}
	if own := v1alpha1.HoldReasons[v1alpha1.PrecedenceOf(h.reason)].Condition; own != "" {
		kinds = append(kinds, own)
	}
	return kinds
}

func (h heldPod) cleared(ctx context.Context, scene *Scene) (string, bool, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := scene.Client.Get(ctx, client.ObjectKey{Name: h.pool}, pool); err != nil {
		return "", false, err
	}
	metric, err := scene.Metric(ctx, fmt.Sprintf(`gpufleet_pool_held_pods{pool=%q,reason=%q}`, h.pool, h.reason))
	if err != nil {
		return "", false, err
	}
	for _, kind := range h.conditions() {
		if !meta.IsStatusConditionFalse(pool.Status.Conditions, kind) {
			return fmt.Sprintf("%s is not False", kind), false, nil
		}
	}
	return fmt.Sprintf("holds %+v, metric %s", pool.Status.Holds, metric), len(pool.Status.Holds) == 0 && metric == "0", nil
}

// explainAlone kills the controller: reasons are computed from the cluster's objects, and what is old is called old.
func explainAlone(ctx context.Context, t *testing.T, scene *Scene) {
	pod := slicePod("held-alone")
	asks("nvidia.com/gpu", 1)(pod)
	if err := scene.create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if err := scene.Stack.KillController(); err != nil {
		t.Fatal(err)
	}
	_, err := await(ctx, 90*time.Second, "a reason, and that the controller is silent", func(ctx context.Context) (string, bool, error) {
		got, err := scene.explain(ctx, pod.Name)
		if err != nil {
			return "", false, err
		}
		silent := got.Controller.Alive != nil && !*got.Controller.Alive && got.Controller.LastSeen != ""
		return fmt.Sprintf("%+v", got), got.Reason == v1alpha1.HoldNameMismatch && got.code == 2 && silent, nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := scene.Stack.StartController(ctx); err != nil {
		t.Fatal(err)
	}
}

// explanation is what the command line says of a pod.
type explanation struct {
	code       int
	Reason     string `json:"reason"`
	Message    string `json:"message"`
	Controller struct {
		Alive    *bool  `json:"alive"`
		LastSeen string `json:"lastSeen"`
	} `json:"controller"`
}

func (s *Scene) explain(ctx context.Context, pod string) (explanation, error) {
	var out explanation
	root, err := stack.Root()
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "build", "bin", "gpufleet"), "explain", "pod", pod, "-n", "default", "-o", "json")
	cmd.Env = slices.Concat(os.Environ(), s.Stack.Env())
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out, err
	}
	out.code = cmd.ProcessState.ExitCode()
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("explain pod %s exited %d and printed %q, %q: %w", pod, out.code, text, said.String(), err)
	}
	return out, nil
}

// alerted wants an alert of the shipped rules that looks at the reason.
func alerted(reason string) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "controller", "charts", "gpufleet", "files", "alerts.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "alert: GPUFleet"+reason) || !strings.Contains(string(text), fmt.Sprintf("reason=%q", reason)) {
		return fmt.Errorf("%s has no alert for %s", file, reason)
	}
	return nil
}

// eventOn is the message of the newest event of a reason on an object.
func (s *Scene) eventOn(ctx context.Context, kind, name, reason string) (string, error) {
	events := &corev1.EventList{}
	if err := s.Client.List(ctx, events); err != nil {
		return "", err
	}
	var newest *corev1.Event
	for i := range events.Items {
		event := &events.Items[i]
		if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name && event.Reason == reason &&
			(newest == nil || newest.LastTimestamp.Before(&event.LastTimestamp)) {
			newest = event
		}
	}
	if newest == nil {
		return "", nil
	}
	return newest.Message, nil
}

func (s *Scene) create(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func (s *Scene) remove(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := s.Client.Delete(ctx, object); err != nil {
			return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func (s *Scene) removePods(ctx context.Context, names ...string) error {
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		if err := s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
	return nil
}

// noMachines ends every machine and waits until none is left.
func (s *Scene) noMachines(ctx context.Context) error {
	if err := s.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{}); err != nil {
		return err
	}
	_, err := await(ctx, 2*time.Minute, "no machine left", func(ctx context.Context) (string, bool, error) {
		books, err := s.Books(ctx)
		if err != nil {
			return "", false, err
		}
		claims := &karpv1.NodeClaimList{}
		if err := s.Client.List(ctx, claims); err != nil {
			return "", false, err
		}
		return fmt.Sprintf("%d instances, %d claims", len(alive(books)), len(claims.Items)), len(alive(books))+len(claims.Items) == 0, nil
	})
	return err
}

func (s *Scene) admin(ctx context.Context, method, path, body string) error {
	_, err := send(ctx, method, s.Stack.AdminURL+path, body)
	return err
}

// slicePod is a pod of pool inference with one slice.
func slicePod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{v1alpha1.LabelPool: poolName},
			Tolerations: []corev1.Toleration{
				{Key: v1alpha1.TaintGPU, Operator: corev1.TolerationOpEqual, Value: "present", Effect: corev1.TaintEffectNoSchedule},
				{Key: v1alpha1.TaintWorkload, Operator: corev1.TolerationOpEqual, Value: "Inference", Effect: corev1.TaintEffectNoSchedule},
			},
			Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
	asks(slice, 1)(pod)
	return pod
}

func asks(name corev1.ResourceName, quantity int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{name: *resource.NewQuantity(quantity, resource.DecimalSI)}}
	}
}

// inResearch makes it a pod of pool research with some shares.
func inResearch(shares int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeSelector[v1alpha1.LabelPool] = researchPool
		p.Spec.Tolerations[1].Value = "Research"
		asks("nvidia.com/gpu", shares)(p)
	}
}

func limitGPUs(n int) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		return s.patchPool(ctx, poolName, fmt.Sprintf(`{"spec":{"limits":{"gpus":%d}}}`, n))
	}
}

func (s *Scene) limitNodes(ctx context.Context, n *int) error {
	if n == nil {
		return s.patchPool(ctx, researchPool, `{"spec":{"limits":null}}`)
	}
	return s.patchPool(ctx, researchPool, fmt.Sprintf(`{"spec":{"limits":{"nodes":%d}}}`, *n))
}

func (s *Scene) patchPool(ctx context.Context, name, patch string) error {
	pool := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.Client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// scatter fills two nodes of 16 shares with 10 each, and lets no third come.
func scatter(ctx context.Context, s *Scene) error {
	two := 2
	if err := s.limitNodes(ctx, &two); err != nil {
		return err
	}
	for i := range two {
		pod := slicePod(fmt.Sprintf("large-%d", i))
		inResearch(10)(pod)
		if err := s.create(ctx, pod); err != nil {
			return err
		}
	}
	_, err := await(ctx, 2*time.Minute, "two pods that run on two nodes", func(ctx context.Context) (string, bool, error) {
		nodes := map[string]bool{}
		for i := range two {
			pod := &corev1.Pod{}
			if err := s.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: fmt.Sprintf("large-%d", i)}, pod); err != nil {
				return "", false, err
			}
			if pod.Status.Phase == corev1.PodRunning {
				nodes[pod.Spec.NodeName] = true
			}
		}
		return fmt.Sprintf("%d nodes", len(nodes)), len(nodes) == two, nil
	})
	return err
}

// sold is that no g6.12xlarge is left, wherever and however it is bought.
func sold() string {
	var entries []string
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		for _, capacityType := range []string{"on-demand", "spot"} {
			entries = append(entries, fmt.Sprintf(`{"type":"g6.12xlarge","zone":%q,"capacityType":%q,"free":0}`, zone, capacityType))
		}
	}
	return "[" + strings.Join(entries, ",") + "]"
}

func deviceClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.nvidia.com"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == 'gpu.nvidia.com'`}}},
	}}
}

func oneDevice() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}}}
}

func claimTemplate() *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "default"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: oneDevice()},
	}
}
