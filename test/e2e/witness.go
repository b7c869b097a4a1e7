package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Witness records the resource version of every write to Nodes, Pods and GPUNodes. All of them live in one etcd, so
// their resource versions are one order of all writes: it shows what came first without a clock.
type Witness struct {
	mu     sync.Mutex // guards writes
	writes []write
}

// write is one state of one object.
type write struct {
	version uint64
	object  *unstructured.Unstructured
}

var witnessed = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("nodes"),
	corev1.SchemeGroupVersion.WithResource("pods"),
	v1alpha1.GPUNodes,
}

// startWitness watches until the context ends.
func startWitness(ctx context.Context, config *rest.Config) (*Witness, error) {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &Witness{}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	for _, resource := range witnessed {
		informer := factory.ForResource(resource).Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.record(o) },
			UpdateFunc: func(_, o any) { w.record(o) },
		})
		if err != nil {
			return nil, err
		}
	}
	factory.Start(ctx.Done())
	syncCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for resource, synced := range factory.WaitForCacheSync(syncCtx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watching %s did not begin", resource.Resource)
		}
	}
	return w, nil
}

func (w *Witness) record(o any) {
	object, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, write{version, object})
}

// first is the lowest version of a write that is as asked, 0 where there is none.
func (w *Witness) first(is func(*unstructured.Unstructured) bool) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lowest uint64
	for _, each := range w.writes {
		if is(each.object) && (lowest == 0 || each.version < lowest) {
			lowest = each.version
		}
	}
	return lowest
}

// Order is when a node was reported, untainted and first used, in resource versions.
type Order struct {
	// Inventory is the GPUNode write whose inventory has all instances.
	Inventory uint64
	// Untainted is the Node write that removed the startup taint.
	Untainted uint64
	// FirstBinding is the first binding of a pod to the node.
	FirstBinding uint64
}

// OrderOf reads the order of one node.
func (w *Witness) OrderOf(node string, instances int) Order {
	return Order{
		Inventory: w.first(func(o *unstructured.Unstructured) bool {
			return o.GetKind() == v1alpha1.KindGPUNode && o.GetName() == node && reportedInstances(o) == instances
		}),
		Untainted: w.first(func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Node" && o.GetName() == node && !tainted(o) && w.wasTainted(node)
		}),
		FirstBinding: w.first(func(o *unstructured.Unstructured) bool {
			bound, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
			return o.GetKind() == "Pod" && bound == node
		}),
	}
}

// Check wants the order inventory, untainted, binding.
func (o Order) Check() error {
	if o.Inventory == 0 || o.Untainted == 0 || o.FirstBinding == 0 {
		return fmt.Errorf("not everything was seen: %+v", o)
	}
	if o.Inventory >= o.Untainted {
		return fmt.Errorf("the taint went (%d) before the matching inventory came (%d)", o.Untainted, o.Inventory)
	}
	if o.Untainted >= o.FirstBinding {
		return errors.New("a pod was bound before the taint went: " + fmt.Sprintf("%+v", o))
	}
	return nil
}

// wasTainted says whether the node carried the startup taint in its first state. Callers hold mu.
func (w *Witness) wasTainted(node string) bool {
	for _, each := range w.writes {
		if each.object.GetKind() == "Node" && each.object.GetName() == node {
			return tainted(each.object)
		}
	}
	return false
}

func tainted(node *unstructured.Unstructured) bool {
	taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	for _, taint := range taints {
		if fields, ok := taint.(map[string]any); ok && fields["key"] == v1alpha1.TaintUnverified {
			return true
		}
	}
	return false
}

func reportedInstances(o *unstructured.Unstructured) int {
	node := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, node); err != nil || node.Status.Inventory == nil {
		return -1
	}
	return instances(node.Status.Inventory)
}

func instances(inventory *v1alpha1.Inventory) int {
	total := 0
	for _, board := range inventory.GPUs {
		if board.MIG != nil {
			total += len(board.MIG.Instances)
		}
	}
	return total
}
