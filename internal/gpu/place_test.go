package gpu

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func model(t testing.TB, key string) Model {
	t.Helper()
	m, ok := Lookup(key)
	if !ok {
		t.Fatalf("model %s is not known", key)
	}
	return m
}

// demands writes pairs of profile and count as a Demand, in the order of profile names.
func demands(layout map[string]int) []Demand {
	var out []Demand
	for _, name := range slices.Sorted(maps.Keys(layout)) {
		out = append(out, Demand{Profile: name, Count: layout[name]})
	}
	return out
}

// starts writes an answer as "profile@start", in order.
func starts(instances []Instance) string {
	var out []string
	for _, in := range instances {
		out = append(out, in.Profile.Name+"@"+string(rune('0'+in.Placement.Start)))
	}
	return strings.Join(out, " ")
}

// The examples were worked out by hand from NVIDIA's published placements: testdata/layout_examples.json.
func TestPlace_AgreesWithEveryWorkedExample(t *testing.T) {
	data, err := os.ReadFile("testdata/layout_examples.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct {
		GPU    string
		Layout map[string]int
		Valid  bool
		Reason string
	}
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	if len(examples) != 54 {
		t.Fatalf("%d examples, want 54", len(examples))
	}
	for _, e := range examples {
		asked := demands(e.Layout)
		got, err := Place(model(t, e.GPU), asked)
		if (err == nil) != e.Valid {
			t.Errorf("%s %s: err %v, want valid %v (%s)", e.GPU, words(asked), err, e.Valid, e.Reason)
		}
		if err == nil {
			checkWitness(t, model(t, e.GPU), asked, got)
		}
	}
}

// checkWitness holds an answer to the rules: what was asked, in permitted places, no overlap, sorted.
func checkWitness(t interface{ Errorf(string, ...any) }, m Model, asked []Demand, got []Instance) {
	left := map[string]int{}
	for _, d := range asked {
		left[d.Profile] += d.Count
	}
	owner := map[int]string{}
	last := -1
	for _, in := range got {
		left[in.Profile.Name]--
		p, _ := m.Profile(in.Profile.Name)
		if !slices.Contains(p.Placements, in.Placement) {
			t.Errorf("%s %s: %s at %+v is not permitted", m.Key, words(asked), in.Profile.Name, in.Placement)
		}
		if in.Placement.Start <= last {
			t.Errorf("%s %s: not sorted by start: %s", m.Key, words(asked), starts(got))
		}
		last = in.Placement.Start
		for s := in.Placement.Start; s < in.Placement.Start+in.Placement.Size; s++ {
			if other, taken := owner[s]; taken {
				t.Errorf("%s %s: slice %d is %s and %s", m.Key, words(asked), s, other, in.Profile.Name)
			}
			owner[s] = in.Profile.Name
		}
	}
	for profile, n := range left {
		if n != 0 {
			t.Errorf("%s %s: %d of %s too few", m.Key, words(asked), n, profile)
		}
	}
}

func TestPlace_GivesTheOneAnswerWhateverTheOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		ask  []Demand
		want string
	}{
		{"3g goes to the upper half, or four 1g do not fit", []Demand{{"3g.40gb", 1}, {"1g.10gb", 4}}, "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 3g.40gb@4"},
		{"the same, small first", []Demand{{"1g.10gb", 4}, {"3g.40gb", 1}}, "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 3g.40gb@4"},
		{"4g has one place, so 3g takes the other", []Demand{{"3g.40gb", 1}, {"4g.40gb", 1}}, "4g.40gb@0 3g.40gb@4"},
		{"a profile given twice is summed", []Demand{{"1g.10gb", 3}, {"1g.10gb", 4}}, "1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6"},
		{"the order that nvidia-smi -cgi refuses", []Demand{{"1g.10gb", 2}, {"2g.20gb", 1}, {"3g.40gb", 1}}, "2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Place(model(t, "H100-80GB-SXM"), tc.ask)
			if err != nil {
				t.Fatal(err)
			}
			if starts(got) != tc.want {
				t.Errorf("got %s, want %s", starts(got), tc.want)
			}
		})
	}
}

