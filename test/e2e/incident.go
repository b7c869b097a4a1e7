package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Story is the whole incident, from an empty cluster to an empty one.
func Story() []Step {
	return slices.Concat(Incident(), Limit(), []Step{
		{"terraform destroy drains the pools and ends every machine", destroyed},
	})
}

// Incident is the story that gpufleet exists for, first half: from an empty cluster to pods on a proved GPU node.
func Incident() []Step {
	return []Step{
		{"terraform apply declares a MIG layout, a node class and an Inference pool", applyQuickstart},
		{"a second plan is empty, a refresh-only plan too", planAgain},
		{"20 inference pods ask for a 1g.10gb slice each; the cluster has no node for them", createPods},
		{"Karpenter core packs all 20 on one p5.48xlarge, from zero", packed},
		{"the controller starts exactly one instance through the EC2 API", launchedOnce},
		{"the machine joins behind two taints; the agent cuts its GPUs and reports what NVML sees", inspected},
		{"both gates pass and the taint goes", verified},
		{"the pods run, and none was bound before the node was proved", running},
		{"the metrics endpoint tells the same", measured},
	}
}

func applyQuickstart(ctx context.Context, s *Scene) (string, error) {
	if _, err := s.Terraform.Apply(ctx); err != nil {
		return "", err
	}
	pool := &v1alpha1.GPUNodePool{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: poolName}, pool); err != nil {
		return "", err
	}
	accepted := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionAccepted)
	if accepted == nil || accepted.Status != "True" {
		return "", fmt.Errorf("pool %s is not Accepted: %+v", poolName, accepted)
	}
	layout := &v1alpha1.MIGLayout{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: layoutName}, layout); err != nil {
		return "", err
	}
	if len(layout.Status.Devices) != 1 || len(layout.Status.Devices[0].Instances) != 7 {
		return "", fmt.Errorf("layout %s is not solved into 7 instances: %+v", layoutName, layout.Status.Devices)
	}
	nodePool, err := s.awaitNodePool(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("GPUNodePool %s: Accepted, %q; NodePool %s Ready", poolName, accepted.Message, nodePool), nil
}

// awaitNodePool returns the name of the NodePool that stands for the pool's one entry.
func (s *Scene) awaitNodePool(ctx context.Context) (string, error) {
	return await(ctx, time.Minute, "the pool's NodePool to be Ready", func(ctx context.Context) (string, bool, error) {
		nodePools := &karpv1.NodePoolList{}
		if err := s.Client.List(ctx, nodePools, client.MatchingLabels{v1alpha1.LabelPool: poolName}); err != nil {
			return "", false, err
		}
		if len(nodePools.Items) != 1 {
			return fmt.Sprintf("%d NodePools", len(nodePools.Items)), false, nil
		}
		ready := nodePools.Items[0].StatusConditions().Root()
		if !ready.IsTrue() {
			return fmt.Sprintf("Ready=%s %s %s", ready.Status, ready.Reason, ready.Message), false, nil
		}
		return nodePools.Items[0].Name, true, nil
	})
}

func planAgain(ctx context.Context, s *Scene) (string, error) {
	if err := s.Terraform.Unchanged(ctx); err != nil {
		return "", err
	}
	return "plan -detailed-exitcode: 0; plan -refresh-only -detailed-exitcode: 0", nil
}

