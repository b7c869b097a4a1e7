package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// silentAfter is how old the controller's lease may be. It renews it every 2 seconds and loses it after 15
// (controller-runtime, pkg/manager: retryPeriod, leaseDuration).
const silentAfter = 30 * time.Second

// controllerReport says whether the controller is heard of.
type controllerReport struct {
	// Alive is absent where the lease may not be read.
	Alive *bool `json:"alive,omitempty"`
	// LastSeen is when it renewed its lease last; absent where it never did.
	LastSeen *metav1.MicroTime `json:"lastSeen,omitempty"`
	// Message says what follows; absent while it is alive.
	Message string `json:"message,omitempty"`
}

// lastWord says what is old then, and what is not.
const lastWord = "limits in use and unavailable offerings are what it said last; reasons are computed here, from the cluster's objects, and still hold"

// heard says whether the controller is heard of: by its lease, or by what it wrote. One that ends in good order lets go of
// its lease.
func (s *snapshot) heard() controllerReport {
	last := s.lastWrite()
	if s.lease != nil && s.lease.Spec.RenewTime != nil {
		last = latest(last, s.lease.Spec.RenewTime.Time)
	}
	var report controllerReport
	if !last.IsZero() {
		report.LastSeen = &metav1.MicroTime{Time: last}
	}
	if s.leaseHidden {
		return report
	}
	silent := s.at.Sub(last)
	left := s.lease != nil && (s.lease.Spec.HolderIdentity == nil || *s.lease.Spec.HolderIdentity == "")
	switch {
	case last.IsZero():
		report.Message = fmt.Sprintf("the controller has never been heard of: %s; %s", noLease, lastWord)
	case left:
		report.Message = fmt.Sprintf("the controller ended %s ago; %s", age(silent), lastWord)
	case silent > silentAfter && s.lease == nil:
		report.Message = fmt.Sprintf("the controller has not been heard of for %s: %s; %s", age(silent), noLease, lastWord)
	case silent > silentAfter:
		report.Message = fmt.Sprintf("the controller has not been heard of for %s; %s", age(silent), lastWord)
	}
	report.Alive = new(report.Message == "")
	return report
}

// noLease is what a lease that is not there means.
const noLease = "there is no Lease " + v1alpha1.Namespace + "/" + v1alpha1.ControllerName + ", so it does not run, or without leader election"

// lastWrite is when the controller last wrote a GPUNodePool or GPUNode, by the API server's own record; zero where it never did.
func (s *snapshot) lastWrite() time.Time {
	var last time.Time
	look := func(entries []metav1.ManagedFieldsEntry) {
		for _, entry := range entries {
			if entry.Manager == v1alpha1.ControllerName && entry.Time != nil {
				last = latest(last, entry.Time.Time)
			}
		}
	}
	for _, pool := range s.pools {
		look(pool.ManagedFields)
	}
	for _, node := range s.gpuNodes {
		look(node.ManagedFields)
	}
	return last
}

// silent says that the controller is known not to run.
func (r controllerReport) silent() bool { return r.Alive != nil && !*r.Alive }
