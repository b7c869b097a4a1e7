package holds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/notify"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const (
	// conflictAgain is how soon a pool is looked at again that somebody else wrote meanwhile.
	conflictAgain = 50 * time.Millisecond
	// notReadyAgain is how soon a pool is looked at again whose ledger has not counted it since the start.
	notReadyAgain = time.Second
	// countedWithin is how long the ledger may take to count a pool after a start: it asks the API server and the cloud once.
	countedWithin = time.Minute
	// eventsAgain is how soon the pods are told that the pace of events left over.
	eventsAgain = time.Second
	// waitingAgain is how often a pool is looked at while pods wait: time passes in the metrics, and what nodes have left
	// changes without a word from what is watched.
	waitingAgain = 5 * time.Second
	// idleAgain is how often any pool is: the ledger changes without a word too.
	idleAgain = 30 * time.Second
)

// Supply says what the pools may still launch: what each uses of its limits, and what the cloud refuses now.
type Supply interface {
	Usage(pool string) ledger.Usage
	// Unavailable are the ways to buy that the cloud has refused to a class and that are not tried now.
	Unavailable(class string) []v1alpha1.UnavailableOffering
}

// Notices hears at each look what is held and what is not.
type Notices interface {
	Notify(notify.Notice)
}

// Controller reconciles what is held back from each GPUNodePool.
type Controller struct {
	client client.Client
	// live reads past the cache what only few pods need, and once what pods were told.
	live     client.Reader
	supply   Supply
	clock    clock.PassiveClock
	events   *events
	notices  Notices
	expected *memory
}

// NewController returns a reconciler.
func NewController(c client.Client, live client.Reader, supply Supply, recorder record.EventRecorder, notices Notices, clk clock.PassiveClock) *Controller {
	return &Controller{
		client: c, live: live, supply: supply, clock: clk, events: newEvents(recorder, clk), notices: notices, expected: newMemory(),
	}
}

// Reconcile says what is held back from one pool. It takes a request, and not the pool, because the series of a pool must
// go once more when the pool has gone: a look that was under way may have set them again. The request of no name is for
// pods that are meant for pools of ours and name none that exists.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	c.events.recall(ctx, c.live)
	if request.Name == "" {
		return c.strays(ctx)
	}
	pool := &v1alpha1.GPUNodePool{}
	if err := c.client.Get(ctx, request.NamespacedName, pool); apierrors.IsNotFound(err) {
		metrics.ForgetPool(request.Name)
		c.expected.forget(request.Name)
		c.notify(&v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}, nil)
		return c.strays(ctx)
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading GPUNodePool %q: %w", request.Name, err)
	}
	switch {
	case c.supply.Usage(pool.Name).Ready || refused(pool):
		c.expected.counted(pool.Name)
	case c.expected.notCounted(pool.Name, c.clock.Now()) <= countedWithin:
		// What was said before a restart stands until there is something to say.
		return reconcile.Result{RequeueAfter: notReadyAgain}, nil
	}
	seen, verdicts, err := c.decide(ctx, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	h := held(diagnose.Holds(verdicts))
	measure(seen, h, c.clock.Now())
	c.notify(pool, h)
	told := c.events.tellPods(pool.Name, h)
	written, err := c.write(ctx, pool, seen.pool.Usage, h, seen.unavailable)
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

// refused says whether the pool is known to launch nothing as it is declared: then the ledger is never told of it.
func refused(pool *v1alpha1.GPUNodePool) bool {
	accepted := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration == pool.Generation
}

// decide returns the verdicts on the pods that wait for a pool. A pod that names other pools too has the verdict of the
// pool that is nearest to serving it, and only that pool speaks of it.
func (c *Controller) decide(ctx context.Context, pool *v1alpha1.GPUNodePool) (looked, []diagnose.Verdict, error) {
	seen, err := c.look(ctx, pool)
	if err != nil {
		return looked{}, nil, err
	}
	verdicts := c.judge(seen, pool.Name)
	others := map[string]map[types.UID]diagnose.Verdict{}
	var own []diagnose.Verdict
	for _, v := range verdicts {
		all := []diagnose.Verdict{v}
		for _, name := range diagnose.NamedPools(v.Pod) {
			if name == pool.Name || !v.Held() {
				continue
			}
			if _, known := others[name]; !known {
				if others[name], err = c.verdictsOf(ctx, name); err != nil {
					return looked{}, nil, err
				}
			}
			if other, found := others[name][v.Pod.UID]; found {
				all = append(all, other)
			}
		}
		// In the order of names, so that of equals every pool finds the same.
		slices.SortFunc(all, func(a, b diagnose.Verdict) int { return strings.Compare(a.Pool, b.Pool) })
		if diagnose.Nearest(all).Pool == pool.Name {
			own = append(own, v)
		}
	}
	c.expected.keep(pool.Name, verdicts, c.clock.Now())
	return seen, own, nil
}

// judge asks for the verdicts on what was looked at. What is remembered of the pods is kept by a name: that of the pool that
// they name.
func (c *Controller) judge(seen looked, remembered string) []diagnose.Verdict {
	cluster := seen.cluster
	cluster.Now = c.clock.Now()
	c.expected.tell(&cluster, remembered, seen.pods)
	return diagnose.Decide(cluster, seen.pool, seen.pods)
}

// verdictsOf are those of another pool, by the pods' UIDs; none where it does not exist. Where other pods are given, which
// name no pool, the verdicts are on those instead.
func (c *Controller) verdictsOf(ctx context.Context, name string, instead ...*corev1.Pod) (map[types.UID]diagnose.Verdict, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, pool); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading GPUNodePool %q: %w", name, err)
	}
	seen, err := c.look(ctx, pool)
	if err != nil {
		return nil, err
	}
	remembered := name
	if len(instead) > 0 {
		seen.pods, remembered = instead, ""
		if seen.cluster, err = c.needed(ctx, instead); err != nil {
			return nil, err
		}
	}
	verdicts := map[types.UID]diagnose.Verdict{}
	for _, v := range c.judge(seen, remembered) {
		verdicts[v.Pod.UID] = v
	}
	return verdicts, nil
}

// notify says of every reason what it holds: also that it holds nothing, which may be the end of something.
func (c *Controller) notify(pool *v1alpha1.GPUNodePool, h held) {
	for _, reason := range v1alpha1.HoldReasons {
		notice := notify.Notice{
			Pool: pool.Name, Workload: string(pool.Spec.Workload), Reason: reason.Name, Command: "kubectl gpufleet explain pool " + pool.Name,
		}
		if one := h.of(reason.Name); one != nil {
			notice.Held, notice.Pods, notice.GPUs = true, len(one.Pods), int(one.GPUs)
			notice.Since, notice.Message, notice.Remedy = one.Since, one.Message, one.Remedy
		}
		c.notices.Notify(notice)
	}
}
