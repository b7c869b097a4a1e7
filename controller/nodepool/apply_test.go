package nodepool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

func TestReconcile_WritesOneNodePoolAnEntryOfMachines(t *testing.T) {
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines("p5.4xlarge,p5.48xlarge", "p5.48xlarge")
		pool.Spec.Zones = []string{"us-east-1a", "us-east-1c"}
		pool.Spec.Labels = map[string]string{"team": "search"}
		pool.Spec.Taints = []v1alpha1.TaintSpec{{Key: "search", Value: "only", Effect: corev1.TaintEffectNoExecute}}
	})
	w.reconcile(t)

	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values}
	}
	want := func(weight int32, instanceTypes ...string) karpv1.NodePoolSpec {
		return karpv1.NodePoolSpec{
			Weight: &weight,
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: "WhenEmpty",
				ConsolidateAfter:    karpv1.MustParseNillableDuration("30m0s"),
				Budgets:             []karpv1.Budget{{Nodes: "10%"}},
			},
			Template: karpv1.NodeClaimTemplate{
				// Neither layout nor GPU model: a change of these is drift of ours.
				ObjectMeta: karpv1.ObjectMeta{Labels: map[string]string{
					"gpufleet.dev/pool": "inference", "gpufleet.dev/workload": "Inference", "team": "search",
					"nvidia.com/device-plugin.config": "inference", "nvidia.com/gpu.deploy.mig-manager": "false",
				}},
				Spec: karpv1.NodeClaimTemplateSpec{
					NodeClassRef: &karpv1.NodeClassReference{Group: "gpufleet.dev", Kind: "GPUNodeClass", Name: "h100-mig"},
					Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
						in("node.kubernetes.io/instance-type", instanceTypes...),
						in("karpenter.sh/capacity-type", "on-demand"),
						in("topology.kubernetes.io/zone", "us-east-1a", "us-east-1c"),
					},
					Taints: []corev1.Taint{
						{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule"},
						{Key: "gpufleet.dev/workload", Value: "Inference", Effect: "NoSchedule"},
						{Key: "search", Value: "only", Effect: "NoExecute"},
					},
					StartupTaints: []corev1.Taint{{Key: "gpufleet.dev/unverified", Effect: "NoSchedule"}},
					ExpireAfter:   karpv1.MustParseNillableDuration("Never"),
				},
			},
		}
	}
	for name, spec := range map[string]karpv1.NodePoolSpec{
		nodePoolBoth: want(100, "p5.4xlarge", "p5.48xlarge"),
		nodePoolP548: want(99, "p5.48xlarge"),
	} {
		nodePool := get(t, w, &karpv1.NodePool{}, name)
		if diff := cmp.Diff(spec, nodePool.Spec); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := nodePool.Labels["gpufleet.dev/pool"]; got != "inference" {
			t.Errorf("%s has label gpufleet.dev/pool=%q", name, got)
		}
		owner := []metav1.OwnerReference{{
			APIVersion: "gpufleet.dev/v1alpha1", Kind: "GPUNodePool", Name: "inference", UID: "uid of the pool",
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
		if diff := cmp.Diff(owner, nodePool.OwnerReferences); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := w.nodePoolNames(t); len(got) != 2 {
		t.Errorf("NodePools %v, want two", got)
	}
}

func TestReconcile_FollowsTheWorkloadClassWhereThePoolSaysNothing(t *testing.T) {
	// Core takes the least of the budgets that name a reason or none: no node of a job goes for drift.
	rolls := []karpv1.Budget{{Nodes: "10%"}}
	never := []karpv1.Budget{{Nodes: "10%"}, {Nodes: "0", Reasons: []karpv1.DisruptionReason{"Drifted"}}}
	for _, tc := range []struct {
		workload, consolidateAfter, priorityClass string
		capacityTypes                             []string
		budgets                                   []karpv1.Budget
	}{
		{"Inference", "30m0s", "gpufleet-inference", []string{"on-demand"}, rolls},
		{"Batch", "2m0s", "gpufleet-batch", []string{"spot", "on-demand"}, never},
		{"Research", "5m0s", "gpufleet-research", []string{"spot", "on-demand"}, never},
	} {
		t.Run(tc.workload, func(t *testing.T) {
			w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
				pool.Spec.Workload = v1alpha1.Workload(tc.workload)
			})
			w.reconcile(t)
			spec := get(t, w, &karpv1.NodePool{}, nodePoolP548).Spec
			if got := requirement(spec, "karpenter.sh/capacity-type"); !slices.Equal(got, tc.capacityTypes) {
				t.Errorf("capacity types %v, want %v", got, tc.capacityTypes)
			}
			if got := spec.Disruption.ConsolidateAfter.Duration.String(); got != tc.consolidateAfter {
				t.Errorf("consolidateAfter %s, want %s", got, tc.consolidateAfter)
			}
			if got := spec.Disruption.ConsolidationPolicy; got != "WhenEmpty" {
				t.Errorf("consolidationPolicy %s, want WhenEmpty", got)
			}
			if diff := cmp.Diff(tc.budgets, spec.Disruption.Budgets); diff != "" {
				t.Errorf("budgets: %s", diff)
			}
			effective := w.pool(t).Status.Effective
			if effective == nil || effective.PriorityClass != tc.priorityClass || effective.ConsolidateAfter.Duration.String() != tc.consolidateAfter ||
				fmt.Sprint(effective.CapacityTypes) != fmt.Sprint(tc.capacityTypes) {
				t.Errorf("status.effective %+v", effective)
			}
		})
	}
}

