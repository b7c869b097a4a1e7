package holds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/notify"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// TestMain registers the kinds and the metrics, as the controller's main does.
func TestMain(m *testing.M) {
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme), metrics.Register()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	gpu    = corev1.ResourceName("nvidia.com/gpu")
	slice  = corev1.ResourceName("nvidia.com/mig-1g.10gb")
	share4 = corev1.ResourceName("nvidia.com/gpu.shared")
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// world is a cluster of objects with the reconciler over it, and the ledger.
type world struct {
	*Controller
	clock   *clocktesting.FakeClock
	ledger  *ledger.Ledger
	said    *recorder
	notices *notices
	// unavailable are the ways to buy that the cloud refuses.
	unavailable []v1alpha1.UnavailableOffering
	// beforeWrite runs before each write of a status.
	beforeWrite func()
	writes      int
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{clock: clocktesting.NewFakeClock(began), ledger: ledger.New(), said: &recorder{}, notices: &notices{}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.GPUNodePool{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, waitsFor, waitsForPools).
		WithIndex(&corev1.Event{}, "source", func(o client.Object) []string { return []string{o.(*corev1.Event).Source.Component} }).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if before := w.beforeWrite; before != nil {
					w.beforeWrite = nil
					before()
				}
				w.writes++
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		}).Build()
	w.restart(c)
	t.Cleanup(func() {
		for _, each := range objects {
			if pool, is := each.(*v1alpha1.GPUNodePool); is {
				metrics.ForgetPool(pool.Name)
			}
		}
	})
	return w
}

// restart makes a reconciler that remembers nothing.
func (w *world) restart(c client.Client) {
	w.Controller = NewController(c, c, w, w.said, w.notices, w.clock)
}

// Usage and Unavailable are the reconciler's Supply.
func (w *world) Usage(pool string) ledger.Usage { return w.ledger.Usage(pool) }

func (w *world) Unavailable(string) []v1alpha1.UnavailableOffering {
	return slices.Clone(w.unavailable)
}

// notices keeps what was last notified of each pool and reason.
type notices struct{ last map[string]notify.Notice }

func (n *notices) Notify(notice notify.Notice) {
	if n.last == nil {
		n.last = map[string]notify.Notice{}
	}
	n.last[notice.Pool+" "+notice.Reason] = notice
}

// count tells the ledger what a pool may have and which machines it has: launched claims.
func (w *world) count(t *testing.T, pool string, limits ledger.Limits, machines ...ledger.Machine) {
	t.Helper()
	w.ledger.SetLimits(pool, limits)
	world := ledger.World{}
	for i, machine := range machines {
		uid := fmt.Sprintf("%s-%d", pool, i)
		world.Claims = append(world.Claims, ledger.Claim{UID: uid, Attempt: uid, Machine: machine, State: ledger.Launched})
	}
	if err := w.ledger.Rebuild(func() (map[string]ledger.World, error) { return map[string]ledger.World{pool: world}, nil }); err != nil {
		t.Fatal(err)
	}
}

func gpus(n int64) ledger.Limits {
	return ledger.Limits{GPUs: &n, Surge: ledger.Amounts{GPUs: n, Nodes: 1}}
}

func boards(n int64) ledger.Machine { return ledger.NewMachine(n, float64(n), true) }

// recorder keeps the events as lines: "GPUNodePool inf Warning LimitReached ...".
type recorder struct {
	lines []string
	// annotations are those of the last event that had any.
	annotations map[string]string
}

func (r *recorder) Event(o runtime.Object, kind, reason, message string) {
	object := o.(client.Object)
	name := "Pod"
	if _, is := o.(*v1alpha1.GPUNodePool); is {
		name = "GPUNodePool"
	}
	r.lines = append(r.lines, fmt.Sprintf("%s %s %s %s %s", name, object.GetName(), kind, reason, message))
}

func (r *recorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) AnnotatedEventf(o runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	r.annotations = annotations
	r.Eventf(o, kind, reason, format, args...)
}

// take returns the events since the last time.
func (r *recorder) take() []string {
	lines := r.lines
	r.lines = nil
	return lines
}

// reconcile looks once at a pool, and returns when it wants to look again.
func (w *world) reconcile(t *testing.T, pool string) time.Duration {
	t.Helper()
	result, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: pool}})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func (w *world) pool(t *testing.T, name string) *v1alpha1.GPUNodePool {
	t.Helper()
	pool := &v1alpha1.GPUNodePool{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func (w *world) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, each := range objects {
		if err := w.client.Create(t.Context(), each); err != nil {
			t.Fatal(err)
		}
	}
}

// wantHeld looks at the condition and at the number of pods in the pool's holds; "" wants none.
func (w *world) wantHeld(t *testing.T, pool, reason string, pods int) {
	t.Helper()
	found := w.pool(t, pool)
	condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionLimitReached)
	if condition == nil {
		t.Fatal("no condition LimitReached")
	}
	status, holds := metav1.ConditionTrue, 1
	if reason == "" {
		status, reason, holds = metav1.ConditionFalse, v1alpha1.ReasonWithinLimit, 0
	}
	if condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != found.Generation {
		t.Errorf("LimitReached is %s, %s, of generation %d: %s; want %s, %s, of %d",
			condition.Status, condition.Reason, condition.ObservedGeneration, condition.Message, status, reason, found.Generation)
	}
	if len(found.Status.Holds) != holds {
		t.Fatalf("holds are %v, want %d", found.Status.Holds, holds)
	}
	if holds == 1 && (found.Status.Holds[0].Reason != v1alpha1.HoldLimitReached || int(found.Status.Holds[0].Pods) != pods) {
		t.Errorf("hold is %v, want %d pods", found.Status.Holds[0], pods)
	}
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// series reads the series of a pool as a scrape would: "name{label=value}" without the label pool.
func series(t *testing.T, pool string) map[string]float64 {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if !strings.HasPrefix(family.GetName(), "gpufleet_") || labels["pool"] != pool {
				continue
			}
			delete(labels, "pool")
			key := family.GetName()
			for _, name := range slices.Sorted(maps.Keys(labels)) {
				key += fmt.Sprintf("{%s=%s}", name, labels[name])
			}
			out[key] = metric.GetGauge().GetValue()
		}
	}
	return out
}

