package karpenter

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// refusalTTL is how long an offering stays closed after the cloud refused it, as in karpenter-provider-aws.
const refusalTTL = 3 * time.Minute

// offeringKey is one way to buy one machine.
type offeringKey struct {
	instanceType string
	zone         string
	capacityType v1alpha1.CapacityType
}

// refusals remembers which offerings the cloud refused lately, so that the next simulation leaves them out.
type refusals struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards until
	until map[offeringKey]time.Time
}

func newRefusals(clk clock.PassiveClock) *refusals {
	return &refusals{clock: clk, until: map[offeringKey]time.Time{}}
}

func (r *refusals) add(key offeringKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[key] = r.clock.Now().Add(refusalTTL)
}

func (r *refusals) has(key offeringKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, found := r.until[key]
	if found && !r.clock.Now().Before(until) {
		delete(r.until, key)
		return false
	}
	return found
}
