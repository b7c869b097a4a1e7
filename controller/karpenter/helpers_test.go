package karpenter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodepool"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

// TestMain teaches core once, as New does, and registers the kinds in client-go's scheme, as New does too.
func TestMain(m *testing.M) {
	TeachCore()
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// fakeCloud is a cloud that does what the test says. It keeps one instance a token, as EC2 does.
type fakeCloud struct {
	mu        sync.Mutex
	instances map[string]*cloud.Instance // by token
	launches  []cloud.LaunchRequest
	// refuse returns an error instead of an instance; loseAnswer starts the instance and returns an error all the same.
	refuse     func(cloud.LaunchRequest) error
	loseAnswer error
	// hidden tokens are not found yet: the cloud lags.
	hidden     bool
	terminated []string
	listErr    error
}

func newFakeCloud() *fakeCloud { return &fakeCloud{instances: map[string]*cloud.Instance{}} }

func (f *fakeCloud) Launch(_ context.Context, req cloud.LaunchRequest) (cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.launches = append(f.launches, req)
	if f.refuse != nil {
		if err := f.refuse(req); err != nil {
			return cloud.Instance{}, err
		}
	}
	instance, found := f.instances[req.Token]
	if !found {
		id := fmt.Sprintf("i-%04d", len(f.instances)+1)
		instance = &cloud.Instance{
			ID: id, ProviderID: "aws:///" + req.Zone + "/" + id, State: cloud.StatePending, InstanceType: req.InstanceType,
			Zone: req.Zone, CapacityType: req.CapacityType, Image: req.Image, Token: req.Token, Claim: req.Claim,
		}
		f.instances[req.Token] = instance
	}
	if f.loseAnswer != nil {
		return cloud.Instance{}, f.loseAnswer
	}
	return *instance, nil
}

func (f *fakeCloud) RequestHash(req cloud.LaunchRequest) (string, error) {
	return req.InstanceType + req.Zone, nil
}

func (f *fakeCloud) FindByToken(_ context.Context, token string) (cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if instance, found := f.instances[token]; found && !f.hidden {
		return *instance, nil
	}
	return cloud.Instance{}, cloud.ErrNotFound
}

func (f *fakeCloud) Describe(_ context.Context, id string) (cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, instance := range f.instances {
		if instance.ID == id {
			return *instance, nil
		}
	}
	return cloud.Instance{}, cloud.ErrNotFound
}

func (f *fakeCloud) List(context.Context, string) ([]cloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listErr != nil {
		return nil, f.listErr
	}
	var out []cloud.Instance
	for _, instance := range f.instances {
		if !instance.State.Gone() {
			out = append(out, *instance)
		}
	}
	return out, nil
}

func (f *fakeCloud) Terminate(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.terminated = append(f.terminated, id)
	for _, instance := range f.instances {
		if instance.ID == id {
			instance.State = cloud.StateShuttingDown
		}
	}
	return nil
}

func (f *fakeCloud) Resolve(context.Context, *v1alpha1.GPUNodeClass) (cloud.Resolved, error) {
	return cloud.Resolved{}, nil
}

func (f *fakeCloud) setState(state cloud.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, instance := range f.instances {
		instance.State = state
	}
}

// world is a cluster of objects with a CloudProvider over it.
type world struct {
	*CloudProvider
	client client.Client
	cloud  *fakeCloud
	clock  *clocktesting.FakeClock
	pool   *v1alpha1.GPUNodePool
}

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// newWorld has the quickstart's layout, class and pool, changed by the given functions, and the pool's NodePools.
func newWorld(t testing.TB, change ...func(*v1alpha1.GPUNodePool, *nodeclass.Object)) *world {
	t.Helper()
	layout := &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-7x1g10gb"},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}
	class, pool := testClass(), testPool()
	for _, each := range change {
		each(pool, class)
	}
	objects := []client.Object{layout, class, pool}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{})
	for _, each := range indexes {
		builder = builder.WithIndex(each.object, each.field, func(o client.Object) []string { return []string{each.value(o)} })
	}
	c, clk, provider := builder.Build(), clocktesting.NewFakeClock(began), newFakeCloud()
	w := &world{
		CloudProvider: NewCloudProvider(c, c, provider, "test", clk), client: c, cloud: provider, clock: clk, pool: pool,
	}
	w.setLimits(t, w.CloudProvider)
	if err := w.books.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func testClass() *nodeclass.Object {
	class := nodeclass.New()
	class.Name, class.Generation = "h100-mig", 1
	class.Spec = v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "node",
			AMI:        v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-1"},
			RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 100},
			Cluster:    v1alpha1.ClusterSpec{Name: "test", Endpoint: "https://127.0.0.1:6443", CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.96.0.0/16"},
		}},
		Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100-7x1g10gb"}},
	}
	class.Status = v1alpha1.GPUNodeClassStatus{
		AMI:     "ami-1",
		Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: 1},
		},
	}
	return class
}

func testPool() *v1alpha1.GPUNodePool {
	return &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "inference"},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload:     v1alpha1.WorkloadInference,
			NodeClassRef: v1alpha1.NodeClassReference{Name: "h100-mig"},
			Machines:     []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
		},
	}
}

