package gpu

import (
	"fmt"
	"strings"
)

// UnknownProfileError is a profile that the model does not have.
type UnknownProfileError struct {
	Model, Profile string
	// Index is where it stands in the demand.
	Index int
	// Known are the profiles that the model has. Nearest is the one that was probably meant, or empty.
	Known   []string
	Nearest string
}

func (e *UnknownProfileError) Error() string {
	hint := ""
	if e.Nearest != "" {
		hint = fmt.Sprintf(" (the nearest is %s)", e.Nearest)
	}
	return fmt.Sprintf("%s has no MIG profile %s%s; it has %s", e.Model, e.Profile, hint, strings.Join(e.Known, ", "))
}

func unknownProfile(m Model, name string, index int) error {
	nearest, _ := m.nearest(name)
	return &UnknownProfileError{Model: m.Key, Profile: name, Index: index, Known: m.profileNames(), Nearest: nearest}
}

// PlacementError is a demand that cannot be placed on one GPU of the model.
type PlacementError struct {
	Model string
	Asked []Demand
	// Index is where the profile that does not fit stands in the demand; -1 where it is no single one.
	Index int
	// Unsupported says that the model cannot be cut at all.
	Unsupported bool
	// Reason says why not, and what is possible.
	Reason string
}

func (e *PlacementError) Error() string {
	if len(e.Asked) == 0 {
		return fmt.Sprintf("%s cannot be cut: %s", e.Model, e.Reason)
	}
	return fmt.Sprintf("%s cannot be cut into %s: %s", e.Model, words(e.Asked), e.Reason)
}

func uncuttable(m Model) string {
	return fmt.Sprintf("%s; layouts can be made for %s", m.NoMIG(), strings.Join(MIGKeys(), ", "))
}

// refuse applies the rules that no placement can mend: how many of one profile a board can hold, and who may have the
// media engines. Source of the latter: NVIDIA/go-nvml gen/nvml/nvml.h, comments on NVML_GPU_INSTANCE_PROFILE_*_ME*.
func refuse(m Model, lines []line) (why string, index int) {
	if len(lines) == 0 {
		return "no slices are asked for", -1
	}
	for _, l := range lines {
		if l.count > l.MaxInstances {
			return fmt.Sprintf("%s: at most %d of it fit on one GPU", counted(l.count, l.Name), l.MaxInstances), l.index
		}
	}
	return refuseMedia(lines)
}

func refuseMedia(lines []line) (why string, index int) {
	var holder *line
	for i, l := range lines {
		if l.Media != MediaOne && l.Media != MediaAll {
			continue
		}
		if holder != nil {
			return fmt.Sprintf("one instance of a GPU may hold the media extensions, but %s and %s both ask for them",
				holder.Name, l.Name), l.index
		}
		holder = &lines[i]
	}
	if holder == nil || holder.Media != MediaAll {
		return "", 0
	}
	for _, l := range lines {
		if l.index != holder.index && l.Media != MediaNone {
			return fmt.Sprintf("%s takes every media engine, so only profiles that end in -me may stand beside it, not %s",
				holder.Name, l.Name), l.index
		}
	}
	return "", 0
}

// explain says which slices cannot be placed and what would. It looks for the one profile of which the fewest have to
// go, the smallest where several do: "4 x 1g.10gb do not fit beside 4g.40gb: at most 3".
func explain(m Model, board uint32, asked []Demand, lines []line) *PlacementError {
	err := &PlacementError{Model: m.Key, Asked: asked, Index: -1}
	culprit, most := -1, 0
	for i := range lines {
		fits := mostOf(m, board, lines, i)
		if fits >= 0 && (culprit < 0 || lines[i].count-fits <= lines[culprit].count-most) {
			culprit, most = i, fits
		}
	}
	if culprit < 0 {
		err.Reason = "they cannot all be placed; the nearest that fits is " + words(greedy(m, board, lines))
		return err
	}
	err.Index = lines[culprit].index
	err.Reason = doesNotFit(m, board, lines, culprit, most)
	return err
}

// mostOf is the largest number of one line's instances that fit beside all the others; -1 where the others alone do not.
func mostOf(m Model, board uint32, lines []line, i int) int {
	tried := make([]line, len(lines))
	copy(tried, lines)
	var s search
	for tried[i].count--; tried[i].count >= 0; tried[i].count-- {
		if s.solve(m, board, tried) {
			return tried[i].count
		}
	}
	return -1
}

// greedy takes as many of each as fit, the biggest first.
func greedy(m Model, board uint32, lines []line) []Demand {
	var taken []line
	var out []Demand
	for _, l := range lines {
		with := append(taken, l)
		var s search
		if !s.solve(m, board, with) {
			with[len(with)-1].count = max(0, mostOf(m, board, with, len(with)-1))
		}
		taken = with
		if n := with[len(with)-1].count; n > 0 {
			out = append(out, Demand{Profile: l.Name, Count: n})
		}
	}
	return out
}

func doesNotFit(m Model, board uint32, lines []line, culprit, most int) string {
	var beside []Demand
	for i, l := range lines {
		if i != culprit {
			beside = append(beside, Demand{Profile: l.Name, Count: l.count})
		}
	}
	l := lines[culprit]
	verb := "do not fit"
	if l.count == 1 {
		verb = "does not fit"
	}
	where := ""
	switch {
	case len(beside) > 0:
		where = " beside " + words(beside)
	case board != 0:
		where = fmt.Sprintf(" in the free memory slices %s", freeSlices(m, board))
	}
	possible := fmt.Sprintf("at most %d", most)
	if most == 0 {
		possible = "no place is left for it"
	}
	return fmt.Sprintf("%s %s%s: %s", counted(l.count, l.Name), verb, where, possible)
}

func freeSlices(m Model, board uint32) string {
	free := m.free(board)
	if len(free) == 0 {
		return "(none)"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(free), "[]"), " ", ",")
}

// words writes a demand as people read it: "4g.40gb + 3 x 1g.10gb".
func words(demand []Demand) string {
	parts := make([]string, len(demand))
	for i, d := range demand {
		parts[i] = d.Profile
		if d.Count != 1 {
			parts[i] = counted(d.Count, d.Profile)
		}
	}
	return strings.Join(parts, " + ")
}

func counted(n int, profile string) string { return fmt.Sprintf("%d x %s", n, profile) }
