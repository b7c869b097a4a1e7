package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

const (
	slice = corev1.ResourceName("nvidia.com/mig-1g.10gb")
	whole = corev1.ResourceName("nvidia.com/gpu")
)

// noon is now, in every test.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// world is a cluster of objects made by hand, and a person before it.
type world struct {
	core    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	program program
	// terminal is the size of the person's terminal; nil where the output goes to a pipe.
	terminal *screen
	env      map[string]string
}

// newWorld has the objects: those of gpufleet.dev and karpenter.sh, and the API server's own.
func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddGPUNodeClassToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var core, custom []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *v1alpha1.GPUNodePool, *v1alpha1.GPUNodeClass, *v1alpha1.MIGLayout, *v1alpha1.GPUNode, *unstructured.Unstructured:
			custom = append(custom, untyped(t, o))
		default:
			core = append(core, o)
		}
	}
	w := &world{
		core: fake.NewClientset(core...),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			v1alpha1.GPUNodePools: "GPUNodePoolList", v1alpha1.GPUNodeClasses: "GPUNodeClassList", v1alpha1.MIGLayouts: "MIGLayoutList",
			v1alpha1.GPUNodes: "GPUNodeList", nodeClaims: "NodeClaimList",
		}, custom...),
		env: map[string]string{},
	}
	w.program = program{
		name: "gpufleet", now: func() time.Time { return noon }, getenv: func(name string) string { return w.env[name] },
		connect: func(options, func(string) string) (*cluster, error) {
			return &cluster{core: w.core, dynamic: w.dynamic, namespace: "default", server: "https://cluster.test"}, nil
		},
		screen: func(io.Writer) (screen, bool) {
			if w.terminal == nil {
				return screen{}, false
			}
			return *w.terminal, true
		},
	}
	return w
}

// untyped is the object as an API server would answer.
func untyped(t *testing.T, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	if u, already := o.(*unstructured.Unstructured); already {
		return u
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	kind := map[string]string{
		"*v1alpha1.GPUNodePool": v1alpha1.KindGPUNodePool, "*v1alpha1.GPUNodeClass": v1alpha1.KindGPUNodeClass,
		"*v1alpha1.MIGLayout": v1alpha1.KindMIGLayout, "*v1alpha1.GPUNode": v1alpha1.KindGPUNode,
	}[fmt.Sprintf("%T", o)]
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return u
}

// answer is what a command did.
type answer struct {
	code           int
	stdout, stderr string
}

func (w *world) run(t *testing.T, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := w.program.run(t.Context(), args, &stdout, &stderr)
	return answer{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

func (w *world) runUntil(ctx context.Context, stdout io.Writer, args ...string) answer {
	var stderr bytes.Buffer
	code := w.program.run(ctx, args, stdout, &stderr)
	return answer{code: code, stderr: stderr.String()}
}

// want says what differs from an answer, line by line.
func (a answer) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if a.code != code {
		t.Errorf("exit code %d, want %d", a.code, code)
	}
	if a.stdout != stdout {
		t.Errorf("printed\n%s\nwant\n%s", a.stdout, stdout)
	}
	if a.stderr != stderr {
		t.Errorf("said\n%s\nwant\n%s", a.stderr, stderr)
	}
}

// The objects of the world.

func class(name string, sharing v1alpha1.SharingSpec) *v1alpha1.GPUNodeClass {
	return &v1alpha1.GPUNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GPUNodeClassSpec{Sharing: sharing, Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "node",
			AMI: v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-1"}, RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 100},
			Cluster: v1alpha1.ClusterSpec{Name: "prod", Endpoint: "https://k8s", CertificateAuthority: "Y2E=", ServiceCIDR: "10.100.0.0/16"},
		}}},
		Status: v1alpha1.GPUNodeClassStatus{Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}}},
	}
}

// mig cuts every H100 into seven.
func mig() []runtime.Object {
	return []runtime.Object{
		class("h100-mig", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{"seven"}}),
		&v1alpha1.MIGLayout{ObjectMeta: metav1.ObjectMeta{Name: "seven"}, Spec: v1alpha1.MIGLayoutSpec{
			GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}}},
		}},
	}
}

// exclusive leaves GPUs whole.
func exclusive() runtime.Object {
	return class("whole", v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive})
}

