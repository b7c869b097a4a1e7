package diagnose

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Block is how much of one resource a pool's verified nodes have left.
type Block struct {
	Resource corev1.ResourceName `json:"resource"`
	// Free is what is left in total, Largest the most that one node has left.
	Free    int64 `json:"free"`
	Largest int64 `json:"largest"`
}

// Ratio is how far the free part is scattered: 1 - Largest/Free, from 0 where all of it is on one node. It is 0 where
// nothing is free.
func (b Block) Ratio() float64 {
	if b.Free <= 0 {
		return 0
	}
	return 1 - float64(b.Largest)/float64(b.Free)
}

// Blocks are what the pool's verified nodes have left of each resource that its machines offer, by name. Free may be more
// than any pod can have: what a pod asks, it needs on one node. A node that has less than nothing left (it lost a GPU that
// is in use) counts as one that has nothing.
func Blocks(p Pool) []Block {
	var blocks []Block
	for _, name := range offered(p) {
		block := Block{Resource: name}
		for _, place := range p.Places {
			if place.State != Verified {
				continue
			}
			free := max(0, quantity(place.Free, name))
			block.Free += free
			block.Largest = max(block.Largest, free)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// offered are the resources that machines of the pool offer, by name.
func offered(p Pool) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, offer := range p.Offers {
		for name := range offer.Blueprint.Resources {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Plan is a dry run: pods to move, so that another has room on one node.
type Plan struct {
	// Node is where the room would be.
	Node  string `json:"node"`
	Moves []Move `json:"moves"`
}

// Move is one pod of the plan.
type Move struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	From      string `json:"from"`
	To        string `json:"to"`
}
