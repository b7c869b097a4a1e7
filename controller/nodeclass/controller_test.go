package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

func TestMain(m *testing.M) {
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), AddToScheme(scheme.Scheme)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const className = "h100-mig"

// resolver is a cloud that answers as the test says.
type resolver struct {
	answer cloud.Resolved
	err    error
	asked  []string // classes
}

func (r *resolver) Resolve(_ context.Context, class *v1alpha1.GPUNodeClass) (cloud.Resolved, error) {
	r.asked = append(r.asked, class.Name)
	return r.answer, r.err
}

// world is one class with the reconciler over it.
type world struct {
	*Controller
	cloud  *resolver
	writes []string
}

// newWorld has a class that the cloud can resolve.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{cloud: &resolver{answer: cloud.Resolved{
		Image: "ami-1", Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}},
	}}}
	class := testClass()
	class.Generation = 1
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(class).WithStatusSubresource(New()).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				w.writes = append(w.writes, fmt.Sprintf("patch %s %s", sub, o.GetName()))
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		}).Build()
	w.Controller = NewController(c, w.cloud)
	return w
}

// testClass is a valid class with every field that its spec has.
func testClass() *Object {
	class := New()
	class.Name = className
	class.Spec = v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "node",
			AMI:        v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, SSMParameter: "/aws/image"},
			RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 200},
			Cluster:    v1alpha1.ClusterSpec{Name: "prod", Endpoint: "https://127.0.0.1:6443", CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.96.0.0/16"},
		}},
		Sharing:      v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100-7x1g10gb"}},
		Driver:       &v1alpha1.DriverSpec{MinVersion: "550.90"},
		Verification: v1alpha1.VerificationSpec{Timeout: &metav1.Duration{Duration: 5 * time.Minute}},
	}
	return class
}

func (w *world) class(t *testing.T) *Object {
	t.Helper()
	class := New()
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: className}, class); err != nil {
		t.Fatal(err)
	}
	return class
}

// reconcile runs once over the class as it is stored, and returns when it wants to look again.
func (w *world) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := w.Reconcile(t.Context(), w.class(t))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// change edits the spec, as a user would: a new spec is a new generation.
func (w *world) change(t *testing.T, edit func(*v1alpha1.GPUNodeClassSpec)) {
	t.Helper()
	class := w.class(t)
	edit(&class.Spec)
	class.Generation++
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}

// wantCondition compares all of a condition but its time, and looks for words in its message.
func (w *world) wantCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	class := w.class(t)
	got := meta.FindStatusCondition(class.Status.Conditions, kind)
	if got == nil {
		t.Fatalf("no condition %s in %v", kind, class.Status.Conditions)
	}
	if got.Status != status || got.Reason != reason || got.ObservedGeneration != class.Generation {
		t.Errorf("%s=%s %s at generation %d (%s), want %s %s at %d",
			kind, got.Status, got.Reason, got.ObservedGeneration, got.Message, status, reason, class.Generation)
	}
	for _, each := range words {
		if !strings.Contains(got.Message, each) {
			t.Errorf("%q does not say %q", got.Message, each)
		}
	}
}

func (w *world) wantImage(t *testing.T, want string) {
	t.Helper()
	if got := w.class(t).Status.AMI; got != want {
		t.Errorf("status.ami is %q, want %s", got, want)
	}
}

const (
	isTrue  = metav1.ConditionTrue
	isFalse = metav1.ConditionFalse
)

func TestReconcile_ResolvesAClass(t *testing.T) {
	w := newWorld(t)
	if again := w.reconcile(t); again != time.Hour {
		t.Errorf("looks again after %s, want 1h", again)
	}
	if diff := cmp.Diff([]string{className}, w.cloud.asked); diff != "" {
		t.Errorf("classes asked for: %s", diff)
	}
	w.wantImage(t, "ami-1")
	if diff := cmp.Diff(w.cloud.answer.Subnets, w.class(t).Status.Subnets); diff != "" {
		t.Error(diff)
	}
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isTrue, "Ready", "image ami-1", "2 subnets")
}

func TestReconcile_KeepsTheImageUntilTheSpecChanges(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.cloud.answer = cloud.Resolved{Image: "ami-2", Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}}}
	w.reconcile(t)
	w.wantImage(t, "ami-1")
	if got := w.class(t).Status.Subnets; len(got) != 1 {
		t.Errorf("subnets %v, want what the cloud says now", got)
	}
	w.wantCondition(t, "Ready", isTrue, "Ready", "image ami-1", "1 subnets")

	w.change(t, func(spec *v1alpha1.GPUNodeClassSpec) { spec.Cloud.AWS.AMI.SSMParameter = "/aws/other" })
	w.reconcile(t)
	w.wantImage(t, "ami-2")
	w.wantCondition(t, "Ready", isTrue, "Ready", "image ami-2")
}

