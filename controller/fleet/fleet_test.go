package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
)

func TestMain(m *testing.M) {
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func testPool() *v1alpha1.GPUNodePool {
	return &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "inference"},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: "h100-mig"},
			Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge", "p5.4xlarge"}}, {InstanceTypes: []string{"p5.4xlarge", "p4d.24xlarge"}}},
		},
	}
}

func testClass() *nodeclass.Object {
	class := nodeclass.New()
	class.Name = "h100-mig"
	class.Spec = v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}, InstanceProfile: "node",
			AMI:        v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-1"},
			RootVolume: v1alpha1.RootVolumeSpec{SizeGiB: 100},
			Cluster:    v1alpha1.ClusterSpec{Name: "prod", Endpoint: "https://127.0.0.1:6443", CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.96.0.0/16"},
		}},
		Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100", "a100"}},
	}
	class.Status.Subnets = []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-b", Zone: "us-east-1b"}}
	return class
}

func testLayout(name, model, profile string) *v1alpha1.MIGLayout {
	return &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: model, Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: profile, Count: 7}}},
		}},
	}
}

// reader has the objects, and fails to read those of the kind that ill names, e.g. *v1alpha1.MIGLayout.
func reader(ill string, objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if fmt.Sprintf("%T", o) == ill {
				return errIll
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
}

var errIll = errors.New("etcd is ill")

func TestRead_BringsThePoolItsClassAndItsLayouts(t *testing.T) {
	objects := []client.Object{
		testPool(), testClass(), testLayout("h100", "H100-80GB-SXM", "1g.10gb"), testLayout("a100", "A100-40GB", "1g.5gb"),
		testLayout("unused", "A100-80GB", "1g.10gb"),
	}
	got, err := Read(t.Context(), reader("", objects...), "inference")
	if err != nil {
		t.Fatal(err)
	}
	if got.Pool.Name != "inference" || got.Class.Name != "h100-mig" || len(got.Layouts) != 2 ||
		got.Layouts["h100"].Spec.GPUModel != "H100-80GB-SXM" || got.Layouts["a100"].Spec.GPUModel != "A100-40GB" {
		t.Errorf("pool %s, class %s, layouts %v", got.Pool.Name, got.Class.Name, got.Layouts)
	}
	bp, err := got.Blueprint("p4d.24xlarge")
	if err != nil {
		t.Fatal(err)
	}
	// 8 A100s, each cut into 7.
	want := corev1.ResourceList{"nvidia.com/mig-1g.5gb": *resource.NewQuantity(56, resource.DecimalSI)}
	if diff := cmp.Diff(want, bp.Resources); diff != "" {
		t.Error(diff)
	}
}

// What is declared wrongly stays so until somebody changes it; what is trouble of the moment is tried again.
func TestRead_TellsADeclarationThatIsWrongFromTroubleOfTheMoment(t *testing.T) {
	everything := []client.Object{testPool(), testClass(), testLayout("h100", "H100-80GB-SXM", "1g.10gb"), testLayout("a100", "A100-40GB", "1g.5gb")}
	for name, tc := range map[string]struct {
		ill      string
		objects  []client.Object
		unusable bool
		words    []string
	}{
		"no pool":             {"", everything[1:], true, []string{`reading GPUNodePool "inference"`}},
		"no class":            {"", everything[:1], true, []string{"GPUNodePool inference: spec.nodeClassRef.name", `node class "h100-mig" does not exist`}},
		"no layout":           {"", everything[:3], true, []string{"GPUNodeClass h100-mig: spec.sharing.layouts[1]", `MIG layout "a100" does not exist`}},
		"pool not readable":   {"*v1alpha1.GPUNodePool", everything, false, []string{`reading GPUNodePool "inference"`}},
		"class not readable":  {"*nodeclass.Object", everything, false, []string{`reading GPUNodeClass "h100-mig"`}},
		"layout not readable": {"*v1alpha1.MIGLayout", everything, false, []string{`reading MIGLayout "h100"`}},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := Read(t.Context(), reader(tc.ill, tc.objects...), "inference")
			if err == nil {
				_, err = pool.Blueprint("p5.48xlarge")
			}
			if err == nil {
				t.Fatal("no error")
			}
			if got := Unusable(err); got != tc.unusable {
				t.Errorf("%v: unusable %t, want %t", err, got, tc.unusable)
			}
			if (tc.ill != "") != errors.Is(err, errIll) {
				t.Errorf("%v does not wrap what the API server said", err)
			}
			for _, each := range tc.words {
				if !strings.Contains(err.Error(), each) {
					t.Errorf("%q does not say %q", err, each)
				}
			}
		})
	}
}

func TestRead_SaysOfAMissingPoolAndClassWhatTheyAre(t *testing.T) {
	_, err := Read(t.Context(), reader(""), "inference")
	if !apierrors.IsNotFound(err) {
		t.Errorf("a pool that is gone: %v, want NotFound", err)
	}
	_, err = Read(t.Context(), reader("", testPool()), "inference")
	var invalid *blueprint.Error
	if !errors.As(err, &invalid) || invalid.Reason != "ClassNotFound" || apierrors.IsNotFound(err) {
		t.Errorf("a class that is gone: %v, want a blueprint error of reason ClassNotFound", err)
	}
	if Unusable(nil) {
		t.Error("no error means that the pool cannot be used")
	}
}

func TestInstanceTypes_AreInOrderOfPreferenceEachOnce(t *testing.T) {
	got := Pool{Pool: testPool()}.InstanceTypes()
	if want := []string{"p5.48xlarge", "p5.4xlarge", "p4d.24xlarge"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestZones_AreThoseOfTheClassWithinThePools(t *testing.T) {
	a, b := v1alpha1.SubnetStatus{ID: "subnet-a", Zone: "us-east-1a"}, v1alpha1.SubnetStatus{ID: "subnet-b", Zone: "us-east-1b"}
	for name, tc := range map[string]struct {
		zones []string
		want  []v1alpha1.SubnetStatus
	}{
		"the pool names none":          {nil, []v1alpha1.SubnetStatus{a, b}},
		"the pool names one":           {[]string{"us-east-1b"}, []v1alpha1.SubnetStatus{b}},
		"one of the pool's has no net": {[]string{"us-east-1c", "us-east-1a"}, []v1alpha1.SubnetStatus{a}},
		"none of the pool's has one":   {[]string{"us-east-1c"}, nil},
	} {
		pool := testPool()
		pool.Spec.Zones = tc.zones
		if diff := cmp.Diff(tc.want, Pool{Pool: pool, Class: testClass()}.Zones()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWords_AreTheSameEveryTime(t *testing.T) {
	list := corev1.ResourceList{
		"nvidia.com/mig-3g.40gb": resource.MustParse("2"), "nvidia.com/gpu": resource.MustParse("5"), "nvidia.com/mig-1g.10gb": resource.MustParse("18"),
	}
	for range 20 { // a map has no order
		if got, want := Words(list), "nvidia.com/gpu: 5, nvidia.com/mig-1g.10gb: 18, nvidia.com/mig-3g.40gb: 2"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if got := Words(nil); got != "" {
		t.Errorf("nothing is %q", got)
	}
}
