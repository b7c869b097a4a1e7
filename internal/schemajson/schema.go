package main

import (
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// The shape of "terraform providers schema -json". Source: hashicorp/terraform-json, schemas.go.
type document struct {
	FormatVersion   string                     `json:"format_version"`
	ProviderSchemas map[string]providerSchemas `json:"provider_schemas"`
}

type providerSchemas struct {
	Provider        *schema            `json:"provider"`
	ResourceSchemas map[string]*schema `json:"resource_schemas"`
}

type schema struct {
	Version int64  `json:"version"`
	Block   *block `json:"block"`
}

type block struct {
	Attributes      map[string]*attribute `json:"attributes,omitempty"`
	Description     string                `json:"description,omitempty"`
	DescriptionKind string                `json:"description_kind"`
	Deprecated      bool                  `json:"deprecated,omitempty"`
}

type attribute struct {
	Type            json.RawMessage `json:"type,omitempty"`
	NestedType      *nested         `json:"nested_type,omitempty"`
	Description     string          `json:"description,omitempty"`
	DescriptionKind string          `json:"description_kind"`
	Deprecated      bool            `json:"deprecated,omitempty"`
	Required        bool            `json:"required,omitempty"`
	Optional        bool            `json:"optional,omitempty"`
	Computed        bool            `json:"computed,omitempty"`
	Sensitive       bool            `json:"sensitive,omitempty"`
}

type nested struct {
	Attributes  map[string]*attribute `json:"attributes"`
	NestingMode string                `json:"nesting_mode"`
}

func schemaOf(s *tfprotov6.Schema) (*schema, error) {
	if len(s.Block.BlockTypes) > 0 {
		return nil, fmt.Errorf("block %s: the provider uses nested attributes only, and this program knows no blocks", s.Block.BlockTypes[0].TypeName)
	}
	attributes, err := attributesOf(s.Block.Attributes)
	if err != nil {
		return nil, err
	}
	return &schema{Version: s.Version, Block: &block{
		Attributes:      attributes,
		Description:     s.Block.Description,
		DescriptionKind: kindOf(s.Block.DescriptionKind),
		Deprecated:      s.Block.Deprecated,
	}}, nil
}

func attributesOf(all []*tfprotov6.SchemaAttribute) (map[string]*attribute, error) {
	out := make(map[string]*attribute, len(all))
	for _, a := range all {
		converted, err := attributeOf(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		out[a.Name] = converted
	}
	return out, nil
}

func attributeOf(a *tfprotov6.SchemaAttribute) (*attribute, error) {
	out := &attribute{
		Description: a.Description, DescriptionKind: kindOf(a.DescriptionKind), Deprecated: a.Deprecated,
		Required: a.Required, Optional: a.Optional, Computed: a.Computed, Sensitive: a.Sensitive,
	}
	var err error
	if a.NestedType == nil {
		out.Type, err = json.Marshal(a.Type)
		return out, err
	}
	out.NestedType = &nested{}
	if out.NestedType.NestingMode, err = modeOf(a.NestedType.Nesting); err != nil {
		return nil, err
	}
	out.NestedType.Attributes, err = attributesOf(a.NestedType.Attributes)
	return out, err
}

func modeOf(m tfprotov6.SchemaObjectNestingMode) (string, error) {
	switch m {
	case tfprotov6.SchemaObjectNestingModeSingle:
		return "single", nil
	case tfprotov6.SchemaObjectNestingModeList:
		return "list", nil
	case tfprotov6.SchemaObjectNestingModeSet:
		return "set", nil
	case tfprotov6.SchemaObjectNestingModeMap:
		return "map", nil
	}
	return "", fmt.Errorf("nesting mode %v is not known", m)
}

func kindOf(k tfprotov6.StringKind) string {
	if k == tfprotov6.StringKindMarkdown {
		return "markdown"
	}
	return "plain"
}
