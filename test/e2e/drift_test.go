package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// A label that the pool's nodes do not carry yet makes them drift.
const (
	newLabel = "team"
	newValue = "vision"
)

// driftOfTheOnlyNode changes what the nodes of a full pool must look like. Its one node is replaced, although the limit
// has no room for another: the surge has it. All pods run on the new node, and what is left is the one machine again.
func driftOfTheOnlyNode(ctx context.Context, t *testing.T, scene *Scene) {
	if err := scene.scale(ctx, replicas); err != nil {
		t.Fatal(err)
	}
	if _, err := scene.awaitPods(ctx, replicas, 0); err != nil {
		t.Fatal(err)
	}
	var old []BookEntry
	// One that was being replaced may not be gone yet.
	_, err := await(ctx, time.Minute, "one machine before the change", func(ctx context.Context) (string, bool, error) {
		var err error
		old, err = scene.Books(ctx)
		return fmt.Sprintf("%d machines", len(alive(old))), len(alive(old)) == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	watch := scene.watchMachines(ctx)
	defer watch.stop()
	label := fmt.Appendf(nil, `{"spec":{"labels":{%q:%q}}}`, newLabel, newValue)
	pool := &v1alpha1.GPUNodePool{}
	pool.Name = poolName
	if err := scene.Client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", label)); err != nil {
		t.Fatal(err)
	}
	seen, err := await(ctx, 5*time.Minute, "all pods on one node that has the label", func(ctx context.Context) (string, bool, error) {
		books, err := scene.Books(ctx)
		if err != nil {
			return "", false, err
		}
		moved, err := scene.runningOn(ctx, client.MatchingLabels{newLabel: newValue})
		left := alive(books)
		replaced := len(left) == 1 && left[0].ID != alive(old)[0].ID
		return fmt.Sprintf("%d of %d pods moved, %d machines of %d ever", moved, replicas, len(left), len(books)), replaced && moved == replicas, err
	})
	if err != nil {
		t.Fatal(err)
	}
	most, looks := watch.stop()
	t.Logf("%s; at most %d machines in %d looks", seen, most, looks)
	if most != mostMachines || looks == 0 {
		t.Errorf("the region had %d machines at most in %d looks, want the old one and its replacement", most, looks)
	}
	books, err := scene.Books(ctx)
	if err != nil || len(books) != len(old)+1 {
		t.Errorf("%d machines were started for one replacement (%v)", len(books)-len(old), err)
	}
}

// runningOn counts the pods that run on nodes with some labels.
func (s *Scene) runningOn(ctx context.Context, labels client.MatchingLabels) (int, error) {
	nodes := &corev1.NodeList{}
	if err := s.Client.List(ctx, nodes, labels); err != nil {
		return 0, err
	}
	pods, err := s.Pods(ctx)
	if err != nil {
		return 0, err
	}
	names, count := map[string]bool{}, 0
	for i := range nodes.Items {
		names[nodes.Items[i].Name] = true
	}
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning && pods[i].DeletionTimestamp == nil && names[pods[i].Spec.NodeName] {
			count++
		}
	}
	return count, nil
}
