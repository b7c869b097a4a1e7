package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"

	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestMain(m *testing.M) {
	if err := Register(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// series is one metric as it is scraped. value is a gauge's, a counter's, or a histogram's number of observations.
type series struct {
	name, help string
	labels     map[string]string
	value      float64
	sum        float64
}

// scrape returns the series of ours. ours are those whose name begins as every name of ours must.
func scrape(t *testing.T) []series {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []series
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "gpufleet_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			each := series{name: family.GetName(), help: family.GetHelp(), labels: map[string]string{}}
			for _, label := range metric.GetLabel() {
				each.labels[label.GetName()] = label.GetValue()
			}
			each.value = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			each.sum = metric.GetHistogram().GetSampleSum()
			out = append(out, each)
		}
	}
	return out
}

// find returns the series of a metric with exactly these label values, given as name=value.
func find(t *testing.T, name string, labels ...string) (series, bool) {
	t.Helper()
	for _, each := range scrape(t) {
		if each.name != name || len(each.labels) != len(labels) {
			continue
		}
		if !slices.ContainsFunc(labels, func(l string) bool {
			key, value, _ := strings.Cut(l, "=")
			return each.labels[key] != value
		}) {
			return each, true
		}
	}
	return series{}, false
}

// record makes one series of each metric for a pool.
func record(pool string) {
	SetPoolGPUs(pool, 8, 1)
	CountLaunch(pool, "p5.48xlarge", "on-demand", ReasonLaunched)
	ObserveStartup(pool, PhaseVerified, 90)
}

func TestAll_IsWhatIsRegistered(t *testing.T) {
	record("inference")
	t.Cleanup(func() { ForgetPool("inference") })
	declared := map[string]Metric{}
	for _, each := range All {
		declared[each.Name] = each
	}
	if len(declared) != len(All) {
		t.Errorf("a name is declared twice: %v", All)
	}
	registered := map[string]bool{}
	for _, got := range scrape(t) {
		registered[got.name] = true
		want, found := declared[got.name]
		if !found {
			t.Errorf("%s is registered and not in All", got.name)
			continue
		}
		if got.help != want.Help {
			t.Errorf("%s: help %q, declared %q", got.name, got.help, want.Help)
		}
		var labels []string
		for label := range got.labels {
			labels = append(labels, label)
		}
		slices.Sort(labels)
		if sorted := slices.Sorted(slices.Values(want.Labels)); !slices.Equal(labels, sorted) {
			t.Errorf("%s: labels %v, declared %v", got.name, labels, sorted)
		}
	}
	for name := range declared {
		if !registered[name] {
			t.Errorf("%s is in All and not registered", name)
		}
	}
}

// A label whose values are not bounded, such as a pod's or a node's name, would grow without end.
func TestAll_HasBoundedLabelsOnly(t *testing.T) {
	bounded := []string{"pool", "state", "phase", "instance_type", "capacity_type", "reason"}
	for _, metric := range All {
		if metric.Help == "" || !strings.HasPrefix(metric.Name, "gpufleet_") {
			t.Errorf("%s: help %q; want a sentence, and the prefix gpufleet_", metric.Name, metric.Help)
		}
		if !slices.Contains(metric.Labels, "pool") {
			t.Errorf("%s has no label pool: ForgetPool cannot remove it", metric.Name)
		}
		for _, label := range metric.Labels {
			if !slices.Contains(bounded, label) {
				t.Errorf("%s has label %s, which is not one of %v", metric.Name, label, bounded)
			}
		}
	}
}

func TestRecording_ShowsInTheSeriesOfItsLabels(t *testing.T) {
	t.Cleanup(func() { ForgetPool("inference") })
	record("inference")
	CountLaunch("inference", "p5.48xlarge", "on-demand", ReasonLaunched)
	CountLaunch("inference", "p5.48xlarge", "spot", "NoCapacity")
	ObserveStartup("inference", PhaseVerified, 30)
	SetPoolGPUs("inference", 16, 0)
	for _, tc := range []struct {
		name       string
		labels     []string
		value, sum float64
	}{
		{"gpufleet_pool_gpus", []string{"pool=inference", "state=verified"}, 16, 0},
		{"gpufleet_pool_gpus", []string{"pool=inference", "state=unverified"}, 0, 0},
		{"gpufleet_launches_total", []string{"pool=inference", "instance_type=p5.48xlarge", "capacity_type=on-demand", "reason=Launched"}, 2, 0},
		{"gpufleet_launches_total", []string{"pool=inference", "instance_type=p5.48xlarge", "capacity_type=spot", "reason=NoCapacity"}, 1, 0},
		{"gpufleet_node_startup_seconds", []string{"pool=inference", "phase=verified"}, 2, 120},
	} {
		got, found := find(t, tc.name, tc.labels...)
		if !found || got.value != tc.value || got.sum != tc.sum {
			t.Errorf("%s%v: found %t, value %g, sum %g; want %g, %g", tc.name, tc.labels, found, got.value, got.sum, tc.value, tc.sum)
		}
	}
}

func TestForgetPool_RemovesEverySeriesOfThePoolAndNoOther(t *testing.T) {
	record("inference")
	record("batch")
	t.Cleanup(func() { ForgetPool("batch") })
	others := 0
	ForgetPool("inference")
	for _, each := range scrape(t) {
		switch each.labels["pool"] {
		case "inference":
			t.Errorf("%s%v is still there", each.name, each.labels)
		case "batch":
			others++
		}
	}
	if want := 2 + 1 + 1; others != want { // two states, a launch, a startup
		t.Errorf("the other pool has %d series, want %d", others, want)
	}
}

func TestRegister_RefusesASecondTime(t *testing.T) {
	if err := Register(); err == nil {
		t.Error("registering twice is no error")
	}
}
