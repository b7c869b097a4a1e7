package nodepool

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

// fleetOfThree has pools inference and batch of class h100-mig, and research of class whole, which has no layouts.
func fleetOfThree(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	whole := testClass()
	whole.ObjectMeta = metav1.ObjectMeta{Name: "whole"}
	whole.Spec.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive}
	for name, class := range map[string]string{"batch": className, "research": "whole"} {
		pool := testPool()
		pool.ObjectMeta = metav1.ObjectMeta{Name: name}
		pool.Spec.NodeClassRef.Name = class
		w.create(t, pool)
	}
	w.create(t, whole)
	return w
}

func names(requests []reconcile.Request) []string {
	var out []string
	for _, each := range requests {
		out = append(out, each.Name)
	}
	slices.Sort(out)
	return out
}

func TestPoolsOfClass_AreThoseThatReferToIt(t *testing.T) {
	w := fleetOfThree(t)
	for class, want := range map[string][]string{className: {"batch", "inference"}, "whole": {"research"}, "unused": nil} {
		object := nodeclass.New()
		object.Name = class
		if got := names(w.poolsOfClass(t.Context(), object)); !slices.Equal(got, want) {
			t.Errorf("class %s wakes %v, want %v", class, got, want)
		}
	}
}

func TestPoolsOfLayout_AreThoseOfTheClassesThatNameIt(t *testing.T) {
	w := fleetOfThree(t)
	for layout, want := range map[string][]string{layoutName: {"batch", "inference"}, "unused": nil} {
		object := &v1alpha1.MIGLayout{ObjectMeta: metav1.ObjectMeta{Name: layout}}
		if got := names(w.poolsOfLayout(t.Context(), object)); !slices.Equal(got, want) {
			t.Errorf("layout %s wakes %v, want %v", layout, got, want)
		}
	}
}

func TestRequest_IsNoneForAnObjectOfNoPool(t *testing.T) {
	if got := request(""); got != nil {
		t.Errorf("an object without a pool's label wakes %v", got)
	}
	if got := names(request("inference")); !slices.Equal(got, []string{"inference"}) {
		t.Errorf("an object of pool inference wakes %v", got)
	}
}

func TestPoolOfNodePool_IsTheOneThatWouldHaveWrittenIt(t *testing.T) {
	for name, want := range map[string]string{nodePoolP548: "inference", "a-b-859ddeab": "a-b", "general": "", "-859ddeab": ""} {
		requests := poolOfNodePool(t.Context(), &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}})
		got := ""
		if len(requests) > 0 {
			got = requests[0].Name
		}
		if got != want {
			t.Errorf("NodePool %q wakes pool %q, want %q", name, got, want)
		}
	}
}
