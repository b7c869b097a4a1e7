package blueprint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// Limits are what the pool may have, for the ledger. bps are the Blueprints of everything that the pool may launch, and present
// are machines that it has: the surge is so many machines as large as the largest of them, so that a large one can be replaced
// by small ones. A pool without limits has none, and no surge. The error is of an hourly cost that is not an amount of
// dollars, which the CRD does not admit; the limits with it admit nothing.
func Limits(pool *v1alpha1.GPUNodePool, bps []v1alpha1.Blueprint, present ...ledger.Machine) (ledger.Limits, error) {
	spec := pool.Spec.Limits
	if spec == nil {
		return ledger.Limits{}, nil
	}
	limits := ledger.Limits{GPUs: spec.GPUs, Nodes: spec.Nodes}
	if spec.HourlyCost != "" {
		cost, err := dollars(spec.HourlyCost)
		if err != nil {
			return ledger.Limits{Nodes: new(int64)}, fmt.Errorf("pool %s: spec.limits.hourlyCost: %w", pool.Name, err)
		}
		limits.HourlyCost = &cost
	}
	machines := slices.Clone(present)
	for _, bp := range bps {
		machines = append(machines, Machine(bp))
	}
	surge := int64(v1alpha1.DefaultSurge)
	if spec.Surge != nil {
		surge = int64(*spec.Surge)
	}
	limits.Surge = ledger.Surge(surge, machines...)
	return limits, nil
}

// Machine is what one node of the Blueprint counts: its physical GPUs, whatever its resources are called, and its price.
// A price that is absent or is not an amount of dollars is not known.
func Machine(bp v1alpha1.Blueprint) ledger.Machine {
	price, err := dollars(bp.PricePerHour)
	return ledger.NewMachine(int64(bp.GPU.Count), price.PerHour(), err == nil)
}

// MachineOf is what one machine of an instance type counts, at its list price.
func MachineOf(kind machine.Type) ledger.Machine {
	return ledger.NewMachine(int64(kind.GPU.Count), kind.PricePerHour, kind.HasPrice)
}

// PseudoResources are what core's simulation counts a node of the Blueprint by, beside what it offers to pods: every limit of
// a pool is one of them in its NodePools, so that one simulation stays inside all of them.
func PseudoResources(bp v1alpha1.Blueprint) corev1.ResourceList {
	m := Machine(bp)
	return corev1.ResourceList{
		v1alpha1.ResourcePhysicalGPU: *resource.NewQuantity(m.GPUs, resource.DecimalSI),
		v1alpha1.ResourceNode:        *resource.NewQuantity(1, resource.DecimalSI),
		v1alpha1.ResourceHourlyCost:  *resource.NewQuantity(int64(m.Price), resource.DecimalSI),
	}
}

// PseudoLimits are a pool's limits in the same. Those that cannot be read admit nothing.
func PseudoLimits(pool *v1alpha1.GPUNodePool) corev1.ResourceList {
	limits, _ := Limits(pool, nil) // with an error they admit nothing
	list := corev1.ResourceList{}
	for name, limit := range map[corev1.ResourceName]*int64{
		v1alpha1.ResourcePhysicalGPU: limits.GPUs, v1alpha1.ResourceNode: limits.Nodes, v1alpha1.ResourceHourlyCost: (*int64)(limits.HourlyCost),
	} {
		if limit != nil {
			list[name] = *resource.NewQuantity(*limit, resource.DecimalSI)
		}
	}
	return list
}

// Digits of an amount of dollars, as v1alpha1.PatternHourlyCost has them.
const (
	wholeDigits = 7
	microDigits = 6
)

// dollars reads an amount such as 110.08 digit by digit: through floating point, a limit could be a millionth above or
// below what was written.
func dollars(amount string) (ledger.Money, error) {
	whole, part, point := strings.Cut(amount, ".")
	if whole != "" && len(whole) <= wholeDigits && len(part) <= microDigits && point == (part != "") {
		micro, err := strconv.ParseUint(whole+part+strings.Repeat("0", microDigits-len(part)), 10, 64)
		if err == nil {
			return ledger.Money(micro), nil
		}
	}
	return 0, fmt.Errorf("%q is not an amount of dollars with at most %d digits, and %d behind the point, such as 110.08",
		amount, wholeDigits, microDigits)
}
