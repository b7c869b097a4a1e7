package notify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

var errDown = errors.New("down")

// desk is a webhook at explicit times, without a goroutine or a server.
type desk struct {
	*webhook
	logs *told
	now  time.Time
	// fails is what comes of each notice that is sent.
	fails error
	// sent are the notices, as "+1m0s held" with the time since the beginning.
	sent []string
	// letters are the same.
	letters []letter
}

func newDesk(config Webhook) *desk {
	logs := &told{}
	return &desk{webhook: newWebhook(config, "prod", logs.logger(), clocktesting.NewFakeClock(began)), logs: logs, now: began}
}

// say is one look.
func (d *desk) say(notices ...Notice) {
	for _, each := range notices {
		d.webhook.hear(each, d.now)
	}
	d.flush()
}

// flush sends all that is due, and returns when something will be.
func (d *desk) flush() time.Time {
	for range 10_000 {
		l, again := d.next(d.now)
		if l == nil {
			return again
		}
		d.note(l)
		d.webhook.sent(l, d.fails, d.now)
	}
	panic("10,000 notices at one moment")
}

func (d *desk) note(l *letter) {
	what := l.Status
	if l.Reminder > 0 {
		what = fmt.Sprintf("reminder %d", l.Reminder)
	}
	d.sent, d.letters = append(d.sent, fmt.Sprintf("+%s %s", d.now.Sub(began), what)), append(d.letters, *l)
}

