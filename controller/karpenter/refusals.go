package karpenter

import (
	"cmp"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// refusalTTL is how long an offering stays closed after the cloud refused it, as in karpenter-provider-aws.
const refusalTTL = 3 * time.Minute

// offeringKey is one way to buy one machine.
type offeringKey struct {
	// class is the GPUNodeClass; empty for what holds for all classes.
	class        string
	instanceType string
	zone         string
	capacityType v1alpha1.CapacityType
}

// refused is the last word of the cloud on an offering.
type refused struct {
	err   error
	until time.Time
}

// refusals remembers which offerings the cloud refused lately, so that the next simulation leaves them out.
type refusals struct {
	clock clock.PassiveClock

	mu     sync.Mutex // guards closed
	closed map[offeringKey]refused
}

func newRefusals(clk clock.PassiveClock) *refusals {
	return &refusals{clock: clk, closed: map[offeringKey]refused{}}
}

// add closes an offering: for every class where the cloud has none or the account may have none, for its own class where
// the request was wrong.
func (r *refusals) add(key offeringKey, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reasonOf(err) != v1alpha1.ReasonLaunchRejected {
		key.class = ""
	}
	r.closed[key] = refused{err, r.clock.Now().Add(refusalTTL)}
}

func (r *refusals) has(key offeringKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, class := range []string{"", key.class} {
		key.class = class
		if r.isClosed(key) {
			return true
		}
	}
	return false
}

func (r *refusals) isClosed(key offeringKey) bool {
	last, found := r.closed[key]
	if found && !r.clock.Now().Before(last.until) {
		delete(r.closed, key)
		return false
	}
	return found
}

// unavailable are the offerings that are closed now for a class, in an order that does not change by itself.
func (r *refusals) unavailable(class string) []v1alpha1.UnavailableOffering {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []v1alpha1.UnavailableOffering
	for key, last := range r.closed {
		if !r.clock.Now().Before(last.until) || (key.class != "" && key.class != class) {
			continue
		}
		out = append(out, v1alpha1.UnavailableOffering{
			InstanceType: key.instanceType, Zone: key.zone, CapacityType: key.capacityType,
			Reason: reasonOf(last.err), Message: cloud.Words(last.err), Until: metav1.NewTime(last.until),
		})
	}
	slices.SortFunc(out, func(a, b v1alpha1.UnavailableOffering) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.CapacityType, b.CapacityType), cmp.Compare(a.Zone, b.Zone))
	})
	return out
}

// reasonOf is what a refusal is called on the pool. What is neither a shortage nor a quota is ours to correct.
func reasonOf(err error) string {
	switch cloud.ClassOf(err) {
	case cloud.ClassCapacity:
		return v1alpha1.HoldNoCapacity
	case cloud.ClassQuota:
		return v1alpha1.HoldQuotaExceeded
	case cloud.ClassReservation:
		return v1alpha1.HoldReservationUnavailable
	}
	return v1alpha1.ReasonLaunchRejected
}

// Supply is what pools may still launch, for whoever explains why they do not.
type Supply struct{ provider *CloudProvider }

// Supply returns what the pools may still launch.
func (c *CloudProvider) Supply() Supply { return Supply{c} }

// Usage says what a pool uses of its limits.
func (s Supply) Usage(pool string) ledger.Usage { return s.provider.ledger.Usage(pool) }

// Unavailable are the ways to buy that the cloud has refused to a class and that are not tried now.
func (s Supply) Unavailable(class string) []v1alpha1.UnavailableOffering {
	return s.provider.refused.unavailable(class)
}
