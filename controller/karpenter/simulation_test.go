package karpenter

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

type classObject = nodeclass.Object

// schedule runs core's own scheduler over the pods and returns the NodeClaims that it would make, as instance types.
func (w *world) schedule(t *testing.T, pods []*corev1.Pod) [][]string {
	t.Helper()
	return w.solve(w.prepare(t, pods), t)
}

// prepare writes the pool's NodePools and the pods, and returns a context with core's options.
func (w *world) prepare(t *testing.T, pods []*corev1.Pod) context.Context {
	t.Helper()
	core, err := coreOptions("error")
	if err != nil {
		t.Fatal(err)
	}
	ctx := core.ToContext(t.Context())
	for entry := range w.pool.Spec.Machines {
		nodePool := w.nodePool(t, entry)
		nodePool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		nodePool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
		status := nodePool.DeepCopy().Status
		create(t, w, nodePool)
		nodePool.Status = status
		if err := w.client.Status().Update(ctx, nodePool); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		create(t, w, pod)
	}
	return ctx
}

// provisioner is core's, which has seen nothing yet.
func (w *world) provisioner(ctx context.Context) *provisioning.Provisioner {
	return w.provisionerOver(ctx, state.NewCluster(w.clock, w.client, w.CloudProvider))
}

// provisionerOver is core's, on what core knows of the cluster.
func (w *world) provisionerOver(ctx context.Context, cluster *state.Cluster) *provisioning.Provisioner {
	devices := deviceallocation.NewController(w.client)
	devices.Hydrate(ctx)
	return provisioning.NewProvisioner(coreClient{w.client, w.CloudProvider}, events.NewRecorder(record.NewFakeRecorder(100)), w.CloudProvider,
		cluster, w.clock, devices, virtualpods.NewVirtualPodCache(w.client))
}

func (w *world) solve(ctx context.Context, t *testing.T) [][]string {
	t.Helper()
	results, err := w.provisioner(ctx).Schedule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var claims [][]string
	for _, claim := range results.NewNodeClaims {
		var names []string
		for _, option := range claim.InstanceTypeOptions {
			names = append(names, option.Name)
		}
		slices.Sort(names)
		claims = append(claims, names)
	}
	for pod, err := range results.PodErrors {
		t.Logf("pod %s: %v", pod.Name, err)
	}
	return claims
}

// pods ask for so many of a resource each, with all that the pool's outputs give a pod.
func (w *world) pods(count int, name corev1.ResourceName, each int64) []*corev1.Pod {
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		limits := corev1.ResourceList{name: *resource.NewQuantity(each, resource.DecimalSI)}
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("pod-%d", i))},
			Spec: corev1.PodSpec{
				NodeSelector: blueprint.NodeSelector(w.pool),
				Tolerations:  blueprint.Tolerations(w.pool),
				Containers:   []corev1.Container{{Name: "work", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}},
			},
			Status: corev1.PodStatus{
				Phase:      corev1.PodPending,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}},
			},
		}
	}
	return pods
}

func exclusive(_ *v1alpha1.GPUNodePool, class *classObject) {
	class.Spec.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive}
}

// A node of the quickstart offers 8 GPUs x 7 slices = 56.
func TestSimulation_PacksSlicesFromZero(t *testing.T) {
	for _, each := range []struct{ pods, slices, nodes int }{{20, 1, 1}, {56, 1, 1}, {57, 1, 2}, {8, 7, 1}, {9, 7, 2}} {
		t.Run(fmt.Sprintf("%d pods of %d slices", each.pods, each.slices), func(t *testing.T) {
			w := newWorld(t)
			claims := w.schedule(t, w.pods(each.pods, "nvidia.com/mig-1g.10gb", int64(each.slices)))
			if len(claims) != each.nodes {
				t.Errorf("%d nodes, want %d", len(claims), each.nodes)
			}
		})
	}
}

func TestSimulation_WholeGPUsOfACutNodeAreNotOffered(t *testing.T) {
	w := newWorld(t)
	if claims := w.schedule(t, w.pods(1, "nvidia.com/gpu", 1)); len(claims) != 0 {
		t.Errorf("%d nodes for a pod that no node of the pool can serve", len(claims))
	}
}