func TestReconcile_SaysWhyTheCloudCannotResolveAClass(t *testing.T) {
	w := newWorld(t)
	w.cloud.err = errors.New("DescribeSubnets: Invalid: InvalidSubnetID.NotFound: subnet-b does not exist")
	if again := w.reconcile(t); again != 30*time.Second {
		t.Errorf("looks again after %s, want 30s", again)
	}
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isFalse, "CloudError", "DescribeSubnets", "subnet-b does not exist")

	w.cloud.err = nil
	w.reconcile(t)
	w.wantImage(t, "ami-1")
	w.wantCondition(t, "Ready", isTrue, "Ready", "ami-1")
}

func TestReconcile_KeepsAResolvedClassReadyWhileTheCloudIsIll(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	before := w.class(t).Status
	w.cloud.answer, w.cloud.err = cloud.Resolved{}, errors.New("DescribeSubnets: Throttled")
	if again := w.reconcile(t); again != 30*time.Second {
		t.Errorf("looks again after %s, want 30s", again)
	}
	if diff := cmp.Diff(before, w.class(t).Status); diff != "" {
		t.Error(diff)
	}
}

// What an earlier spec was resolved to says nothing about this one: neither Ready nor the image may stay.
func TestReconcile_ResolvesAChangedClassThatTheCloudFailedAtFirst(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.change(t, func(spec *v1alpha1.GPUNodeClassSpec) { spec.Cloud.AWS.AMI.SSMParameter = "/aws/other" })
	w.cloud.answer.Image, w.cloud.err = "ami-2", errors.New("GetParameter: Transient")
	w.reconcile(t)
	w.wantCondition(t, "Ready", isFalse, "CloudError", "GetParameter")

	w.cloud.err = nil
	w.reconcile(t)
	w.wantImage(t, "ami-2")
	w.wantCondition(t, "Ready", isTrue, "Ready", "image ami-2")
}

func TestReconcile_DoesNotAcceptAnInvalidClass(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.cloud.asked = nil
	w.change(t, func(spec *v1alpha1.GPUNodeClassSpec) {
		spec.Sharing.Strategy = v1alpha1.SharingExclusive
		spec.Cloud.AWS.AMI.ID = "ami-3"
	})
	if again := w.reconcile(t); again != 0 {
		t.Errorf("looks again after %s, want not before the class changes", again)
	}
	w.wantCondition(t, "Accepted", isFalse, "InvalidClass",
		"spec.cloud.aws.ami: exactly one of id and ssmParameter must be given", "spec.sharing: two sharing strategies")
	w.wantCondition(t, "Ready", isFalse, "NotAccepted")
	if len(w.cloud.asked) > 0 {
		t.Error("the cloud was asked about a class that cannot be")
	}

	w.change(t, func(spec *v1alpha1.GPUNodeClassSpec) { *spec = testClass().Spec })
	w.reconcile(t)
	w.wantCondition(t, "Accepted", isTrue, "Valid")
	w.wantCondition(t, "Ready", isTrue, "Ready")
}

func TestReconcile_WritesNothingWhenNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	if len(w.writes) != 1 {
		t.Fatalf("the first look wrote %v, want the status once", w.writes)
	}
	version := w.class(t).ResourceVersion
	w.reconcile(t)
	if got := w.class(t).ResourceVersion; got != version || len(w.writes) != 1 {
		t.Errorf("a second look wrote: %v, resource version %s after %s", w.writes, got, version)
	}
}

func TestReconcile_LeavesAClassThatIsGoingOrGone(t *testing.T) {
	w := newWorld(t)
	class := w.class(t)
	class.Finalizers = []string{"example.com/other"}
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	going := w.class(t)
	if again := w.reconcile(t); again != 0 || len(w.writes) > 0 || len(w.cloud.asked) > 0 {
		t.Errorf("looks again after %s, wrote %v, asked %v", again, w.writes, w.cloud.asked)
	}

	going.Finalizers = nil
	if err := w.client.Update(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	// The cache may still show a class that is gone.
	class.DeletionTimestamp = nil
	if _, err := w.Reconcile(t.Context(), class); err != nil {
		t.Errorf("a class that went meanwhile is an error: %v", err)
	}
}
