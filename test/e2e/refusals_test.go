package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// refusal is a machine or plugin that is not what was ordered, and what the verdict must say.
type refusal struct {
	name       string
	fault      string
	parameters map[string]any
	finding    string
	gpu        *int32
	expected   string
	found      string
}

var refusals = []refusal{
	{
		name: "a machine with 7 of 8 GPUs", fault: "missing-gpu", parameters: map[string]any{"gpu": 7},
		finding: v1alpha1.FindingGPUCountMismatch, expected: "8", found: "7",
	},
	{
		name: "a machine with 55 of 56 MIG instances", fault: "lose-mig-instance", parameters: map[string]any{"gpu": 3, "nth": 7},
		finding: v1alpha1.FindingPartialLayout, gpu: new(int32(3)), expected: "7 x 1g.10gb", found: "6 x 1g.10gb",
	},
	{
		name: "a device plugin that advertises another resource name", fault: "rename-resource",
		parameters: map[string]any{"from": slice, "to": slice + ".shared"},
		finding:    v1alpha1.FindingAdvertiseMismatch, expected: slice + ": 56", found: slice + ".shared: 56",
	},
}

// TestRefusals brings wrong machines through the region's admin port. Each must stay behind its taint with a verdict that
// carries finding, expected and found, and no pod may be bound to it.
func TestRefusals(t *testing.T) {
	ctx, scene := start(t)
	if _, err := scene.Terraform.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := scene.awaitNodePool(ctx); err != nil {
		t.Fatal(err)
	}
	for _, each := range refusals {
		t.Run(each.name, func(t *testing.T) { each.run(ctx, t, scene) })
	}
	t.Run("the controller killed right after RunInstances returned", func(t *testing.T) { killedAfterLaunch(ctx, t, scene) })
	t.Run("a right machine still runs the pods after all that", func(t *testing.T) {
		for _, step := range []Step{{Do: packed}, {Do: launchedOnce}, {Do: verified}, {Do: running}} {
			if _, err := step.Do(ctx, scene); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a limit holds through a burst, deleted claims and kills", func(t *testing.T) { limitThroughKills(ctx, t, scene) })
	t.Run("the only node of a full pool drifts and is replaced", func(t *testing.T) { driftOfTheOnlyNode(ctx, t, scene) })
	t.Run("the controller killed while it replaces a node", func(t *testing.T) { killedWhileReplacing(ctx, t, scene) })
}

func (r refusal) run(ctx context.Context, t *testing.T, scene *Scene) {
	if err := scene.SetFault(ctx, r.fault, r.parameters); err != nil {
		t.Fatal(err)
	}
	if err := scene.CreatePods(ctx); err != nil {
		t.Fatal(err)
	}
	var node string
	_, err := await(ctx, time.Minute, "the finding "+r.finding, func(ctx context.Context) (string, bool, error) {
		nodes, err := scene.GPUNodes(ctx)
		if err != nil || len(nodes) != 1 {
			return fmt.Sprintf("%d GPUNodes", len(nodes)), false, err
		}
		node = nodes[0].Name
		verdict := meta.FindStatusCondition(nodes[0].Status.Conditions, v1alpha1.ConditionVerified)
		if verdict == nil || verdict.Status != metav1.ConditionFalse {
			return fmt.Sprintf("%+v", verdict), false, nil
		}
		return "", true, r.check(&nodes[0], verdict)
	})
	if err != nil {
		t.Fatal(err)
	}
	// The controller has spoken its verdict; what it did about it must hold through several more of its passes.
	for range 20 {
		if err := scene.refused(ctx, node); err != nil {
			t.Fatal(err)
		}
		if err := pause(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if first := scene.Witness.OrderOf(node, 56).FirstBinding; first != 0 {
		t.Errorf("a pod was bound to %s at %d", node, first)
	}
	scene.cleanUp(ctx, t, r.fault)
}

func (r refusal) check(node *v1alpha1.GPUNode, verdict *metav1.Condition) error {
	if verdict.Reason != r.finding {
		return fmt.Errorf("the verdict is %s: %s, want %s", verdict.Reason, verdict.Message, r.finding)
	}
	finding := node.Status.Findings[0]
	if finding.Reason != r.finding || !strings.Contains(finding.Expected, r.expected) || !strings.Contains(finding.Found, r.found) {
		return fmt.Errorf("finding %+v, want %s with expected %q and found %q", finding, r.finding, r.expected, r.found)
	}
	if r.gpu != nil && (finding.GPU == nil || *finding.GPU != *r.gpu) {
		return fmt.Errorf("finding %+v does not name GPU %d", finding, *r.gpu)
	}
	for _, words := range []string{r.expected, r.found} {
		if !strings.Contains(verdict.Message, words) {
			return fmt.Errorf("the message %q does not say %q", verdict.Message, words)
		}
	}
	return nil
}

// refused wants the taint on the node and every pod without one.
func (s *Scene) refused(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	if !contains(taintKeys(node), v1alpha1.TaintUnverified) {
		return fmt.Errorf("node %s lost its startup taint: %v", name, taintKeys(node))
	}
	pods, err := s.Pods(ctx)
	if err != nil {
		return err
	}
	if len(pods) != replicas {
		return fmt.Errorf("%d pods, want %d", len(pods), replicas)
	}
	for i := range pods {
		if pods[i].Spec.NodeName != "" {
			return fmt.Errorf("pod %s is bound to %s", pods[i].Name, pods[i].Spec.NodeName)
		}
	}
	return nil
}

// cleanUp removes pods, claims and the fault, and waits until the machine is gone.
func (s *Scene) cleanUp(ctx context.Context, t *testing.T, fault string) {
	t.Helper()
	if err := s.ClearFault(ctx, fault); err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deploymentName, Namespace: "default"}}
	if err := s.Client.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.DeleteAllOf(ctx, &karpv1.NodeClaim{}); err != nil {
		t.Fatal(err)
	}
	_, err := await(ctx, 2*time.Minute, "nothing left of the refused machine", func(ctx context.Context) (string, bool, error) {
		books, err := s.Books(ctx)
		if err != nil {
			return "", false, err
		}
		nodes, claims, pods := &corev1.NodeList{}, &karpv1.NodeClaimList{}, &corev1.PodList{}
		for _, list := range []client.ObjectList{nodes, claims} {
			if err := s.Client.List(ctx, list); err != nil {
				return "", false, err
			}
		}
		if err := s.Client.List(ctx, pods, client.InNamespace("default")); err != nil {
			return "", false, err
		}
		seen := fmt.Sprintf("%d instances, %d nodes, %d claims, %d pods", len(alive(books)), len(nodes.Items), len(claims.Items), len(pods.Items))
		return seen, len(alive(books))+len(nodes.Items)+len(claims.Items)+len(pods.Items) == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// killedAfterLaunch holds the answer of RunInstances, so that the launch has taken effect and the controller knows
// nothing of it, kills the controller and starts it again: the claim must end with that one instance.
func killedAfterLaunch(ctx context.Context, t *testing.T, scene *Scene) {
	if err := scene.SetFault(ctx, "hold-response", map[string]any{"operation": "RunInstances", "seconds": 60}); err != nil {
		t.Fatal(err)
	}
	before, err := scene.Books(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := scene.CreatePods(ctx); err != nil {
		t.Fatal(err)
	}
	var launched BookEntry
	_, err = await(ctx, time.Minute, "an instance in the books", func(ctx context.Context) (string, bool, error) {
		books, err := scene.Books(ctx)
		if err != nil || len(books) == len(before) {
			return "none", false, err
		}
		launched = books[len(books)-1]
		return launched.ID, true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := scene.Stack.KillController(); err != nil {
		t.Fatal(err)
	}
	claim := &karpv1.NodeClaim{}
	if err := scene.Client.Get(ctx, client.ObjectKey{Name: launched.Claim}, claim); err != nil {
		t.Fatal(err)
	}
	if claim.Status.ProviderID != "" {
		t.Fatalf("the answer was to be held, but the claim has provider id %s: the test proves nothing", claim.Status.ProviderID)
	}
	if err := scene.ClearFault(ctx, "hold-response"); err != nil {
		t.Fatal(err)
	}
	if err := scene.Stack.StartController(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = await(ctx, time.Minute, "the claim to have its instance", func(ctx context.Context) (string, bool, error) {
		if err := scene.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return "", false, err
		}
		return claim.Status.ProviderID, strings.HasSuffix(claim.Status.ProviderID, "/"+launched.ID), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	books, err := scene.Books(ctx)
	if err != nil {
		t.Fatal(err)
	}
	of := 0
	for _, entry := range books {
		if entry.ClaimUID == string(claim.UID) {
			of++
		}
	}
	if of != 1 {
		t.Errorf("the region's books show %d instances for claim %s, want one", of, claim.Name)
	}
}