func wantSeries(t *testing.T, pool string, want map[string]float64) {
	t.Helper()
	got := series(t, pool)
	for name, value := range want {
		if found, is := got[name]; !is || found != value {
			t.Errorf("%s is %g (found %t), want %g", name, found, is, value)
		}
	}
}

// newPool is a pool on some instance types, each an entry of its own.
func newPool(name, class string, instanceTypes ...string) *v1alpha1.GPUNodePool {
	pool := &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Generation: 3},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: class},
		},
	}
	for _, each := range instanceTypes {
		pool.Spec.Machines = append(pool.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: strings.Split(each, ",")})
	}
	return pool
}

// newClass is a resolved class with subnets in two zones.
func newClass(name string, sharing v1alpha1.SharingSpec) *nodeclass.Object {
	class := nodeclass.New()
	class.Name = name
	class.Spec = v1alpha1.GPUNodeClassSpec{Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{}}, Sharing: sharing}
	class.Status.Subnets = []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}}
	return class
}

// whole is a class of whole GPUs.
func whole() *nodeclass.Object {
	return newClass("whole", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive})
}

// mig is a class that cuts each GPU into 7, with its layout.
func mig() (*nodeclass.Object, *v1alpha1.MIGLayout) {
	layout := &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-7x1g10gb"},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}
	return newClass("mig", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{layout.Name}}), layout
}

func list(pairs ...any) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		name, is := pairs[i].(corev1.ResourceName)
		if !is {
			name = corev1.ResourceName(pairs[i].(string))
		}
		out[name] = resource.MustParse(fmt.Sprint(pairs[i+1]))
	}
	return out
}

// newPod is a pod that carries what a pool asks of its pods, and that the scheduler has found no node for since began.
func newPod(name, pool string, requests corev1.ResourceList, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(began.Add(-time.Second))},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"gpufleet.dev/pool": pool},
			Tolerations: []corev1.Toleration{
				{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpEqual, Value: "present", Effect: corev1.TaintEffectNoSchedule},
				{Key: "gpufleet.dev/workload", Operator: corev1.TolerationOpEqual, Value: "Inference", Effect: corev1.TaintEffectNoSchedule},
			},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(began),
		}}},
	}
	for _, each := range change {
		each(pod)
	}
	return pod
}

// pods are several of them, name-0 and on.
func pods(n int, name, pool string, requests corev1.ResourceList, change ...func(*corev1.Pod)) []client.Object {
	out := make([]client.Object, n)
	for i := range out {
		out[i] = newPod(fmt.Sprintf("%s-%d", name, i), pool, requests, change...)
	}
	return out
}

// on binds a pod to a node.
func on(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodRunning}
	}
}

// newClaim is a claim of a pool, launched: its allocatable is what the launch promised.
func newClaim(name, pool, instanceType string, promised corev1.ResourceList) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Labels: map[string]string{
			"gpufleet.dev/pool": pool, corev1.LabelInstanceTypeStable: instanceType, corev1.LabelTopologyZone: "us-east-1a",
		}},
		Spec:   karpv1.NodeClaimSpec{Taints: nodeTaints()},
		Status: karpv1.NodeClaimStatus{ProviderID: "aws:///us-east-1a/" + name, Allocatable: promised},
	}
}

func nodeTaints() []corev1.Taint {
	return []corev1.Taint{
		{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule},
		{Key: "gpufleet.dev/workload", Value: "Inference", Effect: corev1.TaintEffectNoSchedule},
	}
}

// newNode is the verified node of a claim.
func newNode(claim *karpv1.NodeClaim, allocatable corev1.ResourceList, change ...func(*corev1.Node)) *corev1.Node {
	labels := maps.Clone(claim.Labels)
	labels[corev1.LabelHostname] = claim.Name
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: nodeTaints()},
		Status:     corev1.NodeStatus{Allocatable: allocatable},
	}
	for _, each := range change {
		each(node)
	}
	return node
}

// unverified is a node as it comes up: it carries what keeps pods away, and offers nothing yet.
func unverified(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints,
		corev1.Taint{Key: "gpufleet.dev/unverified", Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
		corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
	)
	node.Status.Allocatable = list("cpu", 190, "memory", "1900Gi", "pods", 110)
}
