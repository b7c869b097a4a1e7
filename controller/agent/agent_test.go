package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

const nodeName = "ip-10-0-0-1.ec2.internal"

func gpuNode(hash string, layout *v1alpha1.LayoutBlueprint, conditions ...metav1.Condition) *unstructured.Unstructured {
	node := &v1alpha1.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindGPUNode},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:       v1alpha1.Blueprint{Hash: hash, Layout: layout},
		Status:     v1alpha1.GPUNodeStatus{Conditions: conditions},
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: obj}
}

func client(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"}, objects...)
}

// start runs an agent until the test ends or stop is called, which returns when the agent has.
func start(t *testing.T, c *dynamicfake.FakeDynamicClient, lib Library, resync time.Duration) (stop func()) {
	t.Helper()
	a, err := New(Options{NodeName: nodeName, Library: lib, Client: c, Resync: resync, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within 10 s", what)
		case <-tick.C:
		}
	}
}

func reported(t *testing.T, c *dynamicfake.FakeDynamicClient) v1alpha1.GPUNodeStatus {
	t.Helper()
	u, err := c.Resource(v1alpha1.GPUNodes).Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, node); err != nil {
		t.Fatal(err)
	}
	return node.Status
}

func patches(c *dynamicfake.FakeDynamicClient) (all []clienttesting.PatchAction) {
	for _, action := range c.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			all = append(all, patch)
		}
	}
	return all
}

