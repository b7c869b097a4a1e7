package holds

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// held is what is held back from a pool: its reasons, the one with the most pods first.
type held []diagnose.Hold

// of is the hold of a reason; nil where it holds no pod.
func (h held) of(reason string) *diagnose.Hold {
	at := slices.IndexFunc(h, func(one diagnose.Hold) bool { return one.Reason == reason })
	if at < 0 {
		return nil
	}
	return &h[at]
}

// status is the pool's list of holds.
func (h held) status() []v1alpha1.Hold {
	var holds []v1alpha1.Hold
	for _, one := range h {
		holds = append(holds, v1alpha1.Hold{
			Reason: one.Reason, Pods: int32(len(one.Pods)), GPUs: int32(one.GPUs), Since: metav1.NewTime(one.Since), Message: one.Message,
		})
	}
	return holds
}

// metrics are those of every reason, with zeros where it holds nothing.
func (h held) metrics(now time.Time) []metrics.Held {
	all := make([]metrics.Held, len(v1alpha1.HoldReasons))
	for i, reason := range v1alpha1.HoldReasons {
		all[i].Reason = reason.Name
		if one := h.of(reason.Name); one != nil {
			all[i].Pods, all[i].GPUs, all[i].Oldest = len(one.Pods), int(one.GPUs), now.Sub(one.Since)
		}
	}
	return all
}

// measure sets the metrics of a pool.
func measure(seen looked, h held, now time.Time) {
	usage, pool := seen.pool.Usage, seen.pool.Name
	metrics.SetPoolHolds(pool, h.metrics(now)...)
	if !usage.Ready {
		return // that nothing is used would be a lie
	}
	headroom := usage.Headroom()
	bounds := []metrics.Bound{
		{Limit: string(ledger.GPUs), Used: float64(usage.Steady.GPUs), Value: number(usage.Limits.GPUs), Headroom: number(headroom.GPUs)},
		{Limit: string(ledger.Nodes), Used: float64(usage.Steady.Nodes), Value: number(usage.Limits.Nodes), Headroom: number(headroom.Nodes)},
		{Limit: string(ledger.HourlyCost), Used: usage.Steady.HourlyCost.PerHour(), Value: perHour(usage.Limits.HourlyCost), Headroom: perHour(headroom.HourlyCost)},
	}
	if one := h.of(v1alpha1.HoldLimitReached); one != nil {
		for i := range bounds {
			bounds[i].Reached = slices.Contains(one.Limits, ledger.Limit(bounds[i].Limit))
		}
	}
	metrics.SetPoolBounds(pool, bounds...)
	metrics.SetPoolHourlyCost(pool, usage.Outstanding.HourlyCost.PerHour())
	var blocks []metrics.Block
	for _, block := range seen.blocks {
		blocks = append(blocks, metrics.Block{Resource: string(block.Resource), Free: block.Free, Largest: block.Largest, Ratio: block.Ratio()})
	}
	metrics.SetPoolBlocks(pool, blocks...)
}

func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func perHour(m *ledger.Money) *float64 {
	if m == nil {
		return nil
	}
	return new(m.PerHour())
}
