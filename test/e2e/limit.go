package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// Of 80 pods with a slice each, one node of 56 slices runs 56; limits.gpus = 8 allows one node of 8 GPUs.
const (
	morePods = 60
	allPods  = replicas + morePods
	oneNode  = 56
	waiting  = allPods - oneNode
)

// Limit is the second half of the incident: the pool's cap is reached, and says so.
func Limit() []Step {
	return []Step{
		{fmt.Sprintf("%d more pods come; the pool's cap of 8 GPUs is reached", morePods), morePodsCome},
		{"the cap is said on the pool, on a waiting pod and as a metric", limitIsSaid},
		{"nothing was launched, and no NodeClaim was made only to be refused", nothingLaunched},
		{"terraform apply -var inference_gpus=16 raises the cap", raiseLimit},
		{"a second node comes, every pod runs, and the condition clears", limitClears},
	}
}

func morePodsCome(ctx context.Context, s *Scene) (string, error) {
	if err := s.scale(ctx, allPods); err != nil {
		return "", err
	}
	return s.awaitPods(ctx, oneNode, waiting)
}

// scale makes the Deployment ask for so many pods.
func (s *Scene) scale(ctx context.Context, pods int) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deploymentName, Namespace: "default"}}
	return s.Client.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods)))
}

// awaitPods waits until so many pods run and so many are unschedulable.
func (s *Scene) awaitPods(ctx context.Context, run, wait int) (string, error) {
	return await(ctx, 2*time.Minute, fmt.Sprintf("%d running and %d waiting pods", run, wait), func(ctx context.Context) (string, bool, error) {
		pods, err := s.Pods(ctx)
		if err != nil {
			return "", false, err
		}
		up, held, nodes := 0, 0, map[string]bool{}
		for i := range pods {
			switch {
			case pods[i].Status.Phase == corev1.PodRunning:
				up++
				nodes[pods[i].Spec.NodeName] = true
			case unschedulable(&pods[i]):
				held++
			}
		}
		return fmt.Sprintf("%d pods run on %d nodes, %d wait", up, len(nodes), held), up == run && held == wait, nil
	})
}

func unschedulable(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

func limitIsSaid(ctx context.Context, s *Scene) (string, error) {
	return await(ctx, 30*time.Second, "the cap as condition, events and metric", func(ctx context.Context) (string, bool, error) {
		reached, err := s.limitReached(ctx)
		if err != nil || reached == nil || reached.Status != metav1.ConditionTrue || reached.Reason != v1alpha1.ReasonGPUs {
			return fmt.Sprintf("condition %+v", reached), false, err
		}
		pool, err := s.event(ctx, v1alpha1.KindGPUNodePool)
		if err != nil || pool == "" {
			return "no Warning on the pool", false, err
		}
		pod, err := s.event(ctx, "Pod")
		if err != nil || pod == "" {
			return "no Warning on a pod", false, err
		}
		held, err := s.Metric(ctx, `gpufleet_pool_held_pods{pool="inference",reason="LimitReached"}`)
		if err != nil || held != fmt.Sprint(waiting) {
			return "gpufleet_pool_held_pods is " + held, false, err
		}
		if !strings.Contains(reached.Message, fmt.Sprintf("for %d waiting pods", waiting)) {
			return "condition: " + reached.Message, false, nil
		}
		if !strings.HasPrefix(pod, "pool inference") {
			return "", false, fmt.Errorf("condition %q, event on a pod %q", reached.Message, pod)
		}
		return fmt.Sprintf("LimitReached=True (%s): %s; event on a pod: %s; gpufleet_pool_held_pods %s", reached.Reason, reached.Message, pod, held), true, nil
	})
}

func (s *Scene) limitReached(ctx context.Context) (*metav1.Condition, error) {
	pool := &v1alpha1.GPUNodePool{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: poolName}, pool); err != nil {
		return nil, err
	}
	return meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionLimitReached), nil
}

// event is the message of a Warning LimitReached on an object of a kind.
func (s *Scene) event(ctx context.Context, kind string) (string, error) {
	events := &corev1.EventList{}
	if err := s.Client.List(ctx, events); err != nil {
		return "", err
	}
	for i := range events.Items {
		event := &events.Items[i]
		if event.InvolvedObject.Kind == kind && event.Type == corev1.EventTypeWarning && event.Reason == v1alpha1.ConditionLimitReached {
			return event.Message, nil
		}
	}
	return "", nil
}

// nothingLaunched looks for several of core's batches that nothing is made.
func nothingLaunched(ctx context.Context, s *Scene) (string, error) {
	const made, pools = "karpenter_nodeclaims_created_total", `nodepool="inference-`
	before, err := s.Sum(ctx, made, pools)
	if err != nil {
		return "", err
	}
	for range 50 {
		claims, err := s.claims(ctx)
		if err != nil {
			return "", err
		}
		if len(claims) != 1 {
			return "", fmt.Errorf("%d NodeClaims, want the one", len(claims))
		}
		if err := pause(ctx); err != nil {
			return "", err
		}
	}
	after, err := s.Sum(ctx, made, pools)
	if err != nil {
		return "", err
	}
	books, err := s.Books(ctx)
	if err != nil {
		return "", err
	}
	if before != after || len(books) != 1 {
		return "", fmt.Errorf("NodeClaims made: %g, then %g; instances ever: %d", before, after, len(books))
	}
	return fmt.Sprintf("%g NodeClaim ever, %d instance ever", after, len(books)), nil
}

func pause(ctx context.Context) error { return stack.Pause(ctx, pollEvery) }

func raiseLimit(ctx context.Context, s *Scene) (string, error) {
	if _, err := s.Terraform.must(ctx, "apply", "-auto-approve", "-no-color", "-var", "inference_gpus=16"); err != nil {
		return "", err
	}
	pool := &v1alpha1.GPUNodePool{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: poolName}, pool); err != nil {
		return "", err
	}
	if pool.Spec.Limits == nil || pool.Spec.Limits.GPUs == nil || *pool.Spec.Limits.GPUs != 16 {
		return "", fmt.Errorf("the pool's limits are %+v", pool.Spec.Limits)
	}
	return "GPUNodePool inference: limits.gpus 16", nil
}

func limitClears(ctx context.Context, s *Scene) (string, error) {
	run, err := s.awaitPods(ctx, allPods, 0)
	if err != nil {
		return "", err
	}
	cleared, err := await(ctx, 30*time.Second, "LimitReached=False", func(ctx context.Context) (string, bool, error) {
		reached, err := s.limitReached(ctx)
		if err != nil || reached == nil {
			return "no condition", false, err
		}
		return fmt.Sprintf("LimitReached=%s (%s)", reached.Status, reached.Reason), reached.Status == metav1.ConditionFalse, nil
	})
	if err != nil {
		return "", err
	}
	books, err := s.Books(ctx)
	if err != nil {
		return "", err
	}
	if len(alive(books)) != 2 {
		return "", fmt.Errorf("%d instances run, want 2", len(alive(books)))
	}
	return run + "; " + cleared + "; the region's books: 2 instances", nil
}
