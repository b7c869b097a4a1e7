package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// unknownValue stands for an unknown value in the literals of these tests.
type unknownValue struct{}

// value makes a Terraform value of a type out of plain Go: absent attributes are null.
func value(t *testing.T, of tftypes.Type, v any) tftypes.Value {
	t.Helper()
	switch v := v.(type) {
	case nil:
		return tftypes.NewValue(of, nil)
	case unknownValue:
		return tftypes.NewValue(of, tftypes.UnknownValue)
	case int:
		return tftypes.NewValue(of, big.NewFloat(float64(v)))
	case []any:
		element, err := elementType(of)
		if err != nil {
			t.Fatal(err)
		}
		elements := make([]tftypes.Value, 0, len(v))
		for _, e := range v {
			elements = append(elements, value(t, element, e))
		}
		return tftypes.NewValue(of, elements)
	case map[string]any:
		return objectOrMap(t, of, v)
	default:
		return tftypes.NewValue(of, v)
	}
}

func objectOrMap(t *testing.T, of tftypes.Type, v map[string]any) tftypes.Value {
	t.Helper()
	values := map[string]tftypes.Value{}
	if object, ok := of.(tftypes.Object); ok {
		for name, at := range object.AttributeTypes {
			values[name] = value(t, at, v[name])
		}
		for name := range v {
			if _, ok := object.AttributeTypes[name]; !ok {
				t.Fatalf("no attribute %s", name)
			}
		}
		return tftypes.NewValue(of, values)
	}
	for key, e := range v {
		values[key] = value(t, of.(tftypes.Map).ElementType, e)
	}
	return tftypes.NewValue(of, values)
}

func configOf(t *testing.T, r resource.Resource, v map[string]any) tftypes.Value {
	t.Helper()
	return value(t, schemaOf(t, r).Type().TerraformType(context.Background()), v)
}

func kindOf(r resource.Resource) kind {
	switch r := r.(type) {
	case *migLayoutResource:
		return r.kind
	case *nodeClassResource:
		return r.kind
	case *nodePoolResource:
		return r.kind
	}
	return kind{}
}

