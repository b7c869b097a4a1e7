package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// poolReport is one pool, explained.
type poolReport struct {
	about
	poolSummary
	Class      string             `json:"class"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Offers are what it may launch, in order of preference.
	Offers []offerReport `json:"offers"`
	// Unavailable are the ways to buy that the cloud refuses now, as the controller said last.
	Unavailable []v1alpha1.UnavailableOffering `json:"unavailable,omitempty"`
	Machines    []machineReport                `json:"machines"`
	// Free is what verified nodes have left of each resource, and how far it is scattered.
	Free []freeReport `json:"free,omitempty"`
	// Holds are the reasons for which pods wait for it, that with the most pods first.
	Holds []holdReport `json:"holds"`
}

// offerReport is one machine that a pool may launch.
type offerReport struct {
	InstanceType  string                         `json:"instanceType"`
	GPUModel      string                         `json:"gpuModel"`
	GPUs          int32                          `json:"gpus"`
	Resources     map[corev1.ResourceName]string `json:"resources"`
	PricePerHour  string                         `json:"pricePerHour,omitempty"`
	Zones         []string                       `json:"zones,omitempty"`
	CapacityTypes []v1alpha1.CapacityType        `json:"capacityTypes,omitempty"`
	// Refused is why no more of it is launched: the limit's refusal; absent where it may be.
	Refused string `json:"refused,omitempty"`
}

// machineReport is one machine of a pool.
type machineReport struct {
	// Name is the node's, or the NodeClaim's while there is none.
	Name         string      `json:"name"`
	NodeClaim    string      `json:"nodeClaim"`
	InstanceID   string      `json:"instanceID,omitempty"`
	InstanceType string      `json:"instanceType,omitempty"`
	Zone         string      `json:"zone,omitempty"`
	CapacityType string      `json:"capacityType,omitempty"`
	GPUs         int64       `json:"gpus"`
	PricePerHour string      `json:"pricePerHour,omitempty"`
	State        State       `json:"state"`
	Since        metav1.Time `json:"since"`
	// Finding is what is wrong with one whose state is Refused.
	Finding string `json:"finding,omitempty"`
	// Resources are what it has of what the pool offers, or promises while it is not verified; absent where nothing can be
	// expected of it.
	Resources []resourceReport `json:"resources,omitempty"`
}

// resourceReport is how much of one resource a machine has, and has left.
type resourceReport struct {
	Resource corev1.ResourceName `json:"resource"`
	Has      int64               `json:"has"`
	Free     int64               `json:"free"`
}

// freeReport is how much of one resource verified nodes have left.
type freeReport struct {
	diagnose.Block
	// Scattered is from 0, where all of it is on one node, to almost 1.
	Scattered float64 `json:"scattered"`
}

// karpenterCapacityType is Karpenter's label (sigs.k8s.io/karpenter/pkg/apis/v1).
const karpenterCapacityType = "karpenter.sh/capacity-type"

func explainPool(p program, ctx context.Context, o *options, c *cluster, name string) (report, error) {
	s, err := c.read(ctx, p.now, o.timeout)
	if err != nil {
		return nil, err
	}
	f := understand(s)
	found := f.pool(name)
	if found == nil {
		return nil, missing("no GPUNodePool is called "+name, someOf(f.poolNames(), name))
	}
	return poolOf(f, found), nil
}

// someOf are the names that may have been meant, or else the first of all.
func someOf(all []string, name string) []string {
	if similar := near(name, all); len(similar) > 0 {
		return similar
	}
	return all[:min(len(all), mostNear)]
}

func poolOf(f *fleet, p *pool) *poolReport {
	held := holds(p.object.Name, p.held)
	r := &poolReport{
		about: f.about(), poolSummary: p.summary(held), Class: p.object.Spec.NodeClassRef.Name, Conditions: p.object.Status.Conditions,
		Offers: []offerReport{}, Machines: []machineReport{}, Holds: held,
	}
	for i := range p.is.Offers {
		r.Offers = append(r.Offers, offerOf(p.is, &p.is.Offers[i]))
	}
	for _, refused := range p.object.Status.Unavailable {
		if f.at.Before(refused.Until.Time) {
			r.Unavailable = append(r.Unavailable, refused)
		}
	}
	for _, m := range p.machines {
		r.Machines = append(r.Machines, machineOf(p.is, m))
	}
	if r.Nodes.Verified > 0 {
		for _, block := range diagnose.Blocks(p.is) {
			r.Free = append(r.Free, freeReport{Block: block, Scattered: block.Ratio()})
		}
	}
	return r
}

func offerOf(is diagnose.Pool, offer *diagnose.Offer) offerReport {
	bp := offer.Blueprint
	r := offerReport{
		InstanceType: bp.InstanceType, GPUModel: bp.GPU.Model, GPUs: bp.GPU.Count, PricePerHour: price(offer.Machine),
		Resources: map[corev1.ResourceName]string{},
	}
	for name, quantity := range bp.Resources {
		r.Resources[name] = quantity.String()
	}
	for _, way := range offer.Ways {
		r.Zones, r.CapacityTypes = addNew(r.Zones, way.Zone), addNew(r.CapacityTypes, way.CapacityType)
	}
	if err := is.Usage.Fits(offer.Machine); err != nil {
		r.Refused = strings.TrimPrefix(err.Error(), fmt.Sprintf("pool %s: ", is.Name))
	}
	return r
}

func addNew[T comparable](list []T, one T) []T {
	for _, known := range list {
		if known == one {
			return list
		}
	}
	return append(list, one)
}

func machineOf(is diagnose.Pool, m *machine) machineReport {
	r := machineReport{
		Name: m.name(), NodeClaim: m.claim.Name, InstanceID: diagnose.InstanceOf(m.claim.Status.ProviderID),
		InstanceType: strings.Join(m.instanceTypes(), " or "), Zone: m.label(corev1.LabelTopologyZone), CapacityType: m.label(karpenterCapacityType),
		GPUs: m.counts.GPUs, PricePerHour: price(m.counts), State: m.state, Since: m.since(),
	}
	if m.place == nil {
		return r
	}
	if m.state == StateRefused {
		r.Finding = m.place.Finding
		return r
	}
	for _, block := range diagnose.Blocks(is) {
		has, listed := m.place.Has[block.Resource]
		if !listed || has.IsZero() {
			continue
		}
		free := m.place.Free[block.Resource]
		r.Resources = append(r.Resources, resourceReport{Resource: block.Resource, Has: has.Value(), Free: free.Value()})
	}
	return r
}
