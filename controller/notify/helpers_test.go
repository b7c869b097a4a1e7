package notify

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

func TestMain(m *testing.M) {
	if err := metrics.Register(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// full is a pool whose limit holds pods.
func full(pool string, pods int) Notice {
	return Notice{
		Pool: pool, Workload: "Inference", Reason: v1alpha1.HoldLimitReached, Held: true, Pods: pods, GPUs: pods,
		Since:   began,
		Message: fmt.Sprintf("limit gpus 8 is reached: 8 in use, 8 asked for %d waiting pods", pods),
		Remedy:  "raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone",
		Command: "kubectl gpufleet explain pool " + pool,
	}
}

// free is the same pool, with nothing held.
func free(pool string) Notice {
	return Notice{Pool: pool, Workload: "Inference", Reason: v1alpha1.HoldLimitReached, Message: "no limit of the pool holds a waiting pod back any more"}
}

// oncall is a webhook whose name no other test has: metrics are counted by name.
func oncall(t *testing.T) Webhook {
	return Webhook{Name: nameOf(t), Format: FormatGeneric, URLFile: "/nowhere/url", MinHeld: DefaultMinHeld, Repeat: DefaultRepeat}
}

func nameOf(t *testing.T) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "#", "-").Replace(t.Name()))
	return fmt.Sprintf("w%d-%s", names.Add(1), name[max(0, len(name)-40):])
}

var names atomic.Int64

// counted is gpufleet_notifications_total of a webhook and a result; -1 where there is no such series.
func counted(t *testing.T, webhook, result string) int {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != metrics.Notifications.Name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["webhook"] == webhook && labels["result"] == result {
				return int(metric.GetCounter().GetValue())
			}
		}
	}
	return -1
}

// told is what was logged.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (l *told) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
	}, funcr.Options{Verbosity: 10})
}

func (l *told) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// receiver is a server that keeps what it was sent.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
}

// answer says what comes of each request, by its number from 0; nil is 200 for all.
type answer func(n int, w http.ResponseWriter, r *http.Request)

func receive(t *testing.T, answer answer) *receiver {
	t.Helper()
	return listen(t, false, answer)
}

// listen starts a server.
func listen(t *testing.T, encrypted bool, answer answer) *receiver {
	t.Helper()
	got := &receiver{}
	got.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.mu.Lock()
		n := len(got.bodies)
		got.bodies, got.heads = append(got.bodies, string(body)), append(got.heads, r.Header.Clone())
		got.mu.Unlock()
		if answer != nil {
			answer(n, w, r)
		}
	}))
	got.Config.ErrorLog = log.New(io.Discard, "", 0) // what a server says of its clients is not what we say
	if encrypted {
		got.StartTLS()
	} else {
		got.Start()
	}
	t.Cleanup(got.Close)
	return got
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func status(codes ...int) answer {
	return func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(codes[min(n, len(codes)-1)]) }
}

// secret writes a URL into a file, as a mounted Secret has it.
func secret(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// hurry makes a sender wait for nothing, and returns what it would have waited.
func hurry(s *sender) func() []time.Duration {
	var mu sync.Mutex
	var waits []time.Duration
	asked := s.client.Backoff
	s.client.Backoff = func(first, longest time.Duration, attempt int, response *http.Response) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, asked(first, longest, attempt, response))
		return 0
	}
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Duration(nil), waits...)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

// running is a notifier on a clock of the test's, whose retries wait for nothing.
type running struct {
	*Notifier
	clock *clocktesting.FakeClock
	logs  *told
	stop  func()
}

// ready returns one that does not run yet.
func ready(t *testing.T, webhooks ...Webhook) *running {
	t.Helper()
	r := &running{clock: clocktesting.NewFakeClock(began), logs: &told{}, stop: func() {}}
	var err error
	if r.Notifier, err = New(Config{Webhooks: webhooks}, "prod", r.logs.logger(), r.clock); err != nil {
		t.Fatal(err)
	}
	for _, each := range r.webhooks {
		hurry(each.sender)
	}
	return r
}

// start runs it until stop is called, or the test ends.
func (r *running) start(t *testing.T) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Start: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Start did not return within 20 s of its context's end")
		}
	})
	t.Cleanup(r.stop)
	return r
}

// pass lets time go by once a webhook waits for a time.
func (r *running) pass(t *testing.T, d time.Duration) {
	t.Helper()
	eventually(t, "a webhook waits for a time", r.clock.HasWaiters)
	r.clock.Step(d)
}
