package verification

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/fleet"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/verify"
)

// judge computes the verdict of a GPUNode, and notes when it was first verified.
func judge(gpuNode *v1alpha1.GPUNode, node *corev1.Node, now time.Time) {
	conclude(gpuNode, node, now)
	if gpuNode.Status.VerifiedAt == nil && meta.IsStatusConditionTrue(gpuNode.Status.Conditions, v1alpha1.ConditionVerified) {
		gpuNode.Status.VerifiedAt = &metav1.Time{Time: now}
	}
}

// conclude computes the findings and conditions of a GPUNode from its Blueprint, the agent's report and the node's
// allocatable. Nothing of an earlier verdict goes in.
func conclude(gpuNode *v1alpha1.GPUNode, node *corev1.Node, now time.Time) {
	if !verify.Reported(gpuNode.Spec, gpuNode.Status.Inventory) {
		gpuNode.Status.Findings = nil
		waiting := "the agent on this node has not reported yet for Blueprint " + gpuNode.Spec.Hash
		set(gpuNode, v1alpha1.ConditionIdentified, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingInventory, waiting, now)
		set(gpuNode, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingInventory, waiting, now)
		return
	}
	identity := verify.Identity(gpuNode.Spec, gpuNode.Status.Inventory)
	if len(identity) > 0 {
		gpuNode.Status.Findings = identity
		set(gpuNode, v1alpha1.ConditionIdentified, metav1.ConditionFalse, identity[0].Reason, words(identity), now)
		set(gpuNode, v1alpha1.ConditionVerified, metav1.ConditionFalse, identity[0].Reason, words(identity), now)
		return
	}
	set(gpuNode, v1alpha1.ConditionIdentified, metav1.ConditionTrue, v1alpha1.ReasonMatches, hardware(gpuNode.Spec), now)

	findings := verify.Node(gpuNode.Spec, gpuNode.Status.Inventory, node.Status.Allocatable)
	gpuNode.Status.Findings = findings
	switch {
	case len(findings) == 0:
		set(gpuNode, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonMatches,
			fmt.Sprintf("%s; allocatable has %s", hardware(gpuNode.Spec), fleet.Words(gpuNode.Spec.Resources)), now)
	case !advertises(node):
		gpuNode.Status.Findings = nil
		set(gpuNode, v1alpha1.ConditionVerified, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingResources,
			fmt.Sprintf("the hardware is right; waiting for the device plugin to advertise %s", fleet.Words(gpuNode.Spec.Resources)), now)
	default:
		set(gpuNode, v1alpha1.ConditionVerified, metav1.ConditionFalse, findings[0].Reason, words(findings), now)
	}
}

// advertises says whether a device plugin has registered on the node at all.
func advertises(node *corev1.Node) bool {
	for name, quantity := range node.Status.Allocatable {
		if strings.HasPrefix(string(name), v1alpha1.ResourcePrefix) && !quantity.IsZero() {
			return true
		}
	}
	return false
}

// maxFindingsInMessage keeps a condition readable: the rest is in status.findings.
const maxFindingsInMessage = 3

func words(findings []v1alpha1.Finding) string {
	var parts []string
	for i, finding := range findings {
		if i == maxFindingsInMessage {
			parts = append(parts, fmt.Sprintf("and %d more", len(findings)-i))
			break
		}
		parts = append(parts, finding.Message)
	}
	return strings.Join(parts, "; ")
}

func hardware(bp v1alpha1.Blueprint) string {
	sentence := fmt.Sprintf("%d x %s as ordered", bp.GPU.Count, bp.GPU.Model)
	if bp.Layout != nil {
		sentence += ", cut by layout " + bp.Layout.Name
	}
	return sentence
}

func set(gpuNode *v1alpha1.GPUNode, kind string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	condition := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: gpuNode.Generation}
	if existing := meta.FindStatusCondition(gpuNode.Status.Conditions, kind); existing == nil || existing.Status != status {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	meta.SetStatusCondition(&gpuNode.Status.Conditions, condition)
}
