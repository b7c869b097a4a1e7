package blueprint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// resolveMachine finds the instance type and its GPU model, and refuses types that cannot be launched or counted.
func resolveMachine(pool *v1alpha1.GPUNodePool, instanceType string) (machine.Type, gpu.Model, error) {
	t, found := machine.Lookup(instanceType)
	if !found {
		return t, gpu.Model{}, refuseType(pool, instanceType, unknownType(instanceType))
	}
	if why := unusable(t); why != "" {
		return t, gpu.Model{}, refuseType(pool, instanceType, why)
	}
	model, found := gpu.Lookup(t.GPU.Model)
	if !found {
		return t, model, refuseType(pool, instanceType,
			fmt.Sprintf("instance type %s has %s GPUs, and nothing is known about that model", t.Name, t.GPU.Model))
	}
	return t, model, nil
}

func refuseType(pool *v1alpha1.GPUNodePool, instanceType, message string) error {
	return &Error{
		Reason: v1alpha1.ReasonSKUMismatch, Object: object(v1alpha1.KindGPUNodePool, pool.Name),
		Path: typePath(pool, instanceType), Message: message,
	}
}

// typePath is where the pool names the instance type.
func typePath(pool *v1alpha1.GPUNodePool, instanceType string) string {
	for i, m := range pool.Spec.Machines {
		if j := slices.Index(m.InstanceTypes, instanceType); j >= 0 {
			return fmt.Sprintf("spec.machines[%d].instanceTypes[%d]", i, j)
		}
	}
	return "spec.machines"
}

// unusable says why a type that EC2 has is refused, or nothing.
func unusable(t machine.Type) string {
	switch {
	case t.Retired:
		return fmt.Sprintf("instance type %s is retired (%s); choose another type", t.Name, t.Note)
	case t.Unverified:
		return fmt.Sprintf("instance type %s is refused: what is known about it is not verified (%s)", t.Name, t.Note)
	case t.Fractional():
		return fmt.Sprintf("instance type %s has %g of one %s: fractional GPUs are not supported; %s",
			t.Name, t.GPU.PartitionSize, t.GPU.Model, wholeTypes(t.GPU.Model))
	}
	return ""
}

func wholeTypes(model string) string {
	return "instance types with whole ones are " + strings.Join(typesWith(model), ", ")
}

// typesWith lists the types that can be launched with whole GPUs of a model.
func typesWith(model string) []string {
	var names []string
	for _, t := range machine.Types() {
		if t.GPU.Model == model && launchable(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

func launchable(t machine.Type) bool { return !t.Retired && !t.Unverified && !t.Fractional() }

// unknownType lists the types that may have been meant: those of the same family, else every family.
func unknownType(name string) string {
	family, _, _ := strings.Cut(name, ".")
	var siblings, families []string
	for _, t := range machine.Types() {
		if !launchable(t) {
			continue
		}
		if t.Family == family {
			siblings = append(siblings, t.Name)
		}
		if !slices.Contains(families, t.Family) {
			families = append(families, t.Family)
		}
	}
	if len(siblings) > 0 {
		return fmt.Sprintf("instance type %s is not a known GPU instance type; family %s has %s",
			name, family, strings.Join(siblings, ", "))
	}
	return fmt.Sprintf("instance type %s is not a known GPU instance type; the known families are %s",
		name, strings.Join(families, ", "))
}
