package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// machines report for the agents and device plugins of bare machines, an administrator in their place. They say what the
// Blueprint orders: what is measured is the controller's memory, not whether it sees through a wrong machine.
type machines struct {
	api   client.Client
	cache cache.Cache
	queue workqueue.TypedRateLimitingInterface[string]
}

// reporters are how many machines report at once.
const reporters = 8

// playMachines reports until the context ends.
func playMachines(ctx context.Context, running *stack.Stack) error {
	api, err := newClient(running)
	if err != nil {
		return err
	}
	config := running.Config()
	seen, err := cache.New(config, cache.Options{Scheme: api.Scheme()})
	if err != nil {
		return err
	}
	m := &machines{api: api, cache: seen, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	for _, object := range []client.Object{&corev1.Node{}, &v1alpha1.GPUNode{}} {
		informer, err := seen.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: m.note, UpdateFunc: func(_, o any) { m.note(o) },
		}); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	go m.run(ctx)
	if !seen.WaitForCacheSync(ctx) {
		return fmt.Errorf("watching nodes did not begin: %w", ctx.Err())
	}
	return nil
}

// note remembers a Node or GPUNode, which have the same name.
func (m *machines) note(o any) {
	if object, ok := o.(client.Object); ok {
		m.queue.Add(object.GetName())
	}
}

func (m *machines) run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { _ = m.cache.Start(ctx) }) // it ends with the context only
	for range reporters {
		work.Go(func() { m.reportNext(ctx) })
	}
	<-ctx.Done()
	m.queue.ShutDown()
	work.Wait()
}

func (m *machines) reportNext(ctx context.Context) {
	for {
		name, over := m.queue.Get()
		if over {
			return
		}
		if err := m.report(ctx, name); err != nil {
			m.queue.AddRateLimited(name)
		} else {
			m.queue.Forget(name)
		}
		m.queue.Done(name)
	}
}

// report does what a machine's programs do: the agent looks once, and the device plugin starts when the machine is
// identified, since it does not tolerate the taint that stands until then.
func (m *machines) report(ctx context.Context, name string) error {
	gpuNode, node := &v1alpha1.GPUNode{}, &corev1.Node{}
	for _, object := range []client.Object{gpuNode, node} {
		if err := m.cache.Get(ctx, client.ObjectKey{Name: name}, object); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if gpuNode.Status.Inventory == nil {
		stored := gpuNode.DeepCopy()
		gpuNode.Status.Inventory = asOrdered(gpuNode)
		return client.IgnoreNotFound(m.api.Status().Patch(ctx, gpuNode, client.MergeFrom(stored)))
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == "karpenter.sh/unregistered" {
			return nil
		}
	}
	stored, lacks := node.DeepCopy(), false
	for resource, quantity := range gpuNode.Spec.Resources {
		if _, has := node.Status.Allocatable[resource]; !has {
			node.Status.Capacity[resource], node.Status.Allocatable[resource], lacks = quantity, quantity, true
		}
	}
	if !lacks {
		return nil
	}
	return client.IgnoreNotFound(m.api.Status().Patch(ctx, node, client.MergeFrom(stored)))
}

// asOrdered is the inventory of a machine that is its Blueprint.
func asOrdered(node *v1alpha1.GPUNode) *v1alpha1.Inventory {
	inventory := &v1alpha1.Inventory{
		ObservedAt: metav1.Now(), BlueprintHash: node.Spec.Hash, DriverVersion: "580.95.05", NVMLVersion: "13.580.95.05", CUDAVersion: "13.0",
	}
	for i := range node.Spec.GPU.Count {
		inventory.GPUs = append(inventory.GPUs, v1alpha1.GPUInventory{
			Index: i, UUID: fmt.Sprintf("GPU-%s-%d", node.Name, i), ProductName: node.Spec.GPU.ProductNames[0],
			MemoryMiB: node.Spec.GPU.MemoryMiB, PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i),
		})
	}
	if node.Spec.Layout == nil {
		return inventory
	}
	for _, device := range node.Spec.Layout.Devices {
		for _, i := range device.GPUs {
			inventory.GPUs[i].MIG = &v1alpha1.MIGInventory{
				Enabled: len(device.Instances) > 0, PendingEnabled: len(device.Instances) > 0, Instances: device.Instances,
			}
		}
	}
	return inventory
}
