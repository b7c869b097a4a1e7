package holds

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// The size that is promised: a pool has 100 pods that wait and 20 nodes with 8 pods each.
const (
	benchPools = 50
	benchNodes = 20
	benchPods  = 100
)

// informed is a client over what informers hold, with the index that the manager has. It counts writes.
type informed struct {
	client.Client
	kinds  map[schema.GroupVersionKind]cache.Indexer
	writes int
}

func (c *informed) add(objects ...client.Object) {
	for _, object := range objects {
		kind, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			panic(err)
		}
		if c.kinds[kind] == nil {
			c.kinds[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
				"spec.nodeName": func(o any) ([]string, error) {
					if pod, is := o.(*corev1.Pod); is {
						return []string{pod.Spec.NodeName}, nil
					}
					return nil, nil
				},
				waitsFor: func(o any) ([]string, error) { return waitsForPools(o.(client.Object)), nil },
			})
		}
		if err := c.kinds[kind].Add(object); err != nil {
			panic(err)
		}
	}
}

func (c *informed) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	name := key.Name
	if key.Namespace != "" {
		name = key.Namespace + "/" + key.Name
	}
	if indexer := c.kinds[kind]; indexer != nil {
		if found, exists, _ := indexer.GetByKey(name); exists {
			// As the cache does: a deep copy, put in place.
			copied := found.(client.Object).DeepCopyObject()
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(copied).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
}

func (c *informed) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(into, scheme.Scheme)
	if err != nil {
		return err
	}
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	options := (&client.ListOptions{}).ApplyOptions(opts)
	var found []any
	if indexer := c.kinds[kind]; indexer != nil {
		if options.FieldSelector != nil {
			by := options.FieldSelector.Requirements()[0]
			found, _ = indexer.ByIndex(by.Field, by.Value)
		} else {
			found = indexer.List()
		}
	}
	var items []runtime.Object
	for _, each := range found {
		object := each.(client.Object)
		if options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object)
		}
	}
	return meta.SetList(into, items)
}

func (c *informed) Status() client.SubResourceWriter { return countingWriter{c} }

type countingWriter struct{ c *informed }

func (w countingWriter) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return nil
}

func (w countingWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return nil
}

func (w countingWriter) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return nil
}

func (w countingWriter) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	w.c.writes++
	w.c.add(object)
	return nil
}

type silent struct{}

func (silent) Event(runtime.Object, string, string, string)                                      {}
func (silent) Eventf(runtime.Object, string, string, string, ...any)                             {}
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// crowd is 50 full pools of 20 nodes, 8 pods on each, and 100 that wait.
func crowd(tb testing.TB) (*Controller, *informed) {
	tb.Helper()
	books := ledger.New()
	worlds := map[string]ledger.World{}
	c := &informed{kinds: map[schema.GroupVersionKind]cache.Indexer{}}
	c.add(whole())
	for p := range benchPools {
		name := fmt.Sprintf("pool-%02d", p)
		c.add(newPool(name, "whole", "p5.48xlarge", "p4d.24xlarge"))
		books.SetLimits(name, gpus(8*benchNodes))
		world := ledger.World{}
		for n := range benchNodes {
			claim := newClaim(fmt.Sprintf("%s-node-%02d", name, n), name, "p5.48xlarge", list(gpu, 8))
			uid := string(claim.UID)
			world.Claims = append(world.Claims, ledger.Claim{UID: uid, Attempt: uid, Machine: boards(8), State: ledger.Launched})
			gpuNode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: claim.Name}, Spec: v1alpha1.Blueprint{Pool: name}}
			c.add(claim, newNode(claim, list(gpu, 8, "cpu", 190, "memory", "2000Gi", "pods", 110)), gpuNode)
			for i := range 8 {
				c.add(newPod(fmt.Sprintf("%s-%d", claim.Name, i), name, list(gpu, 1, "cpu", 8), on(claim.Name)))
			}
		}
		worlds[name] = world
		c.add(pods(benchPods, name+"-waiting", name, list(gpu, 1, "cpu", 8))...)
	}
	if err := books.Rebuild(func() (map[string]ledger.World, error) { return worlds, nil }); err != nil {
		tb.Fatal(err)
	}
	return NewController(c, c, ofLedger{books}, silent{}, &notices{}, clock.RealClock{}), c
}

type ofLedger struct{ *ledger.Ledger }

func (ofLedger) Unavailable(string) []v1alpha1.UnavailableOffering { return nil }

func pass(tb testing.TB, c *Controller, name string) {
	tb.Helper()
	if _, err := c.Reconcile(tb.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
		tb.Fatal(err)
	}
}

// Nothing is written where nothing changed, at the size that is promised; and what is said is right.
func TestReconcile_OfACrowdWritesOnceForEachPool(t *testing.T) {
	c, cache := crowd(t)
	for range 3 {
		for p := range benchPools {
			pass(t, c, fmt.Sprintf("pool-%02d", p))
		}
	}
	if cache.writes != benchPools {
		t.Errorf("%d writes in three passes, want one a pool", cache.writes)
	}
	pool := &v1alpha1.GPUNodePool{}
	if err := cache.Get(t.Context(), client.ObjectKey{Name: "pool-07"}, pool); err != nil {
		t.Fatal(err)
	}
	// Fewer than 200 a pool and 20 a node are the promise (C71); nothing is counted by node or pod.
	for p := range benchPools {
		name := fmt.Sprintf("pool-%02d", p)
		if got := len(series(t, name)); got == 0 || got >= 200 {
			t.Errorf("pool %s has %d series, want fewer than 200", name, got)
		}
		metrics.ForgetPool(name)
	}
	if holds := pool.Status.Holds; len(holds) != 1 || holds[0].Reason != v1alpha1.HoldLimitReached || holds[0].Pods != benchPods || holds[0].GPUs != benchPods {
		t.Errorf("holds are %+v", holds)
	}
}

// A full pass: 5,000 pods that wait, 1,000 nodes, 50 pools.
func BenchmarkReconcile_AFullPass(b *testing.B) {
	c, _ := crowd(b)
	for b.Loop() {
		for p := range benchPools {
			pass(b, c, fmt.Sprintf("pool-%02d", p))
		}
	}
}

// One change is of one pool.
func BenchmarkReconcile_OneChange(b *testing.B) {
	c, _ := crowd(b)
	for b.Loop() {
		pass(b, c, "pool-07")
	}
}
