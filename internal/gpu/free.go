package gpu

import (
	"cmp"
	"slices"
)

// FreeSlices are the memory slices, from 0, that the given placements leave free on a GPU of the model. It is empty where
// all of them are taken, and where the model cannot be cut.
func (m Model) FreeSlices(taken []Placement) []int { return m.free(occupied(taken)) }

func (m Model) free(board uint32) []int {
	var free []int
	for slice := range m.MemorySlices {
		if board&(1<<slice) == 0 {
			free = append(free, slice)
		}
	}
	return free
}

// LargestPlaceable is the largest profile that still has a permitted place on a GPU of the model whose given placements
// are taken: the one with the most compute slices, then the most memory slices. It is false where no profile has a place,
// which can be so although slices are free: seven 1g leave slice 7 of an H100, and nothing may start there.
//
// Only plain profiles are named, never 1g.10gb+me or 2g.48gb+gfx. Placements do not say who holds the media engines, so
// nobody could know whether one more "+me" may be made; and every such profile has a plain one of its size with the same
// places, so that none is missed. A place that is free is enough: no plain profile may be made fewer times than it has
// places.
func (m Model) LargestPlaceable(taken []Placement) (Profile, bool) {
	board := occupied(taken)
	var largest Profile
	for _, p := range m.Profiles {
		if p.Attribute() == "" && p.larger(largest) && p.placeable(board) {
			largest = p
		}
	}
	return largest, largest.Name != ""
}

// larger compares as people do: 4g is larger than 3g, and of two 1g the one with more memory.
func (p Profile) larger(other Profile) bool {
	return cmp.Or(cmp.Compare(p.ComputeSlices, other.ComputeSlices), cmp.Compare(p.MemorySlices, other.MemorySlices)) > 0
}

func (p Profile) placeable(board uint32) bool {
	return slices.ContainsFunc(p.Placements, func(place Placement) bool { return board&place.mask() == 0 })
}