// setLimits does what the pool's reconciler does.
func (w *world) setLimits(t testing.TB, provider *CloudProvider) {
	t.Helper()
	w.setLimitsIn(t, provider, w.pool)
}

// setLimitsOf does it for another pool than the world's own, and counts that too.
func (w *world) setLimitsOf(t testing.TB, pool *v1alpha1.GPUNodePool) {
	t.Helper()
	w.setLimitsIn(t, w.CloudProvider, pool)
	if err := w.books.count(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) setLimitsIn(t testing.TB, provider *CloudProvider, pool *v1alpha1.GPUNodePool) {
	t.Helper()
	inputs, err := fleet.Of(t.Context(), w.client, pool)
	if err != nil {
		t.Fatal(err)
	}
	blueprints, err := provider.blueprints(t.Context(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := blueprint.Limits(pool, blueprints)
	if err != nil {
		t.Fatal(err)
	}
	provider.ledger.SetLimits(pool.Name, limits)
}

// blueprint compiles the pool's Blueprint on the first instance type of its first entry.
func (w *world) blueprint(t testing.TB) v1alpha1.Blueprint { return w.blueprintOf(t, 0) }

func (w *world) blueprintOf(t testing.TB, entry int) v1alpha1.Blueprint {
	t.Helper()
	inputs, err := fleet.Of(t.Context(), w.client, w.pool)
	if err != nil {
		t.Fatal(err)
	}
	bp, err := inputs.Blueprint(w.pool.Spec.Machines[entry].InstanceTypes[0])
	if err != nil {
		t.Fatal(err)
	}
	return bp
}

// nodePool is the Karpenter NodePool of one entry of the pool's machines, as the pool's reconciler writes it.
func (w *world) nodePool(t testing.TB, entry int) *karpv1.NodePool {
	t.Helper()
	return nodepool.NodePool(w.pool, entry, w.blueprintOf(t, entry), blueprint.Defaults(w.pool))
}

// claim creates a NodeClaim as core would for the pool's first entry, asking for the given instance types.
func (w *world) claim(t *testing.T, name string, instanceTypes ...string) *karpv1.NodeClaim {
	t.Helper()
	if len(instanceTypes) == 0 {
		instanceTypes = []string{"p5.48xlarge"}
	}
	template := w.nodePool(t, 0).Spec.Template
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(began),
			Labels:     map[string]string{karpv1.NodePoolLabelKey: "inference-0"},
			Finalizers: []string{karpv1.TerminationFinalizer},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: template.Spec.NodeClassRef, Taints: template.Spec.Taints, StartupTaints: template.Spec.StartupTaints,
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: instanceTypes},
				{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}},
			},
		},
	}
	for key, value := range template.Labels {
		claim.Labels[key] = value
	}
	if err := w.client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// launched launches a claim and writes down what core does then.
func (w *world) launched(t *testing.T, name string, instanceTypes ...string) *karpv1.NodeClaim {
	t.Helper()
	claim := w.claim(t, name, instanceTypes...)
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	claim = w.reread(t, claim)
	status := claim.DeepCopy().Status
	claim.Labels = lo.Assign(created.Labels, claim.Labels)
	claim.Annotations = lo.Assign(claim.Annotations, created.Annotations)
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status = status
	claim.Status.ProviderID, claim.Status.Capacity, claim.Status.Allocatable = created.Status.ProviderID, created.Status.Capacity, created.Status.Allocatable
	return w.with(t, claim, karpv1.ConditionTypeLaunched)
}

// with sets conditions of a claim True, and tells the ledger as the watch does.
func (w *world) with(t *testing.T, claim *karpv1.NodeClaim, conditions ...string) *karpv1.NodeClaim {
	t.Helper()
	for _, condition := range conditions {
		claim.StatusConditions().SetTrue(condition)
	}
	return w.writeStatus(t, claim)
}

func (w *world) writeStatus(t *testing.T, claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	t.Helper()
	if err := w.client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.books.claimChanged(t.Context(), claim)
	return w.reread(t, claim)
}

// chooses does what core does with a claim that it is about to replace; forgets what it does with it after a restart.
func (w *world) chooses(t *testing.T, name string) {
	t.Helper()
	w.with(t, w.reread(t, &karpv1.NodeClaim{ObjectMeta: objectMeta(name)}), karpv1.ConditionTypeDisruptionReason)
}

func (w *world) forgets(t *testing.T, name string) {
	t.Helper()
	claim := w.reread(t, &karpv1.NodeClaim{ObjectMeta: objectMeta(name)})
	if err := claim.StatusConditions().Clear(karpv1.ConditionTypeDisruptionReason); err != nil {
		t.Fatal(err)
	}
	w.writeStatus(t, claim)
}

func (w *world) reread(t *testing.T, claim *karpv1.NodeClaim) *karpv1.NodeClaim {
	t.Helper()
	current := &karpv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(claim), current); err != nil {
		t.Fatal(err)
	}
	return current
}

func remove(t *testing.T, w *world, object client.Object) {
	t.Helper()
	if err := w.client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
