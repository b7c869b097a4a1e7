package nodepool

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

const (
	isTrue    = metav1.ConditionTrue
	isFalse   = metav1.ConditionFalse
	isUnknown = metav1.ConditionUnknown
)

// 8 and 1 H100s, each cut into 7: 56 and 7 slices. Prices as of the table of instance types.
func TestReconcile_SaysInStatusWhatThePoolIs(t *testing.T) {
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines("p5.48xlarge", "p5.4xlarge,p5.48xlarge")
	})
	w.reconcile(t)
	w.wantCondition(t, "Accepted", isTrue, "Valid", "p5.48xlarge offers nvidia.com/mig-1g.10gb: 56", "p5.4xlarge offers nvidia.com/mig-1g.10gb: 7")
	w.wantCondition(t, "Ready", isTrue, "Ready")

	slices := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/mig-1g.10gb": *resource.NewQuantity(n, resource.DecimalSI)}
	}
	got := w.pool(t).Status.Blueprints
	want := []v1alpha1.BlueprintSummary{
		{InstanceType: "p5.48xlarge", GPUModel: "H100-80GB-SXM", GPUs: 8, Resources: slices(56), PricePerHour: "55.04", PriceAsOf: "2026-07-20"},
		{InstanceType: "p5.4xlarge", GPUModel: "H100-80GB-SXM", GPUs: 1, Resources: slices(7), PricePerHour: "6.88", PriceAsOf: "2026-07-20"},
	}
	for i := range got {
		if got[i].Hash == "" {
			t.Errorf("the Blueprint of %s has no hash", got[i].InstanceType)
		}
		got[i].Hash = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The two layouts that DESIGN's rule 4 tells apart: 3g + 3g + 1g fits by count, and cannot be placed.
func TestReconcile_SaysWhyAPoolIsNotAcceptedAndLaunchesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.GPUNodePool, *nodeclass.Object, *v1alpha1.MIGLayout)
		reason string
		words  []string
	}{
		"a layout that cannot be placed": {
			func(_ *v1alpha1.GPUNodePool, _ *nodeclass.Object, layout *v1alpha1.MIGLayout) {
				layout.Spec.Devices[0].Slices = []v1alpha1.MIGSlice{{Profile: "3g.40gb", Count: 2}, {Profile: "1g.10gb", Count: 1}}
			},
			"InvalidLayout", []string{"MIGLayout h100-7x1g10gb: spec.devices[0].slices", "H100-80GB-SXM cannot be cut into 2 x 3g.40gb + 1g.10gb"},
		},
		"a layout that does not exist": {
			func(_ *v1alpha1.GPUNodePool, class *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				class.Spec.Sharing.Layouts = []string{"gone"}
			},
			"InvalidLayout", []string{"GPUNodeClass h100-mig: spec.sharing.layouts[0]", `MIG layout "gone" does not exist: declare it`},
		},
		"a machine with other GPUs than the layout's": {
			func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Machines = machines("p5.48xlarge", "p4d.24xlarge")
			},
			"SKUMismatch", []string{"p4d.24xlarge has A100-40GB GPUs", "layout h100-7x1g10gb of class h100-mig is for H100-80GB-SXM", "p5.48xlarge, p5.4xlarge"},
		},
		"a class that does not exist": {
			func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.NodeClassRef.Name = "h100"
			},
			"ClassNotFound", []string{"GPUNodePool inference: spec.nodeClassRef.name", `node class "h100" does not exist: declare it`},
		},
		"a class with two sharing strategies": {
			func(_ *v1alpha1.GPUNodePool, class *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				class.Spec.Sharing.Strategy = "Exclusive"
			},
			"InvalidClass", []string{"GPUNodeClass h100-mig: spec.sharing", "two sharing strategies"},
		},
		"a pool with a label that a node may not have": {
			func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Labels = map[string]string{"node.kubernetes.io/role": "gpu"}
			},
			"InvalidPool", []string{"GPUNodePool inference: spec.labels: label node.kubernetes.io/role: labels under kubernetes.io and k8s.io are Kubernetes' own; use node-restriction.kubernetes.io for yours"},
		},
		// It would make two NodePools of one name.
		"a pool with two equal entries": {
			func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Machines = machines("p5.4xlarge,p5.48xlarge", "p5.48xlarge,p5.4xlarge")
			},
			"InvalidPool", []string{"GPUNodePool inference: spec.machines[1].instanceTypes: entry 0 names the same instance types"},
		},
		"a pool with two mistakes, of which it says the first": {
			func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Machines[0].InstanceTypes = nil
				pool.Spec.Taints = []v1alpha1.TaintSpec{{Key: "no key", Effect: corev1.TaintEffectNoSchedule}}
			},
			"InvalidPool", []string{"GPUNodePool inference: spec.machines[0].instanceTypes: has 0 entries; 1 to 60 are allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.change)
			w.reconcile(t)
			w.wantCondition(t, "Accepted", isFalse, tc.reason, tc.words...)
			w.wantCondition(t, "Ready", isFalse, "NotAccepted", "nothing is launched")
			if got := w.nodePoolNames(t); len(got) > 0 {
				t.Errorf("NodePools %v, want none", got)
			}
			if got := w.pluginConfigs(t); got != nil {
				t.Errorf("the device plugin is configured: %v", got)
			}
			status := w.pool(t).Status
			if len(status.Blueprints) > 0 || status.Effective == nil {
				t.Errorf("blueprints %v, effective %v; want none, and the settings in force", status.Blueprints, status.Effective)
			}
		})
	}
}

