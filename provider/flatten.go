package provider

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// flattenObject is the state of a resource whose object has the given spec. What the state did not hold stays out of it:
// an optional attribute that the user never set is null whatever others put there, and of a map only the user's keys are
// kept. So neither a server's default nor another controller's label becomes a difference. A state that import made holds
// only a name; it takes everything. Attributes in skip keep their value.
func flattenObject(state tftypes.Value, spec map[string]any, skip ...string) (tftypes.Value, error) {
	var before map[string]tftypes.Value
	if err := state.As(&before); err != nil {
		return state, err
	}
	// As hands out the value's own map.
	attributes := maps.Clone(before)
	everything := imported(before, skip)
	for name, prior := range before {
		if name == "name" || slices.Contains(skip, name) {
			continue
		}
		v, err := flattenField(name, prior, spec, everything)
		if err != nil {
			return state, err
		}
		attributes[name] = v
	}
	return newValue(state.Type(), attributes)
}

// imported reports whether a state holds nothing of a spec. A state that this provider wrote always does: each resource
// has required attributes.
func imported(attributes map[string]tftypes.Value, skip []string) bool {
	for name, v := range attributes {
		if name != "name" && !slices.Contains(skip, name) && !v.IsNull() {
			return false
		}
	}
	return true
}

// flattenField finds an attribute's field in an object.
func flattenField(attribute string, prior tftypes.Value, object map[string]any, everything bool) (tftypes.Value, error) {
	v, _, err := unstructured.NestedFieldNoCopy(object, apiField(attribute)...)
	if err != nil {
		return prior, err
	}
	if amountAttributes[attribute] && sameAmount(prior, v) {
		return prior, nil
	}
	if durationAttributes[attribute] {
		if sameDuration(prior, v) {
			return prior, nil
		}
		v = plainDuration(v)
	}
	if v == nil {
		v = absentMeans[attribute]
	}
	flat, err := flattenValue(prior, v, everything)
	if err != nil {
		return prior, fmt.Errorf("%s: %w", attribute, err)
	}
	return flat, nil
}

func flattenValue(prior tftypes.Value, v any, everything bool) (tftypes.Value, error) {
	t := prior.Type()
	if prior.IsNull() && !everything {
		return prior, nil
	}
	if v == nil {
		if empty(prior) {
			return prior, nil
		}
		return tftypes.NewValue(t, nil), nil
	}
	switch v := v.(type) {
	case []any:
		return flattenList(prior, v, everything)
	case map[string]any:
		if t.Is(tftypes.Map{}) {
			return flattenMap(prior, v, everything)
		}
		return flattenAttributes(prior, v, everything)
	case int64:
		return newValue(t, new(big.Float).SetInt64(v))
	case float64:
		return newValue(t, big.NewFloat(v))
	default:
		return newValue(t, v)
	}
}

// flattenList gives each element the prior element of its index. Elements beyond take everything.
func flattenList(prior tftypes.Value, list []any, everything bool) (tftypes.Value, error) {
	element, err := elementType(prior.Type())
	if err != nil {
		return prior, err
	}
	var before []tftypes.Value
	if err := prior.As(&before); err != nil {
		return prior, err
	}
	out := make([]tftypes.Value, 0, len(list))
	for i, v := range list {
		was, all := tftypes.NewValue(element, nil), true
		// A set's elements have no place of their own, but only scalars stand in sets.
		if i < len(before) && element.Is(tftypes.Object{}) {
			was, all = before[i], everything
		}
		flat, err := flattenValue(was, v, all)
		if err != nil {
			return prior, err
		}
		out = append(out, flat)
	}
	return newValue(prior.Type(), out)
}

// flattenMap keeps the keys that the state has: others' keys are theirs.
func flattenMap(prior tftypes.Value, m map[string]any, everything bool) (tftypes.Value, error) {
	element, err := elementType(prior.Type())
	if err != nil {
		return prior, err
	}
	var before map[string]tftypes.Value
	if err := prior.As(&before); err != nil {
		return prior, err
	}
	out := map[string]tftypes.Value{}
	for key, v := range m {
		was, ours := before[key]
		if !ours && !everything {
			continue
		}
		if !ours {
			was = tftypes.NewValue(element, nil)
		}
		if out[key], err = flattenValue(was, v, true); err != nil {
			return prior, err
		}
	}
	for key, was := range before {
		if _, there := m[key]; !there && was.IsNull() {
			out[key] = was
		}
	}
	return newValue(prior.Type(), out)
}

func flattenAttributes(prior tftypes.Value, object map[string]any, everything bool) (tftypes.Value, error) {
	t, ok := prior.Type().(tftypes.Object)
	if !ok {
		return prior, fmt.Errorf("the server has an object where %s is expected", prior.Type())
	}
	var before map[string]tftypes.Value
	if err := prior.As(&before); err != nil {
		return prior, err
	}
	out := make(map[string]tftypes.Value, len(t.AttributeTypes))
	for name, at := range t.AttributeTypes {
		was, ok := before[name]
		if !ok {
			was = tftypes.NewValue(at, nil)
		}
		v, err := flattenField(name, was, object, everything)
		if err != nil {
			return prior, err
		}
		out[name] = v
	}
	return newValue(t, out)
}

// empty reports whether a value says as much as its absence: the server need not keep an empty list, map or object, nor
// false, which typed clients leave out.
func empty(v tftypes.Value) bool {
	if v.IsNull() || !v.IsKnown() {
		return false
	}
	switch t := v.Type(); {
	case t.Is(tftypes.Bool):
		var b bool
		return v.As(&b) == nil && !b
	case t.Is(tftypes.List{}), t.Is(tftypes.Set{}):
		var elements []tftypes.Value
		return v.As(&elements) == nil && len(elements) == 0
	case t.Is(tftypes.Map{}), t.Is(tftypes.Object{}):
		var elements map[string]tftypes.Value
		if v.As(&elements) != nil {
			return false
		}
		for _, e := range elements {
			if !e.IsNull() {
				return false
			}
		}
		return true
	}
	return false
}

// sameDuration reports whether the server has the duration that the state has, however each is spelled.
func sameDuration(prior tftypes.Value, v any) bool {
	var before string
	now, ok := v.(string)
	if !ok || prior.As(&before) != nil {
		return false
	}
	a, errA := time.ParseDuration(before)
	b, errB := time.ParseDuration(now)
	return errA == nil && errB == nil && a == b
}

// sameAmount reports whether the server has the amount that the state has, however each is spelled.
func sameAmount(prior tftypes.Value, v any) bool {
	var before string
	now, ok := v.(string)
	return ok && prior.As(&before) == nil && equalAmounts(before, now)
}

// plainDuration spells a duration that Go spelled ("10m0s") as people do ("10m"). Others stay as somebody wrote them.
func plainDuration(v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	if d, err := time.ParseDuration(s); err == nil && d.String() == s {
		return spell(d)
	}
	return s
}

func elementType(t tftypes.Type) (tftypes.Type, error) {
	switch t := t.(type) {
	case tftypes.List:
		return t.ElementType, nil
	case tftypes.Set:
		return t.ElementType, nil
	case tftypes.Map:
		return t.ElementType, nil
	}
	return nil, fmt.Errorf("the server has a list or map where %s is expected", t)
}

// newValue is tftypes.NewValue with an error where that one panics.
func newValue(t tftypes.Type, v any) (tftypes.Value, error) {
	if err := tftypes.ValidateValue(t, v); err != nil {
		return tftypes.Value{}, err
	}
	return tftypes.NewValue(t, v), nil
}
