package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

var (
	_ resource.ResourceWithConfigure      = (*nodePoolResource)(nil)
	_ resource.ResourceWithImportState    = (*nodePoolResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*nodePoolResource)(nil)
	_ resource.ResourceWithValidateConfig = (*nodePoolResource)(nil)
)

// nodePoolResource is a segment of the fleet.
type nodePoolResource struct {
	objectResource
}

func newNodePoolResource() resource.Resource {
	return &nodePoolResource{objectResource{kind: nodePoolKind, compute: computePool}}
}

// Schema describes the resource.
func (r *nodePoolResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A node pool is a segment of the GPU fleet: one workload class, one node class, and the machines that it may launch. Nodes come when pods " +
			"ask for them and go when they are empty. A plan computes what a node of each instance type will advertise and what the limits come to, and refuses a pool " +
			"whose nodes cannot exist or could never be launched.\n\n" +
			"Every attribute but the name can be changed in place. Deleting a pool waits until its last machine is confirmed terminated.",
		Attributes: poolAttributes(ctx, r.kind),
	}
}

func poolAttributes(ctx context.Context, k kind) map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{
		"machines": schema.ListNestedAttribute{
			Required:            true,
			MarkdownDescription: fmt.Sprintf("What the pool may launch, in order of preference, 1 to %d entries. Nodes of types that are listed no more are replaced.", v1alpha1.MaxMachines),
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"instance_types": schema.SetAttribute{
					Required:    true,
					ElementType: types.StringType,
					MarkdownDescription: fmt.Sprintf("Exact instance types, 1 to %d, e.g. `p5.48xlarge`. Those of one entry are equals. Nothing else is ever launched for the entry.",
						v1alpha1.MaxInstanceTypes),
				},
			}},
		},
		"name": nameAttribute(v1alpha1.MaxPoolNameLength, "node pool", ", drains its nodes, waits until they are gone,"),
		"node_class": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: "Name of the node class of the pool's nodes. Write `gpufleet_node_class.<label>.name`. A change rolls nodes that the new class would make otherwise.",
		},
		"workload": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: fmt.Sprintf("Class of work that the pool is for: %s. It sets the defaults of `capacity_types` and `disruption`, and a taint: a change rolls nodes.", oneOf(v1alpha1.Workloads)),
		},
		"capacity_types": schema.ListAttribute{
			Optional:            true,
			ElementType:         types.StringType,
			MarkdownDescription: "How machines may be bought, in order: " + oneOf(v1alpha1.CapacityTypes) + ". Default: " + workloadDefaults(capacityTypes) + ". Nodes bought otherwise are replaced.",
		},
		"disruption": schema.SingleNestedAttribute{
			Optional:            true,
			MarkdownDescription: "When idle nodes go.",
			Attributes: map[string]schema.Attribute{
				"consolidate_after": schema.StringAttribute{
					Optional: true,
					MarkdownDescription: fmt.Sprintf("How long a node is empty before it is removed, from `0s` to `%s`. Default: %s. A change rolls no nodes.",
						spell(v1alpha1.MaxConsolidateAfter), workloadDefaults(consolidateAfter)),
				},
			},
		},
		"limits": limitsAttribute(),
		"labels": schema.MapAttribute{
			Optional:            true,
			ElementType:         types.StringType,
			MarkdownDescription: fmt.Sprintf("Labels added to the pool's nodes, at most %d. Prefixes `gpufleet.dev/`, `karpenter.sh/` and `nvidia.com/` are taken. Default: none. A change rolls nodes.", v1alpha1.MaxLabels),
		},
		"taints":   taintsAttribute(),
		"timeouts": timeoutsAttribute(ctx, k),
		"zones": schema.SetAttribute{
			Optional:            true,
			ElementType:         types.StringType,
			MarkdownDescription: fmt.Sprintf("Availability zones to launch in, at most %d. Default: every zone of the class's subnets. Nodes in other zones are replaced.", v1alpha1.MaxZones),
		},
	}
	for name, a := range poolOutputs() {
		attributes[name] = a
	}
	return attributes
}

