package provider

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// expanded is what an object's configuration, plan or state says, as the API spells it. Null attributes and empty lists
// and maps are left out, so that the server's defaults apply and Terraform owns only what the user set. Unknown values
// are left out too, and remembered.
type expanded struct {
	// name is empty where it is unknown.
	name string
	spec map[string]any
	// unknown are API paths inside the spec, such as "devices[0].slices".
	unknown []string
	// problems are values that no spec can hold.
	problems []v1alpha1.Violation
}

// expandObject reads a whole resource: its name, and its spec from every attribute but those in skip.
func expandObject(resource tftypes.Value, skip ...string) (expanded, error) {
	x := expanded{spec: map[string]any{}}
	var attributes map[string]tftypes.Value
	if err := resource.As(&attributes); err != nil {
		return x, err
	}
	if name := attributes["name"]; name.IsKnown() && !name.IsNull() {
		if err := name.As(&x.name); err != nil {
			return x, err
		}
	}
	for name, value := range attributes {
		if name == "name" || slices.Contains(skip, name) {
			continue
		}
		if err := x.set(x.spec, "", name, value); err != nil {
			return x, err
		}
	}
	slices.Sort(x.unknown)
	return x, nil
}

// set puts an attribute where it belongs inside an object that stands at the given path.
func (x *expanded) set(object map[string]any, at, attribute string, value tftypes.Value) error {
	names := apiField(attribute)
	v, given, err := x.value(join(at, names...), attribute, value)
	if err != nil || !given {
		return err
	}
	return unstructured.SetNestedField(object, v, names...)
}

// value is one value as JSON has it; false where nothing is to be sent.
func (x *expanded) value(at, attribute string, value tftypes.Value) (any, bool, error) {
	if !value.IsKnown() {
		x.unknown = append(x.unknown, at)
		return nil, false, nil
	}
	if value.IsNull() {
		return nil, false, nil
	}
	switch t := value.Type(); {
	case t.Is(tftypes.String):
		return x.text(at, attribute, value)
	case t.Is(tftypes.Number):
		return x.number(at, value)
	case t.Is(tftypes.Bool):
		var b bool
		err := value.As(&b)
		return b, true, err
	case t.Is(tftypes.List{}), t.Is(tftypes.Set{}):
		return x.list(at, value)
	case t.Is(tftypes.Map{}):
		return x.mapping(at, value)
	case t.Is(tftypes.Object{}):
		return x.object(at, value)
	default:
		return nil, false, fmt.Errorf("%s has a type that no spec has: %s", at, t)
	}
}

// text spells durations as the API's own types do. Sent otherwise, the first typed client that writes the object back
// would change the spelling and with it take the field from Terraform.
func (x *expanded) text(at, attribute string, value tftypes.Value) (any, bool, error) {
	var s string
	if err := value.As(&s); err != nil {
		return nil, false, err
	}
	if amountAttributes[attribute] && !isAmount(s) {
		x.problem(at, fmt.Sprintf("%q is not an amount of US dollars: write digits, at most 7 before the point and 6 behind it, such as 110.08", s))
		return nil, false, nil
	}
	if !durationAttributes[attribute] {
		return s, true, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		x.problem(at, fmt.Sprintf("%q is not a duration: write a number and a unit, such as 90s, 10m or 1h30m", s))
		return nil, false, nil
	}
	return d.String(), true, nil
}

// number takes whole numbers of 32 bits: the API has no others.
func (x *expanded) number(at string, value tftypes.Value) (any, bool, error) {
	var f big.Float
	if err := value.As(&f); err != nil {
		return nil, false, err
	}
	i, accuracy := f.Int64()
	if accuracy != big.Exact || i < math.MinInt32 || i > math.MaxInt32 {
		x.problem(at, fmt.Sprintf("%s is not a whole number from %d to %d", f.Text('g', -1), math.MinInt32, math.MaxInt32))
		return nil, false, nil
	}
	return i, true, nil
}

func (x *expanded) list(at string, value tftypes.Value) (any, bool, error) {
	var elements []tftypes.Value
	if err := value.As(&elements); err != nil {
		return nil, false, err
	}
	out := make([]any, 0, len(elements))
	for i, e := range elements {
		v, given, err := x.value(fmt.Sprintf("%s[%d]", at, i), "", e)
		if err != nil {
			return nil, false, err
		}
		if !given {
			// Null and unknown elements keep their place, so that the indexes of the others stay right.
			v = zero(e.Type())
		}
		out = append(out, v)
	}
	return out, len(out) > 0, nil
}

func (x *expanded) mapping(at string, value tftypes.Value) (any, bool, error) {
	var elements map[string]tftypes.Value
	if err := value.As(&elements); err != nil {
		return nil, false, err
	}
	out := make(map[string]any, len(elements))
	for key, e := range elements {
		v, given, err := x.value(fmt.Sprintf("%s[%s]", at, key), "", e)
		if err != nil {
			return nil, false, err
		}
		if given {
			out[key] = v
		}
	}
	return out, len(out) > 0, nil
}

func (x *expanded) object(at string, value tftypes.Value) (any, bool, error) {
	var attributes map[string]tftypes.Value
	if err := value.As(&attributes); err != nil {
		return nil, false, err
	}
	out := make(map[string]any, len(attributes))
	for name, v := range attributes {
		if err := x.set(out, at, name, v); err != nil {
			return nil, false, err
		}
	}
	return out, true, nil
}

func (x *expanded) problem(at, message string) {
	x.problems = append(x.problems, v1alpha1.Violation{Path: at, Message: message})
}

// known reports whether nothing at or under any of the paths is unknown, nor a part of something that is.
func (x *expanded) known(paths ...string) bool {
	return !slices.ContainsFunc(x.unknown, func(u string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return under(u, p) || under(p, u) })
	})
}

// decode fills one of the API's spec types. Unknown values are left zero.
func (x *expanded) decode(spec any) error {
	raw, err := json.Marshal(x.spec)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, spec)
}

// violations are the rules that the object breaks, without those that an unknown value may still satisfy.
func (x *expanded) violations(found []v1alpha1.Violation) []v1alpha1.Violation {
	all := slices.Clone(x.problems)
	for _, v := range found {
		at := specPath(v.Path)
		hasProblem := slices.ContainsFunc(x.problems, func(p v1alpha1.Violation) bool { return under(at, p.Path) || under(p.Path, at) })
		if x.known(at) && !hasProblem {
			all = append(all, v)
		}
	}
	return all
}

// specPath is a path inside the spec: "spec.devices[0]" is "devices[0]".
func specPath(path string) string {
	if path == "spec" {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, "."), "spec.")
}

// under reports whether path is ancestor or stands inside it. Everything is inside "".
func under(path, ancestor string) bool {
	rest, ok := strings.CutPrefix(path, ancestor)
	return ok && (rest == "" || ancestor == "" || rest[0] == '.' || rest[0] == '[')
}

func join(at string, names ...string) string {
	joined := strings.Join(names, ".")
	if at == "" {
		return joined
	}
	return at + "." + joined
}

// zero is the value that stands for a list's null or unknown element.
func zero(t tftypes.Type) any {
	switch {
	case t.Is(tftypes.Number):
		return int64(0)
	case t.Is(tftypes.Bool):
		return false
	case t.Is(tftypes.Object{}), t.Is(tftypes.Map{}):
		return map[string]any{}
	case t.Is(tftypes.List{}), t.Is(tftypes.Set{}):
		return []any{}
	default:
		return ""
	}
}
