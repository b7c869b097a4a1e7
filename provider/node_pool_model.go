package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// API paths of what a pool's Blueprints depend on.
const (
	poolClassField    = "nodeClassRef"
	poolMachinesField = "machines"
	classSharingField = "sharing"
)

// resourceCounts are the extended resources of a node, by instance type.
type resourceCounts map[string]map[string]int64

// nodePool is the API object that a configuration or plan says. Unknown values are zero.
func nodePool(x *expanded) (*v1alpha1.GPUNodePool, error) {
	var pool v1alpha1.GPUNodePool
	pool.Name = x.name
	return &pool, x.decode(&pool.Spec)
}

// nodePoolRules are the rules that a pool breaks by itself.
func nodePoolRules(x *expanded) ([]v1alpha1.Violation, error) {
	pool, err := nodePool(x)
	if err != nil {
		return nil, err
	}
	return v1alpha1.ValidateGPUNodePool(&pool.Spec), nil
}

// poolResources compiles a Blueprint for each instance type of the pool. It returns nil without an error where the class
// or a layout is not known now.
func poolResources(ctx context.Context, s *session, x *expanded) (resourceCounts, []v1alpha1.Violation) {
	if s == nil || !x.known(poolClassField, poolMachinesField) {
		return nil, nil
	}
	pool, err := nodePool(x)
	if err != nil {
		return nil, nil // ValidateConfig has said it.
	}
	class, violations := findClass(ctx, s, pool.Spec.NodeClassRef.Name)
	if class == nil {
		return nil, violations
	}
	layouts, missing, decided, err := s.layouts(ctx, class)
	switch {
	case err != nil:
		return nil, []v1alpha1.Violation{{Path: poolClassField, Message: err.Error()}}
	case len(missing) > 0:
		return nil, []v1alpha1.Violation{{Path: poolClassField, Message: fmt.Sprintf("node class %q refers to %s", class.Name, missingReference(migLayoutKind, missing[0]))}}
	case !decided:
		return nil, nil
	}
	return compileAll(pool, class, layouts)
}

// findClass is the pool's class; nil where it is nowhere, which is a violation, or not known now, which is none.
func findClass(ctx context.Context, s *session, name string) (*v1alpha1.GPUNodeClass, []v1alpha1.Violation) {
	x, p := s.find(ctx, nodeClassKind, name)
	if p == absent {
		return nil, []v1alpha1.Violation{{Path: poolClassField, Message: missingReference(nodeClassKind, name)}}
	}
	if p == undecided || !x.known(classSharingField) {
		return nil, nil
	}
	class, err := nodeClass(&x)
	if err != nil {
		return nil, []v1alpha1.Violation{{Path: poolClassField, Message: fmt.Sprintf("node class %q of the cluster cannot be read: %v", name, err)}}
	}
	return class, nil
}

func compileAll(pool *v1alpha1.GPUNodePool, class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout) (resourceCounts, []v1alpha1.Violation) {
	counts := resourceCounts{}
	var violations []v1alpha1.Violation
	for i, m := range pool.Spec.Machines {
		for j, instanceType := range m.InstanceTypes {
			bp, err := blueprint.Compile(pool, class, layouts, instanceType)
			if err != nil {
				v := compileViolation(err)
				if !strings.HasPrefix(v.Path, "spec."+poolMachinesField) {
					// The fault is in the class or a layout, or in how the instance type and they go together.
					v.Path = fmt.Sprintf("%s[%d].instanceTypes[%d]", poolMachinesField, i, j)
				}
				violations = append(violations, v)
				continue
			}
			counts[instanceType] = map[string]int64{}
			for name, quantity := range bp.Resources {
				counts[instanceType][string(name)] = quantity.Value()
			}
		}
	}
	if len(violations) > 0 {
		return nil, violations
	}
	return counts, nil
}

// compileViolation is an error of blueprint as a rule that is broken at a path. An object other than the one at hand is
// named.
func compileViolation(err error) v1alpha1.Violation {
	var e *blueprint.Error
	if !errors.As(err, &e) {
		return v1alpha1.Violation{Message: err.Error()}
	}
	if e.Object == "" || strings.HasPrefix(e.Object, v1alpha1.KindGPUNodePool+" ") {
		return v1alpha1.Violation{Path: e.Path, Message: e.Message}
	}
	return v1alpha1.Violation{Path: "", Message: fmt.Sprintf("%s, %s: %s", e.Object, e.Path, e.Message)}
}

// tolerationType is one element of tolerations.
var tolerationType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"key": types.StringType, "operator": types.StringType, "value": types.StringType, "effect": types.StringType,
}}

var resourcesType = types.MapType{ElemType: types.Int64Type}

// setPoolOutputs writes what a pod of the pool carries. Both follow from the pool alone.
func setPoolOutputs(ctx context.Context, x *expanded, set func(context.Context, path.Path, any) diag.Diagnostics) diag.Diagnostics {
	pool, err := nodePool(x)
	if err != nil {
		return nil // ValidateConfig has said it.
	}
	var diags diag.Diagnostics
	if x.name != "" {
		diags.Append(set(ctx, path.Root("node_selector"), blueprint.NodeSelector(pool))...)
	}
	if x.known("workload", "taints") {
		diags.Append(set(ctx, path.Root("tolerations"), tolerations(pool))...)
	}
	return diags
}

func tolerations(pool *v1alpha1.GPUNodePool) types.List {
	var elements []attr.Value
	for _, t := range blueprint.Tolerations(pool) {
		elements = append(elements, types.ObjectValueMust(tolerationType.AttrTypes, map[string]attr.Value{
			"key": types.StringValue(t.Key), "operator": types.StringValue(string(t.Operator)),
			"value": types.StringValue(t.Value), "effect": types.StringValue(string(t.Effect)),
		}))
	}
	return types.ListValueMust(tolerationType, elements)
}

// computePool fills the outputs of a pool that is in the cluster. Resources that the state has are kept: a refresh must
// not change what only a plan computes.
func computePool(ctx context.Context, s *session, x expanded, state *tfsdk.State) diag.Diagnostics {
	diags := setPoolOutputs(ctx, &x, state.SetAttribute)
	var before types.Map
	if diags.Append(state.GetAttribute(ctx, path.Root("resources"), &before)...); diags.HasError() {
		return diags
	}
	if !before.IsNull() && !before.IsUnknown() {
		return diags
	}
	counts, violations := poolResources(ctx, s, &x)
	if counts == nil {
		if len(violations) > 0 {
			diags.AddAttributeWarning(path.Root("resources"), "Node Pool Resources Not Known", sentence(violations[0].Message))
		}
		diags.Append(state.SetAttribute(ctx, path.Root("resources"), types.MapNull(resourcesType))...)
		return diags
	}
	diags.Append(state.SetAttribute(ctx, path.Root("resources"), counts)...)
	return diags
}
