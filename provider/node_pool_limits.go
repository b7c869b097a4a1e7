package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const poolLimitsField = "limits"

func limitsAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "What the pool may have at most: one or more of `gpus`, `nodes` and `hourly_cost`. Default: no limits. A limit of 0 launches nothing. " +
			"A plan refuses a limit that not even the pool's smallest machine fits. A change rolls no nodes, and a lower limit ends nothing that runs.",
		Attributes: map[string]schema.Attribute{
			"gpus": schema.Int64Attribute{
				Optional: true,
				MarkdownDescription: fmt.Sprintf("Physical GPUs, 0 to %d, whatever the resources that pods ask for are called: a MIG instance or a share is never counted. "+
					"Default: not limited. A change rolls no nodes.", v1alpha1.MaxLimit),
			},
			"hourly_cost": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Sum of the machines' on-demand list prices in US dollars an hour, spot machines included: a decimal number of at most 7 digits before and 6 behind the point, " +
					"e.g. `\"110.08\"`. An instance type whose price is not known is refused at plan. Default: not limited. A change rolls no nodes.",
				PlanModifiers: []planmodifier.String{keepSpelling{}},
			},
			"nodes": schema.Int64Attribute{
				Optional:            true,
				MarkdownDescription: fmt.Sprintf("Machines, 0 to %d. Default: not limited. A change rolls no nodes.", v1alpha1.MaxLimit),
			},
			"surge": schema.Int64Attribute{
				Optional: true,
				Computed: true,
				Default:  int64default.StaticInt64(v1alpha1.DefaultSurge),
				MarkdownDescription: fmt.Sprintf("How many machines, each as large as the pool's largest, may exist beyond the limits while nodes are replaced, %d to %d. "+
					"Without one, a full pool could never replace a node. Default: `%d`. A change rolls no nodes.", v1alpha1.MinSurge, v1alpha1.MaxSurge, v1alpha1.DefaultSurge),
			},
		},
	}
}

func effectiveLimitsAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true,
		MarkdownDescription: "The two sums that a launch is held to, null where the pool has no limits. " +
			"Known at plan where the class and its layouts are in the same configuration or in the cluster.",
		Attributes: map[string]schema.Attribute{
			"steady":     amountsAttribute("Most that the machines which stay may come to: the limits."),
			"with_surge": amountsAttribute("Most that every machine which is not confirmed gone may come to: the limits and `surge` times the pool's largest machine."),
		},
	}
}

func amountsAttribute(description string) schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed:            true,
		MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"gpus":        schema.Int64Attribute{Computed: true, MarkdownDescription: "Physical GPUs. Null: not limited."},
			"hourly_cost": schema.StringAttribute{Computed: true, MarkdownDescription: "US dollars an hour. Null: not limited."},
			"nodes":       schema.Int64Attribute{Computed: true, MarkdownDescription: "Machines. Null: not limited."},
		},
	}
}

// Types of effective_limits and of each of its sums.
var (
	amountsType         = types.ObjectType{AttrTypes: map[string]attr.Type{"gpus": types.Int64Type, "hourly_cost": types.StringType, "nodes": types.Int64Type}}
	effectiveLimitsType = types.ObjectType{AttrTypes: map[string]attr.Type{"steady": amountsType, "with_surge": amountsType}}
)

// effectiveLimits are the two sums; false where they are not known now. Those of a pool without limits are null.
func effectiveLimits(x *expanded, machines []compiled) (types.Object, bool) {
	none := types.ObjectNull(effectiveLimitsType.AttrTypes)
	limits, limited := poolLimits(x, machines)
	if !x.known(poolLimitsField) || (limited && machines == nil) {
		return none, false
	}
	if !limited {
		return none, true
	}
	return types.ObjectValueMust(effectiveLimitsType.AttrTypes, map[string]attr.Value{
		"steady":     amounts(limits, ledger.Amounts{}),
		"with_surge": amounts(limits, limits.Surge),
	}), true
}

// amounts are the limits with so much more.
func amounts(limits ledger.Limits, more ledger.Amounts) types.Object {
	gpus, nodes, cost := types.Int64Null(), types.Int64Null(), types.StringNull()
	if limits.GPUs != nil {
		gpus = types.Int64Value(*limits.GPUs + more.GPUs)
	}
	if limits.Nodes != nil {
		nodes = types.Int64Value(*limits.Nodes + more.Nodes)
	}
	if limits.HourlyCost != nil {
		cost = types.StringValue(spellAmount(*limits.HourlyCost + more.HourlyCost))
	}
	return types.ObjectValueMust(amountsType.AttrTypes, map[string]attr.Value{"gpus": gpus, "nodes": nodes, "hourly_cost": cost})
}

