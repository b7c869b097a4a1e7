package karpenter

import (
	"fmt"
	"testing"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// One pass of core's asks for the instance types of every NodePool. Two entries a pool of three instance types in all.
func BenchmarkGetInstanceTypes_Of100Pools(b *testing.B) {
	w := newWorld(b, limited(800, 100, "10000"), exclusive, machines([]string{"p5.48xlarge", "p5.4xlarge"}, []string{"p4d.24xlarge"}))
	var nodePools []*karpv1.NodePool
	for i := range 100 {
		pool := w.pool.DeepCopy()
		pool.Name, pool.UID, pool.ResourceVersion = fmt.Sprintf("pool-%d", i), "", ""
		if err := w.client.Create(b.Context(), pool); err != nil {
			b.Fatal(err)
		}
		w.pool = pool
		w.setLimits(b, w.CloudProvider)
		for entry := range pool.Spec.Machines {
			nodePools = append(nodePools, w.nodePool(b, entry))
		}
	}
	if err := w.books.count(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, nodePool := range nodePools {
			types, err := w.GetInstanceTypes(b.Context(), nodePool)
			if err != nil || len(types) != 3 || len(types[0].Offerings.Available()) == 0 {
				b.Fatalf("%d instance types, error %v", len(types), err)
			}
		}
	}
}
