// Package metrics holds every metric of ours as data: name, help, labels. Labels are bounded: a pool, an instance type, a
// reason, a webhook of the configuration; never the name of a pod or a node.
package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metric is one metric of ours. The documentation prints it.
type Metric struct {
	Name   string
	Help   string
	Labels []string
}

// The metrics.
var (
	PoolGPUs = Metric{
		Name:   "gpufleet_pool_gpus",
		Help:   "Physical GPUs of a pool's launched machines, by state: verified, or unverified while the machine is not proved.",
		Labels: []string{"pool", "state"},
	}
	PoolLimit = Metric{
		Name:   "gpufleet_pool_limit",
		Help:   "What a pool may have, by limit: GPUs, Nodes, or HourlyCost in US dollars an hour. Absent where it is not limited.",
		Labels: []string{"pool", "limit"},
	}
	PoolUsed = Metric{
		Name:   "gpufleet_pool_used",
		Help:   "What a pool's machines that stay use, in the unit of the limit; machines that are being replaced or ended are left out.",
		Labels: []string{"pool", "limit"},
	}
	PoolHeadroom = Metric{
		Name:   "gpufleet_pool_headroom",
		Help:   "What a pool may still launch, by each limit alone and in its unit. Absent where it is not limited.",
		Labels: []string{"pool", "limit"},
	}
	PoolLimitReached = Metric{
		Name:   "gpufleet_pool_limit_reached",
		Help:   "1 while a limit of the pool holds waiting pods back, else 0. A pool that is full and that nobody waits for has 0.",
		Labels: []string{"pool", "limit"},
	}
	PoolHourlyCost = Metric{
		Name:   "gpufleet_pool_hourly_cost_dollars",
		Help:   "List price, in US dollars an hour, of every machine of a pool that is not confirmed gone. Machines whose price is not known add nothing.",
		Labels: []string{"pool"},
	}
	PoolHeldPods = Metric{
		Name:   "gpufleet_pool_held_pods",
		Help:   "Pods that wait for a pool, by the reason that holds them.",
		Labels: []string{"pool", "reason"},
	}
	PoolFree = Metric{
		Name:   "gpufleet_pool_free",
		Help:   "What the verified nodes of a pool have left of a resource, in total.",
		Labels: []string{"pool", "resource"},
	}
	PoolLargestFreeBlock = Metric{
		Name:   "gpufleet_pool_largest_free_block",
		Help:   "The most of a resource that one verified node of a pool has left: no larger pod fits.",
		Labels: []string{"pool", "resource"},
	}
	PoolFragmentation = Metric{
		Name:   "gpufleet_pool_fragmentation_ratio",
		Help:   "How far what is free of a resource is scattered over a pool's nodes: 1 - largest block / free, 0 where all of it is on one node or nothing is free.",
		Labels: []string{"pool", "resource"},
	}
	PoolHeldGPUs = Metric{
		Name:   "gpufleet_pool_held_gpus",
		Help:   "Physical GPUs that the pods that are held back from a pool would need.",
		Labels: []string{"pool"},
	}
	PoolHeldOldestSeconds = Metric{
		Name:   "gpufleet_pool_held_oldest_seconds",
		Help:   "How long the first of the pods that a reason holds has waited; 0 where it holds none.",
		Labels: []string{"pool", "reason"},
	}
	Launches = Metric{
		Name:   "gpufleet_launches_total",
		Help:   "Attempts to launch an instance, by outcome: Launched, or the class of the error.",
		Labels: []string{"pool", "instance_type", "capacity_type", "reason"},
	}
	StartupSeconds = Metric{
		Name:   "gpufleet_node_startup_seconds",
		Help:   "Seconds from the creation of a NodeClaim until its node reached a phase: joined, identified, verified.",
		Labels: []string{"pool", "phase"},
	}
	Notifications = Metric{
		Name:   "gpufleet_notifications_total",
		Help:   "Notices to a webhook, by result: sent; failed after its retries, and tried again later; or dropped, because it was over before it could be sent or there was no room to remember it.",
		Labels: []string{"webhook", "result"},
	}
)

