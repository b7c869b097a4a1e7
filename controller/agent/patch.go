package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// inventoryPatch is the merge patch that makes status.inventory exactly inv and touches nothing else. A merge patch keeps
// what it does not name, so every field that inv does not have is named and null.
func inventoryPatch(inv v1alpha1.Inventory) ([]byte, error) {
	data, err := json.Marshal(inv)
	if err != nil {
		return nil, fmt.Errorf("encoding the inventory: %w", err)
	}
	fields := map[string]json.RawMessage{}
	for field := range reflect.TypeFor[v1alpha1.Inventory]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[name] = json.RawMessage("null")
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encoding the inventory: %w", err)
	}
	return json.Marshal(map[string]any{"status": map[string]any{"inventory": fields}})
}

// sameInventory compares all but the time.
func sameInventory(reported *v1alpha1.Inventory, seen v1alpha1.Inventory) bool {
	if reported == nil {
		return false
	}
	seen.ObservedAt = reported.ObservedAt
	return equality.Semantic.DeepEqual(*reported, seen)
}
