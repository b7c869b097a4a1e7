package verification

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

func TestMain(m *testing.M) {
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	nodeName   = "i-0001"
	providerID = "aws:///us-east-1a/i-0001"
	slices     = "nvidia.com/mig-1g.10gb"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// world is a pool with one node that has joined and registered.
type world struct {
	*Controller
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	clk, recorder := clocktesting.NewFakeClock(began), record.NewFakeRecorder(20)
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim", UID: "uid", CreationTimestamp: metav1.NewTime(began),
			Labels: map[string]string{v1alpha1.LabelPool: "inference", corev1.LabelInstanceTypeStable: "p5.48xlarge"},
		},
		Spec:   karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: v1alpha1.KindGPUNodeClass, Name: "h100-mig"}},
		Status: karpv1.NodeClaimStatus{ProviderID: providerID, Conditions: nil},
	}
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
	for i := range claim.Status.Conditions {
		claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(began)
	}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&v1alpha1.GPUNode{}).
		WithIndex(&karpv1.NodeClaim{}, "status.providerID", func(o client.Object) []string {
			return []string{o.(*karpv1.NodeClaim).Status.ProviderID}
		}).
		WithObjects(append(quickstart(), claim, joined())...).Build()
	return &world{Controller: NewController(c, recorder, clk), clock: clk, events: recorder}
}

func quickstart() []client.Object {
	layout := &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-7x1g10gb"},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}
	class := nodeclass.New()
	class.Name = "h100-mig"
	class.Spec = v1alpha1.GPUNodeClassSpec{
		Cloud:        v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{}},
		Sharing:      v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{layout.Name}},
		Verification: v1alpha1.VerificationSpec{Timeout: &metav1.Duration{Duration: 5 * time.Minute}},
	}
	pool := &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "inference"},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: class.Name},
			Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
		},
	}
	return []client.Object{layout, class, pool}
}

func joined() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{v1alpha1.LabelPool: "inference"}},
		Spec: corev1.NodeSpec{ProviderID: providerID, Taints: []corev1.Taint{
			{Key: v1alpha1.TaintGPU, Value: v1alpha1.TaintGPUValue, Effect: corev1.TaintEffectNoSchedule}, v1alpha1.UnverifiedTaint(),
		}},
	}
}

func (w *world) node(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func (w *world) gpuNode(t *testing.T) *v1alpha1.GPUNode {
	t.Helper()
	gpuNode := &v1alpha1.GPUNode{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, gpuNode); err != nil {
		t.Fatal(err)
	}
	return gpuNode
}

// reconcile runs once and returns when it wants to look again.
func (w *world) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := w.Reconcile(t.Context(), w.node(t))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// report writes what the agent would: boards with so many 1g.10gb instances on each.
func (w *world) report(t *testing.T, perBoard ...int) {
	t.Helper()
	gpuNode := w.gpuNode(t)
	inventory := &v1alpha1.Inventory{BlueprintHash: gpuNode.Spec.Hash, DriverVersion: "580.95.05"}
	for index, count := range perBoard {
		board := v1alpha1.GPUInventory{
			Index: int32(index), ProductName: "NVIDIA H100 80GB HBM3", MemoryMiB: 81152,
			MIG: &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true},
		}
		for start := range count {
			board.MIG.Instances = append(board.MIG.Instances, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: int32(start), Size: 1})
		}
		inventory.GPUs = append(inventory.GPUs, board)
	}
	gpuNode.Status.Inventory = inventory
	if err := w.client.Status().Update(t.Context(), gpuNode); err != nil {
		t.Fatal(err)
	}
}

