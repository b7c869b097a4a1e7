package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// crowd is how much the controller has to bear: every node is full, and the limits let no other come for the pods that
// wait.
type crowd struct {
	pools, nodesEach, waitingEach int
}

var crowdOfTheGoal = crowd{pools: 50, nodesEach: 20, waitingEach: 100}

func (c crowd) nodes() int   { return c.pools * c.nodesEach }
func (c crowd) waiting() int { return c.pools * c.waitingEach }

// kind is one way to share GPUs. The pools take turns.
type kind struct {
	class        string
	instanceType string
	sharing      v1alpha1.SharingSpec
	// resource is what pods ask for, and onNode how much of it a node offers.
	resource corev1.ResourceName
	onNode   int64
}

const layoutName = "h100-7x1g10gb"

func kinds() []kind {
	return []kind{
		{"mig", "p5.48xlarge", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{layoutName}}, "nvidia.com/mig-1g.10gb", 56},
		{"shared", "g6.12xlarge", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4))}, v1alpha1.ResourceGPU, 16},
		{"whole", "g5.12xlarge", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive}, v1alpha1.ResourceGPU, 4},
	}
}

func scheme() (*runtime.Scheme, error) {
	kinds := runtime.NewScheme()
	return kinds, errors.Join(clientgoscheme.AddToScheme(kinds), v1alpha1.AddToScheme(kinds), v1alpha1.AddGPUNodeClassToScheme(kinds))
}

// bringAbout makes the crowd and returns when the controller holds every pod that has to wait. The controller launches one
// machine of each pool; the others are clones that are made while it is away, and that it finds when it starts again.
func (c crowd) bringAbout(ctx context.Context, running *stack.Stack, api client.Client) error {
	if err := playMachines(ctx, running); err != nil {
		return err
	}
	if err := c.declare(ctx, running, api); err != nil {
		return err
	}
	run := func(ctx context.Context) (int, error) { return runningPods(ctx, api) }
	say("%d pools are declared; a pod comes to each that takes a whole node", c.pools)
	if err := c.deploy(ctx, api, filling, 1, func(k kind) int64 { return k.onNode }); err != nil {
		return err
	}
	if err := await(ctx, running, "running pods", c.pools, run); err != nil {
		return err
	}
	if err := running.KillController(); err != nil {
		return err
	}
	say("each node is cloned %d times", c.nodesEach-1)
	if err := errors.Join(c.clone(ctx, running, api), c.scale(ctx, api, filling, c.nodesEach)); err != nil {
		return err
	}
	if err := await(ctx, running, "running pods", c.nodes(), run); err != nil {
		return err
	}
	if err := running.StartController(ctx); err != nil {
		return err
	}
	say("%d nodes are verified and full; %d pods come that have to wait", c.nodes(), c.waiting())
	if err := c.deploy(ctx, api, "waits", c.waitingEach, func(kind) int64 { return 1 }); err != nil {
		return err
	}
	return await(ctx, running, "pods held by a limit", c.waiting(), func(ctx context.Context) (int, error) { return heldPods(ctx, running) })
}

// filling are the pods that take a node each.
const filling = "fills"

// declare makes the classes and the pools.
func (c crowd) declare(ctx context.Context, running *stack.Stack, api client.Client) error {
	objects := []client.Object{&v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: layoutName},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}}
	for _, k := range kinds() {
		objects = append(objects, &v1alpha1.GPUNodeClass{
			ObjectMeta: metav1.ObjectMeta{Name: k.class}, Spec: v1alpha1.GPUNodeClassSpec{Cloud: running.Cloud(), Sharing: k.sharing},
		})
	}
	for i := range c.pools {
		objects = append(objects, c.pool(i))
	}
	return create(ctx, api, objects...)
}

func kindOf(i int) kind { return kinds()[i%len(kinds())] }

func (c crowd) pool(i int) *v1alpha1.GPUNodePool {
	k := kindOf(i)
	return &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%02d", i)},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: k.class},
			Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{k.instanceType}}},
			Limits:   &v1alpha1.LimitsSpec{Nodes: new(int64(c.nodesEach))},
		},
	}
}

// deploy makes a Deployment for each pool, so that pods carry what those of a Deployment do.
func (c crowd) deploy(ctx context.Context, api client.Client, name string, replicas int, asks func(kind) int64) error {
	var objects []client.Object
	for i := range c.pools {
		pool, k := c.pool(i), kindOf(i)
		labels := map[string]string{"app": name + "-" + pool.Name}
		objects = append(objects, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Namespace: "default"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					NodeSelector: blueprint.NodeSelector(pool), Tolerations: blueprint.Tolerations(pool),
					Containers: []corev1.Container{{
						Name: "pause", Image: "registry.k8s.io/pause:3.10",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
							k.resource: *resource.NewQuantity(asks(k), resource.DecimalSI),
						}},
					}},
				}},
			},
		})
	}
	return create(ctx, api, objects...)
}

func (c crowd) scale(ctx context.Context, api client.Client, name string, replicas int) error {
	for i := range c.pools {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + c.pool(i).Name, Namespace: "default"}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		if err := api.Patch(ctx, deployment, patch); err != nil {
			return fmt.Errorf("scaling Deployment %s: %w", deployment.Name, err)
		}
	}
	return nil
}

func create(ctx context.Context, api client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := api.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// patience bounds each step of the crowd's coming.
const patience = 15 * time.Minute

// await counts until there are as many as wanted, and says how it goes.
func await(ctx context.Context, running *stack.Stack, what string, want int, count func(context.Context) (int, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s passed", patience))
	defer cancel()
	last := -1
	for {
		got, err := count(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && got == want {
			return nil
		}
		if err == nil && got != last {
			say("%d of %d %s", got, want, what)
			last = got
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d %s, of which there were %d: %w", want, what, last, context.Cause(ctx))
		case dead := <-running.Died():
			return dead
		case <-time.After(2 * time.Second):
		}
	}
}

// runningPods counts them.
func runningPods(ctx context.Context, api client.Client) (int, error) {
	pods := &corev1.PodList{}
	if err := api.List(ctx, pods, client.InNamespace("default")); err != nil {
		return 0, err
	}
	count := 0
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			count++
		}
	}
	return count, nil
}