// poolLimits are the pool's, without those that are unknown; false where it has none.
func poolLimits(x *expanded, machines []compiled) (ledger.Limits, bool) {
	pool, err := nodePool(x)
	if err != nil || pool.Spec.Limits == nil {
		return ledger.Limits{}, false // ValidateConfig has said what is wrong.
	}
	blueprints := make([]v1alpha1.Blueprint, len(machines))
	for i, m := range machines {
		blueprints[i] = m.blueprint
	}
	limits, err := blueprint.Limits(pool, blueprints)
	return limits, err == nil
}

// checkLimits holds the pool's machines to its limits. What could never launch anything is refused; what may be meant so
// is doubtful: a limit of 0, or one that only some of the machines fit.
func checkLimits(x *expanded, machines []compiled) (refused, doubtful []v1alpha1.Violation) {
	limits, limited := poolLimits(x, machines)
	if !limited {
		return nil, nil
	}
	if doubtful = zeroLimits(limits); len(doubtful) > 0 || len(machines) == 0 {
		return nil, doubtful
	}
	if refused = unpriced(limits, machines); len(refused) > 0 {
		return refused, nil
	}
	for _, one := range []ledger.Limits{{GPUs: limits.GPUs}, {HourlyCost: limits.HourlyCost}} {
		if beyond := outside(one, machines); len(beyond) == len(machines) {
			refused = append(refused, tooLow(beyond))
		}
	}
	if len(refused) > 0 {
		return refused, nil
	}
	beyond := outside(limits, machines)
	switch len(beyond) {
	case 0:
		return nil, nil
	case len(machines):
		return []v1alpha1.Violation{{Path: poolLimitsField, Message: "no machine of the pool is within all of the limits, so that nothing could ever be launched: " + inWords(beyond)}}, nil
	default:
		return nil, []v1alpha1.Violation{{Path: poolLimitsField, Message: "some machines of the pool are never launched within these limits: " + inWords(beyond)}}
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
func unpriced(limits ledger.Limits, machines []compiled) []v1alpha1.Violation {
	var found []v1alpha1.Violation
	for _, m := range machines {
		if limits.HourlyCost == nil || blueprint.Machine(m.blueprint).HasPrice {
			continue
		}
		found = append(found, v1alpha1.Violation{Path: m.path, Message: fmt.Sprintf("the price of %s is not known, and does not count as nothing: "+
			"limits.hourly_cost would never let it launch. Leave it out, or limit gpus or nodes instead", m.blueprint.InstanceType)})
	}
	return found
}

// beyond is a machine that limits refuse even when there is no other, and why.
type beyond struct {
	instanceType string
	refusal      *ledger.Refusal
}

// outside asks the rule of every launch, of a pool that has nothing yet.
func outside(limits ledger.Limits, machines []compiled) []beyond {
	nothing := ledger.Usage{Ready: true, Limits: limits}
	var found []beyond
	for _, m := range machines {
		var refusal *ledger.Refusal
		if errors.As(nothing.Fits(blueprint.Machine(m.blueprint)), &refusal) {
			found = append(found, beyond{m.blueprint.InstanceType, refusal})
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
			"Set %s or more, name cheaper machines, or set 0 to launch nothing", ledger.Money(r.Value), smallest.instanceType, price, spellAmount(price))
	}
	return v1alpha1.Violation{Path: limitPath(r.Limit), Message: message}
}

// inWords says of each machine by how much it is beyond the first limit that refuses it.
func inWords(all []beyond) string {
	words := make([]string, len(all))
	for i, b := range all {
		words[i] = fmt.Sprintf("%s has %d GPUs (gpus is %d)", b.instanceType, b.refusal.Asked, b.refusal.Value)
		if b.refusal.Limit == ledger.HourlyCost {
			words[i] = fmt.Sprintf("%s costs %s (hourly_cost is %s)", b.instanceType, ledger.Money(b.refusal.Asked), ledger.Money(b.refusal.Value))
		}
	}
	return strings.Join(words, ", ")
}

func limitPath(limit ledger.Limit) string { return poolLimitsField + "." + limit.Field() }