// deployment reads pods.yaml of the quickstart.
func (s *Scene) deployment() (*appsv1.Deployment, error) {
	data, err := os.ReadFile(filepath.Join(s.Terraform.Dir, "pods.yaml"))
	if err != nil {
		return nil, err
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(data, deployment); err != nil {
		return nil, fmt.Errorf("reading pods.yaml: %w", err)
	}
	if deployment.Namespace == "" {
		deployment.Namespace = "default"
	}
	return deployment, nil
}

// CreatePods creates the quickstart's pods.
func (s *Scene) CreatePods(ctx context.Context) error {
	deployment, err := s.deployment()
	if err != nil {
		return err
	}
	return s.Client.Create(ctx, deployment)
}

// Pods lists the quickstart's pods that are not on their way out.
func (s *Scene) Pods(ctx context.Context) ([]corev1.Pod, error) {
	deployment, err := s.deployment()
	if err != nil {
		return nil, err
	}
	list := &corev1.PodList{}
	if err := s.Client.List(ctx, list, client.InNamespace("default"), client.MatchingLabels(deployment.Spec.Selector.MatchLabels)); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func createPods(ctx context.Context, s *Scene) (string, error) {
	nodes := &corev1.NodeList{}
	if err := s.Client.List(ctx, nodes); err != nil {
		return "", err
	}
	if len(nodes.Items) != 0 {
		return "", fmt.Errorf("the cluster has %d nodes, want none", len(nodes.Items))
	}
	if err := s.CreatePods(ctx); err != nil {
		return "", err
	}
	return await(ctx, time.Minute, "20 pods that cannot be scheduled", func(ctx context.Context) (string, bool, error) {
		pods, err := s.Pods(ctx)
		if err != nil {
			return "", false, err
		}
		waiting := 0
		for i := range pods {
			for _, condition := range pods[i].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
					waiting++
				}
			}
		}
		return fmt.Sprintf("%d pods Pending, PodScheduled=False (Unschedulable); 0 nodes", waiting), waiting == replicas, nil
	})
}

func packed(ctx context.Context, s *Scene) (string, error) {
	return await(ctx, time.Minute, "one NodeClaim of the pool", func(ctx context.Context) (string, bool, error) {
		claims, err := s.claims(ctx)
		if err != nil || len(claims) == 0 {
			return "no NodeClaim", false, err
		}
		if len(claims) > 1 {
			return "", false, fmt.Errorf("%d NodeClaims, want one", len(claims))
		}
		requested := claims[0].Spec.Resources.Requests[slice]
		seen := fmt.Sprintf("NodeClaim %s requests %s of %s, one node offers 56", claims[0].Name, requested.String(), slice)
		return seen, requested.Value() == replicas, nil
	})
}

func (s *Scene) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	list := &karpv1.NodeClaimList{}
	err := s.Client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelPool: poolName})
	return list.Items, err
}

func launchedOnce(ctx context.Context, s *Scene) (string, error) {
	return await(ctx, time.Minute, "one p5.48xlarge in the region's books", func(ctx context.Context) (string, bool, error) {
		books, err := s.Books(ctx)
		if err != nil {
			return "", false, err
		}
		running := alive(books)
		if len(running) != 1 || running[0].Type != "p5.48xlarge" {
			return fmt.Sprintf("%d instances: %+v", len(running), running), false, nil
		}
		i := running[0]
		return fmt.Sprintf("the region's books: %s, %s, %s in %s for NodeClaim %s, %s", i.ID, i.Type, i.CapacityType, i.Zone, i.Claim, i.State), true, nil
	})
}

// GPUNodes lists what the agents reported.
func (s *Scene) GPUNodes(ctx context.Context) ([]v1alpha1.GPUNode, error) {
	list := &v1alpha1.GPUNodeList{}
	err := s.Client.List(ctx, list)
	return list.Items, err
}

func inspected(ctx context.Context, s *Scene) (string, error) {
	return await(ctx, time.Minute, "an inventory with 56 MIG instances", func(ctx context.Context) (string, bool, error) {
		nodes, err := s.GPUNodes(ctx)
		if err != nil || len(nodes) != 1 || nodes[0].Status.Inventory == nil {
			return fmt.Sprintf("%d GPUNodes, no inventory", len(nodes)), false, err
		}
		inventory := nodes[0].Status.Inventory
		if inventory.Failure != nil {
			return "", false, fmt.Errorf("the agent failed at %s: %s", inventory.Failure.Step, inventory.Failure.Message)
		}
		seen := fmt.Sprintf("GPUNode %s: driver %s, %d x %s, %d MIG instances", nodes[0].Name, inventory.DriverVersion,
			len(inventory.GPUs), product(inventory), instances(inventory))
		return seen, len(inventory.GPUs) == 8 && instances(inventory) == 56, nil
	})
}

