package nodepool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// TestMain registers the kinds and the metrics, as the controller's main does.
func TestMain(m *testing.M) {
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme), metrics.Register()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	poolName   = "inference"
	className  = "h100-mig"
	layoutName = "h100-7x1g10gb"
)

// Names of the pool's NodePools, computed with coreutils: printf 'p5.48xlarge' | sha256sum | cut -c1-8, where the sorted
// instance types stand between printf's quotes ('8' sorts before 'x').
const (
	nodePoolP548 = "inference-866aa927" // p5.48xlarge
	nodePoolP54  = "inference-93b1a613" // p5.4xlarge
	nodePoolBoth = "inference-859ddeab" // p5.48xlarge,p5.4xlarge
)

// instances is the list of a cloud.
type instances struct {
	list  []cloud.Instance
	err   error
	asked []string // clusters
}

func (i *instances) List(_ context.Context, cluster string) ([]cloud.Instance, error) {
	i.asked = append(i.asked, cluster)
	return i.list, i.err
}

// world is a cluster of objects with the reconciler over it.
type world struct {
	*Controller
	cloud *instances
	// writes are the calls that change something, deletions the propagation policies by name.
	writes    []string
	deletions map[string]metav1.DeletionPropagation
	// fail returns the error of a read or a write of an object, nil where it succeeds; failClaims that of a list of the
	// NodeClaims of one NodePool.
	fail       func(verb string, o client.Object) error
	failClaims error
}

// newWorld has the quickstart's layout, class and pool, changed by the given functions.
func newWorld(t *testing.T, change ...func(*v1alpha1.GPUNodePool, *nodeclass.Object, *v1alpha1.MIGLayout)) *world {
	t.Helper()
	pool, class, layout := testPool(), testClass(), testLayout()
	for _, each := range change {
		each(pool, class, layout)
	}
	w := &world{cloud: &instances{}, deletions: map[string]metav1.DeletionPropagation{}}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pool, class, layout).
		WithStatusSubresource(&v1alpha1.GPUNodePool{}, nodeclass.New(), &v1alpha1.MIGLayout{}, &v1alpha1.GPUNode{}, &karpv1.NodePool{}, &karpv1.NodeClaim{}).
		WithInterceptorFuncs(w.intercept()).Build()
	w.Controller = NewController(c, w.cloud, ledger.New(), "prod")
	return w
}

// intercept records and fails what the test wants, and gives each new object a UID, as the API server does.
func (w *world) intercept() interceptor.Funcs {
	act := func(verb string, o client.Object, call func() error) error {
		if w.fail != nil {
			if err := w.fail(verb, o); err != nil {
				return err
			}
		}
		if verb != "get" {
			w.writes = append(w.writes, fmt.Sprintf("%s %T %s", verb, o, o.GetName()))
		}
		return call()
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return act("get", o, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			if selector := options.LabelSelector; w.failClaims != nil && selector != nil && strings.Contains(selector.String(), "karpenter.sh/nodepool") {
				return w.failClaims
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if o.GetUID() == "" {
				o.SetUID(types.UID(fmt.Sprintf("uid of %T %s", o, o.GetName())))
			}
			return act("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return act("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return act("patch", o, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return act("patch "+sub, o, func() error { return c.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			if policy := options.PropagationPolicy; policy != nil {
				w.deletions[o.GetName()] = *policy
			}
			return act("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
	}
}

func testPool() *v1alpha1.GPUNodePool {
	return &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: poolName, UID: "uid of the pool", Generation: 3},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload:     v1alpha1.WorkloadInference,
			NodeClassRef: v1alpha1.NodeClassReference{Name: className},
			Machines:     []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
		},
	}
}

// testClass is resolved and Ready.
func testClass() *nodeclass.Object {
	class := nodeclass.New()
	class.Name, class.Generation = className, 5
	class.Spec = v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "node",
			AMI:        v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-1"},
			RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 100},
			Cluster:    v1alpha1.ClusterSpec{Name: "prod", Endpoint: "https://127.0.0.1:6443", CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.96.0.0/16"},
		}},
		Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{layoutName}},
	}
	class.Status = v1alpha1.GPUNodeClassStatus{
		AMI:     "ami-1",
		Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: 5},
		},
	}
	return class
}

