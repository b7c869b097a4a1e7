package holds

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// memory is since when the pods of each pool can be expected to be placed. A pod that begins to be expected gets the time
// that a launch takes, however long a limit held it before.
type memory struct {
	mu    sync.Mutex // guards since
	since map[string]map[types.UID]time.Time
}

func newMemory() *memory { return &memory{since: map[string]map[types.UID]time.Time{}} }

// of are the times of some pods of a pool. One that is new, or was held until now, is expected from now on.
func (m *memory) of(pool string, pods []*corev1.Pod, now time.Time) map[types.UID]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.since[pool]
	if known == nil {
		// After a restart the pods' own times are all that there is.
		return nil
	}
	times := make(map[types.UID]time.Time, len(pods))
	for _, pod := range pods {
		since, found := known[pod.UID]
		if !found {
			since = now
		}
		times[pod.UID] = since
	}
	return times
}

// keep remembers the pods that are expected, or that were for too long, and forgets all others of the pool.
func (m *memory) keep(pool string, verdicts []diagnose.Verdict, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, after := m.since[pool], map[types.UID]time.Time{}
	for _, v := range verdicts {
		since, known := before[v.Pod.UID]
		switch {
		case v.Held() && !v.Overdue:
			continue
		case !known && before == nil:
			since = v.Since
		case !known:
			since = now
		}
		after[v.Pod.UID] = since
	}
	m.since[pool] = after
}

// forget drops a pool that is gone.
func (m *memory) forget(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, pool)
}
