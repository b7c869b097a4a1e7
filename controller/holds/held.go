package holds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// limitHold is one limit with the pods that it holds.
type limitHold struct {
	// refusal is that of the smallest machine that one of the pods waits for: raised by so much, the limit frees a pod.
	refusal *ledger.Refusal
	pods    []verdict
}

// held is what the limits of a pool hold back, the limit with the most pods first.
type held struct {
	limits []limitHold
	// gpus are the physical GPUs that the pods would need, since is when the first of them began to wait.
	gpus  int64
	since time.Time
}

// limitOrder is the ledger's.
var limitOrder = []ledger.Limit{ledger.GPUs, ledger.Nodes, ledger.HourlyCost}

func summarize(verdicts []verdict) held {
	var h held
	asked := map[*offer]corev1.ResourceList{}
	for _, each := range verdicts {
		if each.refusal == nil {
			continue
		}
		h.add(each)
		if asked[each.offer] == nil {
			asked[each.offer] = corev1.ResourceList{}
		}
		for name := range each.offer.blueprint.Resources {
			sum := asked[each.offer][name]
			sum.Add(each.requests[name])
			asked[each.offer][name] = sum
		}
	}
	for o, sums := range asked {
		h.gpus += share(o.blueprint, sums)
	}
	slices.SortStableFunc(h.limits, func(a, b limitHold) int {
		if len(a.pods) != len(b.pods) {
			return len(b.pods) - len(a.pods)
		}
		return slices.Index(limitOrder, a.refusal.Limit) - slices.Index(limitOrder, b.refusal.Limit)
	})
	return h
}

func (h *held) add(each verdict) {
	if since := waitingSince(each.pod); h.since.IsZero() || since.Before(h.since) {
		h.since = since
	}
	at := slices.IndexFunc(h.limits, func(l limitHold) bool { return l.refusal.Limit == each.refusal.Limit })
	if at < 0 {
		h.limits = append(h.limits, limitHold{refusal: each.refusal})
		at = len(h.limits) - 1
	}
	limit := &h.limits[at]
	limit.pods = append(limit.pods, each)
	if each.refusal.Asked < limit.refusal.Asked {
		limit.refusal = each.refusal
	}
}

// waitingSince is when the scheduler first found no node for the pod.
func waitingSince(pod *corev1.Pod) time.Time {
	if scheduled := podScheduled(pod); scheduled != nil && !scheduled.LastTransitionTime.IsZero() {
		return scheduled.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// share is the physical GPUs behind an amount of a machine's resources: as much of the machine as the scarcest of them
// takes, rounded up to whole GPUs. 60 slices of a machine that cuts 8 GPUs into 56 are 9 GPUs.
func share(bp v1alpha1.Blueprint, sums corev1.ResourceList) int64 {
	var gpus int64
	for name, has := range bp.Resources {
		sum := sums[name]
		if each := has.Value(); each > 0 {
			gpus = max(gpus, (sum.Value()*int64(bp.GPU.Count)+each-1)/each)
		}
	}
	return gpus
}

func (h held) pods() int {
	pods := 0
	for _, limit := range h.limits {
		pods += len(limit.pods)
	}
	return pods
}

// reason is the condition's: the limit that holds the most.
func (h held) reason() string {
	if len(h.limits) == 0 {
		return v1alpha1.ReasonWithinLimit
	}
	return string(h.limits[0].refusal.Limit)
}

// nothingHeld is the message while no pod is held.
const nothingHeld = "no limit of the pool holds a waiting pod back"

// message says each limit with what it holds: "limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods".
func (h held) message() string {
	if len(h.limits) == 0 {
		return nothingHeld
	}
	parts := make([]string, len(h.limits))
	for i, limit := range h.limits {
		pods := fmt.Sprintf("%d waiting pods", len(limit.pods))
		if len(limit.pods) == 1 {
			pods = "1 waiting pod"
		}
		// The refusal names the pool for whoever reads it elsewhere; here it stands on the pool.
		parts[i] = strings.TrimPrefix(limit.refusal.Error(), "pool "+limit.refusal.Pool+": ")
		if limit.refusal.UnknownPrice {
			parts[i] += " (" + pods + ")"
		} else {
			parts[i] += " for " + pods
		}
	}
	return strings.Join(parts, "; ")
}

// status is the pool's list of holds.
func (h held) status() []v1alpha1.Hold {
	if len(h.limits) == 0 {
		return nil
	}
	return []v1alpha1.Hold{{
		Reason: v1alpha1.HoldLimitReached, Pods: int32(h.pods()), GPUs: int32(h.gpus),
		Since: metav1.NewTime(h.since), Message: h.message(),
	}}
}

// measure sets the metrics of a pool.
func measure(pool string, usage ledger.Usage, h held, now time.Time) {
	var holds []metrics.Held
	for _, reason := range v1alpha1.HoldReasons {
		each := metrics.Held{Reason: reason.Name}
		if reason.Name == v1alpha1.HoldLimitReached && len(h.limits) > 0 {
			each.Pods, each.GPUs, each.Oldest = h.pods(), int(h.gpus), now.Sub(h.since)
		}
		holds = append(holds, each)
	}
	metrics.SetPoolHolds(pool, holds...)

	headroom := usage.Headroom()
	bounds := []metrics.Bound{
		{Limit: string(ledger.GPUs), Used: float64(usage.Steady.GPUs), Value: number(usage.Limits.GPUs), Headroom: number(headroom.GPUs)},
		{Limit: string(ledger.Nodes), Used: float64(usage.Steady.Nodes), Value: number(usage.Limits.Nodes), Headroom: number(headroom.Nodes)},
		{Limit: string(ledger.HourlyCost), Used: usage.Steady.HourlyCost.PerHour(), Value: perHour(usage.Limits.HourlyCost), Headroom: perHour(headroom.HourlyCost)},
	}
	for i := range bounds {
		bounds[i].Reached = slices.ContainsFunc(h.limits, func(l limitHold) bool { return string(l.refusal.Limit) == bounds[i].Limit })
	}
	metrics.SetPoolBounds(pool, bounds...)
	metrics.SetPoolHourlyCost(pool, usage.Outstanding.HourlyCost.PerHour())
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
