package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
)

func TestRun_PrintsEveryResourceWithNestedAttributesAndTypes(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	var got document
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	schemas, ok := got.ProviderSchemas[address]
	if !ok || len(schemas.ResourceSchemas) != 3 {
		t.Fatalf("schemas: %v", got.ProviderSchemas)
	}
	if token := schemas.Provider.Block.Attributes["token"]; !token.Sensitive || string(token.Type) != `"string"` {
		t.Errorf("token: %+v", token)
	}
	devices := schemas.ResourceSchemas["gpufleet_mig_layout"].Block.Attributes["devices"]
	if devices.NestedType == nil || devices.NestedType.NestingMode != "list" {
		t.Fatalf("devices: %+v", devices)
	}
	if gpus := devices.NestedType.Attributes["gpus"]; string(gpus.Type) != `["set","number"]` || !gpus.Optional || gpus.DescriptionKind != "markdown" {
		t.Errorf("gpus: %+v", gpus)
	}
}
