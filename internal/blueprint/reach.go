package blueprint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const limitsPath = "spec.limits"

// CheckLimits holds what the pool may launch, bps, to its limits. What could never launch anything is refused; what may be
// meant so is doubtful: a limit of 0, or one that only some of the machines fit. Without bps only the limits are looked at.
func CheckLimits(pool *v1alpha1.GPUNodePool, bps []v1alpha1.Blueprint, limits ledger.Limits) (refused, doubtful []v1alpha1.Violation) {
	if doubtful = zeroLimits(limits); len(doubtful) > 0 || len(bps) == 0 {
		return nil, doubtful
	}
	if refused = unpriced(pool, limits, bps); len(refused) > 0 {
		return refused, nil
	}
	for _, one := range []ledger.Limits{{GPUs: limits.GPUs}, {HourlyCost: limits.HourlyCost}} {
		if beyond := outside(one, bps); len(beyond) == len(bps) {
			refused = append(refused, tooLow(beyond))
		}
	}
	if len(refused) > 0 {
		return refused, nil
	}
	beyond := outside(limits, bps)
	switch len(beyond) {
	case 0:
		return nil, nil
	case len(bps):
		return []v1alpha1.Violation{{Path: limitsPath, Message: "no machine of the pool is within all of the limits, so that nothing could ever be launched: " + beyondInWords(beyond)}}, nil
	default:
		return nil, []v1alpha1.Violation{{Path: limitsPath, Message: "some machines of the pool are never launched within these limits: " + beyondInWords(beyond)}}
	}
}

func zeroLimits(limits ledger.Limits) []v1alpha1.Violation {
	var found []v1alpha1.Violation
	for _, l := range []struct {
		limit ledger.Limit
		zero  bool
	}{
		{ledger.GPUs, limits.GPUs != nil && *limits.GPUs == 0},
		{ledger.Nodes, limits.Nodes != nil && *limits.Nodes == 0},
		{ledger.HourlyCost, limits.HourlyCost != nil && *limits.HourlyCost == 0},
	} {
		if l.zero {
			found = append(found, v1alpha1.Violation{Path: limitPath(l.limit), Message: "0 launches nothing: nodes that run stay until they go, and none takes their place"})
		}
	}
	return found
}

// unpriced are the machines that a limit of the cost refuses because nobody knows what they cost.
func unpriced(pool *v1alpha1.GPUNodePool, limits ledger.Limits, bps []v1alpha1.Blueprint) []v1alpha1.Violation {
	var found []v1alpha1.Violation
	for _, bp := range bps {
		if limits.HourlyCost == nil || Machine(bp).HasPrice {
			continue
		}
		found = append(found, v1alpha1.Violation{Path: typePath(pool, bp.InstanceType), Message: fmt.Sprintf("the price of %s is not known, and does not count as nothing: "+
			"a limit of the hourly cost would never let it launch. Leave it out, or limit GPUs or nodes instead", bp.InstanceType)})
	}
	return found
}

// beyond is a machine that limits refuse even when there is no other, and why.
type beyond struct {
	instanceType string
	refusal      *ledger.Refusal
}

// outside asks the rule of every launch, of a pool that has nothing yet.
func outside(limits ledger.Limits, bps []v1alpha1.Blueprint) []beyond {
	nothing := ledger.Usage{Ready: true, Limits: limits}
	var found []beyond
	for _, bp := range bps {
		var refusal *ledger.Refusal
		if errors.As(nothing.Fits(Machine(bp)), &refusal) {
			found = append(found, beyond{bp.InstanceType, refusal})
		}
	}
	return found
}

// tooLow is a limit that every machine is beyond.
func tooLow(all []beyond) v1alpha1.Violation {
	smallest := slices.MinFunc(all, func(a, b beyond) int { return cmp.Compare(a.refusal.Asked, b.refusal.Asked) })
	r := smallest.refusal
	message := fmt.Sprintf("%d is less than any machine of the pool has: the smallest, %s, has %d GPUs, so that nothing could ever be launched. "+
		"Set %d or more, name smaller machines, or set 0 to launch nothing", r.Value, smallest.instanceType, r.Asked, r.Asked)
	if r.Limit == ledger.HourlyCost {
		price := ledger.Money(r.Asked)
		message = fmt.Sprintf("%s is less than any machine of the pool costs: the cheapest, %s, costs %s, so that nothing could ever be launched. "+
			"Set %s or more, name cheaper machines, or set 0 to launch nothing", ledger.Money(r.Value), smallest.instanceType, price, price.Amount())
	}
	return v1alpha1.Violation{Path: limitPath(r.Limit), Message: message}
}

// beyondInWords says of each machine by how much it is beyond the first limit that refuses it.
func beyondInWords(all []beyond) string {
	words := make([]string, len(all))
	for i, b := range all {
		words[i] = fmt.Sprintf("%s has %d GPUs (the limit is %d)", b.instanceType, b.refusal.Asked, b.refusal.Value)
		if b.refusal.Limit == ledger.HourlyCost {
			words[i] = fmt.Sprintf("%s costs %s (the limit is %s)", b.instanceType, ledger.Money(b.refusal.Asked), ledger.Money(b.refusal.Value))
		}
	}
	return strings.Join(words, ", ")
}

func limitPath(limit ledger.Limit) string { return limitsPath + "." + limit.Field() }
