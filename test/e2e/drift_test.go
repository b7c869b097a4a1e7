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

// newLabel is a label of the pool's nodes: another value makes them drift.
const newLabel = "team"

// driftOfTheOnlyNode changes what the nodes of a full pool must look like. Its one node is replaced, although the limit
// has no room for another: the surge has it. All pods run on the new node, and what is left is the one machine again.
func driftOfTheOnlyNode(ctx context.Context, t *testing.T, scene *Scene) {
	roll{value: "vision", pods: replicas}.run(ctx, t, scene)
}

// killedWhileReplacing kills the controller while it replaces the only node of a full pool for which more pods wait. They
// take the new node's room, so that the old node's pods have nowhere to go; it is ended all the same, since it is replaced.
func killedWhileReplacing(ctx context.Context, t *testing.T, scene *Scene) {
	roll{value: "audio", pods: oneNode, waiting: waiting, then: func() error {
		if err := scene.Stack.KillController(); err != nil {
			return err
		}
		return scene.Stack.StartController(ctx)
	}}.run(ctx, t, scene)
}

// roll is a replacement of a full pool's only node.
type roll struct {
	// value of the label that the pool's nodes are to have.
	value string
	// pods run before and after, and waiting pods wait.
	pods, waiting int
	// then is done when the region has the replacement's machine.
	then func() error
}

func (r roll) run(ctx context.Context, t *testing.T, scene *Scene) {
	if err := scene.scale(ctx, r.pods+r.waiting); err != nil {
		t.Fatal(err)
	}
	if _, err := scene.awaitPods(ctx, r.pods, r.waiting); err != nil {
		t.Fatal(err)
	}
	old, err := scene.awaitOneMachine(ctx)
	if err != nil {
		t.Fatal(err)
	}
	watch := scene.watchMachines(ctx)
	defer watch.stop()
	label := fmt.Appendf(nil, `{"spec":{"labels":{%q:%q}}}`, newLabel, r.value)
	pool := &v1alpha1.GPUNodePool{}
	pool.Name = poolName
	if err := scene.Client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", label)); err != nil {
		t.Fatal(err)
	}
	if err := r.interrupt(ctx, scene, len(old)); err != nil {
		t.Fatal(err)
	}
	seen, err := await(ctx, 5*time.Minute, "all pods on one node that has the label", func(ctx context.Context) (string, bool, error) {
		books, err := scene.Books(ctx)
		if err != nil {
			return "", false, err
		}
		moved, err := scene.runningOn(ctx, client.MatchingLabels{newLabel: r.value})
		left := alive(books)
		replaced := len(left) == 1 && left[0].ID != alive(old)[0].ID
		return fmt.Sprintf("%d of %d pods moved, %d machines of %d ever", moved, r.pods, len(left), len(books)), replaced && moved == r.pods, err
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

// interrupt does what is to be done while the node is being replaced.
func (r roll) interrupt(ctx context.Context, scene *Scene, machines int) error {
	if r.then == nil {
		return nil
	}
	_, err := await(ctx, time.Minute, "the replacement's machine", func(ctx context.Context) (string, bool, error) {
		books, err := scene.Books(ctx)
		return fmt.Sprintf("%d machines ever", len(books)), len(books) > machines, err
	})
	if err != nil {
		return err
	}
	return r.then()
}

// awaitOneMachine waits until all machines but one have gone, and returns the books.
func (s *Scene) awaitOneMachine(ctx context.Context) ([]BookEntry, error) {
	var books []BookEntry
	_, err := await(ctx, time.Minute, "one machine before the change", func(ctx context.Context) (string, bool, error) {
		var err error
		books, err = s.Books(ctx)
		return fmt.Sprintf("%d machines", len(alive(books))), len(alive(books)) == 1, err
	})
	return books, err
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
