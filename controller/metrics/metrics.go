// Package metrics holds every metric of ours as data: name, help, labels. Labels are bounded: a pool, an instance type, a
// reason; never the name of a pod or a node.
package metrics

import (
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
)

// All lists them.
var All = []Metric{PoolGPUs, Launches, StartupSeconds}

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

var (
	poolGPUs = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: PoolGPUs.Name, Help: PoolGPUs.Help}, PoolGPUs.Labels)
	launches = prometheus.NewCounterVec(prometheus.CounterOpts{Name: Launches.Name, Help: Launches.Help}, Launches.Labels)
	startup  = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: StartupSeconds.Name, Help: StartupSeconds.Help,
		Buckets: []float64{1, 5, 15, 30, 60, 120, 180, 300, 450, 600, 900, 1800},
	}, StartupSeconds.Labels)
)

// Register adds the metrics to controller-runtime's registry, which the manager serves.
func Register() error {
	for _, collector := range []prometheus.Collector{poolGPUs, launches, startup} {
		if err := crmetrics.Registry.Register(collector); err != nil {
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

// CountLaunch counts one attempt.
func CountLaunch(pool, instanceType, capacityType, reason string) {
	launches.WithLabelValues(pool, instanceType, capacityType, reason).Inc()
}

// ObserveStartup records how long a node took to a phase.
func ObserveStartup(pool, phase string, seconds float64) {
	startup.WithLabelValues(pool, phase).Observe(seconds)
}

// ForgetPool removes the series of a pool that is gone.
func ForgetPool(pool string) {
	labels := prometheus.Labels{"pool": pool}
	poolGPUs.DeletePartialMatch(labels)
	launches.DeletePartialMatch(labels)
	startup.DeletePartialMatch(labels)
}
