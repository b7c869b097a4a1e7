package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

const (
	// patchTimeout bounds one write, passTimeout one pass over NVML: cutting eight boards takes seconds, and a driver that
	// is sick never answers.
	patchTimeout = 10 * time.Second
	passTimeout  = 5 * time.Minute
	// stopTimeout is how long a pass may go on after the agent was told to stop.
	stopTimeout = time.Second
	// firstRetry is the wait after a first failure; it doubles up to the resync.
	firstRetry = time.Second
)

// Options are what an agent needs. All but Clock must be given.
type Options struct {
	NodeName string
	Library  Library
	Client   dynamic.Interface
	// Resync is how often NVML is read without being asked to.
	Resync time.Duration
	Log    *slog.Logger
	// Clock is the machine's where it is nil.
	Clock clock.Clock
}

// Agent keeps one node's GPUs and its GPUNode's inventory. Its methods belong to the goroutine that calls Run.
type Agent struct {
	Options
	// settled is the hash of the Blueprint whose layout was applied by this process without error. It is not applied again:
	// a driver that said yes and did nothing is reported and the node replaced, not asked until it agrees.
	settled string
	// passing delivers the pass that runs; nil where none does. Only one may: NVML is not asked by two at once.
	passing chan v1alpha1.Inventory
}

// New makes an agent.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" || o.Library == nil || o.Client == nil || o.Log == nil {
		return nil, errors.New("an agent needs the name of its node, NVML, a client and a log")
	}
	if o.Resync <= 0 {
		return nil, fmt.Errorf("resync is %s: give a time above 0, e.g. 30s", o.Resync)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Agent{Options: o}, nil
}

// Run works until ctx ends. It waits for a GPUNode that does not exist yet and outlives every error of NVML and of the API
// server.
func (a *Agent) Run(ctx context.Context) error {
	informer, changed, err := a.watch()
	if err != nil {
		return err
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		informer.RunWithContext(ctx)
	}()
	a.Log.Info("watching", "gpunode", a.NodeName, "resync", a.Resync.String())
	retry := min(firstRetry, a.Resync)
	for {
		wait := a.Resync
		if err := a.step(ctx, informer); err != nil {
			a.Log.Error("will try again", "error", err, "after", retry)
			wait, retry = retry, min(2*retry, a.Resync)
		} else {
			retry = min(firstRetry, a.Resync)
		}
		timer := a.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			a.drain(watching)
			a.Log.Info("stopped")
			return nil
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// watch follows the agent's own GPUNode and no other: it may read them all, but has no use for them.
func (a *Agent) watch() (cache.SharedIndexInformer, <-chan struct{}, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(a.Client, v1alpha1.GPUNodes, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.NodeName).String()
		}).Informer()
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(any, any) { signal() },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching GPUNode %s: %w", a.NodeName, err)
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		a.Log.Warn("the watch broke and will be opened again", "gpunode", a.NodeName, "error", err)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching GPUNode %s: %w", a.NodeName, err)
	}
	return informer, changed, nil
}

// step is one pass: read the GPUNode, apply, look, report. Its error asks for an early retry.
func (a *Agent) step(ctx context.Context, informer cache.SharedIndexInformer) error {
	node, err := a.node(informer.GetStore())
	if err != nil {
		return err
	}
	if node == nil {
		a.Log.Info("waiting: this node has no GPUNode yet", "gpunode", a.NodeName, "apiServerAnswered", informer.HasSynced())
		return nil
	}
	inv, ok := a.pass(ctx, node)
	if !ok {
		return nil
	}
	if inv.Failure == nil && !resetDue(inv) {
		a.settled = node.Spec.Hash
	}
	if err := a.report(ctx, node, inv); err != nil {
		return err
	}
	if inv.Failure != nil {
		return fmt.Errorf("step %s: %s", inv.Failure.Step, inv.Failure.Message)
	}
	return nil
}