// All lists them.
var All = []Metric{
	PoolGPUs, PoolLimit, PoolUsed, PoolHeadroom, PoolLimitReached, PoolHourlyCost,
	PoolFree, PoolLargestFreeBlock, PoolFragmentation, PoolHeldPods, PoolHeldGPUs, PoolHeldOldestSeconds, Launches, StartupSeconds, Notifications,
}

// States of PoolGPUs.
const (
	StateVerified   = "verified"
	StateUnverified = "unverified"
)

// ReasonLaunched is the outcome of a launch that the cloud accepted.
const ReasonLaunched = "Launched"

// Phases of StartupSeconds.
const (
	PhaseJoined     = "joined"
	PhaseIdentified = "identified"
	PhaseVerified   = "verified"
)

// Results of Notifications.
const (
	ResultSent    = "sent"
	ResultFailed  = "failed"
	ResultDropped = "dropped"
)

var (
	poolGPUs         = gauge(PoolGPUs)
	poolLimit        = gauge(PoolLimit)
	poolUsed         = gauge(PoolUsed)
	poolHeadroom     = gauge(PoolHeadroom)
	poolLimitReached = gauge(PoolLimitReached)
	poolHourlyCost   = gauge(PoolHourlyCost)
	poolFree         = gauge(PoolFree)
	poolLargest      = gauge(PoolLargestFreeBlock)
	poolFragmented   = gauge(PoolFragmentation)
	poolHeldPods     = gauge(PoolHeldPods)
	poolHeldGPUs     = gauge(PoolHeldGPUs)
	poolHeldOldest   = gauge(PoolHeldOldestSeconds)
	launches         = prometheus.NewCounterVec(prometheus.CounterOpts{Name: Launches.Name, Help: Launches.Help}, Launches.Labels)
	startup          = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: StartupSeconds.Name, Help: StartupSeconds.Help,
		Buckets: []float64{1, 5, 15, 30, 60, 120, 180, 300, 450, 600, 900, 1800},
	}, StartupSeconds.Labels)
	notifications = prometheus.NewCounterVec(prometheus.CounterOpts{Name: Notifications.Name, Help: Notifications.Help}, Notifications.Labels)
)

func gauge(m Metric) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// vec is a metric's series.
type vec interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// vecs are those of all metrics: what is registered, and what a pool is forgotten from.
var vecs = []vec{
	poolGPUs, poolLimit, poolUsed, poolHeadroom, poolLimitReached, poolHourlyCost,
	poolFree, poolLargest, poolFragmented, poolHeldPods, poolHeldGPUs, poolHeldOldest, launches, startup, notifications,
}

// Register adds the metrics to controller-runtime's registry, which the manager serves.
func Register() error {
	for _, each := range vecs {
		if err := crmetrics.Registry.Register(each); err != nil {
			return err
		}
	}
	return nil
}

// SetPoolGPUs sets the gauge of one pool.
func SetPoolGPUs(pool string, verified, unverified int) {
	poolGPUs.WithLabelValues(pool, StateVerified).Set(float64(verified))
	poolGPUs.WithLabelValues(pool, StateUnverified).Set(float64(unverified))
}

// Bound is one thing that a pool can be limited in. Quantities are GPUs, nodes or US dollars an hour.
type Bound struct {
	// Limit is GPUs, Nodes or HourlyCost.
	Limit string
	Used  float64
	// Value and Headroom are nil where the pool is not limited.
	Value, Headroom *float64
	// Reached says that the limit holds waiting pods back.
	Reached bool
}