func testLayout() *v1alpha1.MIGLayout {
	return &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: layoutName},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}
}

func machines(types ...string) []v1alpha1.MachineSpec {
	out := make([]v1alpha1.MachineSpec, len(types))
	for i, each := range types {
		out[i].InstanceTypes = strings.Split(each, ",")
	}
	return out
}

// get reads an object by its name, and fails the test where it is not there.
func get[T client.Object](t *testing.T, w *world, object T, name string) T {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

func (w *world) pool(t *testing.T) *v1alpha1.GPUNodePool {
	t.Helper()
	return get(t, w, &v1alpha1.GPUNodePool{}, poolName)
}

// reconcile runs once over the pool as it is stored, and returns when it wants to look again.
func (w *world) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := w.Reconcile(t.Context(), w.pool(t))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// change updates a stored object, as its user would: a new spec is a new generation.
func change[T client.Object](t *testing.T, w *world, object T, name string, edit func(T)) {
	t.Helper()
	stored := get(t, w, object, name)
	edit(stored)
	stored.SetGeneration(stored.GetGeneration() + 1)
	if err := w.client.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
}

// setClassStatus writes a class's status, as its own reconciler would.
func (w *world) setClassStatus(t *testing.T, edit func(*v1alpha1.GPUNodeClassStatus)) {
	t.Helper()
	class := get(t, w, nodeclass.New(), className)
	edit(&class.Status)
	if err := w.client.Status().Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// claim is a NodeClaim of the pool whose instance has the given id; "" is not launched yet.
func claim(name, instanceType, instance string, finalizers ...string) *karpv1.NodeClaim {
	out := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid of " + name), Finalizers: finalizers,
		Labels: map[string]string{v1alpha1.LabelPool: poolName, corev1.LabelInstanceTypeStable: instanceType},
	}}
	if instance != "" {
		out.Status.ProviderID, out.Status.NodeName = "aws:///us-east-1a/"+instance, instance
	}
	return out
}

// claimOf is a NodeClaim of one of the pool's NodePools.
func claimOf(nodePool, name, instance string, finalizers ...string) *karpv1.NodeClaim {
	out := claim(name, "p5.48xlarge", instance, finalizers...)
	out.Labels["karpenter.sh/nodepool"] = nodePool
	return out
}

// exists says whether an object does.
func (w *world) exists(t *testing.T, object client.Object, name string) bool {
	t.Helper()
	err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// nodePoolNames are the names of the NodePools that exist.
func (w *world) nodePoolNames(t *testing.T) []string {
	t.Helper()
	list := &karpv1.NodePoolList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, each := range list.Items {
		names = append(names, each.Name)
	}
	return names
}

// pluginConfigs are the keys and values of the device plugin's ConfigMap, nil where it does not exist.
func (w *world) pluginConfigs(t *testing.T) map[string]string {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := w.client.List(t.Context(), list, client.InNamespace("gpufleet-system")); err != nil {
		t.Fatal(err)
	}
	for _, each := range list.Items {
		if each.Name == "gpufleet-device-plugin" {
			return each.Data
		}
	}
	return nil
}

// wantCondition compares all of a condition but its time, and looks for words in its message.
func (w *world) wantCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	pool := w.pool(t)
	got := meta.FindStatusCondition(pool.Status.Conditions, kind)
	if got == nil {
		t.Fatalf("no condition %s in %v", kind, pool.Status.Conditions)
	}
	if got.Status != status || got.Reason != reason || got.ObservedGeneration != pool.Generation {
		t.Errorf("%s=%s %s at generation %d (%s), want %s %s at %d",
			kind, got.Status, got.Reason, got.ObservedGeneration, got.Message, status, reason, pool.Generation)
	}
	wantWords(t, got.Message, words...)
}

func wantWords(t *testing.T, message string, words ...string) {
	t.Helper()
	for _, each := range words {
		if !strings.Contains(message, each) {
			t.Errorf("%q does not say %q", message, each)
		}
	}
}

// gauge reads gpufleet_pool_gpus of the pool by state, as a scrape would.
func gauge(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "gpufleet_pool_gpus" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["pool"] == poolName {
				out[labels["state"]] = metric.GetGauge().GetValue()
			}
		}
	}
	return out
}
