package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
)

var (
	_ resource.ResourceWithConfigure      = (*migLayoutResource)(nil)
	_ resource.ResourceWithImportState    = (*migLayoutResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*migLayoutResource)(nil)
	_ resource.ResourceWithValidateConfig = (*migLayoutResource)(nil)
)

// migLayoutResource is one GPU model, cut.
type migLayoutResource struct {
	objectResource
}

func newMIGLayoutResource() resource.Resource {
	return &migLayoutResource{objectResource{kind: migLayoutKind}}
}

// Schema describes the resource.
func (r *migLayoutResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A MIG layout says how the GPUs of one model are cut into MIG instances. A plan refuses a layout that cannot be placed: " +
			"it is not enough that the slices add up, each instance has only certain places on the GPU.\n\n" +
			"A node's layout never changes under running pods: a change here **rolls the nodes** of every node class that uses the layout.",
		Attributes: map[string]schema.Attribute{
			"devices": schema.ListNestedAttribute{
				Required: true,
				MarkdownDescription: "Which GPUs of a node are cut how, 1 to 16 entries. One entry without `gpus` cuts every GPU alike; " +
					"several entries each name their `gpus`. A GPU that no entry names stays whole. A change rolls nodes.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"slices": schema.ListNestedAttribute{
						Required:            true,
						MarkdownDescription: "The MIG instances of each of these GPUs, 1 to 16 entries, each profile once.",
						NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
							"profile": schema.StringAttribute{
								Required:            true,
								MarkdownDescription: "MIG profile as NVIDIA writes it, e.g. `1g.10gb` or `1g.10gb+me`.",
							},
							"count": schema.Int64Attribute{
								Required:            true,
								MarkdownDescription: "How many instances of the profile each GPU gets, 1 to 16.",
							},
						}},
					},
					"gpus": schema.SetAttribute{
						Optional:            true,
						ElementType:         types.Int64Type,
						MarkdownDescription: "Indexes of the GPUs that this entry is for, from 0 to 15. Default: every GPU of the node.",
					},
				}},
			},
			"gpu_model": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "GPU model that the layout is for, e.g. `H100-80GB-SXM`. One of " + oneOf(gpu.MIGKeys()) + ". A change rolls nodes.",
			},
			"name":     nameAttribute(v1alpha1.MaxNameLength, "layout", ""),
			"timeouts": timeoutsAttribute(ctx, r.kind),
		},
	}
}

// ValidateConfig refuses a layout that breaks a rule or cannot be placed.
func (r *migLayoutResource) ValidateConfig(_ context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	resp.Diagnostics.Append(r.check(req.Config, migLayoutRules)...)
}

// ModifyPlan lets node classes and pools of this run know the layout.
func (r *migLayoutResource) ModifyPlan(_ context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	r.planned(req.Plan, &resp.Diagnostics)
}