// C07: requests of 1 to 8 GPUs get the smallest allowed type that fits, 9 none.
func TestC07_TheSmallestAllowedTypeThatFits(t *testing.T) {
	want := []string{"", "g5.12xlarge", "g5.12xlarge", "g5.12xlarge", "g5.12xlarge", "g5.48xlarge", "g5.48xlarge", "g5.48xlarge", "g5.48xlarge", ""}
	for request := 1; request <= 9; request++ {
		w := newWorld(t, exclusive, func(pool *v1alpha1.GPUNodePool, _ *classObject) {
			pool.Spec.Machines = []v1alpha1.MachineSpec{{InstanceTypes: []string{"g5.12xlarge", "g5.48xlarge"}}}
		})
		claims := w.schedule(t, w.pods(1, "nvidia.com/gpu", int64(request)))
		if want[request] == "" {
			if len(claims) != 0 {
				t.Errorf("request %d: got %v, want no node", request, claims)
			}
			continue
		}
		if len(claims) != 1 {
			t.Errorf("request %d: %d nodes", request, len(claims))
			continue
		}
		launched := w.launchedType(t, claims[0], request)
		if launched != want[request] {
			t.Errorf("request %d: launches %s, want %s", request, launched, want[request])
		}
	}
}

// launchedType is what Create starts for a claim with these options.
func (w *world) launchedType(t *testing.T, options []string, gpus int) string {
	t.Helper()
	claim := w.claim(t, fmt.Sprintf("claim-%d", gpus), options...)
	claim.Spec.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	return created.Labels[corev1.LabelInstanceTypeStable]
}

func TestSimulation_PodsWithoutThePoolsTolerationsGetNothing(t *testing.T) {
	w := newWorld(t)
	pods := w.pods(1, "nvidia.com/mig-1g.10gb", 1)
	pods[0].Spec.Tolerations = nil
	if claims := w.schedule(t, pods); len(claims) != 0 {
		t.Errorf("%d nodes for a pod that tolerates none of their taints", len(claims))
	}
}

func TestGetInstanceTypes_LeavesForeignNodePoolsAlone(t *testing.T) {
	w := newWorld(t)
	foreign := w.nodePool(t, 0)
	foreign.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "h100-mig"}
	types, err := w.GetInstanceTypes(t.Context(), foreign)
	if err != nil || types != nil {
		t.Errorf("got %v, %v; want nil, nil", types, err)
	}
}

func TestRepairPolicies_AreAcceptedByCore(t *testing.T) {
	core, err := coreOptions("error")
	if err != nil {
		t.Fatal(err)
	}
	if !core.FeatureGates.NodeRepair || !core.FeatureGates.StaticCapacity || !core.FeatureGates.CapacityBuffer ||
		!core.FeatureGates.TerminateFirstDrift || !core.FeatureGates.TerminateFirstRepair {
		t.Errorf("feature gates %+v", core.FeatureGates)
	}
	w := newWorld(t)
	matcher, err := health.NewRepairPolicyMatcher(core.ToContext(t.Context()), w.CloudProvider)
	if err != nil || matcher == nil {
		t.Errorf("core refuses our repair policies: %v", err)
	}
	for _, policy := range w.RepairPolicies() {
		if policy.TerminationGracePeriod == nil {
			t.Errorf("policy %+v sets no TerminationGracePeriod: one pod could hold the repair for ever", policy)
		}
	}
}

// Core's series of each pod and node are off, unless somebody says otherwise by core's own variable.
func TestCoreOptions_LeaveCoresOwnSeriesOffUnlessAskedFor(t *testing.T) {
	for value, off := range map[string]bool{"": true, "false": false, "true": true} {
		t.Run(value, func(t *testing.T) {
			if value != "" {
				t.Setenv(envObservability, value)
			}
			core, err := coreOptions("error")
			if err != nil {
				t.Fatal(err)
			}
			if core.DisableClusterStateObservability != off {
				t.Errorf("with %s=%q they are off: %t, want %t", envObservability, value, core.DisableClusterStateObservability, off)
			}
		})
	}
}

// What a machine has for pods is an estimate until one has joined. Where it was too high, no other machine is launched for a pod
// that would not fit on it either.
func TestSimulation_BelievesTheNodesThatThereAre(t *testing.T) {
	w := newWorld(t, exclusive)
	claim, node := w.working(t, "a", "p5.48xlarge", 8)
	memory := func() string {
		t.Helper()
		types, err := w.GetInstanceTypes(t.Context(), w.nodePool(t, 0))
		if err != nil {
			t.Fatal(err)
		}
		allocatable := types[0].Allocatable()
		return allocatable.Memory().String()
	}
	if got := memory(); got != "1938300Mi" {
		t.Fatalf("as estimated: %s, want 1938300Mi", got)
	}
	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("1900000Mi")
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != "1900000Mi" {
		t.Errorf("with a node that has 1900000Mi: %s", got)
	}
	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("2000000Mi")
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != "1938300Mi" {
		t.Errorf("with a node that has more: %s, want no more than was estimated", got)
	}
	// A node of another Blueprint, such as with a smaller disk, proves nothing.
	node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("1Mi")
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	claim.Annotations[v1alpha1.AnnotationBlueprintHash] = "another"
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != "1938300Mi" {
		t.Errorf("with a node of another Blueprint: %s", got)
	}
}