func TestReconcile_YieldsToWhatThePoolSays(t *testing.T) {
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.CapacityTypes = []v1alpha1.CapacityType{"spot"}
		pool.Spec.Disruption = &v1alpha1.DisruptionSpec{ConsolidateAfter: &metav1.Duration{Duration: time.Hour}}
	})
	w.reconcile(t)
	spec := get(t, w, &karpv1.NodePool{}, nodePoolP548).Spec
	if got := requirement(spec, "karpenter.sh/capacity-type"); !slices.Equal(got, []string{"spot"}) {
		t.Errorf("capacity types %v, want spot", got)
	}
	if got := *spec.Disruption.ConsolidateAfter.Duration; got != time.Hour {
		t.Errorf("consolidateAfter %s, want 1h", got)
	}
	// A requirement without values would match no zone.
	if got := len(spec.Template.Spec.Requirements); got != 2 {
		t.Errorf("%d requirements, want those of the instance and capacity types: the pool names no zones", got)
	}
}

func requirement(spec karpv1.NodePoolSpec, key string) []string {
	for _, each := range spec.Template.Spec.Requirements {
		if each.Key == key {
			return each.Values
		}
	}
	return nil
}

func TestReconcile_FollowsAChangeOfThePool(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	change(t, w, &v1alpha1.GPUNodePool{}, poolName, func(pool *v1alpha1.GPUNodePool) {
		pool.Spec.Zones = []string{"us-east-1b"}
		pool.Spec.Labels = map[string]string{"team": "ads"}
	})
	w.reconcile(t)
	spec := get(t, w, &karpv1.NodePool{}, nodePoolP548).Spec
	if got := requirement(spec, "topology.kubernetes.io/zone"); !slices.Equal(got, []string{"us-east-1b"}) {
		t.Errorf("zones %v, want us-east-1b", got)
	}
	if got := spec.Template.Labels["team"]; got != "ads" {
		t.Errorf("label team=%q, want ads", got)
	}
}

func TestReconcile_WritesThePoolsKeyOfTheDevicePluginsConfigMap(t *testing.T) {
	const mixed = "flags:\n  migStrategy: mixed\nversion: v1\n"
	w := newWorld(t)
	w.reconcile(t)
	if diff := cmp.Diff(map[string]string{poolName: mixed}, w.pluginConfigs(t)); diff != "" {
		t.Error(diff)
	}

	w = newWorld(t)
	other := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpufleet-system", Name: "gpufleet-device-plugin"},
		Data:       map[string]string{"batch": "of another pool", poolName: "out of date"},
	}
	w.create(t, other)
	w.reconcile(t)
	if diff := cmp.Diff(map[string]string{"batch": "of another pool", poolName: mixed}, w.pluginConfigs(t)); diff != "" {
		t.Error(diff)
	}
}

func TestReconcile_CreatesPriorityClassesInStrictOrder(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	list := &schedulingv1.PriorityClassList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	values := map[string]int32{}
	for _, each := range list.Items {
		values[each.Name] = each.Value
		if each.GlobalDefault || each.PreemptionPolicy != nil {
			t.Errorf("%s changes pods that do not name it, or does not preempt: %+v", each.Name, each)
		}
	}
	inference, batch, research := values["gpufleet-inference"], values["gpufleet-batch"], values["gpufleet-research"]
	if len(values) != 3 || inference <= batch || batch <= research {
		t.Errorf("priority classes %v, want inference above batch above research", values)
	}
	// A pod without a class has priority 0; users may not go above 1e9.
	if research <= 0 || inference > 1_000_000_000 {
		t.Errorf("priority classes %v, want all in (0, 1e9]", values)
	}
}

func TestReconcile_LeavesAPriorityClassThatIsThere(t *testing.T) {
	w := newWorld(t)
	w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gpufleet-batch"}, Value: 250_000})
	w.writes = nil
	w.reconcile(t)
	if got := get(t, w, &schedulingv1.PriorityClass{}, "gpufleet-batch").Value; got != 250_000 {
		t.Errorf("the value of a class that was there became %d", got)
	}
	for _, each := range w.writes {
		if strings.HasSuffix(each, "PriorityClass gpufleet-batch") {
			t.Errorf("a class that was there was written: %s", each)
		}
	}
}

