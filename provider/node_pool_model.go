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

// compiled is the Blueprint of an instance type, and where the pool names it.
type compiled struct {
	path      string
	blueprint v1alpha1.Blueprint
}

// poolBlueprints compiles a Blueprint for each instance type of the pool. It returns nil without an error where the class
// or a layout is not known now.
func poolBlueprints(ctx context.Context, s *session, x *expanded) ([]compiled, []v1alpha1.Violation) {
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

func compileAll(pool *v1alpha1.GPUNodePool, class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout) ([]compiled, []v1alpha1.Violation) {
	all := []compiled{}
	var violations []v1alpha1.Violation
	for i, m := range pool.Spec.Machines {
		for j, instanceType := range m.InstanceTypes {
			at := fmt.Sprintf("%s[%d].instanceTypes[%d]", poolMachinesField, i, j)
			bp, err := blueprint.Compile(pool, class, layouts, instanceType)
			if err != nil {
				v := compileViolation(err)
				if !strings.HasPrefix(v.Path, "spec."+poolMachinesField) {
					// The fault is in the class or a layout, or in how the instance type and they go together.
					v.Path = at
				}
				violations = append(violations, v)
				continue
			}
			all = append(all, compiled{at, bp})
		}
	}
	if len(violations) > 0 {
		return nil, violations
	}
	return all, nil
}

// resourcesOf are what a node of each instance type offers.
func resourcesOf(machines []compiled) resourceCounts {
	counts := resourceCounts{}
	for _, m := range machines {
		of := map[string]int64{}
		for name, quantity := range m.blueprint.Resources {
			of[string(name)] = quantity.Value()
		}
		counts[m.blueprint.InstanceType] = of
	}
	return counts
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

// computePool fills the outputs of a pool that is in the cluster. What the state has is kept: a refresh must not change
// what only a plan computes.
func computePool(ctx context.Context, s *session, x expanded, state *tfsdk.State) diag.Diagnostics {
	diags := setPoolOutputs(ctx, &x, state.SetAttribute)
	var (
		resources         types.Map
		effective, limits types.Object
	)
	diags.Append(state.GetAttribute(ctx, path.Root("resources"), &resources)...)
	diags.Append(state.GetAttribute(ctx, path.Root("effective_limits"), &effective)...)
	diags.Append(state.GetAttribute(ctx, path.Root("limits"), &limits)...)
	if diags.HasError() {
		return diags
	}
	// Limits that the state does not have are somebody else's.
	needResources, needLimits := missing(resources), effective.IsUnknown() || (effective.IsNull() && !limits.IsNull())
	if !needResources && !needLimits {
		return diags
	}
	machines, violations := poolBlueprints(ctx, s, &x)
	if len(violations) > 0 {
		diags.AddAttributeWarning(path.Root("resources"), "Node Pool Resources Not Known", sentence(violations[0].Message))
	}
	if needResources {
		diags.Append(setResources(ctx, machines, state)...)
	}
	if needLimits {
		value, _ := effectiveLimits(&x, machines)
		diags.Append(state.SetAttribute(ctx, path.Root("effective_limits"), value)...)
	}
	return diags
}

func missing(v attr.Value) bool { return v.IsNull() || v.IsUnknown() }

// setResources writes what the machines offer, or null where they are not known: a state has no unknown values.
func setResources(ctx context.Context, machines []compiled, state *tfsdk.State) diag.Diagnostics {
	if machines == nil {
		return state.SetAttribute(ctx, path.Root("resources"), types.MapNull(resourcesType))
	}
	return state.SetAttribute(ctx, path.Root("resources"), resourcesOf(machines))
}
