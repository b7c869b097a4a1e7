package notify

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// arrived are the notices that a receiver of the generic format got, as "held 60".
func arrived(t *testing.T, r *receiver) []message {
	t.Helper()
	var all []message
	for _, body := range r.got() {
		var m message
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		all = append(all, m)
	}
	return all
}

func TestAHold_ReachesItsReceiverAndSoDoesItsEnd(t *testing.T) {
	got := receive(t, nil)
	config := oncall(t)
	config.URLFile = secret(t, got.URL)
	r := ready(t, config)
	r.Notify(full("inference", 60)) // before it starts
	r.start(t)
	if n := counted(t, config.Name, metrics.ResultFailed); n != 0 {
		t.Errorf("the series of failures is %d before the first, want 0", n)
	}
	r.pass(t, DefaultMinHeld)
	eventually(t, "the beginning arrives", func() bool { return len(got.got()) == 1 })
	r.Notify(free("inference"))
	r.pass(t, DefaultMinHeld)
	eventually(t, "the end arrives", func() bool { return len(got.got()) == 2 })
	eventually(t, "both are counted", func() bool { return counted(t, config.Name, metrics.ResultSent) == 2 })
	all := arrived(t, got)
	if diff := cmp.Diff([]string{"held", "ended"}, []string{all[0].Status, all[1].Status}); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestARetry_HasTheSameID(t *testing.T) {
	got := receive(t, status(500, 429, 200))
	config := oncall(t)
	config.MinHeld, config.URLFile = 0, secret(t, got.URL)
	r := ready(t, config).start(t)
	r.Notify(full("inference", 60))
	eventually(t, "three attempts", func() bool { return len(got.got()) == 3 })
	all := arrived(t, got)
	if all[0].ID == "" || all[0].ID != all[1].ID || all[0].ID != all[2].ID {
		t.Errorf("ids %s, %s, %s", all[0].ID, all[1].ID, all[2].ID)
	}
}

// A receiver that hangs: whoever notifies does not wait, others are told, and when it answers again it hears the latest.
func TestAReceiverThatHangs_HoldsNobodyBack(t *testing.T) {
	release, hanging := make(chan struct{}), atomic.Int32{}
	var most atomic.Int32
	slow := receive(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), hanging.Add(1)))
		defer hanging.Add(-1)
		if n == 0 {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	quick := receive(t, nil)
	hangs, other := oncall(t), oncall(t)
	hangs.Name, other.Name = hangs.Name+"-slow", other.Name+"-quick"
	hangs.MinHeld, other.MinHeld = 0, 0
	hangs.URLFile, other.URLFile = secret(t, slow.URL), secret(t, quick.URL)
	r := ready(t, hangs, other)
	for _, each := range r.webhooks {
		each.sender.client.HTTPClient.Timeout = time.Minute
	}
	r.start(t)

	r.Notify(full("first", 1))
	eventually(t, "one receiver hangs", func() bool { return hanging.Load() == 1 })
	eventually(t, "the other is told", func() bool { return len(quick.got()) == 1 })
	for pods := range 1000 {
		r.Notify(full("second", pods+1))
	}
	r.Notify(full("third", 1))
	r.Notify(free("third"))
	eventually(t, "the other is told of the second", func() bool { return len(quick.got()) >= 2 })
	if n := len(slow.got()); n != 1 {
		t.Errorf("%d requests while one hangs, want 1", n)
	}
	close(release)
	eventually(t, "the receiver hears of both", func() bool { return len(slow.got()) == 2 })
	eventually(t, "both are counted", func() bool { return counted(t, hangs.Name, metrics.ResultSent) == 2 })
	if all := arrived(t, slow); all[1].Pool != "second" || all[1].Pods != 1000 {
		t.Errorf("the second notice is of pool %s, %d pods; want the latest state: second, 1000", all[1].Pool, all[1].Pods)
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d requests at once, want 1", n)
	}
}

func TestStart_ReturnsWhenNothingOfItRuns(t *testing.T) {
	hanging := make(chan struct{}, 1)
	slow := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		hanging <- struct{}{}
		<-r.Context().Done()
	})
	quick := receive(t, nil)
	hangs, waits, idle := oncall(t), oncall(t), oncall(t)
	hangs.Name, waits.Name, idle.Name = hangs.Name+"-a", waits.Name+"-b", idle.Name+"-c"
	hangs.MinHeld, waits.MinHeld = 0, time.Hour
	hangs.URLFile, waits.URLFile, idle.URLFile = secret(t, slow.URL), secret(t, quick.URL), secret(t, quick.URL)
	idle.Pools = []string{"none"}
	r := ready(t, hangs, waits, idle)
	before := ours()
	r.start(t)
	r.Notify(full("inference", 1))
	<-hanging
	eventually(t, "the 3 webhooks run", func() bool { return ours()-before >= 3 })
	r.stop()
	if n := ours() - before; n != 0 {
		t.Errorf("%d goroutines of this package are left", n)
	}
	if n := counted(t, hangs.Name, metrics.ResultFailed); n != 0 {
		t.Errorf("%d failed: a controller that ends has not failed", n)
	}
	if said := r.logs.String(); said != "" {
		t.Errorf("said: %s", said)
	}
}

func TestStart_WaitsForTheNoticeOnItsWay(t *testing.T) {
	got := receive(t, nil)
	config := oncall(t)
	config.MinHeld, config.URLFile = 0, secret(t, got.URL)
	r := ready(t, config)
	entered, leave, left := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	r.webhooks[0].sender.client.CheckRetry = func(context.Context, *http.Response, error) (bool, error) {
		close(entered)
		<-leave
		left.Store(true)
		return false, nil
	}
	r.start(t)
	r.Notify(full("inference", 1))
	<-entered
	time.AfterFunc(50*time.Millisecond, func() { close(leave) })
	r.stop()
	if !left.Load() {
		t.Error("Start returned while a notice was on its way")
	}
}

// ours counts goroutines that run something of the product's files of this package.
func ours() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for _, each := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(each, "notify.(*webhook)") {
			n++
		}
	}
	return n
}

func TestNew_OfNothingTellsNobody(t *testing.T) {
	r := ready(t).start(t)
	r.Notify(full("inference", 1))
	r.stop()
	if !r.NeedLeaderElection() {
		t.Error("each replica would tell")
	}
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	_, err := New(Config{Webhooks: []Webhook{{Name: "a"}}}, "prod", (&told{}).logger(), nil)
	if err == nil || !strings.Contains(err.Error(), "urlFile is missing") {
		t.Errorf("error %v", err)
	}
}
