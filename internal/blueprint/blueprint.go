// Package blueprint computes what a node must look like before it exists, and what follows from that: the device
// plugin's configuration, what a pod of the pool carries, and what the ledger counts.
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
		Allocation:    v1alpha1.AllocationDevicePlugin,
		Layout:        layout,
		Taints:        taints(pool),
		StartupTaints: []corev1.Taint{v1alpha1.UnverifiedTaint()},
	}
	share(&bp, class)
	bp.Resources = resources(bp)
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

// productNames are the model's, that of this machine first where it is known.
func productNames(t machine.Type, m gpu.Model) []string {
	names := slices.Clone(m.ProductNames)
	if t.GPU.ProductName == "" {
		return names
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == t.GPU.ProductName })
	return slices.Insert(names, 0, t.GPU.ProductName)
}

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