func mustExpand(t *testing.T, r resource.Resource, v tftypes.Value) expanded {
	t.Helper()
	x, err := expandObject(v, kindOf(r).outsideSpec()...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// full are configurations that set every attribute.
func full() map[string]struct {
	resource resource.Resource
	config   map[string]any
} {
	return map[string]struct {
		resource resource.Resource
		config   map[string]any
	}{
		"mig_layout": {newMIGLayoutResource(), map[string]any{
			"name": "l", "gpu_model": "H100-80GB-SXM",
			"devices": []any{
				map[string]any{"gpus": []any{0, 1}, "slices": []any{map[string]any{"profile": "1g.10gb", "count": 7}}},
				map[string]any{"gpus": []any{2}, "slices": []any{map[string]any{"profile": "7g.80gb", "count": 1}}},
			},
		}},
		"node_class": {newNodeClassResource(), map[string]any{
			"name": "c",
			"cloud": map[string]any{"aws": map[string]any{
				"subnets": []any{"subnet-1", "subnet-2"}, "security_groups": []any{"sg-1"}, "instance_profile": "p",
				"ami":         map[string]any{"family": "AL2023", "id": "ami-1", "ssm_parameter": "/x"},
				"root_volume": map[string]any{"size_gib": 200},
				"cluster":     map[string]any{"name": "n", "endpoint": "https://e", "certificate_authority": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", "service_cidr": "10.96.0.0/16"},
			}},
			"sharing": map[string]any{
				"strategy": "MIG", "layouts": []any{"l"}, "mig_strategy": "Single",
				"replicas": 4, "rename_by_default": true, "fail_requests_greater_than_one": true,
			},
			"driver":       map[string]any{"min_version": "550"},
			"verification": map[string]any{"timeout": "90m"},
		}},
		"node_pool": {newNodePoolResource(), map[string]any{
			"name": "p", "workload": "Batch", "node_class": "c",
			"machines":       []any{map[string]any{"instance_types": []any{"p5.48xlarge"}}, map[string]any{"instance_types": []any{"g6e.48xlarge", "g6.48xlarge"}}},
			"zones":          []any{"us-east-1a"},
			"capacity_types": []any{"spot", "on-demand"},
			"labels":         map[string]any{"a": "b"},
			"taints":         []any{map[string]any{"key": "k", "value": "v", "effect": "NoSchedule"}},
			"disruption":     map[string]any{"consolidate_after": "5m"},
			"limits":         map[string]any{"gpus": 64, "nodes": 8, "hourly_cost": "440.320", "surge": 2},
		}},
	}
}

// Every attribute has its field in the API's type: a name that does not is refused by the strict decoder.
func TestExpand_SpellsEveryAttributeAsTheAPIDoes(t *testing.T) {
	for name, c := range full() {
		t.Run(name, func(t *testing.T) {
			x := mustExpand(t, c.resource, configOf(t, c.resource, c.config))
			raw, err := json.Marshal(x.spec)
			if err != nil {
				t.Fatal(err)
			}
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(specTypes[kindOf(c.resource).name]()); err != nil {
				t.Errorf("%s\n%v", raw, err)
			}
			if len(x.unknown)+len(x.problems) > 0 {
				t.Errorf("unknown %v, problems %v", x.unknown, x.problems)
			}
		})
	}
}

func TestFlatten_GivesBackWhatExpandSent(t *testing.T) {
	for name, c := range full() {
		t.Run(name, func(t *testing.T) {
			state := configOf(t, c.resource, c.config)
			x := mustExpand(t, c.resource, state)
			got, err := flattenObject(state, x.spec, kindOf(c.resource).outsideSpec()...)
			if err != nil {
				t.Fatal(err)
			}
			if diffs, err := state.Diff(got); err != nil || len(diffs) > 0 {
				t.Errorf("read after apply: %v %v", diffs, err)
			}
		})
	}
}

func TestFlatten_OfAnImportTakesEverything(t *testing.T) {
	for name, c := range full() {
		t.Run(name, func(t *testing.T) {
			if name == "node_class" {
				c.config["verification"] = map[string]any{"timeout": "1h30m"} // 90m, as an import spells it
			}
			want := configOf(t, c.resource, c.config)
			x := mustExpand(t, c.resource, want)
			onlyName := configOf(t, c.resource, map[string]any{"name": c.config["name"]})
			got, err := flattenObject(onlyName, x.spec, kindOf(c.resource).outsideSpec()...)
			if err != nil {
				t.Fatal(err)
			}
			if diffs, err := want.Diff(got); err != nil || len(diffs) > 0 {
				t.Errorf("import: %v %v", diffs, err)
			}
		})
	}
}

// What the server adds where the user said nothing is not the user's.
func TestFlatten_KeepsNullAndEmptyAsTheUserWroteThem(t *testing.T) {
	pool := newNodePoolResource()
	required := map[string]any{"name": "p", "workload": "Batch", "node_class": "c", "machines": []any{map[string]any{"instance_types": []any{"p5.48xlarge"}}}}
	with := func(attribute string, v any) map[string]any {
		config := map[string]any{attribute: v}
		for k, r := range required {
			config[k] = r
		}
		return config
	}
	for _, c := range []struct {
		name   string
		config map[string]any
		change func(spec map[string]any)
	}{
		{"null, and the server has a value", required, func(s map[string]any) { s["zones"], s["labels"] = []any{"us-east-1a"}, map[string]any{"x": "y"} }},
		{"empty list, and the server has none", with("zones", []any{}), func(map[string]any) {}},
		{"empty map, and the server has none", with("labels", map[string]any{}), func(map[string]any) {}},
		{"empty object, and the server has none", with("disruption", map[string]any{}), func(s map[string]any) { delete(s, "disruption") }},
		{"a key of somebody else", with("labels", map[string]any{"a": "b"}), func(s map[string]any) { s["labels"] = map[string]any{"a": "b", "x": "y"} }},
		{"a null key", with("labels", map[string]any{"a": nil}), func(map[string]any) {}},
		{"a duration spelled otherwise", with("disruption", map[string]any{"consolidate_after": "60m"}), func(s map[string]any) {
			s["disruption"] = map[string]any{"consolidateAfter": "1h0m0s"}
		}},
		{"limits of somebody else", required, func(s map[string]any) { s["limits"] = map[string]any{"gpus": int64(8)} }},
		{"a limit of somebody else", with("limits", map[string]any{"gpus": 8}), func(s map[string]any) {
			s["limits"] = map[string]any{"gpus": int64(8), "nodes": int64(1)}
		}},
		{"an amount spelled otherwise", with("limits", map[string]any{"hourly_cost": "110.080"}), func(s map[string]any) {
			s["limits"] = map[string]any{"hourlyCost": "110.08"}
		}},
		{"a taint without a value", with("taints", []any{map[string]any{"key": "k", "effect": "NoExecute"}}), func(s map[string]any) {
			s["taints"] = []any{map[string]any{"key": "k", "effect": "NoExecute", "value": ""}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := configOf(t, pool, c.config)
			x := mustExpand(t, pool, state)
			c.change(x.spec)
			got, err := flattenObject(state, x.spec, nodePoolKind.outsideSpec()...)
			if err != nil {
				t.Fatal(err)
			}
			if diffs, err := state.Diff(got); err != nil || len(diffs) > 0 {
				t.Errorf("drift where there is none: %v %v", diffs, err)
			}
		})
	}
}

// Typed clients leave false out when they write an object back.
func TestFlatten_TakesFalseAndNothingForTheSame(t *testing.T) {
	class := newNodeClassResource()
	state := configOf(t, class, map[string]any{"name": "c", "sharing": map[string]any{"strategy": "TimeSlicing", "replicas": 4, "rename_by_default": false}})
	for want, sharing := range map[string]map[string]any{
		"no change": {"strategy": "TimeSlicing", "replicas": int64(4)},
		"a change":  {"strategy": "TimeSlicing", "replicas": int64(4), "renameByDefault": true},
	} {
		got, err := flattenObject(state, map[string]any{"sharing": sharing}, nodeClassKind.outsideSpec()...)
		if err != nil {
			t.Fatal(err)
		}
		if same := got.Equal(state); same != (want == "no change") {
			t.Errorf("%v: got %v, want %s", sharing, got, want)
		}
	}
}

func TestFlatten_OfAShapeThatIsNotOursIsAnErrorAndNoPanic(t *testing.T) {
	c := full()["node_pool"]
	state := configOf(t, c.resource, c.config)
	for name, spec := range map[string]map[string]any{
		"a number for a string":  {"workload": int64(1)},
		"a string for a list":    {"machines": "p5.48xlarge"},
		"a list for a map":       {"labels": []any{"a"}},
		"an object for a list":   {"zones": map[string]any{"a": "b"}},
		"a string for an object": {"disruption": "1h"},
		"a string for a parent":  {"nodeClassRef": "c"},
	} {
		if _, err := flattenObject(state, spec, nodePoolKind.outsideSpec()...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestExpand_RemembersWhatIsUnknownAndKeepsIndexes(t *testing.T) {
	class := newNodeClassResource()
	x := mustExpand(t, class, configOf(t, class, map[string]any{
		"name": unknownValue{},
		"cloud": map[string]any{"aws": map[string]any{
			"subnets": []any{"subnet-1"}, "security_groups": unknownValue{}, "instance_profile": unknownValue{}, "ami": unknownValue{},
		}},
		"sharing": map[string]any{"strategy": "MIG", "layouts": []any{"l"}},
	}))
	want := []string{"cloud.aws.ami", "cloud.aws.instanceProfile", "cloud.aws.securityGroups"}
	if diff := cmp.Diff(want, x.unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
	if !x.known("sharing") || x.known("cloud") || x.known("cloud.aws.ami.id") || x.name != "" {
		t.Errorf("known: %+v", x)
	}

	layout := newMIGLayoutResource()
	x = mustExpand(t, layout, configOf(t, layout, map[string]any{
		"name": "l", "gpu_model": "H100-80GB-SXM", "devices": []any{unknownValue{}, map[string]any{"slices": []any{map[string]any{"profile": "1g.10gb", "count": 0}}}},
	}))
	found, err := migLayoutRules(&x)
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{}
	for _, v := range x.violations(found) {
		paths = append(paths, v.Path)
	}
	// That the entry must name its GPUs stays true whatever the unknown one is; the unknown one itself is not judged.
	if !slices.Contains(paths, "spec.devices[1].slices[0].count") || slices.ContainsFunc(paths, func(p string) bool { return under(p, "spec.devices[0]") }) {
		t.Errorf("violations at %v", paths)
	}
}

func TestExpand_SaysWhatNoSpecCanHold(t *testing.T) {
	layout := newMIGLayoutResource()
	for _, count := range []any{3_000_000_000, -3_000_000_000} {
		x := mustExpand(t, layout, configOf(t, layout, map[string]any{
			"name": "l", "gpu_model": "m", "devices": []any{map[string]any{"slices": []any{map[string]any{"profile": "1g.10gb", "count": count}}}},
		}))
		if len(x.problems) != 1 || x.problems[0].Path != "devices[0].slices[0].count" {
			t.Errorf("count %v: %v", count, x.problems)
		}
	}
}

// null, unknown and empty, for every attribute: never a panic, and rules that judge only what is known.
func TestRules_OfEveryAttributeNullUnknownAndEmpty(t *testing.T) { // C63
	rules := map[string]func(*expanded) ([]v1alpha1.Violation, error){
		"mig_layout": migLayoutRules, "node_class": nodeClassRules, "node_pool": nodePoolRules,
	}
	for name, c := range full() {
		whole := configOf(t, c.resource, c.config)
		for i, replaced := range variants(t, whole) {
			x, err := expandObject(replaced, kindOf(c.resource).outsideSpec()...)
			if err != nil {
				t.Errorf("%s, variant %d: %v", name, i, err)
				continue
			}
			found, err := rules[name](&x)
			if err != nil {
				t.Errorf("%s, variant %d: %v", name, i, err)
			}
			for _, v := range x.violations(found) {
				attributePath(schemaOf(t, c.resource).Type(), v.Path)
			}
			if replaced.IsFullyKnown() {
				if _, err := flattenObject(replaced, x.spec, kindOf(c.resource).outsideSpec()...); err != nil {
					t.Errorf("%s, variant %d: %v", name, i, err)
				}
			}
		}
	}
}

// variants are copies of a value in which each part in turn is null, unknown or empty.
func variants(t *testing.T, whole tftypes.Value) []tftypes.Value {
	t.Helper()
	var out []tftypes.Value
	err := tftypes.Walk(whole, func(at *tftypes.AttributePath, part tftypes.Value) (bool, error) {
		if len(at.Steps()) == 0 {
			return true, nil
		}
		for _, step := range at.Steps() {
			if _, ok := step.(tftypes.ElementKeyValue); ok {
				return false, nil // an element of a set cannot be addressed once it is changed
			}
		}
		for _, v := range []any{nil, tftypes.UnknownValue, emptyOf(part.Type())} {
			replaced, err := tftypes.Transform(whole, func(p *tftypes.AttributePath, old tftypes.Value) (tftypes.Value, error) {
				if p.Equal(at) {
					return tftypes.NewValue(old.Type(), v), nil
				}
				return old, nil
			})
			if err != nil {
				return false, err
			}
			out = append(out, replaced)
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func emptyOf(t tftypes.Type) any {
	switch {
	case t.Is(tftypes.String):
		return ""
	case t.Is(tftypes.Number):
		return big.NewFloat(0)
	case t.Is(tftypes.Bool):
		return false
	case t.Is(tftypes.List{}), t.Is(tftypes.Set{}):
		return []tftypes.Value{}
	case t.Is(tftypes.Map{}):
		return map[string]tftypes.Value{}
	}
	return nil
}

func TestAttributePath_FindsTheAttributeOfAnAPIField(t *testing.T) {
	for _, c := range []struct {
		resource  resource.Resource
		api, want string
	}{
		{newMIGLayoutResource(), "spec.devices[0].slices[1].profile", "devices[0].slices[1].profile"},
		{newMIGLayoutResource(), "spec.devices[0].gpus[2]", "devices[0].gpus"},
		{newMIGLayoutResource(), ".spec.gpuModel", "gpu_model"},
		{newMIGLayoutResource(), "metadata.name", "name"},
		{newNodeClassResource(), "spec.cloud.aws.cluster.serviceCIDR", "cloud.aws.cluster.service_cidr"},
		{newNodeClassResource(), "spec.cloud.aws.rootVolume.sizeGiB", "cloud.aws.root_volume.size_gib"},
		{newNodeClassResource(), "spec.cloud.aws.subnets[0]", "cloud.aws.subnets"},
		{newNodeClassResource(), "spec.sharing.migStrategy", "sharing.mig_strategy"},
		{newNodeClassResource(), "spec.sharing.failRequestsGreaterThanOne", "sharing.fail_requests_greater_than_one"},
		{newNodePoolResource(), "spec.limits.hourlyCost", "limits.hourly_cost"},
		{newNodePoolResource(), "spec.nodeClassRef.name", "node_class"},
		{newNodePoolResource(), "spec.machines[3].instanceTypes[1]", "machines[3].instance_types"},
		{newNodePoolResource(), "spec.taints[0].key", "taints[0].key"},
		{newNodePoolResource(), "spec.somethingNew.inside", ""},
	} {
		if got := attributePath(schemaOf(t, c.resource).Type(), c.api).String(); got != c.want {
			t.Errorf("attribute of %s: got %q, want %q", c.api, got, c.want)
		}
	}
}

func TestSpell_WritesDurationsAsPeopleDo(t *testing.T) {
	for _, want := range []string{"0s", "45s", "2m", "1m30s", "1h", "1h30m", "168h"} {
		d, err := time.ParseDuration(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := spell(d); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
