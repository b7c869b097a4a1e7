package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	instances "github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// State is how far a machine is.
type State string

// States of a machine, in the order in which it goes through them.
const (
	// StateLaunching: asked for, and no instance is known yet.
	StateLaunching State = "Launching"
	// StateJoining: the instance was started, and there is no node yet.
	StateJoining State = "Joining"
	// StateVerifying: the node is there and not judged yet.
	StateVerifying State = "Verifying"
	// StateRefused: the node is not what was ordered.
	StateRefused State = "Refused"
	// StateVerified: the node is what was ordered.
	StateVerified State = "Verified"
	// StateCordoned: no pod is placed there.
	StateCordoned State = "Cordoned"
	// StateLeaving: it is being deleted.
	StateLeaving State = "Leaving"
)

// states is their order.
var states = []State{StateLaunching, StateJoining, StateVerifying, StateRefused, StateVerified, StateCordoned, StateLeaving}

// machine is one machine of a pool: its NodeClaim with the node and the GPUNode, where there are any.
type machine struct {
	claim   *nodeClaim
	node    *corev1.Node
	gpuNode *v1alpha1.GPUNode
	// place is what can be expected of it; nil where nothing can, since it is going.
	place *diagnose.Place
	state State
	// counts is what it counts: physical GPUs and its price.
	counts ledger.Machine
}

// machinesOf are a pool's machines, those that are going too: they are paid for.
func (f *fleet) machinesOf(pool string, is diagnose.Pool) []*machine {
	var machines []*machine
	for _, claim := range f.claims {
		if claim.Labels[v1alpha1.LabelPool] != pool {
			continue
		}
		m := &machine{claim: claim}
		if claim.Status.ProviderID != "" {
			m.node = f.nodeOf(claim.Status.ProviderID)
		}
		if m.node != nil {
			m.gpuNode = f.gpuNodeNamed(m.node.Name)
		}
		for _, place := range is.Places {
			if place.Name == claim.Name || (m.node != nil && place.Name == m.node.Name) {
				m.place = place
			}
		}
		m.state, m.counts = m.stateNow(), m.countsAs(is.Offers)
		machines = append(machines, m)
	}
	slices.SortStableFunc(machines, func(a, b *machine) int { return a.claim.CreationTimestamp.Compare(b.claim.CreationTimestamp.Time) })
	return machines
}

func (f *fleet) nodeOf(providerID string) *corev1.Node {
	for _, node := range f.nodes {
		if node.Spec.ProviderID == providerID {
			return node
		}
	}
	return nil
}

func (f *fleet) gpuNodeNamed(name string) *v1alpha1.GPUNode {
	for _, node := range f.gpuNodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

func (m *machine) stateNow() State {
	switch {
	case !m.claim.DeletionTimestamp.IsZero():
		return StateLeaving
	case m.claim.Status.ProviderID == "":
		return StateLaunching
	case m.node == nil:
		return StateJoining
	case !m.node.DeletionTimestamp.IsZero():
		return StateLeaving
	case m.node.Spec.Unschedulable:
		return StateCordoned
	case m.place != nil && m.place.State == diagnose.Verified:
		return StateVerified
	case m.place != nil && m.place.State == diagnose.Refused:
		return StateRefused
	}
	return StateVerifying
}

// countsAs is what the machine counts: by its own Blueprint, by what the pool offers, or by the table. Nothing of that has
// one that is not decided yet.
func (m *machine) countsAs(offers []diagnose.Offer) ledger.Machine {
	types := m.claim.instanceTypes()
	switch {
	case m.gpuNode != nil:
		return blueprint.Machine(m.gpuNode.Spec)
	case len(types) != 1:
		return ledger.Machine{}
	}
	for _, offer := range offers {
		if offer.Blueprint.InstanceType == types[0] {
			return offer.Machine
		}
	}
	if known, found := instances.Lookup(types[0]); found {
		return ledger.NewMachine(int64(known.GPU.Count), known.PricePerHour, known.HasPrice)
	}
	return ledger.Machine{}
}

// name is the node's, or the NodeClaim's while there is none.
func (m *machine) name() string {
	if m.node != nil {
		return m.node.Name
	}
	return m.claim.Name
}

// launched says that there is an instance.
func (m *machine) launched() bool { return m.claim.Status.ProviderID != "" }

// verified says that the node is proved to be what was ordered, wherever it goes now.
func (m *machine) verified() bool {
	return m.gpuNode != nil && meta.IsStatusConditionTrue(m.gpuNode.Status.Conditions, v1alpha1.ConditionVerified)
}

// instanceType is what it is, or what it may become.
func (m *machine) instanceTypes() []string { return m.claim.instanceTypes() }

func (m *machine) label(key string) string {
	if m.node != nil && m.node.Labels[key] != "" {
		return m.node.Labels[key]
	}
	return m.claim.Labels[key]
}

func (m *machine) since() metav1.Time { return m.claim.CreationTimestamp }
