package metrics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
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
	// lines are what the series takes in a scrape: a histogram has its buckets, +Inf, sum and count.
	lines int
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
			each := series{name: family.GetName(), help: family.GetHelp(), labels: map[string]string{}, lines: 1}
			if histogram := metric.GetHistogram(); histogram != nil {
				each.lines = len(histogram.GetBucket()) + 3
			}
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

// limited is a bound of a pool that is limited.
func limited(limit string, value, used, headroom float64, reached bool) Bound {
	return Bound{Limit: limit, Used: used, Value: &value, Headroom: &headroom, Reached: reached}
}

// record makes one series of each metric for a pool.
func record(pool string) {
	SetPoolGPUs(pool, 8, 1)
	SetPoolBounds(pool, limited("GPUs", 8, 8, 0, true))
	SetPoolHourlyCost(pool, 55.04)
	SetPoolHolds(pool, Held{Reason: "LimitReached", Pods: 60, GPUs: 9, Oldest: time.Minute})
	SetPoolBlocks(pool, Block{Resource: "nvidia.com/gpu", Free: 8, Largest: 2, Ratio: 0.75})
	CountLaunch(pool, "p5.48xlarge", "on-demand", ReasonLaunched)
	ObserveStartup(pool, PhaseVerified, 90)
	CountNotification("oncall", ResultSent)
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
	bounded := []string{"pool", "state", "phase", "instance_type", "capacity_type", "reason", "limit", "resource", "webhook", "result"}
	// Of the configuration, and not of any pool.
	ofNoPool := []string{Notifications.Name}
	for _, metric := range All {
		if metric.Help == "" || !strings.HasPrefix(metric.Name, "gpufleet_") {
			t.Errorf("%s: help %q; want a sentence, and the prefix gpufleet_", metric.Name, metric.Help)
		}
		if !slices.Contains(metric.Labels, "pool") && !slices.Contains(ofNoPool, metric.Name) {
			t.Errorf("%s has no label pool: ForgetPool cannot remove it", metric.Name)
		}
		for _, label := range metric.Labels {
			if !slices.Contains(bounded, label) {
				t.Errorf("%s has label %s, which is not one of %v", metric.Name, label, bounded)
			}
		}
	}
}

