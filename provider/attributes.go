package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"k8s.io/apimachinery/pkg/util/validation"
)

// nameAttribute is the object's name. Kubernetes cannot rename an object, so a change replaces it.
func nameAttribute(most int, noun, change string) schema.StringAttribute {
	return schema.StringAttribute{
		Required: true,
		MarkdownDescription: fmt.Sprintf("Name of the %s in the cluster: lower-case letters, digits, `-` and `.`, at most %d characters. "+
			"A change deletes it%s and creates another.", noun, most, change),
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		Validators:    []validator.String{nameValidator{most: most}},
	}
}

// timeoutsAttribute are the user's bounds on waiting.
func timeoutsAttribute(ctx context.Context, k kind) schema.Attribute {
	settle := fmt.Sprintf("How long to wait until the controller has looked at the %s (condition `%s`). Default: `%s`. ", k.noun, k.settled, spell(defaultSettleTimeout))
	a := timeouts.Attributes(ctx, timeouts.Opts{
		Create:            true,
		Update:            true,
		Delete:            true,
		CreateDescription: settle + "When it ends, the apply warns and goes on.",
		UpdateDescription: settle + "When it ends, the apply fails.",
		DeleteDescription: fmt.Sprintf("How long to wait until the %s is gone. Default: `%s`. When it ends, the apply fails and the %s stays in the state.", k.noun, spell(k.deleteTimeout), k.noun),
	})
	if nested, ok := a.(schema.SingleNestedAttribute); ok {
		nested.MarkdownDescription = "How long to wait, as Go durations such as `90s` or `10m`. A change touches nothing in the cluster."
		return nested
	}
	return a
}

// nameValidator is Kubernetes' rule for names of objects.
type nameValidator struct {
	most int
}

// Description says the rule.
func (v nameValidator) Description(context.Context) string {
	return fmt.Sprintf("must be a name of a Kubernetes object of at most %d characters", v.most)
}

// MarkdownDescription says the rule.
func (v nameValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString refuses what the API server would.
func (v nameValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	name := req.ConfigValue.ValueString()
	found := validation.IsDNS1123Subdomain(name)
	if len(name) > v.most {
		found = append(found, fmt.Sprintf("it has %d characters", len(name)))
	}
	if len(found) > 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid Name", fmt.Sprintf("%q %s: %s.", name, v.Description(ctx), strings.Join(found, "; ")))
	}
}

// oneOf writes the allowed values of an enumeration, the default first where there is one.
func oneOf[T ~string](values []T) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("`%s`", v)
	}
	return strings.Join(quoted, ", ")
}

// sentence makes one of an API rule's words.
func sentence(message string) string {
	if message == "" || strings.HasSuffix(message, ".") {
		return message
	}
	return message + "."
}

// spell writes a duration as people do: 2m, not 2m0s.
func spell(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
