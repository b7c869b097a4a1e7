// Package fleet reads what a pool's Blueprints are compiled from, for every reconciler that needs one: the GPUNodePool,
// its GPUNodeClass and the MIGLayouts. It reads and compiles; it decides nothing and writes nothing.
package fleet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// Pool is one GPUNodePool with all that it refers to.
type Pool struct {
	Pool    *v1alpha1.GPUNodePool
	Class   *nodeclass.Object
	Layouts map[string]*v1alpha1.MIGLayout
}

// Read reads a pool by name. Errors: NotFound where the pool does not exist, *blueprint.Error where
// its class does not.
func Read(ctx context.Context, c client.Reader, name string) (Pool, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return Pool{}, fmt.Errorf("reading GPUNodePool %q: %w", name, err)
	}
	return Of(ctx, c, pool)
}

// Of reads what a pool refers to. Layouts that do not exist are absent from the result: Compile says so in its words.
func Of(ctx context.Context, c client.Reader, pool *v1alpha1.GPUNodePool) (Pool, error) {
	class := nodeclass.New()
	if err := c.Get(ctx, client.ObjectKey{Name: pool.Spec.NodeClassRef.Name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return Pool{Pool: pool}, blueprint.MissingClass(pool.Name, pool.Spec.NodeClassRef.Name)
		}
		return Pool{Pool: pool}, fmt.Errorf("reading GPUNodeClass %q: %w", pool.Spec.NodeClassRef.Name, err)
	}
	layouts := map[string]*v1alpha1.MIGLayout{}
	for _, name := range class.Spec.Sharing.Layouts {
		layout := &v1alpha1.MIGLayout{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, layout); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return Pool{Pool: pool}, fmt.Errorf("reading MIGLayout %q: %w", name, err)
		}
		layouts[name] = layout
	}
	return Pool{Pool: pool, Class: class, Layouts: layouts}, nil
}

// InstanceTypes lists every instance type of the pool, in order of preference, each once.
func (p Pool) InstanceTypes() []string {
	seen := map[string]bool{}
	var types []string
	for _, machine := range p.Pool.Spec.Machines {
		for _, instanceType := range machine.InstanceTypes {
			if !seen[instanceType] {
				seen[instanceType] = true
				types = append(types, instanceType)
			}
		}
	}
	return types
}

// Blueprint compiles the pool's Blueprint on one instance type.
func (p Pool) Blueprint(instanceType string) (v1alpha1.Blueprint, error) {
	return blueprint.Compile(p.Pool, &p.Class.GPUNodeClass, p.Layouts, instanceType)
}

// Zones are the zones that the pool may launch in: those of the class's subnets, within the pool's.
func (p Pool) Zones() []v1alpha1.SubnetStatus {
	if len(p.Pool.Spec.Zones) == 0 {
		return p.Class.Status.Subnets
	}
	var subnets []v1alpha1.SubnetStatus
	for _, subnet := range p.Class.Status.Subnets {
		for _, zone := range p.Pool.Spec.Zones {
			if subnet.Zone == zone {
				subnets = append(subnets, subnet)
			}
		}
	}
	return subnets
}

// Unusable says whether an error of Read, Of or Blueprint means that the pool as it is declared has no Blueprint: it is
// gone, or refers to something that is gone or wrong. Everything else is trouble of the moment.
func Unusable(err error) bool {
	var invalid *blueprint.Error
	return apierrors.IsNotFound(err) || errors.As(err, &invalid)
}
