package gpu

import (
	"cmp"
	"math/bits"
	"slices"
)

// Demand is a number of equal MIG instances.
type Demand struct {
	Profile string
	Count   int
}

// Instance is one MIG instance in its place.
type Instance struct {
	Profile   Profile
	Placement Placement
}

// Place finds a place for every instance asked of one GPU, or says why there is none. The answer is always the same for
// the same demand, whatever its order, and is sorted by start.
//
// Counting slices is not enough: 3g+3g+1g has 7 compute slices and does not fit, and 3g+1g+1g+1g+1g fits only with the
// 3g in the upper half. So it searches, the biggest profile first, through the permitted placements.
//
// The error is an *UnknownProfileError or a *PlacementError.
func Place(m Model, demand []Demand) ([]Instance, error) { return PlaceBeside(m, nil, demand) }

// PlaceBeside is Place on a GPU where some placements are taken already, and stay where they are.
func PlaceBeside(m Model, taken []Placement, demand []Demand) ([]Instance, error) {
	lines, err := resolve(m, demand)
	if err != nil {
		return nil, err
	}
	if why, at := refuse(m, lines); why != "" {
		return nil, &PlacementError{Model: m.Key, Asked: demand, Index: at, Reason: why}
	}
	board := occupied(taken)
	var s search
	if !s.solve(m, board, lines) {
		return nil, explain(m, board, demand, lines)
	}
	return s.instances(lines), nil
}

// line is one profile of a demand, its duplicates summed.
type line struct {
	Profile
	count int
	// index is where the profile first stands in the demand.
	index int
}

// resolve finds each profile in the model and sums duplicates. Biggest first: a big instance has few places, and small
// ones fill what is left. Of two that are equal in size, that with fewer placements goes first.
func resolve(m Model, demand []Demand) ([]line, error) {
	if !m.MIGCapable() {
		return nil, &PlacementError{Model: m.Key, Asked: demand, Index: -1, Unsupported: true, Reason: uncuttable(m)}
	}
	lines := make([]line, 0, len(demand))
	for i, d := range demand {
		if d.Count < 1 {
			return nil, &PlacementError{Model: m.Key, Asked: demand, Index: i, Reason: "a count must be at least 1"}
		}
		at := m.index(d.Profile)
		if at < 0 {
			return nil, unknownProfile(m, d.Profile, i)
		}
		if same := slices.IndexFunc(lines, func(l line) bool { return l.Name == d.Profile }); same >= 0 {
			lines[same].count += d.Count
			continue
		}
		lines = append(lines, line{Profile: m.Profiles[at], count: d.Count, index: i})
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(
			cmp.Compare(b.MemorySlices, a.MemorySlices),
			cmp.Compare(len(a.Placements), len(b.Placements)),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return lines, nil
}

func occupied(taken []Placement) uint32 {
	var board uint32
	for _, p := range taken {
		board |= p.mask()
	}
	return board
}

// search is a depth-first walk over placements. No board has more than 12 memory slices, so an instance list never
// outgrows the array and the search allocates nothing.
type search struct {
	lines  []line
	placed [32]choice
	n      int
}

type choice struct {
	line  int
	place Placement
}

func (s *search) solve(m Model, board uint32, lines []line) bool {
	need := 0
	for _, l := range lines {
		need += l.count * l.MemorySlices
	}
	if need > m.MemorySlices-bits.OnesCount32(board) {
		return false
	}
	s.lines, s.n = lines, 0
	return s.next(0, board)
}

func (s *search) next(i int, board uint32) bool {
	if i == len(s.lines) {
		return true
	}
	return s.fill(i, s.lines[i].count, 0, board)
}

// fill places the remaining instances of one line. Equal instances are interchangeable: taking their places in rising
// order visits each set of places once.
func (s *search) fill(i, remaining, first int, board uint32) bool {
	if remaining == 0 {
		return s.next(i+1, board)
	}
	places := s.lines[i].Placements
	for at := first; at <= len(places)-remaining; at++ {
		mask := places[at].mask()
		if board&mask != 0 {
			continue
		}
		s.placed[s.n] = choice{line: i, place: places[at]}
		s.n++
		if s.fill(i, remaining-1, at+1, board|mask) {
			return true
		}
		s.n--
	}
	return false
}

func (s *search) instances(lines []line) []Instance {
	out := make([]Instance, s.n)
	for i, c := range s.placed[:s.n] {
		out[i] = Instance{Profile: lines[c.line].Profile, Placement: c.place}
	}
	slices.SortFunc(out, func(a, b Instance) int { return cmp.Compare(a.Placement.Start, b.Placement.Start) })
	return out
}