func (w *world) advertise(t *testing.T, name corev1.ResourceName, count int64) {
	t.Helper()
	node := w.node(t)
	node.Status.Allocatable = corev1.ResourceList{name: *resource.NewQuantity(count, resource.DecimalSI)}
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

func (w *world) tainted(t *testing.T) bool {
	t.Helper()
	for _, taint := range w.node(t).Spec.Taints {
		if taint.Key == v1alpha1.TaintUnverified {
			return true
		}
	}
	return false
}

func full() []int { return []int{7, 7, 7, 7, 7, 7, 7, 7} }

func TestVerification_TheTaintGoesOnlyWhenHardwareAndResourcesAreExact(t *testing.T) {
	cases := map[string]struct {
		boards   []int
		resource corev1.ResourceName
		count    int64
		status   metav1.ConditionStatus
		reason   string
		words    []string
	}{
		"all 56":                      {full(), slices, 56, metav1.ConditionTrue, v1alpha1.ReasonMatches, []string{"8 x H100-80GB-SXM"}},
		"nothing advertised yet":      {full(), "cpu", 192, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingResources, []string{"nvidia.com/mig-1g.10gb: 56"}},
		"7 of 8 GPUs":                 {full()[:7], slices, 49, metav1.ConditionFalse, v1alpha1.FindingGPUCountMismatch, []string{"8", "7"}},
		"55 of 56 instances":          {[]int{7, 7, 7, 6, 7, 7, 7, 7}, slices, 55, metav1.ConditionFalse, v1alpha1.FindingPartialLayout, []string{"7 x 1g.10gb", "6 x 1g.10gb", "3"}},
		"another resource name":       {full(), slices + ".shared", 56, metav1.ConditionFalse, v1alpha1.FindingAdvertiseMismatch, []string{slices + ": 56", slices + ".shared: 56"}},
		"55 advertised of 56 present": {full(), slices, 55, metav1.ConditionFalse, v1alpha1.FindingAdvertiseMismatch, []string{"56", "55"}},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reconcile(t)
			if !w.tainted(t) {
				t.Fatal("the taint went before the agent had reported")
			}
			w.report(t, each.boards...)
			w.advertise(t, each.resource, each.count)
			w.reconcile(t)

			verdict := meta.FindStatusCondition(w.gpuNode(t).Status.Conditions, v1alpha1.ConditionVerified)
			if verdict.Status != each.status || verdict.Reason != each.reason {
				t.Errorf("Verified=%s %s (%s), want %s %s", verdict.Status, verdict.Reason, verdict.Message, each.status, each.reason)
			}
			for _, words := range each.words {
				if !strings.Contains(verdict.Message, words) {
					t.Errorf("%q does not say %q", verdict.Message, words)
				}
			}
			if tainted, want := w.tainted(t), each.status != metav1.ConditionTrue; tainted != want {
				t.Errorf("tainted=%v, want %v", tainted, want)
			}
			if findings := w.gpuNode(t).Status.Findings; each.status == metav1.ConditionFalse && (len(findings) == 0 || findings[0].Expected == "" || findings[0].Found == "") {
				t.Errorf("findings %+v, want expected and found", findings)
			}
		})
	}
}

func TestVerification_TaintsAgainANodeThatIsNoLongerItsBlueprint(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.report(t, full()...)
	w.advertise(t, slices, 56)
	w.reconcile(t)
	if w.tainted(t) {
		t.Fatal("a verified node is tainted")
	}
	w.report(t, 0, 0, 0, 0, 0, 0, 0, 0)
	w.reconcile(t)
	if !w.tainted(t) {
		t.Error("a node whose MIG instances are gone is not tainted")
	}
}