func taintsAttribute() schema.Attribute {
	return schema.ListNestedAttribute{
		Optional: true,
		MarkdownDescription: fmt.Sprintf("Taints added to the pool's nodes beside `%s` and `%s`, at most %d. Default: none. A change rolls nodes.",
			v1alpha1.TaintGPU, v1alpha1.TaintWorkload, v1alpha1.MaxTaints),
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"effect": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "One of " + oneOf(v1alpha1.TaintEffects) + ".",
			},
			"key": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Key of the taint. Prefixes `gpufleet.dev/` and `karpenter.sh/` are taken.",
			},
			"value": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Value of the taint. Default: empty.",
			},
		}},
	}
}

// poolOutputs are what a workload needs to know of its pool. They change only with the configuration.
func poolOutputs() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"effective_limits": effectiveLimitsAttribute(),
		"node_selector": schema.MapAttribute{
			Computed:            true,
			ElementType:         types.StringType,
			MarkdownDescription: "Node selector of a pod that is to run in the pool.",
		},
		"resources": schema.MapAttribute{
			Computed:    true,
			ElementType: resourcesType,
			MarkdownDescription: "Extended resources that one node offers, by instance type and resource name, e.g. `{\"p5.48xlarge\" = {\"nvidia.com/mig-1g.10gb\" = 56}}`. " +
				"Known at plan where the class and its layouts are in the same configuration or in the cluster.",
		},
		"tolerations": schema.ListNestedAttribute{
			Computed:            true,
			MarkdownDescription: "Tolerations of a pod that is to run in the pool: one for each taint of its nodes.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"effect":   schema.StringAttribute{Computed: true, MarkdownDescription: "Effect of the taint."},
				"key":      schema.StringAttribute{Computed: true, MarkdownDescription: "Key of the taint."},
				"operator": schema.StringAttribute{Computed: true, MarkdownDescription: "Always `" + string(corev1.TolerationOpEqual) + "`."},
				"value":    schema.StringAttribute{Computed: true, MarkdownDescription: "Value of the taint."},
			}},
		},
	}
}

// ValidateConfig refuses a pool that breaks a rule by itself.
func (r *nodePoolResource) ValidateConfig(_ context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	resp.Diagnostics.Append(r.check(req.Config, nodePoolRules)...)
}

// ModifyPlan compiles what a node of each instance type will be. A pool whose nodes cannot exist is refused; outputs that
// can be known are.
func (r *nodePoolResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	x, ok := r.planned(req.Plan, &resp.Diagnostics)
	if !ok {
		return
	}
	resp.Diagnostics.Append(setPoolOutputs(ctx, &x, resp.Plan.SetAttribute)...)
	machines, violations := poolBlueprints(ctx, r.session, &x)
	if machines != nil {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("resources"), resourcesOf(machines))...)
	}
	if limits, known := effectiveLimits(&x, machines); known {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("effective_limits"), limits)...)
	}
	refused, doubtful := checkLimits(&x, machines)
	schema := req.Plan.Schema.Type()
	for _, v := range append(violations, refused...) {
		addError(&resp.Diagnostics, attributePath(schema, v.Path), "Impossible Node Pool", sentence(v.Message))
	}
	for _, v := range doubtful {
		addWarning(&resp.Diagnostics, attributePath(schema, v.Path), "Limits Leave Machines Out", sentence(v.Message))
	}
}

// workloadDefaults writes the default of each workload class, from the function that the controller uses too.
func workloadDefaults(of func(v1alpha1.EffectiveSettings) string) string {
	text := ""
	for i, w := range v1alpha1.Workloads {
		if i > 0 {
			text += ", "
		}
		pool := &v1alpha1.GPUNodePool{Spec: v1alpha1.GPUNodePoolSpec{Workload: w}}
		text += fmt.Sprintf("%s for `%s`", of(blueprint.Defaults(pool)), w)
	}
	return text
}

func capacityTypes(s v1alpha1.EffectiveSettings) string {
	text := ""
	for i, c := range s.CapacityTypes {
		if i > 0 {
			text += " then "
		}
		text += fmt.Sprintf("`%s`", c)
	}
	return text
}

func consolidateAfter(s v1alpha1.EffectiveSettings) string {
	return "`" + spell(s.ConsolidateAfter.Duration) + "`"
}
