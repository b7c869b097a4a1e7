package charts_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// schema is what of JSON Schema the chart uses.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	Enum                 []any             `json:"enum"`
}

func valuesSchema(t *testing.T) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// declared are the paths of a schema's leaves: what is no object with properties of its own.
func (s schema) declared(t *testing.T, path string) []string {
	t.Helper()
	if s.Properties == nil {
		return []string{path}
	}
	if s.AdditionalProperties != false {
		t.Errorf("%s takes properties that it does not declare", path)
	}
	var all []string
	for name, each := range s.Properties {
		all = append(all, each.declared(t, path+"."+name)...)
	}
	return all
}

// written are the paths of values, down to where the schema ends.
func (s schema) written(values any, path string) []string {
	properties, ok := values.(map[string]any)
	if !ok || s.Properties == nil {
		return []string{path}
	}
	var all []string
	for name, value := range properties {
		all = append(all, s.Properties[name].written(value, path+"."+name)...)
	}
	return all
}

func TestValues_EachIsInTheSchemaAndInEverything(t *testing.T) {
	s := valuesSchema(t)
	delete(s.Properties, "global") // Helm's own
	want := s.declared(t, "")
	slices.Sort(want)
	for _, file := range []string{chart + "/values.yaml", "testdata/everything.yaml"} {
		var values map[string]any
		if err := yaml.UnmarshalStrict([]byte(read(t, file)), &values); err != nil {
			t.Fatal(err)
		}
		got := s.written(values, "")
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("values of the schema (-) and of %s (+):\n%s", file, diff)
		}
	}
}

func TestValues_EachHasAComment(t *testing.T) {
	value := regexp.MustCompile(`^( *)([A-Za-z]+):`)
	parts := map[string]bool{}
	for name, each := range valuesSchema(t).Properties {
		parts[name] = true
		for below, s := range each.Properties {
			parts[below] = true
			for name := range s.Properties {
				parts[name] = true
			}
		}
	}
	lines, seen := strings.Split(read(t, chart+"/values.yaml"), "\n"), 0
	for i, line := range lines {
		found := value.FindStringSubmatch(line)
		if found == nil || !parts[found[2]] || len(found[1]) > 4 {
			continue
		}
		seen++
		// A group needs none where each of its values has one.
		group := strings.HasSuffix(line, ":") && commented(lines[i+1])
		if !group && (i == 0 || !commented(lines[i-1])) {
			t.Errorf("values.yaml:%d: %s has no comment", i+1, strings.TrimSpace(line))
		}
	}
	if seen < 30 {
		t.Errorf("%d values were looked at: the test would prove nothing", seen)
	}
}

func commented(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }

func TestSchema_KnowsEveryReason(t *testing.T) {
	var want []any
	for _, reason := range v1alpha1.HoldReasons {
		want = append(want, reason.Name)
	}
	got := valuesSchema(t).Properties["notifications"].Items.Properties["reasons"].Items.Enum
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-v1alpha1 +values.schema.json):\n%s", diff)
	}
}