func TestVerification_ReplacesANodeThatIsNotProvedInTime(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.report(t, full()[:7]...)
	if again := w.reconcile(t); again != 5*time.Minute {
		t.Errorf("looks again after %s, want the class's 5m", again)
	}
	w.clock.Step(5*time.Minute + time.Second)
	w.reconcile(t)
	err := w.client.Get(t.Context(), client.ObjectKey{Name: "claim"}, &karpv1.NodeClaim{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the NodeClaim is still there: %v", err)
	}
	said := w.said()
	if !strings.Contains(said, "not verified within 5m") || !strings.Contains(said, v1alpha1.FindingGPUCountMismatch) {
		t.Errorf("events do not say why: %s", said)
	}
}

// said are the events so far.
func (w *world) said() string {
	var said []string
	for len(w.events.Events) > 0 {
		said = append(said, <-w.events.Events)
	}
	return strings.Join(said, "\n")
}

func TestVerification_SaysEachNewVerdictOnceAsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	if said := w.said(); said != "" {
		t.Errorf("waiting is no verdict: %s", said)
	}
	w.report(t, full()[:7]...)
	w.reconcile(t)
	w.reconcile(t)
	if said := w.said(); strings.Count(said, "Warning "+v1alpha1.FindingGPUCountMismatch) != 2 {
		t.Errorf("want one Warning with the finding on GPUNode and NodeClaim each, got: %s", said)
	}
	w.report(t, full()...)
	w.advertise(t, slices, 56)
	w.reconcile(t)
	if said := w.said(); strings.Count(said, "Normal "+v1alpha1.ReasonMatches) != 2 {
		t.Errorf("want one Normal event on GPUNode and NodeClaim each, got: %s", said)
	}
}

func TestVerification_NeverReplacesANodeThatWasProvedOnce(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.report(t, full()...)
	w.advertise(t, slices, 56)
	w.reconcile(t)
	w.advertise(t, slices+".shared", 56)
	w.clock.Step(24 * time.Hour)
	w.reconcile(t)
	if !w.tainted(t) {
		t.Error("a node that advertises another resource is not tainted")
	}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "claim"}, &karpv1.NodeClaim{}); err != nil {
		t.Errorf("the NodeClaim of a node with pods is gone: %v", err)
	}
}

func TestVerification_KeepsTheBlueprintThatTheNodeWasLaunchedWith(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	before := w.gpuNode(t).Spec
	layout := &v1alpha1.MIGLayout{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "h100-7x1g10gb"}, layout); err != nil {
		t.Fatal(err)
	}
	layout.Spec.Devices[0].Slices = []v1alpha1.MIGSlice{{Profile: "3g.40gb", Count: 2}}
	if err := w.client.Update(t.Context(), layout); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if after := w.gpuNode(t).Spec; after.Hash != before.Hash {
		t.Error("a changed layout rewrote the Blueprint of a running node")
	}
}

func TestVerification_WritesNothingWhenNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.report(t, full()...)
	w.advertise(t, slices, 56)
	w.reconcile(t)
	gpuNode, node := w.gpuNode(t).ResourceVersion, w.node(t).ResourceVersion
	w.clock.Step(time.Hour)
	w.reconcile(t)
	if w.gpuNode(t).ResourceVersion != gpuNode || w.node(t).ResourceVersion != node {
		t.Error("a second look wrote again")
	}
}

// Core counts an initialized node by its status alone, so that the resources which its limits are counted in must be
// there before the taint goes, and again when a kubelet that starts has set them to zero. The machine has 8 GPUs.
func TestVerification_PublishesWhatLimitsAreCountedIn(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.wantPublished(t)

	node := w.node(t)
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		list["gpufleet.dev/gpu"], list["gpufleet.dev/node"] = resource.MustParse("0"), resource.MustParse("0")
	}
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	w.wantPublished(t)
}

func (w *world) wantPublished(t *testing.T) {
	t.Helper()
	status := w.node(t).Status
	for where, list := range map[string]corev1.ResourceList{"capacity": status.Capacity, "allocatable": status.Allocatable} {
		for name, want := range map[corev1.ResourceName]int64{"gpufleet.dev/gpu": 8, "gpufleet.dev/node": 1, "gpufleet.dev/microdollars-per-hour": 55_040_000} {
			if got := list[name]; got.Value() != want {
				t.Errorf("%s has %d of %s, want %d", where, got.Value(), name, want)
			}
		}
	}
}
