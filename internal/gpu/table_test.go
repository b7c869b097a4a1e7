package gpu

import (
	"slices"
	"testing"
)

func TestTable_EveryEntryHasItsSourcesAndDate(t *testing.T) {
	tab, err := readTable(modelsJSON)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	cite := func(where string, sources []string) {
		if len(sources) == 0 {
			t.Errorf("%s has no source", where)
		}
		for _, s := range sources {
			used[s] = true
			if tab.Sources[s] == "" {
				t.Errorf("%s cites %q, which is not among the sources", where, s)
			}
		}
	}
	for _, m := range tab.Models {
		cite(m.Key, m.Source)
		if m.AsOf == "" || m.Confidence == "" || m.Architecture == "" || len(m.ProductNames) == 0 {
			t.Errorf("%s lacks a date, a confidence, an architecture or a product name: %+v", m.Key, m)
		}
		for _, p := range m.Profiles {
			cite(m.Key+" "+p.Name, p.Source)
		}
	}
	for s := range tab.Sources {
		if !used[s] {
			t.Errorf("source %q is cited by nothing", s)
		}
	}
}

func TestTable_EveryPlacementLiesOnItsBoard(t *testing.T) {
	for _, m := range Models() {
		if m.MIGCapable() != (len(m.Profiles) > 0) {
			t.Errorf("%s: MIG capable is %v with %d profiles", m.Key, m.MIGCapable(), len(m.Profiles))
		}
		for _, p := range m.Profiles {
			if len(p.Placements) == 0 || p.MaxInstances < 1 || p.MaxInstances > len(p.Placements) {
				t.Errorf("%s %s: at most %d instances in %d placements", m.Key, p.Name, p.MaxInstances, len(p.Placements))
			}
			last := -1
			for _, place := range p.Placements {
				if place.Size != p.MemorySlices || place.Start <= last || place.Start+place.Size > m.MemorySlices {
					t.Errorf("%s %s: placement %+v on a board of %d slices", m.Key, p.Name, place, m.MemorySlices)
				}
				last = place.Start
			}
		}
	}
}

func TestLookup_KnowsTheModelsByKey(t *testing.T) {
	for key, want := range map[string]struct {
		compute, memory, profiles int
		name                      string
	}{
		"H100-80GB-SXM":               {7, 8, 7, "NVIDIA H100 80GB HBM3"},
		"A100-40GB":                   {7, 8, 7, "NVIDIA A100-SXM4-40GB"},
		"A30-24GB":                    {4, 4, 5, "NVIDIA A30"},
		"RTX-PRO-6000-Blackwell-96GB": {4, 12, 11, "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
		"T4-16GB":                     {0, 0, 0, "Tesla T4"},
		"RTX-PRO-4500-Blackwell-32GB": {0, 0, 0, "NVIDIA RTX PRO 4500 Blackwell Server Edition"},
	} {
		m, ok := Lookup(key)
		if !ok {
			t.Errorf("%s is not known", key)
			continue
		}
		if m.ComputeSlices != want.compute || m.MemorySlices != want.memory || len(m.Profiles) != want.profiles {
			t.Errorf("%s has %d compute, %d memory slices and %d profiles, want %+v",
				key, m.ComputeSlices, m.MemorySlices, len(m.Profiles), want)
		}
		if !slices.Contains(m.ProductNames, want.name) {
			t.Errorf("%s is called %v, want %q among them", key, m.ProductNames, want.name)
		}
	}
	if m, ok := Lookup("H100"); ok {
		t.Errorf("H100 alone names no one model, got %s", m.Key)
	}
}

func TestModels_AreSortedAndTheCallersOwn(t *testing.T) {
	all := Models()
	if !slices.IsSortedFunc(all, func(a, b Model) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	}) {
		t.Error("models are not sorted by key")
	}
	first := all[0].Key
	all[0] = Model{}
	if got := Models()[0].Key; got != first {
		t.Errorf("changing the list changed the table: %q, want %q", got, first)
	}
}

func TestResourceName_FollowsTheDevicePlugin(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.10gb":        "nvidia.com/mig-1g.10gb",
		"1g.5gb+me":      "nvidia.com/mig-1g.5gb.me",
		"1g.24gb-me":     "nvidia.com/mig-1g.24gb-me",
		"1g.24gb+me.all": "nvidia.com/mig-1g.24gb.me.all",
	} {
		if got := ResourceName(profile); got != want {
			t.Errorf("ResourceName(%q) = %q, want %q", profile, got, want)
		}
	}
}
