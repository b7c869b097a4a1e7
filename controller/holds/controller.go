package holds

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const (
	// conflictAgain is how soon a pool is looked at again that somebody else wrote meanwhile.
	conflictAgain = 50 * time.Millisecond
	// notReadyAgain is how soon a pool is looked at again whose ledger has not counted it since the start.
	notReadyAgain = time.Second
	// eventsAgain is how soon the pods are told that the pace of events left over.
	eventsAgain = time.Second
	// waitingAgain is how often a pool is looked at while pods wait: time passes in the metrics, and what nodes have left
	// changes without a word from what is watched.
	waitingAgain = 5 * time.Second
	// idleAgain is how often any pool is: the ledger changes without a word too.
	idleAgain = 30 * time.Second
)

// Usages says what each pool uses of its limits.
type Usages interface {
	Usage(pool string) ledger.Usage
}

// Controller reconciles what is held back from each GPUNodePool.
type Controller struct {
	client client.Client
	usages Usages
	clock  clock.PassiveClock
	events *events
}

// NewController returns a reconciler.
func NewController(c client.Client, usages Usages, recorder record.EventRecorder, clk clock.PassiveClock) *Controller {
	return &Controller{client: c, usages: usages, clock: clk, events: newEvents(recorder, clk)}
}

// Reconcile says what is held back from one pool. It takes a request, and not the pool, because the series of a pool must
// go once more when the pool has gone: a look that was under way may have set them again.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := c.client.Get(ctx, request.NamespacedName, pool); apierrors.IsNotFound(err) {
		metrics.ForgetPool(request.Name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading GPUNodePool %q: %w", request.Name, err)
	}
	usage := c.usages.Usage(pool.Name)
	if !usage.Ready {
		// What was said before a restart stands until there is something to say.
		return reconcile.Result{RequeueAfter: notReadyAgain}, nil
	}
	verdicts, err := c.decide(ctx, pool, usage)
	if err != nil {
		return reconcile.Result{}, err
	}
	held := summarize(verdicts)
	measure(pool.Name, usage, held, c.clock.Now())
	told := c.events.tellPods(pool.Name, held)
	written, err := c.write(ctx, pool, usage, held)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !written:
		return reconcile.Result{RequeueAfter: conflictAgain}, nil
	case !told:
		return reconcile.Result{RequeueAfter: eventsAgain}, nil
	case len(verdicts) > 0:
		return reconcile.Result{RequeueAfter: waitingAgain}, nil
	}
	return reconcile.Result{RequeueAfter: idleAgain}, nil
}

// decide returns the verdicts on the pods that wait for a pool. A pod that names other pools too is not held while one of
// them can be expected to take it.
func (c *Controller) decide(ctx context.Context, pool *v1alpha1.GPUNodePool, usage ledger.Usage) ([]verdict, error) {
	seen, err := c.look(ctx, pool, usage)
	if err != nil {
		return nil, err
	}
	verdicts := decide(seen)
	others := map[string]map[types.UID]bool{}
	for i := range verdicts {
		if verdicts[i].refusal == nil {
			continue
		}
		for _, other := range namedPools(verdicts[i].pod) {
			if other == pool.Name {
				continue
			}
			if _, looked := others[other]; !looked {
				if others[other], err = c.expectedBy(ctx, other); err != nil {
					return nil, err
				}
			}
			if others[other][verdicts[i].pod.UID] {
				verdicts[i] = verdict{pod: verdicts[i].pod, expected: true}
			}
		}
	}
	return verdicts, nil
}

// expectedBy are the pods that a pool can be expected to take.
func (c *Controller) expectedBy(ctx context.Context, name string) (map[types.UID]bool, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, pool); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading GPUNodePool %q: %w", name, err)
	}
	seen, err := c.look(ctx, pool, c.usages.Usage(name))
	if err != nil {
		return nil, err
	}
	expected := map[types.UID]bool{}
	for _, each := range decide(seen) {
		expected[each.pod.UID] = each.expected
	}
	return expected, nil
}
