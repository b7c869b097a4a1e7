package holds

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

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
)

// events tells pods what holds them, each once.
type events struct {
	recorder record.EventRecorder
	clock    clock.PassiveClock
	pace     flowcontrol.PassiveRateLimiter
	told     *lru.Cache
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
			e.recorder.Event(each.Pod, severity(cause.Reason), cause.Reason, cause.Message+"; "+cause.Remedy)
			e.told.Add(key, now)
		}
	}
	return true
}