func TestReconcile_KeepsTheNodePoolsOfAPoolThatIsNoLongerAccepted(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	before := get(t, w, &karpv1.NodePool{}, nodePoolP548)
	change(t, w, &v1alpha1.MIGLayout{}, layoutName, func(layout *v1alpha1.MIGLayout) { layout.Spec.Devices[0].Slices[0].Count = 8 })
	w.reconcile(t)
	w.wantCondition(t, "Accepted", isFalse, "InvalidLayout", "8 x 1g.10gb")
	w.wantCondition(t, "Ready", isFalse, "NotAccepted")
	if diff := cmp.Diff(before, get(t, w, &karpv1.NodePool{}, nodePoolP548)); diff != "" {
		t.Errorf("the NodePool of running nodes changed: %s", diff)
	}
	if got := w.pool(t).Status.Blueprints; len(got) > 0 {
		t.Errorf("status shows Blueprints that do not exist: %v", got)
	}

	change(t, w, &v1alpha1.MIGLayout{}, layoutName, func(layout *v1alpha1.MIGLayout) { layout.Spec.Devices[0].Slices[0].Count = 7 })
	w.reconcile(t)
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

func TestReconcile_IsReadyOnlyWhenItsClassCanLaunch(t *testing.T) {
	ready := func(status metav1.ConditionStatus, reason, message string, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: generation}}
	}
	for name, tc := range map[string]struct {
		zones      []string
		conditions []metav1.Condition
		status     metav1.ConditionStatus
		reason     string
		words      []string
	}{
		"resolved":                     {nil, ready(isTrue, "Ready", "", 5), isTrue, "Ready", nil},
		"resolved, one zone of two":    {[]string{"us-east-1b", "us-east-1f"}, ready(isTrue, "Ready", "", 5), isTrue, "Ready", nil},
		"never resolved":               {nil, nil, isUnknown, "Resolving", []string{"GPUNodeClass h100-mig is being resolved"}},
		"resolved before its change":   {nil, ready(isTrue, "Ready", "", 4), isUnknown, "Resolving", []string{"h100-mig"}},
		"not resolved":                 {nil, ready(isFalse, "CloudError", "subnet-a does not exist", 5), isFalse, "ClassNotReady", []string{"h100-mig is not ready", "subnet-a does not exist"}},
		"no subnet in the pool's zone": {[]string{"us-east-1f"}, ready(isTrue, "Ready", "", 5), isFalse, "ClassNotReady", []string{"no subnet", "h100-mig", "us-east-1f"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(pool *v1alpha1.GPUNodePool, class *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Zones, class.Status.Conditions = tc.zones, tc.conditions
			})
			w.reconcile(t)
			w.wantCondition(t, "Accepted", isTrue, "Valid")
			w.wantCondition(t, "Ready", tc.status, tc.reason, tc.words...)
		})
	}
}

