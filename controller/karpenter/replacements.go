package karpenter

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	nodeclaimutils "sigs.k8s.io/karpenter/pkg/utils/nodeclaim"

	corev1 "k8s.io/api/core/v1"

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

// leaving says which of some claims do not stay: those that are being deleted, that core has chosen to replace, and that are
// replaced although core has forgotten it.
func leaving(claims []karpv1.NodeClaim) map[types.UID]bool {
	going, replaced := map[types.UID]bool{}, replacements(claims)
	for i := range claims {
		claim := &claims[i]
		going[claim.UID] = !claim.DeletionTimestamp.IsZero() || chosen(claim) || replaces(claim, replaced[claim.UID])
	}
	return going
}

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
		uids := claims[i].Annotations[v1alpha1.AnnotationReplaces]
		if uids == "" || !claims[i].DeletionTimestamp.IsZero() {
			continue
		}
		for uid := range strings.SplitSeq(uids, ",") {
			by[types.UID(uid)] = append(by[types.UID(uid)], &claims[i])
		}
	}
	return by
}

// replaces says whether what was made to replace a claim is as large. One machine of two may have failed: then core gives
// the replacement up, and the old node stays.
func replaces(old *karpv1.NodeClaim, by []*karpv1.NodeClaim) bool {
	var gpus int64
	for _, claim := range by {
		if launchedType := claim.Labels[corev1.LabelInstanceTypeStable]; launchedType != "" {
			gpus += machineOf(launchedType).GPUs
		}
	}
	return gpus > 0 && gpus >= machineOf(old.Labels[corev1.LabelInstanceTypeStable]).GPUs
}

// chosenNow are the UIDs of the claims that the replacement which is about to be made is for: those that core has chosen
// and that no other was made for.
func (b *Books) chosenNow(ctx context.Context, pool string) (string, error) {
	claims, err := claimsOf(ctx, b.live, pool)
	if err != nil {
		return "", err
	}
	replaced := replacements(claims)
	var uids []string
	for i := range claims {
		if chosen(&claims[i]) && claims[i].DeletionTimestamp.IsZero() && len(replaced[claims[i].UID]) == 0 {
			uids = append(uids, string(claims[i].UID))
		}
	}
	return strings.Join(uids, ","), nil
}

// endReplaced ends claims whose replacement is ready and that core no longer means to end. Core remembers what it replaces in
// memory only: where it is killed meanwhile, it takes the mark off the old claim, both stay, and the pool has more than its
// limits for good once other pods have taken the new node's room.
func (b *Books) endReplaced(ctx context.Context, pool string) error {
	claims, err := claimsOf(ctx, b.client, pool)
	if err != nil {
		return err
	}
	replaced := replacements(claims)
	for i := range claims {
		claim, by := &claims[i], replaced[claims[i].UID]
		if !claim.DeletionTimestamp.IsZero() || is(claim, karpv1.ConditionTypeDisruptionReason) || !replaces(claim, by) || !ready(by) {
			continue
		}
		if err := b.endOne(ctx, claim.DeepCopy(), by); err != nil {
			return err
		}
	}
	return nil
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
	log.FromContext(ctx).Info("ended a NodeClaim that is replaced: the controller was stopped before it could", "NodeClaim", claim.Name, "replacement", by[0].Name)
	return nil
}
