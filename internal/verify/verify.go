// Package verify compares a node with its Blueprint: what NVML sees and what the kubelet advertises, against what was
// ordered. It is a pure function with one answer, the findings; who acts on them is not its business.
package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Reported says whether the agent has looked at the node since it applied this Blueprint, or has failed to. Until then
// there is nothing to judge: the node awaits its inventory.
func Reported(bp v1alpha1.Blueprint, inv *v1alpha1.Inventory) bool {
	return inv != nil && (inv.Failure != nil || inv.BlueprintHash == bp.Hash)
}

// Identity finds where the machine is not the one that was ordered: boards, their number and memory, driver, MIG
// instances. Findings are in order of precedence, then by GPU. There are none without an inventory: see Reported.
func Identity(bp v1alpha1.Blueprint, inv *v1alpha1.Inventory) []v1alpha1.Finding {
	if inv == nil {
		return nil
	}
	var findings []v1alpha1.Finding
	if f := inv.Failure; f != nil {
		findings = append(findings, failed(bp, f))
		if len(inv.GPUs) == 0 {
			return findings // nothing was read, so nothing else can be judged
		}
	}
	findings = append(findings, gpuCount(bp, inv)...)
	findings = append(findings, driver(bp, inv)...)
	for i := range inv.GPUs {
		findings = append(findings, board(bp, &inv.GPUs[i])...)
	}
	return inOrder(findings)
}

// Node finds where the node is not exactly its Blueprint: Identity, and the resources that the kubelet advertises.
func Node(bp v1alpha1.Blueprint, inv *v1alpha1.Inventory, allocatable corev1.ResourceList) []v1alpha1.Finding {
	return inOrder(append(Identity(bp, inv), advertised(bp, allocatable)...))
}

// inOrder sorts by v1alpha1.FindingReasons, the node before its GPUs.
func inOrder(findings []v1alpha1.Finding) []v1alpha1.Finding {
	rank := func(f v1alpha1.Finding) int {
		return slices.IndexFunc(v1alpha1.FindingReasons, func(r v1alpha1.FindingReason) bool { return r.Name == f.Reason })
	}
	index := func(f v1alpha1.Finding) int32 {
		if f.GPU == nil {
			return -1
		}
		return *f.GPU
	}
	slices.SortStableFunc(findings, func(a, b v1alpha1.Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(index(a), index(b)))
	})
	return findings
}

// failed says what the agent could not do: cut the GPUs, or look at them.
func failed(bp v1alpha1.Blueprint, f *v1alpha1.AgentFailure) v1alpha1.Finding {
	switch f.Step {
	case "set-mode", "destroy", "create", "read-back":
		return applyFailed(bp, f)
	}
	return v1alpha1.Finding{
		Reason: v1alpha1.FindingNVMLUnavailable, Expected: "NVML readable", Found: "failed at " + f.Step,
		Message: fmt.Sprintf("the agent could not read the node's GPUs: %s: %s", f.Step, f.Message),
	}
}

func applyFailed(bp v1alpha1.Blueprint, f *v1alpha1.AgentFailure) v1alpha1.Finding {
	expected, what := "GPUs whole", "leave the GPUs whole"
	if bp.Layout != nil {
		expected, what = "layout "+bp.Layout.Name, "apply layout "+bp.Layout.Name
	}
	return v1alpha1.Finding{
		Reason: v1alpha1.FindingMIGApplyFailed, Expected: expected, Found: "failed at " + f.Step,
		Message: fmt.Sprintf("the agent could not %s: %s: %s", what, f.Step, f.Message),
	}
}

func gpuCount(bp v1alpha1.Blueprint, inv *v1alpha1.Inventory) []v1alpha1.Finding {
	if len(inv.GPUs) == int(bp.GPU.Count) {
		return nil
	}
	return []v1alpha1.Finding{{
		Reason: v1alpha1.FindingGPUCountMismatch, Expected: fmt.Sprint(bp.GPU.Count), Found: fmt.Sprint(len(inv.GPUs)),
		Message: fmt.Sprintf("instance type %s has %d GPUs, NVML sees %d", bp.InstanceType, bp.GPU.Count, len(inv.GPUs)),
	}}
}

// memoryTolerance is how far a board's memory may be from the table's, in percent. Drivers reserve a little more or less
// of it (an H100 80GB is 81152 MiB to one and 81559 MiB to another, 0.5 %), while no two boards that share a product
// name are closer than 6 %.
const memoryTolerance = 2

// board compares one board. On a wrong one, the MIG instances say nothing.
func board(bp v1alpha1.Blueprint, g *v1alpha1.GPUInventory) []v1alpha1.Finding {
	if !slices.Contains(bp.GPU.ProductNames, g.ProductName) {
		expected := strings.Join(bp.GPU.ProductNames, " or ")
		return []v1alpha1.Finding{{
			Reason: v1alpha1.FindingWrongGPU, GPU: new(g.Index), Expected: expected, Found: g.ProductName,
			Message: fmt.Sprintf("GPU %d is a %q, not a %s (%s)", g.Index, g.ProductName, bp.GPU.Model, expected),
		}}
	}
	if want := bp.GPU.MemoryMiB; want > 0 && 100*max(g.MemoryMiB-want, want-g.MemoryMiB) > memoryTolerance*want {
		return []v1alpha1.Finding{{
			Reason: v1alpha1.FindingWrongGPU, GPU: new(g.Index),
			Expected: fmt.Sprintf("%d MiB", want), Found: fmt.Sprintf("%d MiB", g.MemoryMiB),
			Message: fmt.Sprintf("GPU %d has %d MiB of memory; a %s has %d MiB, give or take %d %%",
				g.Index, g.MemoryMiB, bp.GPU.Model, want, memoryTolerance),
		}}
	}
	return layout(bp, g)
}
