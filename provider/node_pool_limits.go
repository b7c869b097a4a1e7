package provider

import (
	"fmt"

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
		cost = types.StringValue((*limits.HourlyCost + more.HourlyCost).Amount())
	}
	return types.ObjectValueMust(amountsType.AttrTypes, map[string]attr.Value{"gpus": gpus, "nodes": nodes, "hourly_cost": cost})
}

// poolLimits are the pool's, without those that are unknown; false where it has none.
func poolLimits(x *expanded, machines []compiled) (ledger.Limits, bool) {
	pool, err := nodePool(x)
	if err != nil || pool.Spec.Limits == nil {
		return ledger.Limits{}, false // ValidateConfig has said what is wrong.
	}
	limits, err := blueprint.Limits(pool, blueprintsOf(machines))
	return limits, err == nil
}

// checkLimits holds the pool's machines to its limits. What could never launch anything is refused; what may be meant so
// is doubtful.
func checkLimits(x *expanded, machines []compiled) (refused, doubtful []v1alpha1.Violation) {
	limits, limited := poolLimits(x, machines)
	pool, err := nodePool(x)
	if !limited || err != nil {
		return nil, nil
	}
	return blueprint.CheckLimits(pool, blueprintsOf(machines), limits)
}

func blueprintsOf(machines []compiled) []v1alpha1.Blueprint {
	blueprints := make([]v1alpha1.Blueprint, len(machines))
	for i, m := range machines {
		blueprints[i] = m.blueprint
	}
	return blueprints
}
