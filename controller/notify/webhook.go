package notify

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

const (
	// most bounds what a webhook remembers: holds, one for each reason of each pool.
	most = 4096
	// firstRest and longestRest are how long a webhook rests after a notice that could not be sent, doubled with each in a
	// row: the retries of that notice are then over already.
	firstRest   = time.Minute
	longestRest = 15 * time.Minute
)

// webhook tells one receiver.
type webhook struct {
	Webhook
	cluster string
	logger  logr.Logger
	clock   clock.Clock
	sender  *sender
	// wake says that something began or ended.
	wake chan struct{}

	// mu guards what follows. It is never held while something is sent.
	mu     sync.Mutex
	topics map[about]*topic
	// failures is how many notices in a row could not be sent, rested when the rest after them is over.
	failures int
	rested   time.Time
	// full says that there was no room for the last one that began.
	full bool
}

func newWebhook(config Webhook, cluster string, logger logr.Logger, clk clock.Clock) *webhook {
	metrics.ExpectNotifications(config.Name)
	return &webhook{
		Webhook: config, cluster: cluster, logger: logger, clock: clk, sender: newSender(clk),
		wake: make(chan struct{}, 1), topics: map[about]*topic{},
	}
}

// hear takes note of what holds, or does not.
func (w *webhook) hear(notice Notice, now time.Time) {
	if !w.wants(notice.Pool, notice.Reason) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := about{notice.Pool, notice.Reason}
	known := w.topics[key]
	if known == nil {
		if notice.Held && w.hasRoom(key) {
			w.topics[key] = newTopic(notice, now)
			w.awake()
		}
		return
	}
	before, late := known.held, w.late(known, now)
	known.hear(notice, now)
	if known.over() {
		w.drop(key, late)
	}
	if before != known.held {
		w.awake()
	}
}

// hasRoom says whether one more can be remembered. The caller holds mu.
func (w *webhook) hasRoom(key about) bool {
	if len(w.topics) < most {
		w.full = false
		return true
	}
	metrics.CountNotification(w.Name, metrics.ResultDropped)
	if !w.full {
		w.full = true
		w.logger.Error(errors.New("too many holds at once"), "no room to tell of a hold", "most", most, "pool", key.pool, "reason", key.reason)
	}
	return false
}

// late says that a topic's beginning should have been told by now. The caller holds mu.
func (w *webhook) late(t *topic, now time.Time) bool {
	s, at := t.next(w.Webhook)
	return s == beginning && now.After(at)
}

// drop forgets a topic. The caller holds mu.
func (w *webhook) drop(key about, untold bool) {
	delete(w.topics, key)
	if untold {
		metrics.CountNotification(w.Name, metrics.ResultDropped)
		w.logger.Info("dropped a notice: it was over before it could be sent", "pool", key.pool, "reason", key.reason)
	}
}

func (w *webhook) awake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// letter is one notice on its way.
type letter struct {
	about
	step
	message
}

// next is the notice to send now; or else when to look again, zero being when woken.
func (w *webhook) next(now time.Time) (*letter, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var best *letter
	var bestAt, again time.Time
	sooner := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for key, t := range w.topics {
		if t.forgotten(now) {
			w.drop(key, w.late(t, now))
			continue
		}
		if t.held {
			sooner(t.heard.Add(silence))
		}
		s, at := t.next(w.Webhook)
		switch {
		case s == nothing:
		case at.After(now):
			sooner(at)
		case best == nil || w.before(key, at, best.about, bestAt):
			best, bestAt = &letter{about: key, step: s}, at
		}
	}
	if best != nil && now.Before(w.rested) {
		sooner(w.rested)
		best = nil
	}
	if best == nil {
		return nil, again
	}
	t := w.topics[best.about]
	t.sending, t.tried = true, now
	best.message = t.message(best.step, w.cluster)
	return best, time.Time{}
}

// before orders what is due: what was never tried or tried longest ago goes first, so that one notice that a receiver
// refuses holds no other back. The caller holds mu.
func (w *webhook) before(a about, aAt time.Time, b about, bAt time.Time) bool {
	return cmp.Or(
		w.topics[a].tried.Compare(w.topics[b].tried), aAt.Compare(bAt),
		cmp.Compare(a.pool, b.pool), cmp.Compare(a.reason, b.reason),
	) < 0
}

// sent takes note of what came of a letter.
func (w *webhook) sent(l *letter, failure error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[l.about]
	t.sending = false
	if failure != nil {
		w.rested = now.Add(min(firstRest<<min(w.failures, 8), longestRest))
		w.failures++
		if t.over() {
			w.drop(l.about, true)
		}
		return
	}
	w.failures = 0
	if goesOn := t.tell(l.step, now); goesOn != nil {
		w.topics[l.about] = goesOn
	} else {
		delete(w.topics, l.about)
	}
}

// run sends until the context ends.
func (w *webhook) run(ctx context.Context) {
	if _, err := readURL(w.URLFile); err != nil {
		w.logger.Error(err, "this webhook cannot be told of anything yet")
	}
	for ctx.Err() == nil {
		l, again := w.next(w.clock.Now())
		if l == nil {
			w.await(ctx, again)
			continue
		}
		err := w.send(ctx, l)
		if ctx.Err() != nil && err != nil {
			return
		}
		w.sent(l, err, w.clock.Now())
		if err != nil {
			metrics.CountNotification(w.Name, metrics.ResultFailed)
			w.logger.Error(err, "could not send a notice, it is tried again later", "pool", l.Pool, "reason", l.Reason, "status", l.Status, "id", l.ID)
			continue
		}
		metrics.CountNotification(w.Name, metrics.ResultSent)
		w.logger.Info("sent a notice", "pool", l.Pool, "reason", l.Reason, "status", l.Status, "reminder", l.Reminder, "id", l.ID)
	}
}

func (w *webhook) send(ctx context.Context, l *letter) error {
	body, err := writers[w.Format](l.message)
	if err != nil {
		return err
	}
	return w.sender.send(ctx, w.URLFile, body)
}

// await waits until a time, until something began or ended, or until the context ends.
func (w *webhook) await(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		left := until.Sub(w.clock.Now())
		if left <= 0 {
			return
		}
		timer := w.clock.NewTimer(left)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-w.wake:
	case <-due:
	}
}
