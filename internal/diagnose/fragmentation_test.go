package diagnose

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// machinesWith are machines of a pool that offer something: "gpu 8".
func machinesWith(machines ...string) []Offer {
	var offers []Offer
	for _, has := range machines {
		offers = append(offers, Offer{Blueprint: v1alpha1.Blueprint{Resources: listed(has)}})
	}
	return offers
}

func TestC77_Blocks_OfAPoolWithTwoGPUsLeftOnEachOfFourNodes(t *testing.T) {
	pool := Pool{Offers: machinesWith("gpu 8")}
	for _, node := range []string{"a", "b", "c", "d"} {
		pool.Places = append(pool.Places, verifiedNode(node, "gpu 8", replicas(6, node, "gpu 1")...))
	}
	blocks := Blocks(pool)
	if diff := gocmp.Diff([]Block{{Resource: "nvidia.com/gpu", Free: 8, Largest: 2}}, blocks); diff != "" {
		t.Fatal(diff)
	}
	if ratio := blocks[0].Ratio(); ratio != 0.75 { // 1 - 2/8
		t.Errorf("ratio is %g, want 0.75", ratio)
	}
}

func TestBlocks_AreWhatVerifiedNodesHaveLeftOfWhatThePoolOffers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		offers []Offer
		places []*Place
		want   []string // "resource free/largest"
	}{
		{"each resource of each machine, once, by name", machinesWith("nvidia.com/mig-3g.40gb 8, nvidia.com/mig-1g.10gb 8", "gpu 8", "gpu 4"), []*Place{
			verifiedNode("a", "nvidia.com/mig-3g.40gb 1, nvidia.com/mig-1g.10gb 5"), verifiedNode("b", "gpu 3"), verifiedNode("c", "gpu 4"),
		}, []string{"nvidia.com/gpu 7/4", "nvidia.com/mig-1g.10gb 5/5", "nvidia.com/mig-3g.40gb 1/1"}},
		{"not what others put on a node", machinesWith("gpu 8"), []*Place{verifiedNode("a", "gpu 2, cpu 8, example.com/nic 4")},
			[]string{"nvidia.com/gpu 2/2"}},
		{"a node that lost GPUs which are in use takes nothing from the others", machinesWith("gpu 8"), []*Place{
			verifiedNode("a", "gpu 1", replica("x", "gpu 4")), verifiedNode("b", "gpu 3"),
		}, []string{"nvidia.com/gpu 3/3"}},
		{"only verified nodes", machinesWith("gpu 8"), []*Place{
			verifiedNode("a", "gpu 1"), verifiedNode("b", "gpu 8").with(inState(Coming)), verifiedNode("c", "gpu 8").with(inState(Refused)),
		}, []string{"nvidia.com/gpu 1/1"}},
		{"none of it is left", machinesWith("gpu 8"), []*Place{verifiedNode("a", "cpu 1")}, []string{"nvidia.com/gpu 0/0"}},
		{"no node", machinesWith("gpu 8"), nil, []string{"nvidia.com/gpu 0/0"}},
		{"nothing is offered", nil, []*Place{verifiedNode("a", "gpu 1")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, block := range Blocks(Pool{Offers: tc.offers, Places: tc.places}) {
				got = append(got, fmt.Sprintf("%s %d/%d", block.Resource, block.Free, block.Largest))
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBlock_RatioIsHowFarTheFreePartIsScattered(t *testing.T) {
	for _, tc := range []struct {
		free, largest int64
		want          float64
	}{{8, 8, 0}, {8, 4, 0.5}, {8, 2, 0.75}, {0, 0, 0}} {
		if got := (Block{Free: tc.free, Largest: tc.largest}).Ratio(); got != tc.want {
			t.Errorf("%d free, at most %d on one node: ratio %g, want %g", tc.free, tc.largest, got, tc.want)
		}
	}
}
