package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// silence is how long a hold is believed that nobody speaks of: a look comes every few seconds while pods wait.
const silence = 10 * time.Minute

// about is what a webhook is told of at most once at a time.
type about struct {
	pool, reason string
}

// step is what is told next of a topic.
type step int

const (
	nothing step = iota
	beginning
	reminder
	ending
)

// topic is what one webhook is told, and is still to be told, of one reason of one pool.
type topic struct {
	// latest is what was last said while it held.
	latest Notice
	held   bool
	// epilogue is the message with which it ended.
	epilogue string
	// began is when the hold was first heard of, since when the first of its pods had begun to wait.
	began, since time.Time
	// changed is when held became what it is, heard when anything was last said.
	changed, heard time.Time
	// told is when the webhook was last told that it holds; zero: never.
	told      time.Time
	reminders int
	// tried is when the last attempt to tell it began, sending that one is under way.
	tried   time.Time
	sending bool
}

func newTopic(notice Notice, now time.Time) *topic {
	t := &topic{latest: notice, held: true, began: now, since: notice.Since, changed: now, heard: now}
	if t.since.IsZero() {
		t.since = now
	}
	return t
}

func (t *topic) hear(notice Notice, now time.Time) {
	t.heard = now
	if t.held != notice.Held {
		t.held, t.changed = notice.Held, now
	}
	if notice.Held {
		t.latest = notice
	} else {
		t.epilogue = notice.Message
	}
}

// over says that there is nothing left to tell: it ended before anybody was told that it began.
func (t *topic) over() bool { return !t.held && t.told.IsZero() && !t.sending }

// forgotten says that nobody speaks of it any more.
func (t *topic) forgotten(now time.Time) bool {
	return t.held && !t.sending && now.Sub(t.heard) >= silence
}

// next is what is to be told next, and from when on.
func (t *topic) next(w Webhook) (step, time.Time) {
	switch {
	case t.sending || t.over():
		return nothing, time.Time{}
	case !t.held:
		return ending, t.changed.Add(w.MinHeld)
	case t.told.IsZero():
		return beginning, t.began.Add(w.MinHeld)
	case w.Repeat > 0:
		return reminder, t.told.Add(w.Repeat)
	}
	return nothing, time.Time{}
}

// message is the notice of a step.
func (t *topic) message(s step, cluster string) message {
	m := message{
		Status: statusHeld, Cluster: cluster, Pool: t.latest.Pool, Workload: t.latest.Workload, Reason: t.latest.Reason,
		Pods: t.latest.Pods, GPUs: t.latest.GPUs, Since: t.latest.Since, Time: t.heard,
		Message: t.latest.Message, Remedy: t.latest.Remedy, Command: t.latest.Command,
	}
	if m.Since.IsZero() {
		m.Since = t.since
	}
	switch s {
	case reminder:
		m.Reminder = t.reminders + 1
	case ending:
		m.Status, m.Pods, m.GPUs, m.Message, m.Remedy = statusEnded, 0, 0, t.epilogue, ""
		m.Since, m.Time = t.since, t.changed
	}
	m.Since, m.Time = m.Since.UTC().Truncate(time.Second), m.Time.UTC().Truncate(time.Second)
	m.ID = t.id(m)
	return m
}

// id is the same for each attempt to tell the same, and another for each hold: when it was first heard of is part of it.
func (t *topic) id(m message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %s %d", m.Cluster, m.Pool, m.Reason, t.began.UnixNano(), m.Status, m.Reminder))
	return hex.EncodeToString(sum[:16])
}

// tell takes note that a step was told. It returns the topic that goes on; nil where none does.
func (t *topic) tell(s step, now time.Time) *topic {
	switch {
	case s != ending:
		t.told = now
		if s == reminder {
			t.reminders++
		}
		return t
	case !t.held:
		return nil
	}
	// It came back while its end was being told: another hold.
	again := newTopic(t.latest, t.changed)
	again.heard = t.heard
	return again
}
