package karpenter

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/verify"
)

const (
	// gateAgain is how soon a node that is not identified is looked at again: nothing wakes a registration hook.
	gateAgain = time.Second
	// gateDeadline admits a node that is still not identified to gate 2, with its finding: at 15 minutes core would
	// delete the claim without a word.
	gateDeadline = 12 * time.Minute
)

// IdentityGate is gate 1: a node is not registered until its machine is the one that was ordered. Until then it keeps
// karpenter.sh/unregistered:NoExecute, so not even the device plugin starts.
type IdentityGate struct {
	client client.Client
	clock  clock.PassiveClock
}

var _ cloudprovider.NodeLifecycleHook = (*IdentityGate)(nil)

// NewIdentityGate returns the hook.
func NewIdentityGate(c client.Client, clk clock.PassiveClock) *IdentityGate {
	return &IdentityGate{client: c, clock: clk}
}

// Name is the hook's name in the claim's Registered condition.
func (g *IdentityGate) Name() string { return "gpufleet.dev/identity" }

// Registered admits a node. Core passes only the claim, and its status.nodeName is still empty: the node is found by
// its provider id.
func (g *IdentityGate) Registered(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.NodeLifecycleHookResult, error) {
	wait := cloudprovider.NodeLifecycleHookResult{RequeueAfter: gateAgain}
	admit := cloudprovider.NodeLifecycleHookResult{}
	nodes := &corev1.NodeList{}
	if err := g.client.List(ctx, nodes, client.MatchingFields{"spec.providerID": claim.Status.ProviderID}); err != nil {
		return admit, fmt.Errorf("finding the node of NodeClaim %s: %w", claim.Name, err)
	}
	if len(nodes.Items) != 1 {
		return wait, nil
	}
	gpuNode := &v1alpha1.GPUNode{}
	if err := g.client.Get(ctx, client.ObjectKey{Name: nodes.Items[0].Name}, gpuNode); err != nil {
		if apierrors.IsNotFound(err) {
			return wait, nil
		}
		return admit, fmt.Errorf("reading GPUNode %s: %w", nodes.Items[0].Name, err)
	}
	if identified(gpuNode) {
		return admit, nil
	}
	if g.clock.Since(claim.CreationTimestamp.Time) > gateDeadline {
		log.FromContext(ctx).Info("node is not identified in time and goes on to be verified behind the startup taint", "Node", gpuNode.Name)
		return admit, nil
	}
	return wait, nil
}

// identified computes gate 1 from the agent's report. A reboot that is due is left to gate 2: what carries it out does
// not tolerate the unregistered taint.
func identified(gpuNode *v1alpha1.GPUNode) bool {
	if !verify.Reported(gpuNode.Spec, gpuNode.Status.Inventory) {
		return false
	}
	for _, finding := range verify.Identity(gpuNode.Spec, gpuNode.Status.Inventory) {
		if finding.Reason != v1alpha1.FindingRebootRequired {
			return false
		}
	}
	return true
}
