package provider

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	tfprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func schemaOf(t *testing.T, r resource.Resource) schema.Schema {
	t.Helper()
	var resp resource.SchemaResponse
	r.Schema(context.Background(), resource.SchemaRequest{}, &resp)
	if resp.Diagnostics.HasError() {
		t.Fatal(resp.Diagnostics)
	}
	return resp.Schema
}

// specTypes are the API's types for each kind, as empty values to decode into.
var specTypes = map[string]func() any{
	v1alpha1.KindMIGLayout:    func() any { return &v1alpha1.MIGLayoutSpec{} },
	v1alpha1.KindGPUNodeClass: func() any { return &v1alpha1.GPUNodeClassSpec{} },
	v1alpha1.KindGPUNodePool:  func() any { return &v1alpha1.GPUNodePoolSpec{} },
}

func resources(t *testing.T) map[string]resource.Resource {
	t.Helper()
	all := map[string]resource.Resource{}
	for _, build := range New("test")().Resources(context.Background()) {
		r := build()
		var resp resource.MetadataResponse
		r.Metadata(context.Background(), resource.MetadataRequest{ProviderTypeName: providerName}, &resp)
		all[resp.TypeName] = r
	}
	return all
}

func TestSchema_IsValid(t *testing.T) {
	for name, r := range resources(t) {
		if diags := schemaOf(t, r).ValidateImplementation(context.Background()); diags.HasError() {
			t.Errorf("%s: %v", name, diags)
		}
	}
	var resp tfprovider.SchemaResponse
	New("test")().Schema(context.Background(), tfprovider.SchemaRequest{}, &resp)
	if diags := resp.Schema.ValidateImplementation(context.Background()); diags.HasError() {
		t.Error(diags)
	}
}

func TestSchema_DescribesEveryAttribute(t *testing.T) {
	server, err := factories()["gpufleet"]()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]*tfprotov6.SchemaBlock{"provider": resp.Provider.Block}
	for name, s := range resp.ResourceSchemas {
		blocks[name] = s.Block
	}
	if len(blocks) != 4 {
		t.Errorf("%d schemas, want the provider's and three resources'", len(blocks))
	}
	for name, b := range blocks {
		if b.Description == "" {
			t.Errorf("%s has no description", name)
		}
		undescribed(t, name, b.Attributes)
	}
}

func undescribed(t *testing.T, at string, attributes []*tfprotov6.SchemaAttribute) {
	t.Helper()
	for _, a := range attributes {
		if strings.TrimSpace(a.Description) == "" {
			t.Errorf("%s.%s has no description", at, a.Name)
		}
		if a.NestedType != nil {
			undescribed(t, at+"."+a.Name, a.NestedType.Attributes)
		}
	}
}

// The provider's credentials must not show in a plan.
func TestSchema_MarksSecretsSensitive(t *testing.T) {
	s := connectionSchema()
	for _, name := range []string{"token", "password", "client_key"} {
		if !s.Attributes[name].IsSensitive() {
			t.Errorf("%s is not sensitive", name)
		}
	}
}

// A default that the plan shows must be what the server would have filled in: the API's constants are what its CRDs are
// compared with.
func TestSchema_DefaultsAreTheAPIs(t *testing.T) {
	x := mustExpand(t, newNodeClassResource(), withDefaults(t, newNodeClassResource(), map[string]any{"name": "c", "cloud": map[string]any{"aws": map[string]any{}}}))
	got, err := json.Marshal(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cloud":{"aws":{"rootVolume":{"sizeGiB":100}}},"sharing":{"strategy":"Exclusive"},"verification":{"timeout":"10m0s"}}`
	if string(got) != want {
		t.Errorf("defaults of a class:\n got %s\nwant %s", got, want)
	}

	pool := mustExpand(t, newNodePoolResource(), withDefaults(t, newNodePoolResource(), map[string]any{
		"name": "p", "workload": "Batch", "node_class": "c", "machines": []any{}, "limits": map[string]any{"gpus": 8},
	}))
	if got, err = json.Marshal(pool.spec["limits"]); err != nil {
		t.Fatal(err)
	}
	if want := `{"gpus":8,"surge":1}`; string(got) != want {
		t.Errorf("defaults of limits:\n got %s\nwant %s", got, want)
	}
}

// What only the provider computes is never sent: the API server would refuse the field, or drop it without a word.
func TestSchema_ComputedAttributesAreOutsideTheSpec(t *testing.T) {
	for name, r := range resources(t) {
		var computed []string
		for attribute, a := range schemaOf(t, r).Attributes {
			if a.IsComputed() && !a.IsOptional() {
				computed = append(computed, attribute)
			}
		}
		slices.Sort(computed)
		if diff := cmp.Diff(kindOf(r).computed, computed); diff != "" {
			t.Errorf("%s: outside the spec (-kind +schema):\n%s", name, diff)
		}
	}
}
