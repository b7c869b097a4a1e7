package provider

import (
	"context"
	"math/big"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// isAmount reports whether a text is an amount of US dollars, as the API takes them.
func isAmount(text string) bool {
	return regexp.MustCompile(v1alpha1.PatternHourlyCost).MatchString(text)
}

// equalAmounts compares amounts exactly, however they are spelled: 110.080 is 110.08.
func equalAmounts(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

// keepSpelling keeps the state's spelling of an amount that a configuration only spells anew: there is nothing to change.
type keepSpelling struct{}

// Description says what the modifier does.
func (keepSpelling) Description(context.Context) string {
	return "an amount that is only spelled otherwise is no change"
}

// MarkdownDescription says what the modifier does.
func (m keepSpelling) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString compares the plan with the state. Null and unknown values are no amounts: theirs is the empty text.
func (keepSpelling) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if equalAmounts(req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}
