package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
)

// inventory is 8 boards as the p5's Blueprint has them, but the given number of MIG instances on the last.
func inventory(bp v1alpha1.Blueprint, onLast int) *v1alpha1.Inventory {
	report := &v1alpha1.Inventory{BlueprintHash: bp.Hash, DriverVersion: "580.95.05"}
	for index := range bp.GPU.Count {
		board := v1alpha1.GPUInventory{
			Index: index, ProductName: bp.GPU.ProductNames[0], MemoryMiB: bp.GPU.MemoryMiB,
			MIG: &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true},
		}
		count := 7
		if index == bp.GPU.Count-1 {
			count = onLast
		}
		for start := range count {
			board.MIG.Instances = append(board.MIG.Instances, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: int32(start), Size: 1})
		}
		report.GPUs = append(report.GPUs, board)
	}
	return report
}

func TestIdentityGate(t *testing.T) {
	type state struct {
		node, gpuNode bool
		inventory     func(v1alpha1.Blueprint) *v1alpha1.Inventory
		age           time.Duration
	}
	right := func(bp v1alpha1.Blueprint) *v1alpha1.Inventory { return inventory(bp, 7) }
	cases := map[string]struct {
		state
		admitted bool
	}{
		"no node yet":               {state{}, false},
		"no GPUNode yet":            {state{node: true}, false},
		"no report yet":             {state{node: true, gpuNode: true}, false},
		"the machine is as ordered": {state{node: true, gpuNode: true, inventory: right}, true},
		"55 of 56 instances":        {state{node: true, gpuNode: true, inventory: func(bp v1alpha1.Blueprint) *v1alpha1.Inventory { return inventory(bp, 6) }}, false},
		"a report for another Blueprint": {state{node: true, gpuNode: true, inventory: func(bp v1alpha1.Blueprint) *v1alpha1.Inventory {
			i := inventory(bp, 7)
			i.BlueprintHash = "old"
			return i
		}}, false},
		"7 of 8 boards":                       {state{node: true, gpuNode: true, inventory: func(bp v1alpha1.Blueprint) *v1alpha1.Inventory { i := inventory(bp, 7); i.GPUs = i.GPUs[:7]; return i }}, false},
		"a reboot is due: gate 2 takes it":    {state{node: true, gpuNode: true, inventory: rebootDue}, true},
		"wrong, but core would delete it now": {state{node: true, gpuNode: true, age: gateDeadline + time.Second, inventory: func(bp v1alpha1.Blueprint) *v1alpha1.Inventory { return inventory(bp, 6) }}, true},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			claim := w.claim(t, "a")
			claim.Status.ProviderID = "aws:///us-east-1a/i-0001"
			if each.node {
				create(t, w, &corev1.Node{ObjectMeta: objectMeta("i-0001"), Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}})
			}
			if each.gpuNode {
				bp := w.blueprint(t)
				gpuNode := &v1alpha1.GPUNode{ObjectMeta: objectMeta("i-0001"), Spec: bp}
				if each.inventory != nil {
					gpuNode.Status.Inventory = each.inventory(bp)
				}
				create(t, w, gpuNode)
			}
			w.clock.Step(each.age)
			result, err := NewIdentityGate(w.client, w.clock).Registered(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if admitted := result.RequeueAfter == 0 && !result.Requeue; admitted != each.admitted {
				t.Errorf("admitted=%v, want %v", admitted, each.admitted)
			}
			if result.RequeueAfter > 2*time.Second {
				t.Errorf("looks again after %s: nothing else wakes a hook", result.RequeueAfter)
			}
		})
	}
}

// rebootDue has MIG off now and on after a reboot, on every board.
func rebootDue(bp v1alpha1.Blueprint) *v1alpha1.Inventory {
	report := inventory(bp, 7)
	for i := range report.GPUs {
		report.GPUs[i].MIG = &v1alpha1.MIGInventory{PendingEnabled: true}
	}
	return report
}

func create(t *testing.T, w *world, object client.Object) {
	t.Helper()
	if err := w.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func TestIsDrifted(t *testing.T) {
	cases := map[string]struct {
		workload    v1alpha1.Workload
		hash        string
		version     string
		onType      string
		busy        bool
		wantDrifted bool
	}{
		"an instance type that is no longer named": {workload: v1alpha1.WorkloadInference, onType: "p5.4xlarge", wantDrifted: true},
		"same Blueprint":                       {workload: v1alpha1.WorkloadInference},
		"another Blueprint":                    {workload: v1alpha1.WorkloadInference, hash: "old", busy: true, wantDrifted: true},
		"another version of the hash":          {workload: v1alpha1.WorkloadInference, hash: "old", version: "0"},
		"a Batch node that works stays":        {workload: v1alpha1.WorkloadBatch, hash: "old", busy: true},
		"a Batch node that is empty drifts":    {workload: v1alpha1.WorkloadBatch, hash: "old", wantDrifted: true},
		"a Research node that works stays":     {workload: v1alpha1.WorkloadResearch, hash: "old", busy: true},
		"a Research node that is empty drifts": {workload: v1alpha1.WorkloadResearch, hash: "old", wantDrifted: true},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(pool *v1alpha1.GPUNodePool, _ *classObject) { pool.Spec.Workload = each.workload })
			inputs, err := fleet.Of(t.Context(), w.client, w.pool)
			if err != nil {
				t.Fatal(err)
			}
			bp, err := inputs.Blueprint(orElse(each.onType, "p5.48xlarge"))
			if err != nil {
				t.Fatal(err)
			}
			claim := w.claim(t, "a")
			claim.Status.NodeName = "i-0001"
			claim.Labels[corev1.LabelInstanceTypeStable] = orElse(each.onType, "p5.48xlarge")
			claim.Annotations = map[string]string{
				v1alpha1.AnnotationBlueprintHash:        orElse(each.hash, bp.Hash),
				v1alpha1.AnnotationBlueprintHashVersion: orElse(each.version, bp.HashVersion),
			}
			if each.busy {
				create(t, w, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "work", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "i-0001"}})
			}
			reason, err := w.IsDrifted(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			if drifted := reason == BlueprintDrift; drifted != each.wantDrifted {
				t.Errorf("drifted=%v (%q), want %v", drifted, reason, each.wantDrifted)
			}
		})
	}
}

func orElse(value, other string) string {
	if value == "" {
		return other
	}
	return value
}
