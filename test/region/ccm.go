package region

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

const (
	// karpenterFinalizer is what Karpenter core puts on a Node.
	karpenterFinalizer = "karpenter.sh/termination"
	// finalizerGrace is how long core has to remove it once the instance is terminated.
	finalizerGrace = 5 * time.Second
)

// stopHeartbeat ends the kubelet of a machine that is gone: KWOK lets go of a Node without its annotation. It is done as an
// administrator, since no real kubelet does it: a real one falls silent.
func (c *cluster) stopHeartbeat(ctx context.Context, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, kwokAnnotation)
	_, err := c.admin.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ignoreNotFound(err)
}

// forgetNode deletes the Node of a terminated instance, as the cloud-controller-manager's node lifecycle controller does
// (k8s.io/cloud-provider/controllers/nodelifecycle). Core puts its finalizer on every Node of its claims, but removes it
// only while it terminates the claim's Node: for a claim that died before registration nobody ever does, and the Node
// would stay for ever. So what is still there after a grace is set free.
func (c *cluster) forgetNode(ctx context.Context, name, providerID string, say func(string, ...any)) error {
	wake, unsubscribe := c.wakes.subscribe(name)
	defer unsubscribe()
	node, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	if node.Spec.ProviderID != providerID {
		return nil
	}
	if err := c.admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(node.UID))}); err != nil {
		return ignoreNotFound(err)
	}
	grace, cancel := context.WithTimeout(ctx, finalizerGrace)
	defer cancel()
	for grace.Err() == nil {
		if _, err := c.nodes.Get(name); apierrors.IsNotFound(err) {
			return nil
		}
		wait(grace, finalizerGrace, wake)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.freeNode(ctx, name, say)
}

func (c *cluster) freeNode(ctx context.Context, name string, say func(string, ...any)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(node.Finalizers), func(f string) bool { return f == karpenterFinalizer })
		if len(kept) == len(node.Finalizers) {
			return nil
		}
		say("Node %s: finalizer %s was still there %s after the instance was terminated; removed as an administrator", name, karpenterFinalizer, finalizerGrace)
		node.Finalizers = kept
		_, err = c.admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// hasTaint says whether a Node carries a taint.
func hasTaint(node *corev1.Node, key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}
