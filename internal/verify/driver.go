package verify

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func driver(bp v1alpha1.Blueprint, inv *v1alpha1.Inventory) []v1alpha1.Finding {
	if bp.DriverMinVersion == "" || atLeast(inv.DriverVersion, bp.DriverMinVersion) {
		return nil
	}
	found := inv.DriverVersion
	if found == "" {
		found = "unknown"
	}
	return []v1alpha1.Finding{{
		Reason: v1alpha1.FindingDriverTooOld, Expected: bp.DriverMinVersion + " or newer", Found: found,
		Message: fmt.Sprintf("the driver is %s; the class asks for %s or newer", found, bp.DriverMinVersion),
	}}
}

// atLeast compares versions number by number: 550.90.07 is at least 550.9 and 550.54.15 is not at least 550.90. What is
// left out counts as 0, and what is not a number is never enough.
func atLeast(version, floor string) bool {
	have, want := strings.Split(version, "."), strings.Split(floor, ".")
	for i := range max(len(have), len(want)) {
		h, errH := component(have, i)
		w, errW := component(want, i)
		if errH != nil || errW != nil {
			return false
		}
		if h != w {
			return h > w
		}
	}
	return true
}

func component(parts []string, i int) (int, error) {
	if i >= len(parts) {
		return 0, nil
	}
	return strconv.Atoi(parts[i])
}
