package gpu

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Worked out by hand from the placements that NVIDIA publishes. On an H100 a 7g covers 0-7, a 4g 0-3, a 3g 0-3 or 4-7, a
// 2g starts at 0, 2 or 4, a 1g.20gb (two memory slices) at 0, 2, 4 or 6, and a 1g.10gb at 0 to 6.
func TestLargestPlaceable_IsWhatStillHasAPermittedPlace(t *testing.T) {
	const h100, a30, rtx = "H100-80GB-SXM", "A30-24GB", "RTX-PRO-6000-Blackwell-96GB"
	for _, tc := range []struct {
		name, model string
		taken       []Placement
		free        []int
		want        string // empty: none
	}{
		{"an empty GPU", h100, nil, []int{0, 1, 2, 3, 4, 5, 6, 7}, "7g.80gb"},
		{"C79: 1g at 0, 1 and 5 leave five slices, and no aligned place for a 3g", h100, []Placement{{0, 1}, {1, 1}, {5, 1}},
			[]int{2, 3, 4, 6, 7}, "2g.20gb"},
		{"C79: 1g at 0 and 1 leave the upper half", h100, []Placement{{0, 1}, {1, 1}}, []int{2, 3, 4, 5, 6, 7}, "3g.40gb"},
		{"the upper half is taken: a 4g is larger than a 3g of as much memory", h100, []Placement{{4, 4}}, []int{0, 1, 2, 3}, "4g.40gb"},
		{"1g at 0, 2 and 4: of two 1g the one with more memory", h100, []Placement{{0, 1}, {2, 1}, {4, 1}},
			[]int{1, 3, 5, 6, 7}, "1g.20gb"},
		{"2g, 2g and 2g: a 2g may not start at 6, a 1g of two slices may", h100, []Placement{{0, 2}, {2, 2}, {4, 2}}, []int{6, 7}, "1g.20gb"},
		{"only odd slices: the plain 1g, not the one with media extensions", h100, []Placement{{0, 1}, {2, 1}, {4, 1}, {6, 1}},
			[]int{1, 3, 5, 7}, "1g.10gb"},
		{"seven 1g leave the last slice, where nothing may start", h100,
			[]Placement{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}, []int{7}, ""},
		{"two 2g fill an A30", a30, []Placement{{0, 2}, {2, 2}}, nil, ""},
		{"half an A30: the plain 2g", a30, []Placement{{1, 1}}, []int{0, 2, 3}, "2g.12gb"},
		{"an empty GPU with graphics: the plain 4g", rtx, nil, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, "4g.96gb"},
		{"a slice below the middle is taken: the plain 2g", rtx, []Placement{{3, 3}}, []int{0, 1, 2, 6, 7, 8, 9, 10, 11}, "2g.48gb"},
		{"both halves are begun: the plain 1g", rtx, []Placement{{3, 3}, {6, 3}}, []int{0, 1, 2, 9, 10, 11}, "1g.24gb"},
		{"a model without MIG", "T4-16GB", nil, nil, ""},
		{"a model whose placements nobody published", "RTX-PRO-5000-Blackwell-48GB", nil, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := model(t, tc.model)
			got, found := m.LargestPlaceable(tc.taken)
			if got.Name != tc.want || found != (tc.want != "") {
				t.Errorf("got %q, %t; want %q", got.Name, found, tc.want)
			}
			if diff := cmp.Diff(tc.free, m.FreeSlices(tc.taken)); diff != "" {
				t.Error("free slices: " + diff)
			}
		})
	}
}

// Whatever the order of the table: no board that is known today has its profiles in this one.
func TestLargestPlaceable_PutsComputeBeforeMemoryAndPlainBeforeAll(t *testing.T) {
	at := func(start, size int) []Placement { return []Placement{{start, size}} }
	m := Model{Key: "made up", ComputeSlices: 4, MemorySlices: 8, Profiles: []Profile{
		{Name: "2g.20gb+me", ComputeSlices: 2, MemorySlices: 2, Placements: at(0, 2), Media: MediaOne},
		{Name: "2g.20gb+gfx", ComputeSlices: 2, MemorySlices: 2, Placements: at(0, 2)},
		{Name: "2g.20gb-me", ComputeSlices: 2, MemorySlices: 2, Placements: at(0, 2), Media: MediaNone},
		{Name: "2g.20gb", ComputeSlices: 2, MemorySlices: 2, Placements: at(0, 2)},
		{Name: "1g.40gb", ComputeSlices: 1, MemorySlices: 4, Placements: at(4, 4)},
	}}
	for _, tc := range []struct {
		taken []Placement
		want  string
	}{{nil, "2g.20gb"}, {at(1, 1), "1g.40gb"}} {
		if got, _ := m.LargestPlaceable(tc.taken); got.Name != tc.want {
			t.Errorf("beside %v: got %q, want %q", tc.taken, got.Name, tc.want)
		}
	}
}

// LargestPlaceable leaves out every profile that ends in +me, -me or +gfx, and counts no instances. Both are right only
// while the table is so.
func TestLargestPlaceable_MissesNothingByNamingPlainProfilesOnly(t *testing.T) {
	for _, m := range Models() {
		for _, p := range m.Profiles {
			plain := slices.DeleteFunc(slices.Clone(m.Profiles), func(other Profile) bool {
				return other.Attribute() != "" || other.ComputeSlices != p.ComputeSlices || other.MemorySlices != p.MemorySlices
			})
			if len(plain) != 1 {
				t.Errorf("%s %s: %d plain profiles of its size, want 1", m.Key, p.Name, len(plain))
				continue
			}
			if diff := cmp.Diff(plain[0].Placements, p.Placements); diff != "" {
				t.Errorf("%s: %s and %s have different places: %s", m.Key, plain[0].Name, p.Name, diff)
			}
			if p.Attribute() == "" && p.MaxInstances != len(p.Placements) {
				t.Errorf("%s %s: at most %d instances in %d places", m.Key, p.Name, p.MaxInstances, len(p.Placements))
			}
		}
	}
}

// What is named can be placed, and nothing larger can: the solver is the judge.
func TestLargestPlaceable_AgreesWithTheSolver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, asked := someDemand(t)
		placed, err := Place(m, asked)
		if err != nil {
			placed, _ = Place(m, asked[:1])
		}
		var taken []Placement
		for _, in := range placed {
			taken = append(taken, in.Placement)
		}
		largest, found := m.LargestPlaceable(taken)
		if found && largest.Attribute() != "" {
			t.Errorf("%s beside %s: %s is no plain profile", m.Key, starts(placed), largest.Name)
		}
		for _, p := range m.Profiles {
			_, err := PlaceBeside(m, taken, []Demand{{p.Name, 1}})
			if fits := err == nil; fits && p.larger(largest) || !fits && p.Name == largest.Name {
				t.Errorf("%s beside %s: largest is %q, but that %s fits is %t", m.Key, starts(placed), largest.Name, p.Name, fits)
			}
		}
	})
}
