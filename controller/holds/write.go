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
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// write brings the pool's holds and the conditions that follow from them up to date, and says what changed as events. It
// returns false where somebody else wrote the pool meanwhile. The conditions stand in a list with those of the nodepool
// reconciler, and a merge patch replaces a list whole: the resource version is the lock that keeps theirs.
func (c *Controller) write(ctx context.Context, pool *v1alpha1.GPUNodePool, usage ledger.Usage, h held, unavailable []v1alpha1.UnavailableOffering) (bool, error) {
	stored := pool.DeepCopy()
	for _, condition := range conditions(h) {
		condition.ObservedGeneration = pool.Generation
		before := meta.FindStatusCondition(stored.Status.Conditions, condition.Type)
		if before == nil || before.Status != condition.Status {
			condition.LastTransitionTime = metav1.NewTime(c.clock.Now())
		}
		meta.SetStatusCondition(&pool.Status.Conditions, condition)
	}
	pool.Status.Holds, pool.Status.Unavailable = h.status(), unavailable
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
	c.announce(pool, stored, usage)
	return true, nil
}

// nothingHeld is the message of a condition while no pod is held by what it is about.
const nothingHeld = "no waiting pod is held back"

// conditions are those that say what holds pods: one for all, and one for each trouble that has its own.
func conditions(h held) []metav1.Condition {
	all := metav1.Condition{Type: v1alpha1.ConditionPodsHeld, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingHeld, Message: nothingHeld}
	if len(h) > 0 {
		all.Status, all.Reason, all.Message = metav1.ConditionTrue, h[0].Reason, h[0].Message
		for _, one := range h[1:] {
			all.Message += "; " + one.Reason + ": " + one.Message
		}
	}
	out := []metav1.Condition{all}
	for _, reason := range v1alpha1.HoldReasons {
		if reason.Condition == "" {
			continue
		}
		condition := conditionOf(reason, h.of(reason.Name))
		at := meta.FindStatusCondition(out, reason.Condition)
		switch {
		case at == nil:
			out = append(out, condition)
		case at.Status != metav1.ConditionTrue:
			*at = condition
		case condition.Status == metav1.ConditionTrue:
			at.Message += "; " + condition.Reason + ": " + condition.Message
		}
	}
	return out
}

// conditionOf is the condition of one reason. LimitReached gives the limit that holds the most as its reason.
func conditionOf(reason v1alpha1.HoldReason, one *diagnose.Hold) metav1.Condition {
	condition := metav1.Condition{Type: reason.Condition, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingHeld, Message: nothingHeld}
	if reason.Name == v1alpha1.HoldLimitReached {
		condition.Reason, condition.Message = v1alpha1.ReasonWithinLimit, "no limit of the pool holds a waiting pod back"
	}
	if one == nil {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reason.Name, one.Message
	if len(one.Limits) > 0 {
		condition.Reason = string(one.Limits[0])
	}
	return condition
}

// announce says what holds pods now and did not before, and what does no more.
func (c *Controller) announce(pool, stored *v1alpha1.GPUNodePool, usage ledger.Usage) {
	before, after := map[string]v1alpha1.Hold{}, map[string]v1alpha1.Hold{}
	for _, hold := range stored.Status.Holds {
		before[hold.Reason] = hold
	}
	for _, hold := range pool.Status.Holds {
		after[hold.Reason] = hold
	}
	for _, reason := range v1alpha1.HoldReasons {
		_, was := before[reason.Name]
		hold, is := after[reason.Name]
		switch {
		case is && (!was || reason.Name == v1alpha1.HoldLimitReached && limitOf(stored) != limitOf(pool)):
			c.events.recorder.Event(pool, severity(reason.Name), reason.Name, hold.Message)
		case was && !is && reason.Name == v1alpha1.HoldLimitReached:
			c.events.recorder.Event(pool, corev1.EventTypeNormal, v1alpha1.ReasonWithinLimit, "no limit of the pool holds a waiting pod back any more: "+inUse(usage))
		case was && !is:
			c.events.recorder.Event(pool, corev1.EventTypeNormal, v1alpha1.ReasonNothingHeld, reason.Name+" holds no waiting pod back any more")
		}
	}
}

// limitOf is the limit that the pool's condition names.
func limitOf(pool *v1alpha1.GPUNodePool) string {
	condition := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionLimitReached)
	if condition == nil {
		return ""
	}
	return condition.Reason
}

// severity is an event's type: that a pod queues is no trouble.
func severity(reason string) string {
	if reason == v1alpha1.HoldGated {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
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