func poolNamed(name, class string, workload v1alpha1.Workload, instanceTypes ...string) *v1alpha1.GPUNodePool {
	p := &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(3 * time.Hour), Generation: 1},
		Spec:       v1alpha1.GPUNodePoolSpec{Workload: workload, NodeClassRef: v1alpha1.NodeClassReference{Name: class}},
	}
	for _, instanceType := range instanceTypes {
		p.Spec.Machines = append(p.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: []string{instanceType}})
	}
	return p
}

// limited has limits in GPUs, as the controller wrote them.
func limited(p *v1alpha1.GPUNodePool, gpus, used int64) *v1alpha1.GPUNodePool {
	p.Spec.Limits = &v1alpha1.LimitsSpec{GPUs: &gpus}
	p.Status.Limits = []v1alpha1.LimitStatus{{
		Name: v1alpha1.ReasonGPUs, Limit: fmt.Sprint(gpus), WithSurge: fmt.Sprint(gpus + 8), Used: fmt.Sprint(used), Outstanding: fmt.Sprint(used),
		Headroom: fmt.Sprint(gpus - used),
	}}
	return p
}

func condition(kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(since), ObservedGeneration: 1}
}

// claim is a NodeClaim; one without an instance is not launched yet.
func claim(name, pool, instanceType, instance string, since time.Duration) *unstructured.Unstructured {
	labels := map[string]any{v1alpha1.LabelPool: pool}
	status := map[string]any{}
	spec := map[string]any{
		"taints": []any{
			map[string]any{"key": v1alpha1.TaintGPU, "value": v1alpha1.TaintGPUValue, "effect": "NoSchedule"},
		},
		"requirements": []any{
			map[string]any{"key": corev1.LabelInstanceTypeStable, "operator": "In", "values": []any{instanceType}},
		},
		"resources": map[string]any{"requests": map[string]any{string(slice): "1"}},
	}
	if instance != "" {
		labels[corev1.LabelInstanceTypeStable] = instanceType
		labels[corev1.LabelTopologyZone] = "us-east-1a"
		labels[karpenterCapacityType] = "on-demand"
		status["providerID"] = "aws:///us-east-1a/" + instance
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": map[string]any{"name": name, "uid": name, "creationTimestamp": ago(since).Format(time.RFC3339), "labels": labels},
		"spec":     spec, "status": status,
	}}
}

// node is one that has joined; one that is not verified has the startup taint.
func node(name, pool, instanceType string, verified bool, allocatable corev1.ResourceList) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(2 * time.Hour), Labels: map[string]string{
			v1alpha1.LabelPool: pool, corev1.LabelInstanceTypeStable: instanceType, corev1.LabelTopologyZone: "us-east-1a", karpenterCapacityType: "on-demand",
		}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + name, Taints: []corev1.Taint{
			{Key: v1alpha1.TaintGPU, Value: v1alpha1.TaintGPUValue, Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Allocatable: allocatable},
	}
	if !verified {
		n.Spec.Taints = append(n.Spec.Taints, v1alpha1.UnverifiedTaint())
	}
	return n
}

// amounts are the GPU resource of a node, with room for pods.
func amounts(name corev1.ResourceName, n int64) corev1.ResourceList {
	return corev1.ResourceList{
		name: *resource.NewQuantity(n, resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti"),
	}
}

// gpuNode is the verdict on a node of one H100 to eight, whole or cut into seven.
func gpuNode(name, pool, instanceType string, gpus int32, offered corev1.ResourceName, verdict metav1.Condition, findings ...v1alpha1.Finding) *v1alpha1.GPUNode {
	bp := v1alpha1.Blueprint{
		Pool: pool, Workload: v1alpha1.WorkloadInference, InstanceType: instanceType, PricePerHour: "55.04", DriverMinVersion: "550",
		GPU:       v1alpha1.GPUBlueprint{Model: "H100-80GB-SXM", ProductNames: []string{"NVIDIA H100 80GB HBM3"}, Count: gpus, MemoryMiB: 81559},
		Resources: corev1.ResourceList{offered: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}, Hash: "h", HashVersion: "1",
	}
	inventory := &v1alpha1.Inventory{ObservedAt: ago(2 * time.Hour), DriverVersion: "570.86.15"}
	for i := range gpus {
		board := v1alpha1.GPUInventory{Index: i, UUID: fmt.Sprintf("GPU-%d", i), ProductName: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}
		if offered == slice {
			board.MIG = &v1alpha1.MIGInventory{Enabled: true, PendingEnabled: true}
			for start := range int32(7) {
				board.MIG.Instances = append(board.MIG.Instances, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: start, Size: 1})
			}
		}
		inventory.GPUs = append(inventory.GPUs, board)
	}
	if offered == slice {
		bp.Layout = &v1alpha1.LayoutBlueprint{Name: "seven"}
		bp.Resources[slice] = *resource.NewQuantity(int64(gpus)*7, resource.DecimalSI)
	}
	verified := ago(110 * time.Minute)
	status := v1alpha1.GPUNodeStatus{Inventory: inventory, Findings: findings, Conditions: []metav1.Condition{verdict}}
	if verdict.Status == metav1.ConditionTrue {
		status.VerifiedAt = &verified
	}
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelPool: pool}}, Spec: bp, Status: status}
}

