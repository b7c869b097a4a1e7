package holds

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

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
	limit ledger.Limit
	at    time.Time
}

func newEvents(recorder record.EventRecorder, clk clock.PassiveClock) *events {
	return &events{
		recorder: recorder, clock: clk, told: lru.New(remembered),
		pace: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(eventsPerSecond, eventsAtOnce, clk),
	}
}

// tellPods tells each pod that is held which pool and limit hold it. It returns false where the pace left some over.
func (e *events) tellPods(pool string, h held) bool {
	for _, limit := range h.limits {
		for _, each := range limit.pods {
			key, now := about{pod: each.pod.UID, pool: pool}, e.clock.Now()
			last, known := e.told.Get(key)
			if known && last.(telling).limit == limit.refusal.Limit && now.Sub(last.(telling).at) < sayAgain {
				continue
			}
			if !e.pace.TryAccept() {
				return false
			}
			e.recorder.Event(each.pod, corev1.EventTypeWarning, v1alpha1.HoldLimitReached, each.refusal.Error())
			e.told.Add(key, telling{limit: limit.refusal.Limit, at: now})
		}
	}
	return true
}
