package holds

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// memory is since when the pods of each pool can be expected to be placed. A pod that begins to be expected gets the time
// that a launch takes, however long a limit held it before; so does every pod at the first look after a start.
type memory struct {
	mu    sync.Mutex // guards what follows
	since map[string]map[types.UID]patience
	// uncounted is since when the ledger has not counted a pool.
	uncounted map[string]time.Time
}

// patience is what one pod has had of it.
type patience struct {
	// expected is since when it can be expected to be placed, not counting the time of machines that have not joined.
	expected time.Time
	// joining is since when such machines have been expected to take it, one after the other; zero where none has.
	joining time.Time
}

func newMemory() *memory {
	return &memory{since: map[string]map[types.UID]patience{}, uncounted: map[string]time.Time{}}
}

// notCounted says for how long the ledger has not counted a pool.
func (m *memory) notCounted(pool string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, known := m.uncounted[pool]
	if !known {
		since = now
		m.uncounted[pool] = since
	}
	return now.Sub(since)
}

// counted forgets that a pool was not counted.
func (m *memory) counted(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.uncounted, pool)
}

// tell puts into a cluster what is remembered of some pods of a pool. One that is new, or was held until now, is expected
// from now on.
func (m *memory) tell(cluster *diagnose.Cluster, pool string, pods []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cluster.Expected, cluster.Joining = make(map[types.UID]time.Time, len(pods)), map[types.UID]time.Time{}
	for _, pod := range pods {
		known := m.since[pool][pod.UID]
		if known.expected.IsZero() {
			known.expected = cluster.Now
		}
		cluster.Expected[pod.UID] = known.expected
		if !known.joining.IsZero() {
			cluster.Joining[pod.UID] = known.joining
		}
	}
}

// keep remembers the pods that are expected, or that were for too long, and forgets all others of the pool.
func (m *memory) keep(pool string, verdicts []diagnose.Verdict, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := map[types.UID]patience{}
	for _, v := range verdicts {
		if v.Held() && !v.Overdue && !v.Joining {
			continue
		}
		one := m.since[pool][v.Pod.UID]
		if one.expected.IsZero() || v.Joining {
			one.expected = now
		}
		if one.joining.IsZero() && v.Joining {
			one.joining = now
		}
		after[v.Pod.UID] = one
	}
	m.since[pool] = after
}

// forget drops a pool that is gone.
func (m *memory) forget(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, pool)
	delete(m.uncounted, pool)
}