// during looks every 30 s for a while, and finds the same each time. In between it sends what comes due, as run does.
func (d *desk) during(span time.Duration, notices ...Notice) {
	end := d.now.Add(span)
	for look := d.now; ; look = look.Add(30 * time.Second) {
		for until := earliest(look, end); ; {
			again := d.flush()
			if again.IsZero() || again.After(until) {
				d.now = until
				break
			}
			d.now = again
		}
		d.say(notices...)
		if !look.Before(end) {
			return
		}
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (d *desk) want(t *testing.T, sent ...string) {
	t.Helper()
	if diff := cmp.Diff(sent, d.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func TestAHold_IsToldOnceWhenItHasLastedForMinHeld(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(59*time.Second, full("inference", 60))
	d.want(t)
	d.during(3*time.Hour, full("inference", 60))
	d.want(t, "+1m0s held")
}

func TestMinHeldOfZero_TellsAtOnce(t *testing.T) {
	config := oncall(t)
	config.MinHeld = 0
	d := newDesk(config)
	d.say(full("inference", 1))
	d.say(free("inference"))
	d.want(t, "+0s held", "+0s ended")
}

func TestABurstThatResolvesItself_WakesNobody(t *testing.T) {
	d := newDesk(oncall(t))
	for range 10 {
		d.during(50*time.Second, full("inference", 60))
		d.during(10*time.Second, free("inference"))
	}
	d.during(time.Hour, free("inference"))
	d.want(t)
	if n := len(d.topics); n != 0 {
		t.Errorf("%d holds are remembered that are over and that nobody was told of", n)
	}
	if n := counted(t, d.Name, metrics.ResultDropped); n != 0 {
		t.Errorf("%d dropped; nobody was to be told of them", n)
	}
}

func TestAHoldThatLasts_IsRemindedOfEveryRepeat(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(9*time.Hour, full("inference", 60))
	d.want(t, "+1m0s held", "+4h1m0s reminder 1", "+8h1m0s reminder 2")

	config := oncall(t)
	config.Repeat = 0
	d = newDesk(config)
	d.during(9*time.Hour, full("inference", 60))
	d.want(t, "+1m0s held")
}

func TestTheEnd_IsToldOnceIfTheBeginningWas(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(10*time.Minute, full("inference", 60))
	d.during(59*time.Second, free("inference"))
	d.want(t, "+1m0s held")
	d.during(5*time.Hour, free("inference"))
	d.want(t, "+1m0s held", "+11m0s ended")
	if n := len(d.topics); n != 0 {
		t.Errorf("%d holds are remembered of which all is told", n)
	}
}

func TestAHoldThatComesBackSoon_GoesOn(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(10*time.Minute, full("inference", 60))
	for range 20 {
		d.during(50*time.Second, free("inference"))
		d.during(10*time.Second, full("inference", 60))
	}
	d.during(10*time.Minute, free("inference"))
	d.want(t, "+1m0s held", "+31m0s ended")
}

func TestAHoldThatComesBackLater_IsAnother(t *testing.T) {
	d := newDesk(oncall(t))
	for range 2 {
		d.during(10*time.Minute, full("inference", 60))
		d.during(10*time.Minute, free("inference"))
	}
	d.want(t, "+1m0s held", "+11m0s ended", "+21m0s held", "+31m0s ended")
	ids := map[string]bool{}
	for _, each := range d.letters {
		ids[each.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d ids of 4 notices: a receiver that drops what it has seen would drop one: %v", len(ids), ids)
	}
}

func TestANotice_TellsTheLatestState(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(30*time.Second, full("inference", 1))
	d.during(29*time.Second, full("inference", 40))
	d.now = d.now.Add(time.Second)
	d.say(full("inference", 60))
	d.during(10*time.Minute, full("inference", 7))
	d.say(free("inference"))
	d.now = d.now.Add(2 * time.Minute)
	d.say()
	d.want(t, "+1m0s held", "+13m0s ended")
	want := message{
		ID: d.letters[0].ID, Status: "held", Cluster: "prod", Pool: "inference", Workload: "Inference", Reason: "LimitReached", Pods: 60, GPUs: 60,
		Since: began, Time: began.Add(time.Minute), Message: full("inference", 60).Message, Remedy: full("", 0).Remedy,
		Command: "kubectl gpufleet explain pool inference",
	}
	if diff := cmp.Diff(want, d.letters[0].message); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	// The end is told of a hold that nobody says anything more of than that it ended: since, and when it did.
	want.ID, want.Status, want.Pods, want.GPUs, want.Time, want.Message, want.Remedy = d.letters[1].ID, "ended", 0, 0, began.Add(11*time.Minute), free("").Message, ""
	if diff := cmp.Diff(want, d.letters[1].message); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

func TestAHoldThatNobodySpeaksOf_IsForgotten(t *testing.T) {
	for name, lasted := range map[string]time.Duration{"told": 5 * time.Minute, "not told": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(oncall(t))
			d.during(lasted, full("inference", 60))
			before := slices.Clone(d.sent)
			d.now = d.now.Add(silence)
			d.flush()
			d.now = d.now.Add(8 * time.Hour)
			d.flush()
			d.want(t, before...)
			if n := len(d.topics); n != 0 {
				t.Errorf("%d holds are remembered", n)
			}
		})
	}
}

func TestReasonsAndPools_SayWhoHearsOfWhat(t *testing.T) {
	quota := full("batch", 1)
	quota.Reason = v1alpha1.HoldQuotaExceeded
	all := []Notice{full("inference", 1), full("batch", 1), quota}
	for _, tc := range []struct {
		name           string
		reasons, pools []string
		want           []string
	}{
		{"all", nil, nil, []string{"batch LimitReached", "batch QuotaExceeded", "inference LimitReached"}},
		{"a reason", []string{"QuotaExceeded"}, nil, []string{"batch QuotaExceeded"}},
		{"a pool", nil, []string{"batch"}, []string{"batch LimitReached", "batch QuotaExceeded"}},
		{"both", []string{"LimitReached", "NoCapacity"}, []string{"inference", "research"}, []string{"inference LimitReached"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := oncall(t)
			config.Reasons, config.Pools = tc.reasons, tc.pools
			d := newDesk(config)
			d.during(2*time.Minute, all...)
			var got []string
			for _, each := range d.letters {
				got = append(got, each.Pool+" "+each.Reason)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFailure_IsTriedAgainAfterARestThatGrows(t *testing.T) {
	d := newDesk(oncall(t))
	d.fails = errDown
	d.during(70*time.Minute, full("inference", 60))
	d.want(t, "+1m0s held", "+2m0s held", "+4m0s held", "+8m0s held", "+16m0s held", "+31m0s held", "+46m0s held", "+1h1m0s held")
	for _, each := range d.letters {
		if each.ID != d.letters[0].ID {
			t.Errorf("another attempt of the same notice has id %s, want %s", each.ID, d.letters[0].ID)
		}
	}
	d.fails, d.sent = nil, nil
	d.during(time.Hour, full("inference", 60))
	d.want(t, "+1h16m0s held")
	// The next failure rests from the beginning.
	d.fails, d.sent = errDown, nil
	d.during(3*time.Minute, free("inference"))
	d.want(t, "+2h11m0s ended", "+2h12m0s ended")
}

func TestANoticeThatIsRefused_HoldsNoOtherBack(t *testing.T) {
	d := newDesk(oncall(t))
	d.now = d.now.Add(time.Minute)
	d.webhook.hear(full("bad", 1), began)
	d.webhook.hear(full("good", 1), began)
	l, _ := d.next(d.now)
	if l == nil || l.Pool != "bad" {
		t.Fatalf("first is %+v, want pool bad", l)
	}
	d.webhook.sent(l, errDown, d.now)
	if l, again := d.next(d.now); l != nil || !again.Equal(d.now.Add(firstRest)) {
		t.Errorf("while it rests: %+v, look again at %s; want none until %s", l, again, d.now.Add(firstRest))
	}
	d.now = d.now.Add(firstRest)
	if l, _ := d.next(d.now); l == nil || l.Pool != "good" {
		t.Errorf("after the rest: %+v, want pool good", l)
	}
}

func TestAHoldThatIsOverBeforeItCouldBeSent_IsDroppedAndCounted(t *testing.T) {
	d := newDesk(oncall(t))
	d.fails = errDown
	d.during(5*time.Minute, full("inference", 60))
	d.fails, d.sent = nil, nil
	d.during(time.Hour, free("inference"))
	d.want(t)
	if n := counted(t, d.Name, metrics.ResultDropped); n != 1 {
		t.Errorf("%d dropped, want 1", n)
	}
	if !strings.Contains(d.logs.String(), "over before it could be sent") {
		t.Errorf("nothing says so:\n%s", d.logs)
	}
}

func TestWhatChangesWhileANoticeIsOnItsWay(t *testing.T) {
	minute := func(n int) time.Time { return began.Add(time.Duration(n) * time.Minute) }
	t.Run("it ends, and the notice arrives: the end is told", func(t *testing.T) {
		d := newDesk(oncall(t))
		d.hear(full("inference", 1), began)
		l, _ := d.next(minute(1))
		d.hear(free("inference"), minute(2))
		d.webhook.sent(l, nil, minute(3))
		if l, _ := d.next(minute(3)); l == nil || l.Status != statusEnded {
			t.Errorf("next is %+v, want the end", l)
		}
	})
	t.Run("it ends, and the notice does not arrive: nothing is told", func(t *testing.T) {
		d := newDesk(oncall(t))
		d.hear(full("inference", 1), began)
		l, _ := d.next(minute(1))
		d.hear(free("inference"), minute(2))
		d.webhook.sent(l, errDown, minute(3))
		if l, _ := d.next(minute(30)); l != nil {
			t.Errorf("next is %+v, want nothing", l)
		}
		if n := counted(t, d.Name, metrics.ResultDropped); n != 1 {
			t.Errorf("%d dropped, want 1", n)
		}
	})
	t.Run("it comes back while its end is told: another hold", func(t *testing.T) {
		d := newDesk(oncall(t))
		d.hear(full("inference", 1), began)
		first, _ := d.next(minute(1))
		d.webhook.sent(first, nil, minute(1))
		d.hear(free("inference"), minute(2))
		end, _ := d.next(minute(3))
		d.hear(full("inference", 5), minute(4))
		d.webhook.sent(end, nil, minute(5))
		l, _ := d.next(minute(5))
		if l == nil || l.Status != statusHeld || l.Reminder != 0 || l.Pods != 5 || l.ID == first.ID {
			t.Errorf("next is %+v, want the beginning of another hold of 5 pods", l)
		}
	})
	t.Run("it comes back while its end cannot be told: it goes on", func(t *testing.T) {
		d := newDesk(oncall(t))
		d.hear(full("inference", 1), began)
		first, _ := d.next(minute(1))
		d.webhook.sent(first, nil, minute(1))
		d.hear(free("inference"), minute(2))
		end, _ := d.next(minute(3))
		d.hear(full("inference", 5), minute(4))
		d.webhook.sent(end, errDown, minute(5))
		if l, _ := d.next(minute(9)); l != nil {
			t.Errorf("next is %+v, want nothing", l)
		}
	})
}

func TestMemory_IsBounded(t *testing.T) {
	d := newDesk(oncall(t))
	for i := range 3 * most {
		d.hear(full(fmt.Sprintf("pool-%d", i), 1), began)
		d.hear(free(fmt.Sprintf("other-%d", i)), began)
	}
	if n := len(d.topics); n != most {
		t.Errorf("%d holds are remembered, want %d", n, most)
	}
	if n := counted(t, d.Name, metrics.ResultDropped); n != 2*most {
		t.Errorf("%d dropped, want %d", n, 2*most)
	}
	if n := strings.Count(d.logs.String(), "no room"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	// What is over makes room.
	d.hear(free("pool-0"), began)
	d.hear(full("late", 1), began)
	if d.topics[about{"late", v1alpha1.HoldLimitReached}] == nil {
		t.Error("no room although one is over")
	}
	long := full("inference", 1)
	long.Message = strings.Repeat("é", 100_000)
	if n := len(long.bounded().Message); n > longestText {
		t.Errorf("a text of %d bytes is remembered, want at most %d", n, longestText)
	}
}

// All is in memory: whoever starts anew tells of what holds once more, and then no more.
func TestARestart_TellsOnceMoreOfWhatHoldsAndOfNoEnd(t *testing.T) {
	d := newDesk(oncall(t))
	d.during(10*time.Minute, full("inference", 60), full("batch", 1))
	before := len(d.sent)
	restarted := newDesk(oncall(t))
	restarted.now = d.now
	restarted.during(3*time.Hour, full("inference", 60), free("batch"))
	if before != 2 {
		t.Errorf("%d notices before, want 2", before)
	}
	restarted.want(t, "+11m0s held")
}

// Whatever comes: a receiver hears of a beginning, then of reminders at least repeat apart, then of the end; a beginning
// and an end are true for minHeld; and no id that has arrived comes again.
func TestAnySequence_TellsBeginningRemindersEnd(t *testing.T) {
	config := oncall(t)
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(config)
		var held bool
		changed, told := began, time.Time{}
		delivered := map[string]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			d.now = d.now.Add(time.Duration(rapid.IntRange(1, 300).Draw(t, "seconds")) * time.Second)
			notice := free("inference")
			if rapid.IntRange(0, 3).Draw(t, "held") > 0 {
				notice = full("inference", 1)
			}
			if notice.Held != held {
				held, changed = notice.Held, d.now
			}
			d.fails = nil
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				d.fails = errDown
			}
			n := len(d.letters)
			d.say(notice)
			for _, l := range d.letters[n:] {
				switch {
				case delivered[l.ID]:
					t.Fatalf("%s: %s again", d.now.Sub(began), l.ID)
				case l.Status == statusEnded && (told.IsZero() || held || d.now.Sub(changed) < config.MinHeld):
					t.Fatalf("%s: ended; told %s, held %t since %s", d.now.Sub(began), told, held, changed.Sub(began))
				case l.Status == statusHeld && !held:
					t.Fatalf("%s: held, which it is not", d.now.Sub(began))
				case l.Status == statusHeld && l.Reminder == 0 && (!told.IsZero() || d.now.Sub(changed) < config.MinHeld):
					t.Fatalf("%s: a beginning; told %s, held since %s", d.now.Sub(began), told, changed.Sub(began))
				case l.Reminder > 0 && (told.IsZero() || d.now.Sub(told) < config.Repeat):
					t.Fatalf("%s: reminder %d; told %s", d.now.Sub(began), l.Reminder, told)
				}
				if d.fails != nil {
					continue
				}
				delivered[l.ID] = true
				if told = d.now; l.Status == statusEnded {
					told = time.Time{}
				}
			}
		}
	})
}
