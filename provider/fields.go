package provider

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// field is where an attribute stands in an object's spec. Most follow from the name (apiField); these do not.
type field struct {
	attribute string
	// api is a path of JSON fields.
	api string
}

var irregularFields = []field{
	{"node_class", "nodeClassRef.name"},
	{"service_cidr", "serviceCIDR"},
	{"size_gib", "sizeGiB"},
}

// durationAttributes hold Go durations. They are compared by value: 60m is 1h.
var durationAttributes = map[string]bool{"consolidate_after": true, "timeout": true}

// amountAttributes hold US dollars, as decimal numbers in strings: in floating point, 0.1 and 0.2 are not 0.3. They are
// compared by value: 110.080 is 110.08.
var amountAttributes = map[string]bool{"hourly_cost": true}

// absentMeans is what the controller takes a field for that an object does not have. Where another client wrote the
// object, that is no difference.
var absentMeans = map[string]any{"surge": int64(v1alpha1.DefaultSurge)}

// apiField is the JSON path of an attribute, e.g. instanceTypes for instance_types.
func apiField(attribute string) []string {
	for _, f := range irregularFields {
		if f.attribute == attribute {
			return strings.Split(f.api, ".")
		}
	}
	var b strings.Builder
	for i, word := range strings.Split(attribute, "_") {
		if i > 0 && word != "" {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		b.WriteString(word)
	}
	return []string{b.String()}
}

// attributeName is the attribute of a JSON field, e.g. instance_types for instanceTypes.
func attributeName(api string) string {
	for _, f := range irregularFields {
		if first, _, _ := strings.Cut(f.api, "."); first == api {
			return f.attribute
		}
	}
	var b strings.Builder
	for i, r := range api {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// attributePath is the attribute that holds an API field, given as "spec.devices[0].slices[1].profile" or without the
// "spec.". It goes as far as the schema does: an element of a set has no index, so the path ends at the set.
func attributePath(schema attr.Type, api string) path.Path {
	if api == "metadata.name" {
		return path.Root("name")
	}
	at, current := path.Empty(), schema
	for _, step := range steps(specPath(api)) {
		switch t := current.(type) {
		case attr.TypeWithAttributeTypes:
			name := attributeName(step)
			next, ok := t.AttributeTypes()[name]
			if !ok {
				return at
			}
			at, current = at.AtName(name), next
		case types.ListType:
			index, err := strconv.Atoi(step)
			if err != nil {
				return at
			}
			at, current = at.AtListIndex(index), t.ElemType
		case types.MapType:
			at, current = at.AtMapKey(step), t.ElemType
		default:
			return at
		}
	}
	return at
}

// steps takes "devices[0].slices[1].profile" apart: names and indexes.
func steps(api string) []string {
	return strings.FieldsFunc(api, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}
