package miglayout

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func TestMain(m *testing.M) {
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const layoutName = "h100-7x1g10gb"

// world is one layout with the reconciler over it.
type world struct {
	*Controller
	writes int
}

func newWorld(t *testing.T, slices ...v1alpha1.MIGSlice) *world {
	t.Helper()
	layout := &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: layoutName, Generation: 1},
		Spec:       v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{{Slices: slices}}},
	}
	w := &world{}
	w.Controller = NewController(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(layout).WithStatusSubresource(layout).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				w.writes++
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		}).Build())
	return w
}

func (w *world) layout(t *testing.T) *v1alpha1.MIGLayout {
	t.Helper()
	layout := &v1alpha1.MIGLayout{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: layoutName}, layout); err != nil {
		t.Fatal(err)
	}
	return layout
}

func (w *world) reconcile(t *testing.T) {
	t.Helper()
	result, err := w.Reconcile(t.Context(), w.layout(t))
	if err != nil {
		t.Fatal(err)
	}
	if result != (reconcile.Result{}) {
		t.Errorf("looks again: %+v; a layout depends on nothing else", result)
	}
}

// recut changes the slices, as a user would: a new spec is a new generation.
func (w *world) recut(t *testing.T, slices ...v1alpha1.MIGSlice) {
	t.Helper()
	layout := w.layout(t)
	layout.Spec.Devices[0].Slices = slices
	layout.Generation++
	if err := w.client.Update(t.Context(), layout); err != nil {
		t.Fatal(err)
	}
}

// wantAccepted compares the one condition, and looks for words in its message.
func (w *world) wantAccepted(t *testing.T, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	layout := w.layout(t)
	if len(layout.Status.Conditions) != 1 {
		t.Fatalf("conditions %v, want one", layout.Status.Conditions)
	}
	got := layout.Status.Conditions[0]
	if got.Type != "Accepted" || got.Status != status || got.Reason != reason || got.ObservedGeneration != layout.Generation {
		t.Errorf("%s=%s %s at generation %d (%s), want Accepted=%s %s at %d",
			got.Type, got.Status, got.Reason, got.ObservedGeneration, got.Message, status, reason, layout.Generation)
	}
	for _, each := range words {
		if !strings.Contains(got.Message, each) {
			t.Errorf("%q does not say %q", got.Message, each)
		}
	}
}

var seven = v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 7}

// An H100 has 7 compute slices and 8 memory slices; 1g.10gb takes one of each, from any start of 0 to 6.
func TestReconcile_ShowsWhereEachSliceGoes(t *testing.T) {
	w := newWorld(t, seven)
	w.reconcile(t)
	w.wantAccepted(t, metav1.ConditionTrue, "Valid")
	want := []v1alpha1.MIGDevicesStatus{{
		Resources:           corev1.ResourceList{"nvidia.com/mig-1g.10gb": *resource.NewQuantity(7, resource.DecimalSI)},
		UnusedComputeSlices: 0, UnusedMemorySlices: 1,
	}}
	for start := range int32(7) {
		want[0].Instances = append(want[0].Instances, v1alpha1.MIGInstance{Profile: "1g.10gb", ComputeSlices: 1, Start: start, Size: 1})
	}
	if diff := cmp.Diff(want, w.layout(t).Status.Devices); diff != "" {
		t.Error(diff)
	}
}

// 3 + 3 + 1 compute slices are 7 of 7, but each 3g.40gb takes 4 of the 8 memory slices: nothing is left for 1g.10gb.
func TestReconcile_SaysWhyALayoutCannotBePlaced(t *testing.T) {
	w := newWorld(t, v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 2}, v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 1})
	w.reconcile(t)
	w.wantAccepted(t, metav1.ConditionFalse, "InvalidLayout", "spec.devices[0].slices", "H100-80GB-SXM cannot be cut into 2 x 3g.40gb + 1g.10gb")
	if got := w.layout(t).Status.Devices; len(got) > 0 {
		t.Errorf("a layout that cannot be placed has placements: %v", got)
	}
}

func TestReconcile_FollowsEachChangeOfALayout(t *testing.T) {
	w := newWorld(t, seven)
	w.reconcile(t)
	w.recut(t, v1alpha1.MIGSlice{Profile: "1g.10gb", Count: 8})
	w.reconcile(t)
	w.wantAccepted(t, metav1.ConditionFalse, "InvalidLayout", "8 x 1g.10gb")
	if got := w.layout(t).Status.Devices; len(got) > 0 {
		t.Errorf("placements of the earlier layout stay: %v", got)
	}
	w.recut(t, v1alpha1.MIGSlice{Profile: "3g.40gb", Count: 2})
	w.reconcile(t)
	w.wantAccepted(t, metav1.ConditionTrue, "Valid")
	if got := w.layout(t).Status.Devices; len(got) != 1 || len(got[0].Instances) != 2 || got[0].UnusedComputeSlices != 1 {
		t.Errorf("devices %v, want 2 x 3g.40gb with 1 compute slice unused", got)
	}
}

func TestReconcile_WritesNothingWhenNothingChanged(t *testing.T) {
	for name, slices := range map[string][]v1alpha1.MIGSlice{
		"accepted": {seven}, "refused": {{Profile: "1g.10gb", Count: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, slices...)
			w.reconcile(t)
			if w.writes != 1 {
				t.Fatalf("the first look wrote %d times, want once", w.writes)
			}
			version := w.layout(t).ResourceVersion
			w.reconcile(t)
			if got := w.layout(t).ResourceVersion; got != version || w.writes != 1 {
				t.Errorf("a second look wrote: %d writes, resource version %s after %s", w.writes, got, version)
			}
		})
	}
}

func TestReconcile_LeavesALayoutThatIsGoingOrGone(t *testing.T) {
	w := newWorld(t, seven)
	layout := w.layout(t)
	layout.Finalizers = []string{"example.com/other"}
	if err := w.client.Update(t.Context(), layout); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), layout); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if w.writes > 0 {
		t.Error("wrote the status of a layout that is going")
	}

	going := w.layout(t)
	going.Finalizers = nil
	if err := w.client.Update(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	// The cache may still show a layout that is gone.
	layout.DeletionTimestamp = nil
	if _, err := w.Reconcile(t.Context(), layout); err != nil {
		t.Errorf("a layout that went meanwhile is an error: %v", err)
	}
}