func TestReconcile_RefusesANodePoolOfItsNameThatIsNotItsOwn(t *testing.T) {
	for name, owners := range map[string][]metav1.OwnerReference{
		"written by a user": nil,
		"of another pool": {{
			APIVersion: "gpufleet.dev/v1alpha1", Kind: "GPUNodePool", Name: "inference", UID: "uid of an earlier pool", Controller: ptr.To(true),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create(t, &karpv1.NodePool{
				ObjectMeta: metav1.ObjectMeta{Name: nodePoolP548, OwnerReferences: owners},
				Spec:       karpv1.NodePoolSpec{Weight: ptr.To(int32(7))},
			})
			before := get(t, w, &karpv1.NodePool{}, nodePoolP548)
			w.reconcile(t)
			w.wantCondition(t, "Accepted", isFalse, "Conflict", `NodePool "inference-866aa927" exists`, `not owned by GPUNodePool "inference"`, "rename the pool or remove")
			w.wantCondition(t, "Ready", isFalse, "NotAccepted")
			if diff := cmp.Diff(before, get(t, w, &karpv1.NodePool{}, nodePoolP548)); diff != "" {
				t.Errorf("it was touched: %s", diff)
			}
		})
	}
}

func TestReconcile_WritesNothingWhenNothingChanged(t *testing.T) {
	w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *nodeclass.Object, _ *v1alpha1.MIGLayout) {
		pool.Spec.Machines = machines("p5.48xlarge", "p5.4xlarge")
		pool.Spec.Labels = map[string]string{"team": "search"}
		pool.Spec.Zones = []string{"us-east-1a"}
	})
	w.create(t, claim("claim-x", "p5.48xlarge", "i-1"))
	w.reconcile(t)
	if len(w.writes) == 0 {
		t.Fatal("the first look wrote nothing: the test sees no writes")
	}
	before := w.versions(t)
	w.writes = nil
	w.reconcile(t)
	if len(w.writes) > 0 {
		t.Errorf("a second look wrote %v", w.writes)
	}
	if diff := cmp.Diff(before, w.versions(t)); diff != "" {
		t.Errorf("resource versions: %s", diff)
	}
}

// versions are the resource versions of all that the reconciler writes, by kind and name.
func (w *world) versions(t *testing.T) map[string]string {
	t.Helper()
	pools, nodePools, configMaps, classes := &v1alpha1.GPUNodePoolList{}, &karpv1.NodePoolList{}, &corev1.ConfigMapList{}, &schedulingv1.PriorityClassList{}
	for _, list := range []client.ObjectList{pools, nodePools, configMaps, classes} {
		if err := w.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	add := func(kind string, o metav1.ObjectMeta) { out[kind+" "+o.Name] = o.ResourceVersion }
	for _, each := range pools.Items {
		add("GPUNodePool", each.ObjectMeta)
	}
	for _, each := range nodePools.Items {
		add("NodePool", each.ObjectMeta)
	}
	for _, each := range configMaps.Items {
		add("ConfigMap", each.ObjectMeta)
	}
	for _, each := range classes.Items {
		add("PriorityClass", each.ObjectMeta)
	}
	if want := 1 + 2 + 1 + 3; len(out) != want {
		t.Fatalf("%d objects, want %d: %v", len(out), want, slices.Sorted(maps.Keys(out)))
	}
	return out
}

func TestReconcile_ReturnsAFailedWriteWithTheObjectsName(t *testing.T) {
	refused := errors.New("the API server says no")
	for name, tc := range map[string]struct {
		fails string
		words string
	}{
		"NodePool":      {"create *v1.NodePool", `writing NodePool "inference-866aa927"`},
		"PriorityClass": {"create *v1.PriorityClass", `creating PriorityClass "gpufleet-inference"`},
		"ConfigMap":     {"get *v1.ConfigMap", "reading ConfigMap gpufleet-system/gpufleet-device-plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail = func(verb string, o client.Object) error {
				if fmt.Sprintf("%s %T", verb, o) == tc.fails {
					return refused
				}
				return nil
			}
			_, err := w.Reconcile(t.Context(), w.pool(t))
			if !errors.Is(err, refused) {
				t.Fatalf("error %v, want the API server's", err)
			}
			wantWords(t, err.Error(), tc.words)
			w.wantCondition(t, "Accepted", isTrue, "Valid")
			w.wantCondition(t, "Ready", isFalse, "WriteFailed", tc.words, "the API server says no")

			w.fail = nil
			w.reconcile(t)
			w.wantCondition(t, "Ready", isTrue, "Ready")
		})
	}
}
