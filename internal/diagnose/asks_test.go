package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// rootVolumeOf gives the machines of the pool a disk of so many GiB. Of 100 pods can have 89: one is reserved, and the
// kubelet keeps a tenth free.
func rootVolumeOf(gib int64) change {
	return func(s *situation) {
		offer := &s.pool.Offers[0]
		kind, _ := machine.Lookup(offer.Blueprint.InstanceType)
		offer.Most[corev1.ResourceEphemeralStorage] = kind.NodeAllocatable(gib)[corev1.ResourceEphemeralStorage]
	}
}

func TestDecide_HugePagesAndDisks(t *testing.T) {
	const pages = "gpu 1, hugepages-2Mi 1Gi"
	const out = "leave hugepages-2Mi out: a node has huge pages only where they are reserved as it boots, and no machine is launched for them"
	decideRows(t, []row{
		{name: "no machine has huge pages", changes: []change{asking(pages)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, and nodes on p5.48xlarge have none", remedy: out},
		{name: "nor does a node with room", changes: []change{asking(pages), node("n1", fullNode, "gpu 7", 0)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, and nodes on p5.48xlarge have none", remedy: out},
		{name: "nor one that lists none", changes: []change{asking(pages), node("n1", fullNode+", hugepages-2Mi 0", "gpu 7", 0)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, and nodes on p5.48xlarge have none", remedy: out},
		{name: "a verified node has some", changes: []change{asking(pages), node("n1", fullNode+", hugepages-2Mi 2Gi", "gpu 7", 0)}, want: "expected"},
		{name: "a verified node has some, and its GPUs are in use", changes: []change{asking(pages), node("n1", fullNode+", hugepages-2Mi 2Gi", "gpu 8, hugepages-2Mi 512Mi", 0)},
			want: "Fragmented", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, of which node n1 has 2Gi, 1536Mi free, and it has no room for the pod",
			remedy: "free node n1, or leave hugepages-2Mi out: no machine is launched for huge pages"},
		{name: "a verified node has too few", changes: []change{asking(pages), node("n1", fullNode+", hugepages-2Mi 512Mi", "gpu 7", 0)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, and nodes on p5.48xlarge have none"},
		{name: "a machine on its way is not known to have any", changes: []change{asking(pages), fullPool(), coming("c1", fullNode)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for hugepages-2Mi: 1Gi, and nodes on p5.48xlarge have none"},
		{name: "as much disk as the machine has", changes: []change{asking("gpu 1, ephemeral-storage 89Gi"), rootVolumeOf(100)}, want: "expected"},
		{name: "more disk than the machine has", changes: []change{asking("gpu 1, ephemeral-storage 90Gi"), rootVolumeOf(100)},
			want: "ProfileNotOffered", message: "pool inf: the pod asks for ephemeral-storage: 90Gi on one node, and a node on p5.48xlarge has 89Gi at most",
			remedy: "ask for 89Gi or less of ephemeral-storage, or raise rootVolume.sizeGiB of the GPUNodeClass"},
		{name: "a node has more disk than a new machine", changes: []change{asking("gpu 1, ephemeral-storage 101Gi"), rootVolumeOf(100), node("n1", fullNode+", ephemeral-storage 200Gi", "gpu 7", 0)}, want: "expected"},
	})
}

func TestAssemble_TheRootVolumeBoundsEphemeralStorage(t *testing.T) {
	for gib, want := range map[int32]string{0: "89Gi", 250: "224Gi"} {
		s := source()
		s.Class.Spec.Cloud.AWS.RootVolume.SizeGiB = gib
		pool, err := Assemble(s)
		if most := pool.Offers[0].Most[corev1.ResourceEphemeralStorage]; err != nil || most.String() != want {
			t.Errorf("of a root volume of %d GiB pods can have %s (%v), want %s", gib, most.String(), err, want)
		}
	}
}
