// Package blueprint computes what a node must look like before it exists, and what follows from that: the device
// plugin's configuration, and what a pod of the pool carries.
//
// It is pure: no cluster, no cloud, no clock. Everything that launches, configures, verifies or explains a node starts
// from what Compile returns, so that what is asked, simulated and advertised cannot disagree.
package blueprint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// Compile says what one node of the pool, on one instance type, must look like. layouts holds every MIGLayout that the
// class may refer to, by name. The error is an *Error.
func Compile(
	pool *v1alpha1.GPUNodePool, class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout, instanceType string,
) (v1alpha1.Blueprint, error) {
	if class.Spec.Cloud.AWS == nil {
		return v1alpha1.Blueprint{}, classError(class, v1alpha1.ReasonInvalidClass, "spec.cloud", v1alpha1.MessageOneCloud)
	}
	if err := checkSharing(class); err != nil {
		return v1alpha1.Blueprint{}, err
	}
	machineType, model, err := resolveMachine(pool, instanceType)
	if err != nil {
		return v1alpha1.Blueprint{}, err
	}
	layout, err := resolveLayout(class, layouts, machineType, model)
	if err != nil {
		return v1alpha1.Blueprint{}, err
	}
	bp := v1alpha1.Blueprint{
		Pool:         pool.Name,
		Workload:     pool.Spec.Workload,
		InstanceType: instanceType,
		GPU: v1alpha1.GPUBlueprint{
			Model:        model.Key,
			ProductNames: productNames(machineType, model),
			Count:        int32(machineType.GPU.Count),
			MemoryMiB:    machineType.GPU.MemoryMiB,
		},
		Sharing:       sharing(class),
		Allocation:    v1alpha1.AllocationDevicePlugin,
		Layout:        layout,
		Resources:     resources(layout, machineType.GPU.Count),
		Taints:        taints(pool),
		StartupTaints: []corev1.Taint{v1alpha1.UnverifiedTaint()},
	}
	bp.Labels = labels(pool, bp)
	if class.Spec.Driver != nil {
		bp.DriverMinVersion = class.Spec.Driver.MinVersion
	}
	if machineType.HasPrice {
		bp.PricePerHour = strconv.FormatFloat(machineType.PricePerHour, 'f', -1, 64)
		bp.PriceAsOf = machineType.PriceAsOf
	}
	bp.HashVersion = hashVersion
	bp.Hash, err = hash(bp, class)
	return bp, err
}

// sharing is the class's strategy, with the CRD's default.
func sharing(class *v1alpha1.GPUNodeClass) v1alpha1.SharingStrategy {
	if class.Spec.Sharing.Strategy == "" {
		return v1alpha1.SharingExclusive
	}
	return class.Spec.Sharing.Strategy
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

// productNames are the model's, that of this machine first where it is known.
func productNames(t machine.Type, m gpu.Model) []string {
	names := slices.Clone(m.ProductNames)
	if t.GPU.ProductName == "" {
		return names
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == t.GPU.ProductName })
	return slices.Insert(names, 0, t.GPU.ProductName)
}

// resources are what the node advertises: each MIG profile by its name, and nvidia.com/gpu for GPUs that stay whole.
func resources(layout *v1alpha1.LayoutBlueprint, gpus int) corev1.ResourceList {
	if layout == nil {
		return corev1.ResourceList{v1alpha1.ResourceGPU: count(gpus)}
	}
	counts := map[string]int{}
	for _, d := range layout.Devices {
		if len(d.Instances) == 0 {
			counts[v1alpha1.ResourceGPU] += len(d.GPUs)
		}
		for _, instance := range d.Instances {
			counts[gpu.ResourceName(instance.Profile)] += len(d.GPUs)
		}
	}
	return resourceList(counts)
}

func resourceList(counts map[string]int) corev1.ResourceList {
	list := make(corev1.ResourceList, len(counts))
	for name, n := range counts {
		list[corev1.ResourceName(name)] = count(n)
	}
	return list
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// labels are the node's. The pool's own may not use our prefixes, so nothing is overwritten.
func labels(pool *v1alpha1.GPUNodePool, bp v1alpha1.Blueprint) map[string]string {
	out := make(map[string]string, len(pool.Spec.Labels)+8)
	for key, value := range pool.Spec.Labels {
		out[key] = value
	}
	out[v1alpha1.LabelPool] = bp.Pool
	out[v1alpha1.LabelWorkload] = string(bp.Workload)
	out[v1alpha1.LabelGPUModel] = bp.GPU.Model
	out[v1alpha1.LabelSharing] = string(bp.Sharing)
	out[v1alpha1.LabelAllocation] = string(bp.Allocation)
	if bp.Layout != nil {
		out[v1alpha1.LabelLayout] = bp.Layout.Name
	}
	out[v1alpha1.LabelDevicePluginConfig] = bp.Pool
	out[v1alpha1.LabelDeployMIGManager] = "false"
	return out
}

// object names an object in an error.
func object(kind, name string) string { return strings.TrimSpace(fmt.Sprintf("%s %s", kind, name)) }
