package holds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// held is what is held back from a pool: a group for each reason, the one with the most pods first.
type held struct {
	groups []*group
}

// group is one reason with the pods that it holds.
type group struct {
	reason string
	// kinds are the causes that are told apart within the reason: the limits of LimitReached, else one.
	kinds []kind
	pods  []diagnose.Verdict
	// gpus are the physical GPUs that the pods would need, since is when the first of them began to wait.
	gpus  int64
	since time.Time
}

// kind is one cause that stands for all of its sort.
type kind struct {
	limit ledger.Limit
	cause diagnose.Cause
	pods  int
}

func summarize(verdicts []diagnose.Verdict) held {
	var h held
	asked := map[*group]map[*diagnose.Offer]corev1.ResourceList{}
	for _, v := range verdicts {
		if !v.Held() {
			continue
		}
		g := h.of(v.Reason())
		if g == nil {
			g = &group{reason: v.Reason(), since: v.Since}
			h.groups = append(h.groups, g)
			asked[g] = map[*diagnose.Offer]corev1.ResourceList{}
		}
		g.add(v)
		addUp(asked[g], v)
	}
	for _, g := range h.groups {
		for offer, sums := range asked[g] {
			g.gpus += offer.Share(sums)
		}
		slices.SortStableFunc(g.kinds, func(a, b kind) int {
			return cmp.Or(cmp.Compare(b.pods, a.pods), cmp.Compare(slices.Index(limitOrder, a.limit), slices.Index(limitOrder, b.limit)))
		})
	}
	slices.SortStableFunc(h.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.pods), len(a.pods)), cmp.Compare(v1alpha1.PrecedenceOf(a.reason), v1alpha1.PrecedenceOf(b.reason)))
	})
	return h
}

// limitOrder is the ledger's.
var limitOrder = []ledger.Limit{ledger.GPUs, ledger.Nodes, ledger.HourlyCost}

// addUp adds what a pod asks of a machine's resources.
func addUp(sums map[*diagnose.Offer]corev1.ResourceList, v diagnose.Verdict) {
	if v.Offer == nil {
		return
	}
	if sums[v.Offer] == nil {
		sums[v.Offer] = corev1.ResourceList{}
	}
	for name := range v.Offer.Blueprint.Resources {
		sum := sums[v.Offer][name]
		sum.Add(v.Requests[name])
		sums[v.Offer][name] = sum
	}
}

// of is the group of a reason; nil where it holds no pod.
func (h held) of(reason string) *group {
	for _, g := range h.groups {
		if g.reason == reason {
			return g
		}
	}
	return nil
}

// pods counts those of all reasons.
func (h held) pods() int {
	pods := 0
	for _, g := range h.groups {
		pods += len(g.pods)
	}
	return pods
}

func (g *group) add(v diagnose.Verdict) {
	if v.Since.Before(g.since) {
		g.since = v.Since
	}
	g.pods = append(g.pods, v)
	cause, limit := v.Causes[0], ledger.Limit("")
	if cause.Limit != nil {
		limit = cause.Limit.Limit
	}
	at := slices.IndexFunc(g.kinds, func(k kind) bool { return k.limit == limit })
	if at < 0 {
		g.kinds = append(g.kinds, kind{limit: limit, cause: cause})
		at = len(g.kinds) - 1
	}
	one := &g.kinds[at]
	one.pods++
	// Of a limit the smallest machine that a pod waits for speaks: raised by so much, the limit frees a pod.
	if cause.Limit != nil && cause.Limit.Asked < one.cause.Limit.Asked {
		one.cause = cause
	}
}

// message says what the reason holds: "limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods". Of pods that are
// held for different numbers the first speaks.
func (g *group) message() string {
	parts := make([]string, len(g.kinds))
	for i, one := range g.kinds {
		pods := fmt.Sprintf("%d waiting pods", one.pods)
		if one.pods == 1 {
			pods = "1 waiting pod"
		}
		// The cause names the pool for whoever reads it elsewhere; here it stands on the pool.
		_, said, _ := strings.Cut(one.cause.Message, ": ")
		if one.cause.Limit != nil && !one.cause.Limit.UnknownPrice {
			parts[i] = said + " for " + pods
		} else {
			parts[i] = said + " (" + pods + ")"
		}
	}
	return strings.Join(parts, "; ")
}

func (g *group) remedy() string { return g.kinds[0].cause.Remedy }

// status is the pool's list of holds.
func (h held) status() []v1alpha1.Hold {
	var holds []v1alpha1.Hold
	for _, g := range h.groups {
		holds = append(holds, v1alpha1.Hold{
			Reason: g.reason, Pods: int32(len(g.pods)), GPUs: int32(g.gpus), Since: metav1.NewTime(g.since), Message: g.message(),
		})
	}
	return holds
}

// metrics are those of every reason, with zeros where it holds nothing.
func (h held) metrics(now time.Time) []metrics.Held {
	all := make([]metrics.Held, len(v1alpha1.HoldReasons))
	for i, reason := range v1alpha1.HoldReasons {
		all[i].Reason = reason.Name
		if g := h.of(reason.Name); g != nil {
			all[i].Pods, all[i].GPUs, all[i].Oldest = len(g.pods), int(g.gpus), now.Sub(g.since)
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
	if g := h.of(v1alpha1.HoldLimitReached); g != nil {
		for i := range bounds {
			bounds[i].Reached = slices.ContainsFunc(g.kinds, func(k kind) bool { return string(k.limit) == bounds[i].Limit })
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