func product(inventory *v1alpha1.Inventory) string {
	if len(inventory.GPUs) == 0 {
		return "nothing"
	}
	return inventory.GPUs[0].ProductName
}

func verified(ctx context.Context, s *Scene) (string, error) {
	return await(ctx, time.Minute, "a verified node without the startup taint", func(ctx context.Context) (string, bool, error) {
		nodes, err := s.GPUNodes(ctx)
		if err != nil || len(nodes) != 1 {
			return fmt.Sprintf("%d GPUNodes", len(nodes)), false, err
		}
		verdict := meta.FindStatusCondition(nodes[0].Status.Conditions, v1alpha1.ConditionVerified)
		if verdict == nil {
			return "no verdict", false, nil
		}
		node := &corev1.Node{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: nodes[0].Name}, node); err != nil {
			return "", false, err
		}
		taints := taintKeys(node)
		seen := fmt.Sprintf("Verified=%s (%s): %s; taints left: %s", verdict.Status, verdict.Reason, verdict.Message, strings.Join(taints, ", "))
		return seen, verdict.Status == "True" && !contains(taints, v1alpha1.TaintUnverified), nil
	})
}

func taintKeys(node *corev1.Node) []string {
	keys := make([]string, 0, len(node.Spec.Taints))
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func contains(list []string, wanted string) bool {
	for _, each := range list {
		if each == wanted {
			return true
		}
	}
	return false
}

func running(ctx context.Context, s *Scene) (string, error) {
	var node string
	_, err := await(ctx, time.Minute, "20 running pods on one node", func(ctx context.Context) (string, bool, error) {
		pods, err := s.Pods(ctx)
		if err != nil {
			return "", false, err
		}
		up, nodes := 0, map[string]bool{}
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodRunning {
				up++
				node = pods[i].Spec.NodeName
				nodes[node] = true
			}
		}
		return fmt.Sprintf("%d pods run on %d nodes", up, len(nodes)), up == replicas && len(nodes) == 1, nil
	})
	if err != nil {
		return "", err
	}
	order := s.Witness.OrderOf(node, 56)
	if err := order.Check(); err != nil {
		return "", err
	}
	return fmt.Sprintf("20 pods run on %s; writes in order: inventory %d < taint removed %d < first binding %d",
		node, order.Inventory, order.Untainted, order.FirstBinding), nil
}

func measured(ctx context.Context, s *Scene) (string, error) {
	wanted := map[string]string{
		`gpufleet_pool_gpus{pool="inference",state="verified"}`:                                                             "8",
		`gpufleet_pool_gpus{pool="inference",state="unverified"}`:                                                           "0",
		`gpufleet_launches_total{capacity_type="on-demand",instance_type="p5.48xlarge",pool="inference",reason="Launched"}`: "1",
	}
	return await(ctx, 30*time.Second, "the metrics", func(ctx context.Context) (string, bool, error) {
		for series, value := range wanted {
			got, err := s.Metric(ctx, series)
			if err != nil || got != value {
				return fmt.Sprintf("%s is %q, want %q", series, got, value), false, err
			}
		}
		return "8 GPUs of pool inference verified, 0 unverified; 1 launch of p5.48xlarge", true, nil
	})
}

func destroyed(ctx context.Context, s *Scene) (string, error) {
	if _, err := s.Terraform.Destroy(ctx); err != nil {
		return "", err
	}
	books, err := s.Books(ctx)
	if err != nil {
		return "", err
	}
	if left := alive(books); len(left) != 0 {
		return "", fmt.Errorf("the region's books still show %+v", left)
	}
	_, err = await(ctx, time.Minute, "no Node left", func(ctx context.Context) (string, bool, error) {
		nodes := &corev1.NodeList{}
		if err := s.Client.List(ctx, nodes); err != nil {
			return "", false, err
		}
		return fmt.Sprintf("%d nodes", len(nodes.Items)), len(nodes.Items) == 0, nil
	})
	if err != nil {
		return "", err
	}
	bill := 0.0
	for _, entry := range books {
		bill += entry.Dollars
	}
	return fmt.Sprintf("the region's books: %d instances ever, 0 left, $%.2f in all; no Node left", len(books), bill), nil
}
