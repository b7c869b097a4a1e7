package provider

import (
	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// migLayoutSpec is the spec that a configuration or plan says. Unknown values are zero.
func migLayoutSpec(x *expanded) (v1alpha1.MIGLayoutSpec, error) {
	var spec v1alpha1.MIGLayoutSpec
	err := x.decode(&spec)
	return spec, err
}

// migLayoutRules are the rules that a layout breaks by itself. Whether it can be placed is asked last, of a layout that
// is whole and in order otherwise.
func migLayoutRules(x *expanded) ([]v1alpha1.Violation, error) {
	spec, err := migLayoutSpec(x)
	if err != nil {
		return nil, err
	}
	found := v1alpha1.ValidateMIGLayout(&spec)
	if len(found) > 0 || len(x.problems) > 0 || len(x.unknown) > 0 {
		return found, nil
	}
	if _, err := blueprint.Layout(spec); err != nil {
		return []v1alpha1.Violation{compileViolation(err)}, nil
	}
	return nil, nil
}
