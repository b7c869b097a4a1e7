package fleet

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Words spells a list of resources for people, e.g. "nvidia.com/gpu: 2, nvidia.com/mig-1g.10gb: 42".
func Words(list corev1.ResourceList) string {
	parts := make([]string, 0, len(list))
	for name, quantity := range list {
		parts = append(parts, fmt.Sprintf("%s: %s", name, quantity.String()))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
