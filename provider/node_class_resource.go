package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

var (
	_ resource.ResourceWithConfigure      = (*nodeClassResource)(nil)
	_ resource.ResourceWithImportState    = (*nodeClassResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*nodeClassResource)(nil)
	_ resource.ResourceWithValidateConfig = (*nodeClassResource)(nil)
)

// nodeClassResource is the shape of a node and where it comes from.
type nodeClassResource struct {
	objectResource
}

func newNodeClassResource() resource.Resource {
	return &nodeClassResource{objectResource{kind: nodeClassKind}}
}

// Schema describes the resource.
func (r *nodeClassResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A node class is the shape of a GPU node and where it comes from: cloud, image, how pods share the GPUs, and what is proved " +
			"before a pod lands on the node. Node pools refer to it, and so may Karpenter NodePools of your own (`nodeClassRef` of kind `GPUNodeClass`).\n\n" +
			"Every attribute can be changed in place. Where a change makes nodes differ from what the class says, they are replaced as their pool's disruption " +
			"settings allow: the attributes say **rolls nodes**.",
		Attributes: map[string]schema.Attribute{
			"cloud":        cloudAttribute(),
			"name":         nameAttribute(v1alpha1.MaxClassNameLength, "node class", ""),
			"driver":       driverAttribute(),
			"sharing":      sharingAttribute(),
			"timeouts":     timeoutsAttribute(ctx, r.kind),
			"verification": verificationAttribute(),
		},
	}
}

// ValidateConfig refuses a class that breaks a rule by itself.
func (r *nodeClassResource) ValidateConfig(_ context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	resp.Diagnostics.Append(r.check(req.Config, nodeClassRules)...)
}

// ModifyPlan refuses layouts that are nowhere, and lets pools of this run know the class.
func (r *nodeClassResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	x, ok := r.planned(req.Plan, &resp.Diagnostics)
	if !ok || !x.known("sharing") {
		return
	}
	class, err := nodeClass(&x)
	if err != nil {
		// ValidateConfig has said it.
		return
	}
	_, missing, _, err := r.session.layouts(ctx, class)
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("sharing").AtName("layouts"), "Unreadable MIG Layout", "A MIG layout of the cluster cannot be read."+original(err))
		return
	}
	for _, name := range missing {
		resp.Diagnostics.AddAttributeError(path.Root("sharing").AtName("layouts"), "MIG Layout Not Found", missingReference(migLayoutKind, name))
	}
}

// missingReference says how to refer to an object so that it is there in time.
func missingReference(k kind, name string) string {
	return blueprint.Missing(k.noun, name) + fmt.Sprintf(". It is neither in this configuration nor in the cluster. Refer to it as %s.<label>.name: "+
		"a name written out does not tell Terraform which of the two comes first.", k.terraformType())
}