// everyLayout walks the board from its lower end and puts every permitted instance, or nothing, at each slice: all
// layouts without overlap, by their multisets. It shares nothing with the solver.
func everyLayout(m Model) map[string]bool {
	out := map[string]bool{}
	counts := make([]int, len(m.Profiles))
	var walk func(slice int)
	walk = func(slice int) {
		if slice >= m.MemorySlices {
			out[multiset(counts)] = true
			return
		}
		walk(slice + 1)
		for i, p := range m.Profiles {
			if !slices.Contains(p.Placements, Placement{slice, p.MemorySlices}) {
				continue
			}
			counts[i]++
			walk(slice + p.MemorySlices)
			counts[i]--
		}
	}
	walk(0)
	return out
}

func multiset(counts []int) string {
	key := make([]byte, len(counts))
	for i, n := range counts {
		key[i] = byte('0' + n)
	}
	return string(key)
}

// mediaAllowed is the rule in nvml.h, written for whole multisets: one holder of media extensions; beside a +me.all,
// nothing but -me.
func mediaAllowed(m Model, counts []int) bool {
	holders, all, other := 0, 0, 0
	for i, n := range counts {
		switch attribute := m.Profiles[i].Name[strings.Index(m.Profiles[i].Name, "gb")+2:]; attribute {
		case "+me":
			holders += n
		case "+me.all":
			holders, all = holders+n, all+n
		case "-me":
		default:
			other += n
		}
	}
	return holders <= 1 && (all == 0 || other == 0)
}

func TestPlace_AgreesWithAnExhaustiveWalkOfEveryBoard(t *testing.T) {
	for _, m := range Models() {
		if !m.MIGCapable() {
			continue
		}
		t.Run(m.Key, func(t *testing.T) {
			valid := everyLayout(m)
			tried := 0
			counts := make([]int, len(m.Profiles))
			var each func(i, left int)
			each = func(i, left int) {
				if i == len(counts) {
					tried++
					checkAgainst(t, m, counts, valid[multiset(counts)] && mediaAllowed(m, counts))
					return
				}
				for n := 0; n <= left; n++ {
					counts[i] = n
					each(i+1, left-n)
				}
				counts[i] = 0
			}
			each(0, min(8, m.ComputeSlices+1))
			t.Logf("%d multisets", tried)
		})
	}
}

func checkAgainst(t *testing.T, m Model, counts []int, want bool) {
	t.Helper()
	var asked []Demand
	for i, n := range counts {
		if n > 0 {
			asked = append(asked, Demand{Profile: m.Profiles[i].Name, Count: n})
		}
	}
	if len(asked) == 0 {
		return
	}
	got, err := Place(m, asked)
	if (err == nil) != want {
		t.Errorf("%s: err %v, want valid %v", words(asked), err, want)
	}
	if err == nil {
		checkWitness(t, m, asked, got)
	}
}

// 37 valid multisets of the base profiles, 12 of them maximal: counted from the table of the MIG User Guide.
func TestPlace_FindsTheThirtySevenLayoutsOfAnA100(t *testing.T) {
	m := model(t, "A100-80GB")
	base := []string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
	var valid [][5]int
	for a := range 8 {
		for b := range 4 {
			for c := range 3 {
				for d := range 2 {
					for e := range 2 {
						n := [5]int{a, b, c, d, e}
						var asked []Demand
						for i, k := range n {
							if k > 0 {
								asked = append(asked, Demand{base[i], k})
							}
						}
						if _, err := Place(m, asked); err == nil {
							valid = append(valid, n)
						}
					}
				}
			}
		}
	}
	maximal := slices.DeleteFunc(slices.Clone(valid), func(n [5]int) bool {
		return slices.ContainsFunc(valid, func(o [5]int) bool {
			return o != n && o[0] >= n[0] && o[1] >= n[1] && o[2] >= n[2] && o[3] >= n[3] && o[4] >= n[4]
		})
	})
	if len(valid) != 37 || len(maximal) != 12 {
		t.Errorf("%d layouts, %d of them maximal; want 37 and 12: %v", len(valid), len(maximal), maximal)
	}
}

