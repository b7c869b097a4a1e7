package karpenter

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// claimsOf are the claims of a pool. They may be the cache's own: they are not to be written.
func claimsOf(ctx context.Context, reader client.Reader, pool string) ([]karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	if err := reader.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims of pool %q: %w", pool, err)
	}
	return claims.Items, nil
}

// leaving says whether a claim does not stay: it is being deleted, or core has chosen to replace it.
func leaving(claim *karpv1.NodeClaim) bool { return !claim.DeletionTimestamp.IsZero() || chosen(claim) }

// chosen says whether core has chosen a claim to be replaced: it sets DisruptionReason on the old claim before it makes the
// new one (pkg/controllers/disruption/queue.go, v1.15.0), and also on one whose machine it only reboots
// (pkg/controllers/disruption/repair.go), which stays.
func chosen(claim *karpv1.NodeClaim) bool {
	return is(claim, karpv1.ConditionTypeDisruptionReason) && !is(claim, karpv1.ConditionTypeRebooting)
}

// is says whether a condition of a claim is True. Core's own way to ask writes into the claim.
func is(claim *karpv1.NodeClaim, condition string) bool {
	for _, each := range claim.Status.Conditions {
		if each.Type == condition {
			return each.Status == metav1.ConditionTrue
		}
	}
	return false
}

// replacements are the claims that were made to replace another and are not going themselves, by the other's UID.
func replacements(claims []karpv1.NodeClaim) map[types.UID][]*karpv1.NodeClaim {
	by := map[types.UID][]*karpv1.NodeClaim{}
	for i := range claims {
		claim := &claims[i]
		old := types.UID(claim.Annotations[v1alpha1.AnnotationReplaces])
		if old != "" && old != claim.UID && claim.DeletionTimestamp.IsZero() {
			by[old] = append(by[old], claim)
		}
	}
	return by
}

// asLarge says whether what was made to replace a claim is as large, and younger. One machine of two may have failed: then
// core gives the replacement up, and the old node stays.
func asLarge(old *karpv1.NodeClaim, by []*karpv1.NodeClaim) bool {
	var gpus int64
	for _, claim := range by {
		if claim.CreationTimestamp.Before(&old.CreationTimestamp) {
			return false
		}
		if launchedType := claim.Labels[corev1.LabelInstanceTypeStable]; launchedType != "" {
			gpus += machineOf(launchedType).GPUs
		}
	}
	return gpus > 0 && gpus >= machineOf(old.Labels[corev1.LabelInstanceTypeStable]).GPUs
}

// chosenNow is the UID of the claim that the replacement which is about to be made is for; empty where that cannot be told.
// Core does not say: it is the one that it has chosen, or, where it replaces several at once, the one that no other claim
// was made for yet.
func (b *Books) chosenNow(ctx context.Context, pool string) (string, error) {
	claims, err := claimsOf(ctx, b.live, pool)
	if err != nil {
		return "", err
	}
	replaced := replacements(claims)
	var all, unnamed []string
	for i := range claims {
		if !chosen(&claims[i]) || !claims[i].DeletionTimestamp.IsZero() {
			continue
		}
		all = append(all, string(claims[i].UID))
		if len(replaced[claims[i].UID]) == 0 {
			unnamed = append(unnamed, string(claims[i].UID))
		}
	}
	switch {
	case len(all) == 1:
		return all[0], nil
	case len(unnamed) == 1:
		return unnamed[0], nil
	}
	return "", nil
}

// endReplaced ends a claim that keeps its pool above its limits, although what was made to replace it is ready and core no
// longer means to end it. Core remembers what it replaces in memory only: where it is killed meanwhile, it takes the mark off
// the old claim, and both stay for good once other pods have taken the new node's room. A node that no longer drifts, and is
// not broken, stays all the same.
func (b *Books) endReplaced(ctx context.Context, pool string) error {
	if !b.ledger.Usage(pool).Above() {
		return nil
	}
	claims, err := claimsOf(ctx, b.client, pool)
	if err != nil {
		return err
	}
	replaced := replacements(claims)
	for i := range claims {
		claim, by := &claims[i], replaced[claims[i].UID]
		if leaving(claim) || !asLarge(claim, by) || !ready(by) {
			continue
		}
		toReplace, err := replaceable(ctx, b.client, claim)
		if err != nil {
			return err
		}
		if toReplace {
			return b.endOne(ctx, claim.DeepCopy(), by)
		}
	}
	return nil
}

// replaceable says whether core may replace a claim: it drifted, or its node is broken by one of our repair policies, for
// however long.
func replaceable(ctx context.Context, reader client.Reader, claim *karpv1.NodeClaim) (bool, error) {
	if is(claim, karpv1.ConditionTypeDrifted) {
		return true, nil
	}
	if claim.Status.NodeName == "" {
		return false, nil
	}
	node := &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return slices.ContainsFunc(repairPolicies(), func(policy cloudprovider.RepairPolicy) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == policy.ConditionType && condition.Status == policy.ConditionStatus
		})
	}), nil
}

func ready(claims []*karpv1.NodeClaim) bool {
	for _, claim := range claims {
		if !is(claim, karpv1.ConditionTypeInitialized) {
			return false
		}
	}
	return true
}

// endOne asks for the end of a claim, as it was seen. The drain of a node that did not drift has an end, as a repair's has.
func (b *Books) endOne(ctx context.Context, claim *karpv1.NodeClaim, by []*karpv1.NodeClaim) error {
	if !is(claim, karpv1.ConditionTypeDrifted) {
		if err := nodeclaimutils.TightenTerminationTimestampAnnotation(ctx, b.client, claim, b.clock.Now().Add(drainFor)); err != nil {
			return fmt.Errorf("bounding the drain of NodeClaim %s: %w", claim.Name, client.IgnoreNotFound(err))
		}
	}
	err := b.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // it has changed: its change wakes this again
	case err != nil:
		return fmt.Errorf("ending NodeClaim %s, which is replaced: %w", claim.Name, err)
	}
	log.FromContext(ctx).Info("ended a NodeClaim that is replaced and kept its pool above its limits", "NodeClaim", claim.Name, "replacement", by[0].Name)
	return nil
}
