package invariants

import (
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

const grace = 20 * time.Second

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// row is a machine of pool a with 8 GPUs, alive from a time on.
func row(id string, launched int, edit ...func(*region.Instance)) region.Instance {
	i := region.Instance{
		ID: id, Claim: "claim-" + id, ClaimUID: "uid-" + id, Type: "p5.48xlarge", State: "running",
		Tags: map[string]string{tagPool: "a"}, Launched: at(launched),
	}
	for _, each := range edit {
		each(&i)
	}
	return i
}

func gone(shutting, over int) func(*region.Instance) {
	return func(i *region.Instance) {
		i.State, i.ShuttingDown, i.Terminated = Terminated, new(at(shutting)), new(at(over))
	}
}

func shutting(since int) func(*region.Instance) {
	return func(i *region.Instance) { i.State, i.ShuttingDown = "shutting-down", new(at(since)) }
}

func claim(uid string) func(*region.Instance) { return func(i *region.Instance) { i.ClaimUID = uid } }

func ofPool(name string) func(*region.Instance) {
	return func(i *region.Instance) { i.Tags = map[string]string{tagPool: name} }
}

func gpuLimit(from int, gpus int64) Limits { return Limits{From: at(from), GPUs: &gpus} }

func TestLaunches(t *testing.T) {
	eight := Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 8)}}
	for _, test := range []struct {
		name  string
		pool  Pool
		books []region.Instance
		want  string // of the one violation; empty: none
	}{
		{"limit and surge are full", eight, []region.Instance{row("1", 1), row("2", 2)}, ""},
		{"one beyond them", eight, []region.Instance{row("1", 1), row("2", 2), row("3", 3)}, "with 3 of 12:00:03.000 there were 24 GPUs, limit and surge allowed 16"},
		{"one that is gone makes room", eight, []region.Instance{row("1", 1, gone(2, 3)), row("2", 2), row("3", 3)}, ""},
		{"one that shuts down is still there", eight, []region.Instance{row("1", 1, shutting(2)), row("2", 2), row("3", 3)}, "there were 24 GPUs"},
		{"that it went later makes no room", eight, []region.Instance{row("1", 1, gone(4, 5)), row("2", 2), row("3", 3)}, "there were 24 GPUs"},
		{"other pools do not count", eight, []region.Instance{row("1", 1), row("2", 2), row("3", 3, ofPool("b"))}, ""},
		{"a raise counts at once", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 8), gpuLimit(3, 16)}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 3)}, ""},
		{"a launch before the raise", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 8), gpuLimit(4, 16)}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 3)}, "allowed 16"},
		{"a launch just after the limit was lowered", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 16), gpuLimit(10, 8)}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 29)}, ""},
		{"a launch after that grace", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 16), gpuLimit(10, 8)}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 30)}, "allowed 16"},
		{"what is there when a limit is lowered may stay", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{gpuLimit(0, 32), gpuLimit(10, 8)}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 3)}, ""},
		{"nodes", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{{From: at(0), Nodes: new(int64(1))}}},
			[]region.Instance{row("1", 1), row("2", 2), row("3", 3)}, "there were 3 nodes, limit and surge allowed 2"},
		{"no limit", Pool{Name: "a", Surge: 1, Largest: 8, Changes: []Limits{{From: at(0)}}}, []region.Instance{row("1", 1), row("2", 2), row("3", 3)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			only(t, Launches(test.books, []Pool{test.pool}, map[string]int64{"p5.48xlarge": 8}, grace), test.want)
		})
	}
}

func TestTwins(t *testing.T) {
	for _, test := range []struct {
		name  string
		books []region.Instance
		want  string
	}{
		{"a machine for each claim", []region.Instance{row("1", 1), row("2", 1)}, ""},
		{"two for one claim", []region.Instance{row("1", 1, claim("x")), row("2", 5, claim("x"))}, "1 and 2 were alive at 12:00:05.000"},
		{"two, of which the first is gone by now", []region.Instance{row("1", 1, claim("x"), gone(9, 10)), row("2", 5, claim("x"))}, "1 and 2 were alive"},
		{"a second after the first began to end", []region.Instance{row("1", 1, claim("x"), shutting(4)), row("2", 5, claim("x"))}, ""},
	} {
		t.Run(test.name, func(t *testing.T) { only(t, Twins(test.books), test.want) })
	}
}

func TestStrangers(t *testing.T) {
	pools := []Pool{{Name: "a"}}
	only(t, Strangers([]region.Instance{row("1", 1)}, pools), "")
	only(t, Strangers([]region.Instance{row("1", 1, ofPool("nobody's"))}, pools), `1 is of pool "nobody's"`)
	only(t, Strangers([]region.Instance{row("1", 1, claim(""))}, pools), `NodeClaim ""`)
}

func TestLeft(t *testing.T) {
	only(t, Left([]region.Instance{row("1", 1, gone(2, 3))}), "")
	only(t, Left([]region.Instance{row("1", 1, gone(2, 3)), row("2", 1, shutting(2))}), "2 of pool a is shutting-down")
}

func TestEarlyBinding(t *testing.T) {
	only(t, EarlyBinding("n", 0, 0), "")
	only(t, EarlyBinding("n", 5, 0), "")
	only(t, EarlyBinding("n", 5, 6), "")
	only(t, EarlyBinding("n", 6, 5), "bound to it at 5, its startup taint went at 6")
	only(t, EarlyBinding("n", 0, 5), "went at 0")
}

// only wants one violation that says something, or none.
func only(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("broken: %q, want nothing", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("broken: %q, want one that says %q", got, want)
	}
}