func TestPlace_RefusesMediaExtensionsTwice(t *testing.T) {
	for _, tc := range []struct {
		name, model string
		ask         []Demand
		want        string // in the error; empty: valid
	}{
		{"two profiles with +me on an A30", "A30-24GB", []Demand{{"1g.6gb+me", 1}, {"2g.12gb+me", 1}},
			"one instance of a GPU may hold the media extensions, but 2g.12gb+me and 1g.6gb+me both ask for them"},
		{"+me beside plain", "A30-24GB", []Demand{{"2g.12gb+me", 1}, {"1g.6gb", 2}}, ""},
		{"+me.all beside -me", "RTX-PRO-6000-Blackwell-96GB", []Demand{{"2g.48gb+me.all", 1}, {"1g.24gb-me", 2}}, ""},
		{"+me.all beside gfx", "RTX-PRO-6000-Blackwell-96GB", []Demand{{"1g.24gb+me.all", 1}, {"1g.24gb+gfx", 1}},
			"1g.24gb+me.all takes every media engine, so only profiles that end in -me may stand beside it, not 1g.24gb+gfx"},
		{"+me.all beside +me", "RTX-PRO-6000-Blackwell-96GB", []Demand{{"1g.24gb+me.all", 1}, {"1g.24gb+me", 1}},
			"one instance of a GPU may hold the media extensions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Place(model(t, tc.model), tc.ask)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}

// kubernetes-sigs/dra-driver-nvidia-gpu#933: enough free slices, no aligned place.
func TestC79_PlacementsDecideAndNotCounts(t *testing.T) {
	m := model(t, "H100-80GB-SXM")
	small := func(at ...int) []Placement {
		var out []Placement
		for _, start := range at {
			out = append(out, Placement{start, 1})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		taken []Placement
		ask   []Demand
		want  string // "profile@start ..." or the error
	}{
		{"1g at 0, 1, 5 block a 3g", small(0, 1, 5), []Demand{{"3g.40gb", 1}},
			"H100-80GB-SXM cannot be cut into 3g.40gb: 1 x 3g.40gb does not fit in the free memory slices 2,3,4,6,7: no place is left for it"},
		{"1g at 0, 1 leave the upper half", small(0, 1), []Demand{{"3g.40gb", 1}}, "3g.40gb@4"},
		{"4g and 3g", nil, []Demand{{"4g.40gb", 1}, {"3g.40gb", 1}}, "4g.40gb@0 3g.40gb@4"},
		{"3g, 3g and 1g have 7 compute slices and 9 memory slices", nil, []Demand{{"3g.40gb", 2}, {"1g.10gb", 1}},
			"H100-80GB-SXM cannot be cut into 2 x 3g.40gb + 1g.10gb: 1 x 1g.10gb does not fit beside 2 x 3g.40gb: no place is left for it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			placed, err := PlaceBeside(m, tc.taken, tc.ask)
			got := starts(placed)
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestPlace_SaysWhatWasAskedWhyNotAndWhatIsPossible(t *testing.T) {
	for _, tc := range []struct {
		name, model string
		ask         []Demand
		want        string
		index       int
	}{
		{"too many beside another", "H100-80GB-SXM", []Demand{{"4g.40gb", 1}, {"1g.10gb", 4}},
			"H100-80GB-SXM cannot be cut into 4g.40gb + 4 x 1g.10gb: 4 x 1g.10gb do not fit beside 4g.40gb: at most 3", 1},
		{"more than the board holds", "H100-80GB-SXM", []Demand{{"1g.10gb", 8}},
			"H100-80GB-SXM cannot be cut into 8 x 1g.10gb: 8 x 1g.10gb: at most 7 of it fit on one GPU", 0},
		{"no single profile is to blame", "H100-80GB-SXM", []Demand{{"7g.80gb", 1}, {"2g.20gb", 3}, {"1g.20gb", 4}},
			"H100-80GB-SXM cannot be cut into 7g.80gb + 3 x 2g.20gb + 4 x 1g.20gb: they cannot all be placed; the nearest that fits is 7g.80gb", -1},
		{"nothing asked", "H100-80GB-SXM", nil, "H100-80GB-SXM cannot be cut: no slices are asked for", -1},
		{"a count of nothing", "H100-80GB-SXM", []Demand{{"7g.80gb", 0}},
			"H100-80GB-SXM cannot be cut into 0 x 7g.80gb: a count must be at least 1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Place(model(t, tc.model), tc.ask)
			var unplaced *PlacementError
			if !errors.As(err, &unplaced) {
				t.Fatalf("got %v, want a *PlacementError", err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if unplaced.Index != tc.index {
				t.Errorf("index %d, want %d", unplaced.Index, tc.index)
			}
		})
	}
}

func TestPlace_RefusesModelsThatCannotBeCut(t *testing.T) {
	for key, want := range map[string]string{
		"T4-16GB":                     "T4-16GB cannot be cut into 1g.10gb: the model has no MIG; layouts can be made for A100-40GB, A100-80GB, ",
		"RTX-PRO-4500-Blackwell-32GB": "the model can do MIG, but no public source lists its placements",
	} {
		_, err := Place(model(t, key), []Demand{{"1g.10gb", 1}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", key, err, want)
		}
	}
}

// NVIDIA/mig-parted#227: one GB200 has 1g.24gb, another 1g.23gb, by driver.
func TestC14_AnUnknownProfileNamesTheOneThatWasMeant(t *testing.T) {
	for _, tc := range []struct{ name, model, profile, want string }{
		{"another driver's name", "GB200-186GB", "1g.24gb",
			"GB200-186GB has no MIG profile 1g.24gb (the nearest is 1g.23gb); it has 1g.23gb, 1g.23gb+me, 1g.47gb, 2g.47gb, 3g.93gb, 4g.93gb, 7g.186gb"},
		{"another board's name, with media extensions", "H100-80GB-SXM", "1g.5gb+me",
			"H100-80GB-SXM has no MIG profile 1g.5gb+me (the nearest is 1g.10gb+me); it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"},
		{"a shape that no board has", "H100-80GB-SXM", "5g.50gb",
			"H100-80GB-SXM has no MIG profile 5g.50gb; it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"},
		{"no shape at all", "H100-80GB-SXM", "half",
			"H100-80GB-SXM has no MIG profile half; it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := model(t, tc.model)
			_, err := Place(m, []Demand{{m.Profiles[0].Name, 1}, {tc.profile, 1}})
			var unknown *UnknownProfileError
			if !errors.As(err, &unknown) {
				t.Fatalf("got %v, want an *UnknownProfileError", err)
			}
			if err.Error() != tc.want || unknown.Index != 1 {
				t.Errorf("got  %s (index %d)\nwant %s (index 1)", err, unknown.Index, tc.want)
			}
		})
	}
}

// someDemand draws up to 8 instances of a board's profiles.
func someDemand(t *rapid.T) (Model, []Demand) {
	capable := slices.DeleteFunc(Models(), func(m Model) bool { return !m.MIGCapable() })
	m := rapid.SampledFrom(capable).Draw(t, "model")
	names := rapid.SliceOfN(rapid.SampledFrom(m.profileNames()), 1, 8).Draw(t, "profiles")
	var out []Demand
	for _, name := range names {
		out = append(out, Demand{Profile: name, Count: 1})
	}
	return m, out
}

func TestPlace_NeverOverlapsAndDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, asked := someDemand(t)
		got, err := Place(m, asked)
		if err == nil {
			checkWitness(t, m, asked, got)
		}
		shuffled := rapid.Permutation(asked).Draw(t, "order")
		again, errAgain := Place(m, shuffled)
		if (err == nil) != (errAgain == nil) || starts(got) != starts(again) {
			t.Errorf("%s: %s (%v), but %s: %s (%v)", words(asked), starts(got), err, words(shuffled), starts(again), errAgain)
		}
	})
}

func TestPlace_StaysValidWhenASliceIsTakenAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, tried := someDemand(t)
		var asked []Demand
		for _, d := range tried {
			if _, err := Place(m, append(asked[:len(asked):len(asked)], d)); err == nil {
				asked = append(asked, d)
			}
		}
		if len(asked) < 2 {
			return
		}
		i := rapid.IntRange(0, len(asked)-1).Draw(t, "taken away")
		fewer := slices.Delete(slices.Clone(asked), i, i+1)
		if _, err := Place(m, fewer); err != nil {
			t.Errorf("%s fits, but %s does not: %v", words(asked), words(fewer), err)
		}
	})
}

// What an error offers must be true: with that many, the demand fits.
func TestPlace_OffersOnlyWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, asked := someDemand(t)
		lines, err := resolve(m, asked)
		if err != nil {
			t.Fatal(err)
		}
		if why, _ := refuse(m, lines); why != "" {
			return
		}
		offered := greedy(m, 0, lines)
		if _, err := Place(m, offered); err != nil {
			t.Errorf("%s: offers %s: %v", words(asked), words(offered), err)
		}
	})
}

func BenchmarkPlace(b *testing.B) {
	for name, asked := range map[string][]Demand{
		"seven":       {{"1g.10gb", 7}},
		"3g and 4x1g": {{"3g.40gb", 1}, {"1g.10gb", 4}},
	} {
		b.Run(name, func(b *testing.B) {
			m := model(b, "H100-80GB-SXM")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Place(m, asked); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