// node is the agent's GPUNode, nil where it does not exist yet.
func (a *Agent) node(store cache.Store) (*v1alpha1.GPUNode, error) {
	obj, exists, err := store.GetByKey(a.NodeName)
	if err != nil || !exists {
		return nil, err
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("GPUNode %s is held as %T", a.NodeName, obj)
	}
	node := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, node); err != nil {
		return nil, fmt.Errorf("reading GPUNode %s: %w", a.NodeName, err)
	}
	return node, nil
}

// layoutToApply is the layout of a Blueprint that is new to this agent. A verified node is never cut again: workloads may
// be on it.
func (a *Agent) layoutToApply(node *v1alpha1.GPUNode) *v1alpha1.LayoutBlueprint {
	if node.Spec.Hash == a.settled || meta.IsStatusConditionTrue(node.Status.Conditions, v1alpha1.ConditionVerified) {
		return nil
	}
	return node.Spec.Layout
}

// pass runs one pass in a goroutine of its own, because a call into a sick driver cannot be cancelled. It returns false
// where the agent was told to stop.
func (a *Agent) pass(ctx context.Context, node *v1alpha1.GPUNode) (v1alpha1.Inventory, bool) {
	if a.passing == nil {
		layout, hash, passing := a.layoutToApply(node), node.Spec.Hash, make(chan v1alpha1.Inventory, 1)
		a.passing = passing
		go func() {
			inv := pass(ctx, a.Library, layout)
			inv.BlueprintHash = hash
			passing <- inv
		}()
	}
	timer := a.Clock.NewTimer(passTimeout)
	defer timer.Stop()
	select {
	case inv := <-a.passing:
		a.passing = nil
		return inv, ctx.Err() == nil
	case <-ctx.Done():
		return v1alpha1.Inventory{}, false
	case <-timer.C():
		return v1alpha1.Inventory{BlueprintHash: node.Spec.Hash, Failure: &v1alpha1.AgentFailure{
			Step:    stepRead,
			Message: fmt.Sprintf("NVML has not answered for %s: the driver hangs; reboot or replace the node", passTimeout),
		}}, true
	}
}

// drain waits for the watch and for the pass that runs, and no longer than the node can wait for its agent to stop. Both
// can be where nothing interrupts them, the pass in a driver that hangs and the watch in client-go's wait after a refused
// connection; then they end with the process.
func (a *Agent) drain(watching <-chan struct{}) {
	timer := a.Clock.NewTimer(stopTimeout)
	defer timer.Stop()
	for passing := a.passing; watching != nil || passing != nil; {
		select {
		case <-watching:
			watching = nil
		case <-passing:
			passing = nil
		case <-timer.C():
			a.Log.Warn("stopping in the middle of a call", "driver", passing != nil, "apiServer", watching != nil)
			return
		}
	}
}

// report writes the inventory where it differs from what the GPUNode has.
func (a *Agent) report(ctx context.Context, node *v1alpha1.GPUNode, inv v1alpha1.Inventory) error {
	if sameInventory(node.Status.Inventory, inv) {
		return nil
	}
	inv.ObservedAt = metav1.NewTime(a.Clock.Now())
	patch, err := inventoryPatch(inv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	_, err = a.Client.Resource(v1alpha1.GPUNodes).Patch(ctx, a.NodeName, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.AgentName}, "status")
	if apierrors.IsNotFound(err) {
		return nil // the node is gone and so will this agent be
	}
	if err != nil {
		return fmt.Errorf("reporting the inventory of %s: %w", a.NodeName, err)
	}
	a.Log.Info("reported", "gpunode", a.NodeName, "blueprint", inv.BlueprintHash, "gpus", len(inv.GPUs), "instances", instances(inv))
	return nil
}

func instances(inv v1alpha1.Inventory) (n int) {
	for _, g := range inv.GPUs {
		if g.MIG != nil {
			n += len(g.MIG.Instances)
		}
	}
	return n
}
