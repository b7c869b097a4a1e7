package holds

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const (
	// sayAgain is how long an event on a pod is enough: the API server keeps events for an hour (kube-apiserver,
	// --event-ttl), and a pod that waits longer should still say why.
	sayAgain = time.Hour
	// remembered bounds how many pods are known to have been told.
	remembered = 20_000
	// eventsPerSecond and eventsAtOnce pace the events on pods. The recorder's queue holds 1,000 (client-go, tools/record)
	// and drops what comes beyond.
	eventsPerSecond = 100
	eventsAtOnce    = 300
	// eventsPerPage is how many events are read at once after a start.
	eventsPerPage = 500
	// annotationLimit says on an event which limit a pod was told of. With the pool, which stands beside it, it is what a new
	// start knows an event by.
	annotationLimit = v1alpha1.Group + "/limit"
)

// events tells pods what holds them, each once.
type events struct {
	recorder record.EventRecorder
	clock    clock.PassiveClock
	pace     flowcontrol.PassiveRateLimiter
	told     *lru.Cache
	// once guards the one look at what was told before the start.
	once sync.Once
}

// about is what an event is about: a pod can be told of each pool that it names.
type about struct {
	pod  types.UID
	pool string
}

type telling struct {
	reason string
	limit  ledger.Limit
	at     time.Time
}

func newEvents(recorder record.EventRecorder, clk clock.PassiveClock) *events {
	return &events{
		recorder: recorder, clock: clk, told: lru.New(remembered),
		pace: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(eventsPerSecond, eventsAtOnce, clk),
	}
}

// recall learns, once, what pods were told before the controller started, so that they are not told again. Where that cannot be
// read they are: it is better to say a thing twice than never.
func (e *events) recall(ctx context.Context, live client.Reader) {
	e.once.Do(func() {
		if err := e.learn(ctx, live); err != nil {
			log.FromContext(ctx).Error(err, "what pods were told before the start is not known, and they are told again")
		}
	})
}

func (e *events) learn(ctx context.Context, live client.Reader) error {
	for next := ""; ; {
		page := &corev1.EventList{}
		err := live.List(ctx, page, client.MatchingFields{"source": v1alpha1.ControllerName}, client.Limit(eventsPerPage), client.Continue(next))
		if err != nil {
			return fmt.Errorf("listing events of %s: %w", v1alpha1.ControllerName, err)
		}
		for i := range page.Items {
			e.note(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// note remembers an event on a pod. Core, which speaks by the same name, writes no pool on its own.
func (e *events) note(event *corev1.Event) {
	pool, ours := event.Annotations[v1alpha1.LabelPool]
	if !ours || event.InvolvedObject.Kind != "Pod" {
		return
	}
	key := about{pod: event.InvolvedObject.UID, pool: pool}
	told := telling{reason: event.Reason, limit: ledger.Limit(event.Annotations[annotationLimit]), at: event.LastTimestamp.Time}
	if last, known := e.told.Get(key); known && last.(telling).at.After(told.at) {
		return
	}
	e.told.Add(key, told)
}

// tellPods tells each pod that is held why, and by which pool. It returns false where the pace left some over.
func (e *events) tellPods(pool string, h held) bool {
	for _, one := range h {
		for _, each := range one.Pods {
			cause := each.Causes[0]
			now := telling{reason: cause.Reason, at: e.clock.Now()}
			if cause.Limit != nil {
				now.limit = cause.Limit.Limit
			}
			key := about{pod: each.Pod.UID, pool: pool}
			if last, known := e.told.Get(key); known {
				before := last.(telling)
				if before.reason == now.reason && before.limit == now.limit && now.at.Sub(before.at) < sayAgain {
					continue
				}
			}
			if !e.pace.TryAccept() {
				return false
			}
			e.recorder.AnnotatedEventf(each.Pod, map[string]string{v1alpha1.LabelPool: pool, annotationLimit: string(now.limit)},
				severity(cause.Reason), cause.Reason, "%s", cause.Message+"; "+cause.Remedy)
			e.told.Add(key, now)
		}
	}
	return true
}