func TestSetPoolBlocks_ForgetsAResourceThatThePoolOffersNoMore(t *testing.T) {
	t.Cleanup(func() { ForgetPool("inference") })
	SetPoolBlocks("inference", Block{Resource: "nvidia.com/gpu", Free: 8, Largest: 2, Ratio: 0.75}, Block{Resource: "nvidia.com/mig-1g.10gb", Free: 1, Largest: 1})
	SetPoolBlocks("inference", Block{Resource: "nvidia.com/gpu", Free: 4, Largest: 4})
	for _, metric := range []string{"gpufleet_pool_free", "gpufleet_pool_largest_free_block", "gpufleet_pool_fragmentation_ratio"} {
		if _, still := find(t, metric, "pool=inference", "resource=nvidia.com/mig-1g.10gb"); still {
			t.Errorf("%s still has the slices", metric)
		}
	}
	for metric, want := range map[string]float64{"gpufleet_pool_free": 4, "gpufleet_pool_largest_free_block": 4, "gpufleet_pool_fragmentation_ratio": 0} {
		if got, found := find(t, metric, "pool=inference", "resource=nvidia.com/gpu"); !found || got.value != want {
			t.Errorf("%s is %g (found %t), want %g", metric, got.value, found, want)
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
	SetPoolBounds("inference", limited("GPUs", 16, 8, 8, false), limited("HourlyCost", 110.08, 55.04, 55.04, true), Bound{Limit: "Nodes", Used: 1})
	SetPoolHourlyCost("inference", 110.08)
	SetPoolHolds("inference", Held{Reason: "LimitReached", Pods: 3, GPUs: 2, Oldest: 90 * time.Second}, Held{Reason: "QuotaExceeded", Pods: 1, GPUs: 8})
	for _, tc := range []struct {
		name       string
		labels     []string
		value, sum float64
	}{
		{"gpufleet_pool_gpus", []string{"pool=inference", "state=verified"}, 16, 0},
		{"gpufleet_pool_gpus", []string{"pool=inference", "state=unverified"}, 0, 0},
		{"gpufleet_pool_limit", []string{"pool=inference", "limit=GPUs"}, 16, 0},
		{"gpufleet_pool_used", []string{"pool=inference", "limit=GPUs"}, 8, 0},
		{"gpufleet_pool_headroom", []string{"pool=inference", "limit=GPUs"}, 8, 0},
		{"gpufleet_pool_limit_reached", []string{"pool=inference", "limit=GPUs"}, 0, 0},
		{"gpufleet_pool_limit", []string{"pool=inference", "limit=HourlyCost"}, 110.08, 0},
		{"gpufleet_pool_headroom", []string{"pool=inference", "limit=HourlyCost"}, 55.04, 0},
		{"gpufleet_pool_limit_reached", []string{"pool=inference", "limit=HourlyCost"}, 1, 0},
		{"gpufleet_pool_used", []string{"pool=inference", "limit=Nodes"}, 1, 0},
		{"gpufleet_pool_hourly_cost_dollars", []string{"pool=inference"}, 110.08, 0},
		{"gpufleet_pool_held_pods", []string{"pool=inference", "reason=LimitReached"}, 3, 0},
		{"gpufleet_pool_held_pods", []string{"pool=inference", "reason=QuotaExceeded"}, 1, 0},
		{"gpufleet_pool_held_oldest_seconds", []string{"pool=inference", "reason=LimitReached"}, 90, 0},
		{"gpufleet_pool_held_oldest_seconds", []string{"pool=inference", "reason=QuotaExceeded"}, 0, 0},
		{"gpufleet_pool_held_gpus", []string{"pool=inference"}, 10, 0},
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
	// two states; a limit, used, headroom, reached; a cost; held pods, GPUs, oldest; free, largest, ratio; a launch, a startup
	if want := 2 + 4 + 1 + 3 + 3 + 1 + 1; others != want {
		t.Errorf("the other pool has %d series, want %d", others, want)
	}
}

func TestSetPoolBounds_RemovesTheSeriesOfALimitThatWasLifted(t *testing.T) {
	t.Cleanup(func() { ForgetPool("inference") })
	SetPoolBounds("inference", limited("GPUs", 8, 8, 0, true), limited("Nodes", 4, 1, 3, false))
	SetPoolBounds("inference", Bound{Limit: "GPUs", Used: 8}, limited("Nodes", 4, 1, 3, false))
	for _, name := range []string{"gpufleet_pool_limit", "gpufleet_pool_headroom", "gpufleet_pool_limit_reached"} {
		if got, found := find(t, name, "pool=inference", "limit=GPUs"); found {
			t.Errorf("%s is still %g: a limit that was lifted cannot be reached", name, got.value)
		}
		if _, found := find(t, name, "pool=inference", "limit=Nodes"); !found {
			t.Errorf("%s of the other limit is gone", name)
		}
	}
	if got, found := find(t, "gpufleet_pool_used", "pool=inference", "limit=GPUs"); !found || got.value != 8 {
		t.Errorf("used: found %t, %g; want 8, limited or not", found, got.value)
	}
}

// Fewer than 200 series a pool is the promise. The count is of everything that a pool of four instance types can show at
// once: every state, limit, reason for a hold, phase, and outcome of a launch on each type and capacity type.
func TestC71_APoolHasFewerThan200Series(t *testing.T) {
	const pool = "busy"
	t.Cleanup(func() { ForgetPool(pool) })
	SetPoolGPUs(pool, 1, 1)
	for _, limit := range []string{"GPUs", "Nodes", "HourlyCost"} {
		SetPoolBounds(pool, limited(limit, 8, 8, 0, true))
	}
	SetPoolHourlyCost(pool, 1)
	SetPoolBlocks(pool, Block{Resource: "nvidia.com/gpu"}, Block{Resource: "nvidia.com/mig-1g.10gb"}, Block{Resource: "nvidia.com/mig-3g.40gb"})
	// As many as the closed list of reasons for a hold has; 12 000 pods come and go behind them.
	holds := make([]Held, len(v1alpha1.HoldReasons))
	for pods := range 12_000 {
		for i := range holds {
			holds[i] = Held{Reason: fmt.Sprintf("Reason%d", i), Pods: pods, GPUs: pods, Oldest: time.Minute}
		}
		SetPoolHolds(pool, holds...)
	}
	for _, phase := range []string{PhaseJoined, PhaseIdentified, PhaseVerified} {
		ObserveStartup(pool, phase, 90)
	}
	outcomes := []string{ReasonLaunched, "NoCapacity", "QuotaExceeded", "ReservationUnavailable", "Unauthorised", "Invalid", "Throttled", "Transient", "TokenReused"}
	for _, instanceType := range []string{"g6.xlarge", "g6.12xlarge", "p4d.24xlarge", "p5.48xlarge"} {
		for _, capacityType := range []string{"on-demand", "spot"} {
			for _, outcome := range outcomes {
				CountLaunch(pool, instanceType, capacityType, outcome)
			}
		}
	}
	total := 0
	for _, each := range scrape(t) {
		if each.labels["pool"] == pool {
			total += each.lines
		}
	}
	// 2 states; 4 x 3 limits; 1 cost; 16 held, 16 oldest, 1 GPUs; 3 x 3 blocks; 3 x 15 startup; 4 x 2 x 9 launches
	if want := 2 + 12 + 1 + 33 + 9 + 45 + 72; total != want {
		t.Errorf("%d series, want %d", total, want)
	}
	if total >= 200 {
		t.Errorf("%d series, want fewer than 200", total)
	}
}

func TestRegister_RefusesASecondTime(t *testing.T) {
	if err := Register(); err == nil {
		t.Error("registering twice is no error")
	}
}

func TestNotifications_BeginAtZero(t *testing.T) {
	ExpectNotifications("audit")
	CountNotification("audit", ResultFailed)
	for result, want := range map[string]float64{ResultSent: 0, ResultFailed: 1, ResultDropped: 0} {
		if got, found := find(t, Notifications.Name, "webhook=audit", "result="+result); !found || got.value != want {
			t.Errorf("%s: found %t, %g; want %g", result, found, got.value, want)
		}
	}
}
