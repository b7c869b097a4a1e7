// Package cloud is the port to whoever sells machines: launch, find, describe, list, terminate, resolve, and the classes
// of error that decide what is tried next. An adapter (cloud/aws) implements it; nothing of Karpenter and no SDK comes in.
package cloud

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Cloud sells machines. Every method is safe for concurrent use.
type Cloud interface {
	// Launch starts one instance, or finds the one that an earlier call with the same token started. It returns as soon
	// as the cloud has accepted it. Errors are *Error.
	Launch(ctx context.Context, req LaunchRequest) (Instance, error)
	// RequestHash is a hash of the bytes that Launch would send, for the launch journal: the same token may only be used
	// again with the same bytes.
	RequestHash(req LaunchRequest) (string, error)
	// FindByToken returns the instance that a token started, in whatever state, or ErrNotFound. A cloud may lag: not
	// found soon after a launch proves nothing.
	FindByToken(ctx context.Context, token string) (Instance, error)
	// Describe returns one instance, or ErrNotFound.
	Describe(ctx context.Context, id string) (Instance, error)
	// List returns every instance of a cluster that carries our tags and is not terminated. It fails closed: an error,
	// never a part of the list.
	List(ctx context.Context, cluster string) ([]Instance, error)
	// Terminate asks for the end of an instance, or returns ErrNotFound. It does not wait.
	Terminate(ctx context.Context, id string) error
	// Resolve looks up what a node class refers to.
	Resolve(ctx context.Context, class *v1alpha1.GPUNodeClass) (Resolved, error)
}

// Claim is the NodeClaim that an instance is for. It is written into the instance's tags.
type Claim struct {
	Name     string
	UID      string
	NodePool string
	Pool     string
}

// LaunchRequest is one attempt: one instance type in one zone, bought one way.
type LaunchRequest struct {
	// Token makes the attempt idempotent: at most 64 ASCII characters.
	Token string
	Claim Claim
	Class *v1alpha1.GPUNodeClass

	InstanceType string
	Zone         string
	CapacityType v1alpha1.CapacityType
	Image        string
	Subnet       string

	// Labels and Taints are what the kubelet registers the node with.
	Labels map[string]string
	Taints []corev1.Taint
}

// State is the state of an instance.
type State string

// States, in order.
const (
	StatePending      State = "pending"
	StateRunning      State = "running"
	StateShuttingDown State = "shutting-down"
	StateTerminated   State = "terminated"
	StateStopping     State = "stopping"
	StateStopped      State = "stopped"
)

// Gone says whether the instance costs nothing more and never comes back.
func (s State) Gone() bool { return s == StateTerminated }

// Ending says whether the instance is on its way out.
func (s State) Ending() bool { return s == StateShuttingDown || s == StateTerminated }

// Instance is one machine as the cloud tells it.
type Instance struct {
	ID string
	// ProviderID is what the node carries in spec.providerID.
	ProviderID   string
	State        State
	StateReason  string
	InstanceType string
	Zone         string
	CapacityType v1alpha1.CapacityType
	Image        string
	Token        string
	Cluster      string
	Claim        Claim
	LaunchedAt   time.Time
}

// Resolved is what a node class refers to.
type Resolved struct {
	// Image is the machine image's id.
	Image string
	// Subnets are the class's subnets with their zones.
	Subnets []v1alpha1.SubnetStatus
}
