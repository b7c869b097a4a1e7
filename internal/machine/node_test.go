package machine

import "testing"

// By hand. p5.48xlarge: 192 cores less 60 + 10 + 2 x 5 + 188 x 2.5 = 550 m; 2,097,152 MiB x 0.925 = 1,939,865 MiB less
// 255 + 11 x 110 + 100 = 1,565 MiB; of a disk of 100 GiB 1 GiB and a tenth. g6.xlarge: 4 cores less 80 m; 16,384 x 0.925 =
// 15,155 MiB less the same.
func TestNodeAllocatable_IsWhatTheKubeletLeaves(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"p5.48xlarge": {"cpu": "191450m", "memory": "1938300Mi", "ephemeral-storage": "89Gi", "pods": "110"},
		"g6.xlarge":   {"cpu": "3920m", "memory": "13590Mi", "ephemeral-storage": "89Gi", "pods": "110"},
	} {
		kind, known := Lookup(name)
		if !known {
			t.Fatalf("no %s", name)
		}
		for resource, quantity := range kind.NodeAllocatable(100) {
			if got := quantity.String(); got != want[string(resource)] {
				t.Errorf("%s: %s of %s, want %s", name, got, resource, want[string(resource)])
			}
		}
	}
}
