package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
)

// layout compares one board's MIG mode and instances with what the Blueprint says of that GPU.
func layout(bp v1alpha1.Blueprint, g *v1alpha1.GPUInventory) []v1alpha1.Finding {
	expected := instancesOf(bp, g.Index)
	mig := g.MIG
	if mig == nil {
		mig = &v1alpha1.MIGInventory{} // a board without MIG is one whose MIG is off
	}
	wanted := len(expected) > 0
	switch {
	case mig.PendingEnabled != mig.Enabled && mig.Enabled != wanted:
		// A100 and A30 in a virtual machine: the mode waits for a reboot. Source: NVIDIA MIG User Guide.
		return one(v1alpha1.FindingRebootRequired, g, mode(wanted), mode(mig.Enabled)+", "+mode(mig.PendingEnabled)+" after a reboot")
	case !wanted && !mig.Enabled:
		return nil
	case !wanted:
		return one(v1alpha1.FindingLayoutMismatch, g, mode(false), state(mig))
	case !mig.Enabled:
		return one(v1alpha1.FindingLayoutMismatch, g, describe(expected), state(mig))
	}
	return compare(g, expected, mig)
}

func instancesOf(bp v1alpha1.Blueprint, index int32) []v1alpha1.MIGInstance {
	if bp.Layout == nil {
		return nil
	}
	for _, d := range bp.Layout.Devices {
		if slices.Contains(d.GPUs, index) {
			return d.Instances
		}
	}
	return nil
}

// compare looks at places and shapes, not at names: drivers rename profiles (1g.24gb of a GB200 is 1g.23gb to another
// driver: NVIDIA/mig-parted#227).
func compare(g *v1alpha1.GPUInventory, expected []v1alpha1.MIGInstance, mig *v1alpha1.MIGInventory) []v1alpha1.Finding {
	missing := slices.Clone(expected)
	var extra []v1alpha1.MIGInstance
	for _, have := range mig.Instances {
		i := slices.IndexFunc(missing, func(want v1alpha1.MIGInstance) bool { return same(want, have) })
		if i < 0 {
			extra = append(extra, have)
			continue
		}
		missing = slices.Delete(missing, i, i+1)
	}
	switch {
	case len(missing) == 0 && len(extra) == 0:
		return nil
	case len(extra) == 0:
		return one(v1alpha1.FindingPartialLayout, g, describe(expected), state(mig))
	}
	want, have := describe(expected), state(mig)
	if want == have {
		want, have = places(expected), places(mig.Instances)
	}
	return one(v1alpha1.FindingLayoutMismatch, g, want, have)
}

// same compares shape and place, and what stands behind the size in the name: that is which media engines the instance
// holds, and drivers do not rename it.
func same(want, have v1alpha1.MIGInstance) bool {
	return want.ComputeSlices == have.ComputeSlices && want.Start == have.Start && want.Size == have.Size &&
		gpu.Attribute(want.Profile) == gpu.Attribute(have.Profile)
}

func one(reason string, g *v1alpha1.GPUInventory, expected, found string) []v1alpha1.Finding {
	return []v1alpha1.Finding{{
		Reason: reason, GPU: new(g.Index), Expected: expected, Found: found,
		Message: fmt.Sprintf("GPU %d should have %s, but has %s", g.Index, expected, found),
	}}
}

func mode(enabled bool) string {
	if enabled {
		return "MIG enabled"
	}
	return "MIG disabled"
}

// state says what a board has. MIG that is enabled and empty makes the board unusable and, in some versions, the device
// plugin fail for the whole node, so it is said.
func state(mig *v1alpha1.MIGInventory) string {
	switch {
	case !mig.Enabled:
		return mode(false)
	case len(mig.Instances) == 0:
		return "MIG enabled and no instances"
	}
	return describe(mig.Instances)
}

// describe counts instances by profile, the biggest first: "3g.40gb + 4 x 1g.10gb".
func describe(instances []v1alpha1.MIGInstance) string {
	counts := map[string]int{}
	var names []string
	bySize := slices.SortedStableFunc(slices.Values(instances), func(a, b v1alpha1.MIGInstance) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.ComputeSlices, a.ComputeSlices), cmp.Compare(a.Profile, b.Profile))
	})
	for _, in := range bySize {
		if counts[in.Profile]++; counts[in.Profile] == 1 {
			names = append(names, in.Profile)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d x %s", counts[name], name)
	}
	return strings.Join(names, " + ")
}

// places lists instances with their starts: "3g.40gb at 4, 1g.10gb at 0".
func places(instances []v1alpha1.MIGInstance) string {
	byStart := slices.SortedStableFunc(slices.Values(instances), func(a, b v1alpha1.MIGInstance) int {
		return cmp.Compare(a.Start, b.Start)
	})
	parts := make([]string, len(byStart))
	for i, in := range byStart {
		parts[i] = fmt.Sprintf("%s at %d", in.Profile, in.Start)
	}
	return strings.Join(parts, ", ")
}