// SetPoolBounds sets what a pool may have and uses. The series of a limit that was lifted go.
func SetPoolBounds(pool string, bounds ...Bound) {
	for _, bound := range bounds {
		poolUsed.WithLabelValues(pool, bound.Limit).Set(bound.Used)
		if bound.Value == nil || bound.Headroom == nil {
			for _, lifted := range []*prometheus.GaugeVec{poolLimit, poolHeadroom, poolLimitReached} {
				lifted.DeleteLabelValues(pool, bound.Limit)
			}
			continue
		}
		poolLimit.WithLabelValues(pool, bound.Limit).Set(*bound.Value)
		poolHeadroom.WithLabelValues(pool, bound.Limit).Set(*bound.Headroom)
		reached := 0.0
		if bound.Reached {
			reached = 1
		}
		poolLimitReached.WithLabelValues(pool, bound.Limit).Set(reached)
	}
}

// SetPoolHourlyCost sets what a pool's machines cost, in US dollars an hour.
func SetPoolHourlyCost(pool string, dollars float64) {
	poolHourlyCost.WithLabelValues(pool).Set(dollars)
}

// Block is what a pool's verified nodes have left of one resource.
type Block struct {
	Resource      string
	Free, Largest int64
	// Ratio is how far it is scattered.
	Ratio float64
}

// shown are the resources that each pool has blocks of.
var shown sync.Map

// SetPoolBlocks sets what is free. The series of a resource that the pool offers no more go; the others are never absent
// in between, which a scrape could see.
func SetPoolBlocks(pool string, blocks ...Block) {
	var resources []string
	for _, block := range blocks {
		resources = append(resources, block.Resource)
	}
	if before, found := shown.Swap(pool, resources); found {
		for _, resource := range before.([]string) {
			if slices.Contains(resources, resource) {
				continue
			}
			for _, each := range []*prometheus.GaugeVec{poolFree, poolLargest, poolFragmented} {
				each.DeleteLabelValues(pool, resource)
			}
		}
	}
	for _, block := range blocks {
		poolFree.WithLabelValues(pool, block.Resource).Set(float64(block.Free))
		poolLargest.WithLabelValues(pool, block.Resource).Set(float64(block.Largest))
		poolFragmented.WithLabelValues(pool, block.Resource).Set(block.Ratio)
	}
}

// Held is one reason, with what it holds back from a pool.
type Held struct {
	Reason     string
	Pods, GPUs int
	// Oldest is how long the first of the pods has waited.
	Oldest time.Duration
}

// SetPoolHolds sets what is held back from a pool. Every reason is given each time, with zeros where it holds nothing.
func SetPoolHolds(pool string, holds ...Held) {
	gpus := 0
	for _, held := range holds {
		gpus += held.GPUs
		poolHeldPods.WithLabelValues(pool, held.Reason).Set(float64(held.Pods))
		poolHeldOldest.WithLabelValues(pool, held.Reason).Set(held.Oldest.Seconds())
	}
	poolHeldGPUs.WithLabelValues(pool).Set(float64(gpus))
}

// CountLaunch counts one attempt.
func CountLaunch(pool, instanceType, capacityType, reason string) {
	launches.WithLabelValues(pool, instanceType, capacityType, reason).Inc()
}

// ObserveStartup records how long a node took to a phase.
func ObserveStartup(pool, phase string, seconds float64) {
	startup.WithLabelValues(pool, phase).Observe(seconds)
}

// ExpectNotifications begins the series of a webhook at zero, so that the first failure is an increase.
func ExpectNotifications(webhook string) {
	for _, result := range []string{ResultSent, ResultFailed, ResultDropped} {
		notifications.WithLabelValues(webhook, result)
	}
}

// CountNotification counts one notice to a webhook.
func CountNotification(webhook, result string) {
	notifications.WithLabelValues(webhook, result).Inc()
}

// ForgetPool removes the series of a pool that is gone.
func ForgetPool(pool string) {
	shown.Delete(pool)
	for _, each := range vecs {
		each.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}
