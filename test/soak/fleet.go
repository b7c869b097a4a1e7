package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/test/soak/invariants"
)

// gpus are the physical GPUs of a machine, by what EC2 says of these instance types and not by the product's table.
var gpus = map[string]int64{"p5.48xlarge": 8, "p5.4xlarge": 1, "g6.12xlarge": 4, "g6.xlarge": 1, "g5.12xlarge": 4, "g5.xlarge": 1}

// pool is one pool with its class, its limits and its pods.
type pool struct {
	name     string
	workload v1alpha1.Workload
	sharing  v1alpha1.SharingSpec
	// machines are the entries, in order of preference.
	machines [][]string
	surge    int32
	// gpuLimits and nodeLimits are what the limits are set to, one of them by chance; the first to begin with. None: not
	// limited so.
	gpuLimits, nodeLimits []int64
	jobs                  []job

	mu      sync.Mutex // guards changes
	changes []invariants.Limits
}

// job is a Deployment whose pods ask for some of a resource each.
type job struct {
	resource corev1.ResourceName
	asks     int64
	// most is how many pods it may have.
	most int
}

func (p *pool) deployment(j job) string { return fmt.Sprintf("%s-by-%d", p.name, j.asks) }

// Layouts of the MIG pools.
const (
	sevenths = "h100-7x1g10gb"
	halves   = "h100-2x3g40gb"
)

// pools share GPUs in every way that there is. One has two entries of machines.
func pools() []*pool {
	const sliceName, gpuName = corev1.ResourceName("nvidia.com/mig-1g.10gb"), corev1.ResourceName(v1alpha1.ResourceGPU)
	return []*pool{
		{
			name: "slices", workload: v1alpha1.WorkloadInference, machines: [][]string{{"p5.48xlarge"}}, surge: 1,
			sharing:   v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{sevenths}},
			gpuLimits: []int64{16, 8, 24}, jobs: []job{{sliceName, 1, 120}, {sliceName, 5, 15}},
		},
		{
			name: "halves", workload: v1alpha1.WorkloadResearch, machines: [][]string{{"p5.4xlarge"}}, surge: 1,
			sharing:    v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, MIGStrategy: v1alpha1.MIGSingle, Layouts: []string{halves}},
			nodeLimits: []int64{2, 1, 3}, jobs: []job{{gpuName, 1, 8}, {gpuName, 2, 3}},
		},
		{
			name: "shares", workload: v1alpha1.WorkloadResearch, machines: [][]string{{"g6.12xlarge"}}, surge: 1,
			sharing:    v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: new(int32(4)), RenameByDefault: true},
			nodeLimits: []int64{2, 1, 3}, jobs: []job{{gpuName + v1alpha1.SharedSuffix, 1, 40}, {gpuName + v1alpha1.SharedSuffix, 6, 5}},
		},
		{
			name: "whole", workload: v1alpha1.WorkloadBatch, machines: [][]string{{"g5.12xlarge"}}, surge: 1,
			sharing:   v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive},
			gpuLimits: []int64{8, 4, 12}, jobs: []job{{gpuName, 1, 12}, {gpuName, 4, 3}},
		},
		{
			name: "choice", workload: v1alpha1.WorkloadInference, machines: [][]string{{"g6.12xlarge"}, {"g5.xlarge", "g6.xlarge"}}, surge: 2,
			sharing:   v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive},
			gpuLimits: []int64{6, 4, 5, 8, 10}, nodeLimits: []int64{3, 2, 4, 5}, jobs: []job{{gpuName, 1, 10}, {gpuName, 3, 3}},
		},
	}
}

// declare makes layouts, classes, pools, and Deployments with a third of the pods that they may have.
func (s *soak) declare(ctx context.Context) error {
	objects := []client.Object{layout(sevenths, "1g.10gb", 7), layout(halves, "3g.40gb", 2)}
	for _, p := range s.pools {
		objects = append(objects, s.class(p), p.object())
	}
	for _, p := range s.pools {
		for _, j := range p.jobs {
			objects = append(objects, p.deploymentObject(j))
		}
	}
	for _, object := range objects {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func layout(name, profile string, count int32) *v1alpha1.MIGLayout {
	return &v1alpha1.MIGLayout{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MIGLayoutSpec{
		GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{{Slices: []v1alpha1.MIGSlice{{Profile: profile, Count: count}}}},
	}}
}

// verificationTimeout is the least that there is: a wrong machine is replaced while the run lasts.
const verificationTimeout = time.Minute

// class is a pool's own, named after it.
func (s *soak) class(p *pool) *v1alpha1.GPUNodeClass {
	return &v1alpha1.GPUNodeClass{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: v1alpha1.GPUNodeClassSpec{
		Cloud: s.Stack.Cloud(), Sharing: p.sharing,
		Verification: v1alpha1.VerificationSpec{Timeout: &metav1.Duration{Duration: verificationTimeout}},
	}}
}

func (p *pool) object() *v1alpha1.GPUNodePool {
	object := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: v1alpha1.GPUNodePoolSpec{
		Workload: p.workload, NodeClassRef: v1alpha1.NodeClassReference{Name: p.name},
		Limits:     &v1alpha1.LimitsSpec{Surge: &p.surge},
		Disruption: &v1alpha1.DisruptionSpec{ConsolidateAfter: &metav1.Duration{Duration: 20 * time.Second}},
	}}
	for _, types := range p.machines {
		object.Spec.Machines = append(object.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: types})
	}
	first := invariants.Limits{From: time.Now()}
	if len(p.gpuLimits) > 0 {
		first.GPUs = &p.gpuLimits[0]
	}
	if len(p.nodeLimits) > 0 {
		first.Nodes = &p.nodeLimits[0]
	}
	object.Spec.Limits.GPUs, object.Spec.Limits.Nodes = first.GPUs, first.Nodes
	p.changed(first)
	return object
}

// changed notes limits. From is before the API server was asked: it may act on them before it has answered.
func (p *pool) changed(limits invariants.Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, limits)
}

// asked is the pool with all its limits so far.
func (p *pool) asked() invariants.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := invariants.Pool{Name: p.name, Surge: int64(p.surge), Changes: append([]invariants.Limits(nil), p.changes...)}
	for _, types := range p.machines {
		for _, name := range types {
			out.Largest = max(out.Largest, gpus[name])
		}
	}
	return out
}

func (s *soak) asked() []invariants.Pool {
	var out []invariants.Pool
	for _, p := range s.pools {
		out = append(out, p.asked())
	}
	return out
}

// labelJob marks the pods of this run.
const labelJob = "soak"

func (p *pool) deploymentObject(j job) *appsv1.Deployment {
	labels := map[string]string{labelJob: p.deployment(j)}
	// What its pods carry is by name and workload.
	carries := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: v1alpha1.GPUNodePoolSpec{Workload: p.workload}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: p.deployment(j), Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(j.most / 3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: blueprint.NodeSelector(carries), Tolerations: blueprint.Tolerations(carries),
				Containers: []corev1.Container{{
					Name: "pause", Image: "registry.k8s.io/pause:3.10",
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{j.resource: *resource.NewQuantity(j.asks, resource.DecimalSI)}},
				}},
			}},
		},
	}
}