func verified() metav1.Condition {
	return condition(v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonMatches, "8 x H100-80GB-SXM as ordered, cut by layout seven; allocatable has nvidia.com/mig-1g.10gb: 56", 110*time.Minute)
}

// pod asks for so much and carries what pods of all workload classes carry.
func pod(name string, resourceName corev1.ResourceName, n int64, pools ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: ago(5 * time.Minute)},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Tolerations: []corev1.Toleration{
				{Key: v1alpha1.TaintGPU, Operator: corev1.TolerationOpExists}, {Key: v1alpha1.TaintWorkload, Operator: corev1.TolerationOpExists},
			},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{resourceName: *resource.NewQuantity(n, resource.DecimalSI)},
				Limits:   corev1.ResourceList{resourceName: *resource.NewQuantity(n, resource.DecimalSI)},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	switch len(pools) {
	case 0:
	case 1:
		p.Spec.NodeSelector = map[string]string{v1alpha1.LabelPool: pools[0]}
	default:
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: v1alpha1.LabelPool, Operator: corev1.NodeSelectorOpIn, Values: pools},
			}}},
		}}}
	}
	return p
}

// waiting is a pod that the scheduler finds no node for.
func waiting(p *corev1.Pod, since time.Duration) *corev1.Pod {
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: ago(since),
		Message: "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.",
	}}
	return p
}

// running is a pod on a node.
func running(p *corev1.Pod, node string, since time.Duration) *corev1.Pod {
	started := ago(since)
	p.Spec.NodeName, p.Status.Phase, p.Status.StartTime = node, corev1.PodRunning, &started
	return p
}

// lease is a sign of life of the controller.
func lease(renewed time.Duration) *coordinationv1.Lease {
	holder, at := "controller_1", metav1.NewMicroTime(noon.Add(-renewed))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: v1alpha1.ControllerName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at},
	}
}

// full is a fleet of one pool of one node whose 56 MIG instances one pod has, and one more pod that waits since four minutes.
func full() []runtime.Object {
	p := limited(poolNamed("inference", "h100-mig", v1alpha1.WorkloadInference, "p5.48xlarge"), 8, 8)
	p.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, "p5.48xlarge offers nvidia.com/mig-1g.10gb: 56", 3*time.Hour),
		condition(v1alpha1.ConditionLimitReached, metav1.ConditionTrue, v1alpha1.ReasonGPUs, "limit gpus 8 is reached: 8 in use, 8 asked for 1 waiting pod", 4*time.Minute),
	}
	p.Status.Holds = []v1alpha1.Hold{{Reason: v1alpha1.HoldLimitReached, Pods: 1, GPUs: 1, Since: ago(4 * time.Minute), Message: "limit gpus 8 is reached"}}
	return append(mig(), p, lease(time.Second),
		claim("inference-0-abcde", "inference", "p5.48xlarge", "i-0a1", 2*time.Hour),
		node("i-0a1", "inference", "p5.48xlarge", true, amounts(slice, 56)),
		gpuNode("i-0a1", "inference", "p5.48xlarge", 8, slice, verified()),
		running(pod("served", slice, 56, "inference"), "i-0a1", time.Hour),
		waiting(pod("waits", slice, 1, "inference"), 4*time.Minute),
	)
}

// with has more objects.
func with(objects []runtime.Object, more ...runtime.Object) []runtime.Object {
	return append(objects, more...)
}
