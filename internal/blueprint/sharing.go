package blueprint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
)

// sharing is the class's strategy, with the CRD's default.
func sharing(class *v1alpha1.GPUNodeClass) v1alpha1.SharingStrategy {
	if class.Spec.Sharing.Strategy == "" {
		return v1alpha1.SharingExclusive
	}
	return class.Spec.Sharing.Strategy
}

// migStrategy is the class's, with the default of what is left out.
func migStrategy(class *v1alpha1.GPUNodeClass) v1alpha1.MIGStrategy {
	if class.Spec.Sharing.MIGStrategy == "" {
		return v1alpha1.MIGMixed
	}
	return class.Spec.Sharing.MIGStrategy
}

func checkSharing(class *v1alpha1.GPUNodeClass) error {
	found := v1alpha1.ValidateSharing(class.Spec.Sharing)
	if len(found) == 0 {
		return nil
	}
	return &Error{
		Reason: v1alpha1.ReasonInvalidClass, Object: object(v1alpha1.KindGPUNodeClass, class.Name),
		Path: found[0].Path, Message: found[0].Message,
	}
}

// share says how pods get at the GPUs. checkSharing has seen to it that what the strategy needs is there.
func share(bp *v1alpha1.Blueprint, class *v1alpha1.GPUNodeClass) {
	bp.Sharing = sharing(class)
	switch spec := class.Spec.Sharing; bp.Sharing {
	case v1alpha1.SharingMIG:
		bp.MIGStrategy = migStrategy(class)
	case v1alpha1.SharingTimeSlicing:
		bp.Replicas = *spec.Replicas
		bp.RenameByDefault, bp.FailRequestsGreaterThanOne = spec.RenameByDefault, spec.FailRequestsGreaterThanOne
	}
}

// resources are what the node advertises under each sharing strategy: GPUs, shares of GPUs, or MIG instances.
func resources(bp v1alpha1.Blueprint) corev1.ResourceList {
	switch {
	case bp.Sharing == v1alpha1.SharingTimeSlicing:
		return resourceList(map[string]int{sharedName(bp): int(bp.GPU.Count * bp.Replicas)})
	case bp.Layout == nil:
		return resourceList(map[string]int{v1alpha1.ResourceGPU: int(bp.GPU.Count)})
	}
	return migResources(*bp.Layout, bp.MIGStrategy)
}

// sharedName is the name of a share. Source: NVIDIA/k8s-device-plugin v0.20.0, api/config/v1/resources.go,
// DefaultSharedRename.
func sharedName(bp v1alpha1.Blueprint) string {
	if bp.RenameByDefault {
		return v1alpha1.ResourceGPU + v1alpha1.SharedSuffix
	}
	return v1alpha1.ResourceGPU
}

// migResources are each profile by its name, and nvidia.com/gpu for GPUs that stay whole; with Single, every instance is
// an nvidia.com/gpu.
func migResources(layout v1alpha1.LayoutBlueprint, strategy v1alpha1.MIGStrategy) corev1.ResourceList {
	counts := map[string]int{}
	for _, d := range layout.Devices {
		if len(d.Instances) == 0 {
			counts[v1alpha1.ResourceGPU] += len(d.GPUs)
		}
		for _, instance := range d.Instances {
			name := v1alpha1.ResourceGPU
			if strategy != v1alpha1.MIGSingle {
				name = gpu.ResourceName(instance.Profile)
			}
			counts[name] += len(d.GPUs)
		}
	}
	return resourceList(counts)
}

func resourceList(counts map[string]int) corev1.ResourceList {
	list := make(corev1.ResourceList, len(counts))
	for name, n := range counts {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return list
}

// checkAlike refuses a layout that MIG strategy Single cannot advertise: under one name there must be one thing, so every
// GPU is cut alike, by one profile. The device plugin advertises nothing at all where it finds two kinds of instance, or
// cut and whole GPUs side by side. Source: NVIDIA/k8s-device-plugin v0.20.0, internal/rm/device_map.go.
func checkAlike(class *v1alpha1.GPUNodeClass, layout *v1alpha1.LayoutBlueprint, instanceType string) error {
	if migStrategy(class) != v1alpha1.MIGSingle {
		return nil
	}
	var cuts, parts []string
	for _, d := range layout.Devices {
		cut := inWords(d.Instances)
		if !slices.Contains(cuts, cut) {
			cuts = append(cuts, cut)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", gpusInWords(d.GPUs), cut))
	}
	if len(cuts) == 1 && oneProfile(layout.Devices[0].Instances) {
		return nil
	}
	return classError(class, v1alpha1.ReasonInvalidClass, "spec.sharing.migStrategy",
		fmt.Sprintf("Single advertises every MIG instance as %s, so every GPU must be cut alike, by one profile; layout %s on %s is %s: "+
			"cut every GPU by one profile, or use Mixed", v1alpha1.ResourceGPU, layout.Name, instanceType, strings.Join(parts, ", ")))
}

func oneProfile(instances []v1alpha1.MIGInstance) bool {
	for _, in := range instances {
		if in.Profile != instances[0].Profile {
			return false
		}
	}
	return len(instances) > 0
}

// inWords counts instances by profile in the order of their places: "4 x 1g.10gb + 1 x 3g.40gb".
func inWords(instances []v1alpha1.MIGInstance) string {
	if len(instances) == 0 {
		return "whole"
	}
	counts := map[string]int{}
	var words []string
	for _, in := range instances {
		if counts[in.Profile]++; counts[in.Profile] == 1 {
			words = append(words, in.Profile)
		}
	}
	for i, profile := range words {
		words[i] = fmt.Sprintf("%d x %s", counts[profile], profile)
	}
	return strings.Join(words, " + ")
}

func gpusInWords(gpus []int32) string {
	if len(gpus) == 1 {
		return fmt.Sprintf("GPU %d", gpus[0])
	}
	words := make([]string, len(gpus))
	for i, g := range gpus {
		words[i] = fmt.Sprint(g)
	}
	return "GPUs " + strings.Join(words, " ")
}