func TestAgent_WaitsForItsGPUNodeThenAppliesAndReports(t *testing.T) {
	c, board := client(), h100(false)
	start(t, c, &fakeLibrary{boards: []*fakeBoard{board}}, time.Hour)
	eventually(t, "the watch is open", func() bool {
		for _, a := range c.Actions() {
			if a.GetVerb() == "watch" {
				return true
			}
		}
		return false
	})
	ready := metav1.Condition{Type: v1alpha1.ConditionIdentified, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonAwaitingInventory}
	if _, err := c.Resource(v1alpha1.GPUNodes).Create(t.Context(), gpuNode("h1", layoutOf(sevenOnes(), 0), ready), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the inventory is reported", func() bool { return reported(t, c).Inventory != nil })
	status := reported(t, c)
	if inv := status.Inventory; inv.BlueprintHash != "h1" || inv.Failure != nil || instances(*inv) != 7 || inv.ObservedAt.IsZero() {
		t.Errorf("inventory %+v", inv)
	}
	if len(status.Conditions) != 1 || status.Conditions[0].Reason != v1alpha1.ReasonAwaitingInventory {
		t.Errorf("conditions %+v were not the agent's to change", status.Conditions)
	}
}

func TestAgent_WritesStatusInventoryOfItsOwnGPUNodeAndNothingElse(t *testing.T) {
	c := client(gpuNode("h1", layoutOf(sevenOnes(), 0)))
	stop := start(t, c, &fakeLibrary{boards: []*fakeBoard{h100(false)}}, time.Hour)
	eventually(t, "the inventory is reported", func() bool { return len(patches(c)) > 0 })
	stop()
	for _, action := range c.Actions() {
		switch a := action.(type) {
		case clienttesting.ListActionImpl:
			if got := a.ListRestrictions.Fields.String(); got != "metadata.name="+nodeName {
				t.Errorf("listed with field selector %q", got)
			}
		case clienttesting.WatchActionImpl:
			if got := a.WatchRestrictions.Fields.String(); got != "metadata.name="+nodeName {
				t.Errorf("watched with field selector %q", got)
			}
		case clienttesting.PatchActionImpl:
			checkPatch(t, a)
		default:
			t.Errorf("%s %s: an agent may not", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func checkPatch(t *testing.T, a clienttesting.PatchActionImpl) {
	t.Helper()
	if a.Subresource != "status" || a.Name != nodeName || a.PatchType != types.MergePatchType {
		t.Errorf("patched %s/%s with %s", a.Name, a.Subresource, a.PatchType)
	}
	var body map[string]map[string]json.RawMessage
	if err := json.Unmarshal(a.Patch, &body); err != nil {
		t.Fatal(err)
	}
	if len(body) != 1 || len(body["status"]) != 1 || body["status"]["inventory"] == nil {
		t.Errorf("patch %s touches more than status.inventory", a.Patch)
	}
}

func TestInventoryPatch_ClearsWhatIsNoLongerSo(t *testing.T) {
	data, err := inventoryPatch(v1alpha1.Inventory{BlueprintHash: "h2"})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"observedAt": nil, "blueprintHash": "h2", "driverVersion": nil, "nvmlVersion": nil, "cudaVersion": nil, "gpus": nil, "failure": nil}
	if diff := cmp.Diff(want, got["status"]["inventory"]); diff != "" {
		t.Error(diff)
	}
}

func TestAgent_WritesAgainOnlyWhatChanged(t *testing.T) {
	lib := &countingLibrary{Library: &fakeLibrary{boards: []*fakeBoard{h100(false)}}}
	c := client(gpuNode("h1", layoutOf(sevenOnes(), 0)))
	start(t, c, lib, 10*time.Millisecond)
	eventually(t, "the inventory is reported", func() bool { return reported(t, c).Inventory != nil })
	before := lib.opened.Load()
	eventually(t, "NVML is read again", func() bool { return lib.opened.Load() > before+5 })
	first := len(patches(c))
	again := lib.opened.Load()
	eventually(t, "NVML is read again", func() bool { return lib.opened.Load() > again+5 })
	if got := len(patches(c)); got != first {
		t.Errorf("%d patches, then %d though nothing changed", first, got)
	}
}

type countingLibrary struct {
	Library
	opened atomic.Int64
}

func (l *countingLibrary) Open() (Session, error) {
	l.opened.Add(1)
	return l.Library.Open()
}

func TestAgent_C13_DoesNotAskADriverThatLiesUntilItAgrees(t *testing.T) {
	board := h100(true)
	board.silent = true
	lib := &countingLibrary{Library: &fakeLibrary{boards: []*fakeBoard{board}}}
	c := client(gpuNode("h1", layoutOf(sevenOnes(), 0)))
	stop := start(t, c, lib, 5*time.Millisecond)
	eventually(t, "ten passes", func() bool { return lib.opened.Load() > 10 })
	stop()
	if len(board.calls) != 7 {
		t.Errorf("%d changes were asked for, want the layout's 7 once", len(board.calls))
	}
}

func TestAgent_C16_AppliesTheLayoutWhenTheModeThatWaitedIsInEffect(t *testing.T) {
	board := h100(false)
	board.pends = 3
	c := client(gpuNode("h1", layoutOf(sevenOnes(), 0)))
	start(t, c, &fakeLibrary{boards: []*fakeBoard{board}}, 5*time.Millisecond)
	eventually(t, "the layout is applied", func() bool {
		inv := reported(t, c).Inventory
		return inv != nil && instances(*inv) == 7
	})
}

func TestAgent_NeverCutsAVerifiedNode(t *testing.T) {
	board := h100(false)
	verified := metav1.Condition{Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMatches}
	c := client(gpuNode("h1", layoutOf(sevenOnes(), 0), verified))
	stop := start(t, c, &fakeLibrary{boards: []*fakeBoard{board}}, time.Hour)
	eventually(t, "the inventory is reported", func() bool { return reported(t, c).Inventory != nil })
	stop()
	if board.calls != nil {
		t.Errorf("calls %q", board.calls)
	}
}

func TestAgent_TriesAgainAfterErrorsOfNVMLAndOfTheAPIServer(t *testing.T) {
	c := client(gpuNode("h1", nil))
	var refused atomic.Int64
	c.PrependReactor("patch", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused.Add(1) <= 2 {
			return true, nil, apierrors.NewTooManyRequests("slow down", 1)
		}
		return false, nil, nil
	})
	lib := &recoveringLibrary{Library: &fakeLibrary{boards: []*fakeBoard{h100(false)}}}
	start(t, c, lib, 10*time.Millisecond)
	eventually(t, "the failure is reported", func() bool {
		inv := reported(t, c).Inventory
		return inv != nil && inv.Failure != nil && inv.Failure.Step == stepLoad
	})
	lib.loaded.Store(true)
	eventually(t, "the failure is gone", func() bool {
		inv := reported(t, c).Inventory
		return inv.Failure == nil && len(inv.GPUs) == 1
	})
}

// recoveringLibrary cannot be loaded until the driver is.
type recoveringLibrary struct {
	Library
	loaded atomic.Bool
}

func (l *recoveringLibrary) Open() (Session, error) {
	if !l.loaded.Load() {
		return nil, errors.New("driver not loaded")
	}
	return l.Library.Open()
}

func TestAgent_StopsWithinTwoSecondsThoughTheDriverHangs(t *testing.T) {
	lib := &countingLibrary{}
	hang := make(chan struct{})
	lib.Library = &fakeLibrary{hang: hang}
	defer close(hang)
	stop := start(t, client(gpuNode("h1", nil)), lib, time.Hour)
	eventually(t, "the pass hangs", func() bool { return lib.opened.Load() > 0 })
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("stopped after %s", took)
	}
}

func TestNew_RefusesAResyncOfZero(t *testing.T) {
	_, err := New(Options{NodeName: nodeName, Library: &fakeLibrary{}, Client: client(), Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Error("resync 0 was accepted")
	}
}
