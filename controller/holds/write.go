package holds

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// write brings the pool's holds and its LimitReached condition up to date, and says a change of the condition as an event.
// It returns false where somebody else wrote the pool meanwhile. The condition stands in a list with those of the nodepool
// reconciler, and a merge patch replaces a list whole: the resource version is the lock that keeps theirs.
func (c *Controller) write(ctx context.Context, pool *v1alpha1.GPUNodePool, usage ledger.Usage, h held) (bool, error) {
	stored := pool.DeepCopy()
	before := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionLimitReached)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionLimitReached, Status: metav1.ConditionFalse, Reason: h.reason(), Message: h.message(),
		ObservedGeneration: pool.Generation,
	}
	if len(h.limits) > 0 {
		condition.Status = metav1.ConditionTrue
	}
	if before == nil || before.Status != condition.Status {
		condition.LastTransitionTime = metav1.NewTime(c.clock.Now())
	}
	meta.SetStatusCondition(&pool.Status.Conditions, condition)
	pool.Status.Holds = h.status()
	if equality.Semantic.DeepEqual(stored.Status, pool.Status) {
		return true, nil
	}
	err := c.client.Status().Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("writing what is held back from GPUNodePool %q: %w", pool.Name, err)
	}
	c.announce(pool, before, condition, usage)
	return true, nil
}

// announce says that a limit is reached, that it is another one, or that none is any more.
func (c *Controller) announce(pool *v1alpha1.GPUNodePool, before *metav1.Condition, now metav1.Condition, usage ledger.Usage) {
	reached := before != nil && before.Status == metav1.ConditionTrue
	switch {
	case now.Status == metav1.ConditionTrue && (!reached || before.Reason != now.Reason):
		c.events.recorder.Event(pool, corev1.EventTypeWarning, v1alpha1.HoldLimitReached, now.Message)
	case now.Status == metav1.ConditionFalse && reached:
		c.events.recorder.Event(pool, corev1.EventTypeNormal, v1alpha1.ReasonWithinLimit, nothingHeld+" any more: "+inUse(usage))
	}
}

// inUse says what is used of each limit: "8 of 16 GPUs, 1 of 2 nodes, $55.04/h of $110.08/h".
func inUse(usage ledger.Usage) string {
	var parts []string
	if limit := usage.Limits.GPUs; limit != nil {
		parts = append(parts, fmt.Sprintf("%d of %d GPUs", usage.Steady.GPUs, *limit))
	}
	if limit := usage.Limits.Nodes; limit != nil {
		parts = append(parts, fmt.Sprintf("%d of %d nodes", usage.Steady.Nodes, *limit))
	}
	if limit := usage.Limits.HourlyCost; limit != nil {
		parts = append(parts, fmt.Sprintf("%s of %s", usage.Steady.HourlyCost, *limit))
	}
	if len(parts) == 0 {
		return "it has none"
	}
	return strings.Join(parts, ", ") + " in use"
}