func TestReconcile_BecomesReadyWithItsClass(t *testing.T) {
	w := newWorld(t, func(_ *v1alpha1.GPUNodePool, class *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		class.Status.Conditions = nil
	})
	w.reconcile(t)
	w.wantCondition(t, "Ready", isUnknown, "Resolving")
	w.setClassStatus(t, func(status *v1alpha1.GPUNodeClassStatus) { status.Conditions = testClass().Status.Conditions })
	w.reconcile(t)
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

func TestReconcile_ObservesEachGeneration(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	change(t, w, &v1alpha1.GPUNodePool{}, poolName, func(pool *v1alpha1.GPUNodePool) { pool.Spec.Zones = []string{"us-east-1a"} })
	w.reconcile(t)
	if got := w.pool(t).Generation; got != 4 {
		t.Fatalf("generation %d, want 4", got)
	}
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

// An API server that is ill for a moment says nothing about the pool.
func TestReconcile_DoesNotRefuseAPoolWhoseClassCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	ill := errors.New("etcd is ill")
	w.fail = func(verb string, o client.Object) error {
		if _, class := o.(*nodeclass.Object); class && verb == "get" {
			return ill
		}
		return nil
	}
	_, err := w.Reconcile(t.Context(), w.pool(t))
	if !errors.Is(err, ill) {
		t.Errorf("error %v, want the API server's, so that it is tried again", err)
	}
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

func TestReconcile_CountsLaunchedMachinesAndVerifiedNodes(t *testing.T) {
	w := newWorld(t)
	w.create(t,
		claim("verified", "p5.48xlarge", "i-1"), claim("joining", "p5.4xlarge", "i-2"), claim("asked", "p5.48xlarge", ""),
		gpuNode("i-1", poolName, 8, "verified", isTrue), gpuNode("i-2", poolName, 1, "joining", isFalse),
		gpuNode("i-9", "batch", 8, "of another pool", isTrue),
	)
	w.reconcile(t)
	want := &v1alpha1.NodeCounts{Total: 2, Verified: 1, GPUs: 9}
	if diff := cmp.Diff(want, w.pool(t).Status.Nodes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]float64{"verified": 8, "unverified": 1}, gauge(t)); diff != "" {
		t.Errorf("gpufleet_pool_gpus: %s", diff)
	}
}

// The garbage collector removes a GPUNode some time after its NodeClaim.
func TestReconcile_DoesNotCountANodeWhoseMachineIsGone(t *testing.T) {
	w := newWorld(t)
	w.create(t, gpuNode("i-1", poolName, 8, "gone", isTrue))
	w.reconcile(t)
	if diff := cmp.Diff(&v1alpha1.NodeCounts{}, w.pool(t).Status.Nodes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]float64{"verified": 0, "unverified": 0}, gauge(t)); diff != "" {
		t.Errorf("gpufleet_pool_gpus: %s", diff)
	}
}

// gpuNode is a node of a claim, as the verification reconciler makes it.
func gpuNode(name, pool string, gpus int32, claim string, verified metav1.ConditionStatus) *v1alpha1.GPUNode {
	out := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim, UID: types.UID("uid of " + claim)},
		}},
		Spec: v1alpha1.Blueprint{Pool: pool, GPU: v1alpha1.GPUBlueprint{Count: gpus}},
	}
	meta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionVerified, Status: verified, Reason: "Test"})
	return out
}
