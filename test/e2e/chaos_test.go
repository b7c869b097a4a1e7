package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostMachines is what the pool may ever have at once: limits.gpus of 8 is one p5.48xlarge, and the surge another.
const mostMachines = 2

// burst is as many pods with a slice each as need six machines.
const burst = 300

// limitThroughKills asks for more machines than the limit allows while NodeClaims are deleted and the controller is
// killed. At no look may the region have more machines than limit and surge, and what is left is the one of the limit.
func limitThroughKills(ctx context.Context, t *testing.T, scene *Scene) {
	watch := scene.watchMachines(ctx)
	defer watch.stop()
	err := scene.scale(ctx, burst)
	for round := 0; err == nil && round < 4; round++ {
		err = scene.deleteClaimsAndKill(ctx, t, round)
	}
	if err != nil {
		t.Fatal(err)
	}
	most, looks := watch.stop()
	t.Logf("at most %d machines in %d looks", most, looks)
	if most > mostMachines || looks == 0 {
		t.Errorf("the region had %d machines at once in %d looks, limit and surge allow %d", most, looks, mostMachines)
	}
	if _, err := scene.awaitPods(ctx, oneNode, burst-oneNode); err != nil {
		t.Error(err)
	}
	_, err = await(ctx, time.Minute, "the one machine that the limit allows", func(ctx context.Context) (string, bool, error) {
		books, err := scene.Books(ctx)
		if err != nil {
			return "", false, err
		}
		left := alive(books)
		return fmt.Sprintf("%d machines: %+v", len(left), left), len(left) == 1, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// machineWatch looks at the region's books all the time.
type machineWatch struct {
	cancel      context.CancelFunc
	done        sync.WaitGroup
	most, looks int
}

func (s *Scene) watchMachines(ctx context.Context) *machineWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &machineWatch{cancel: cancel}
	w.done.Go(func() {
		for pause(ctx) == nil {
			books, err := s.Books(ctx)
			if err != nil {
				continue
			}
			w.looks++
			w.most = max(w.most, len(alive(books)))
		}
	})
	return w
}

// stop returns the most machines that there were at once, and how often it looked.
func (w *machineWatch) stop() (most, looks int) {
	w.cancel()
	w.done.Wait()
	return w.most, w.looks
}

// deleteClaimsAndKill ends every node of the pool, and the controller in the middle of it, a little later each round:
// while the nodes drain, while their machines end, while the next are asked for.
func (s *Scene) deleteClaimsAndKill(ctx context.Context, t *testing.T, round int) error {
	claims, err := s.claims(ctx)
	if err != nil {
		return err
	}
	for i := range claims {
		if err := s.Client.Delete(ctx, &claims[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for range 4 * round {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if err := s.Stack.KillController(); err != nil {
		return err
	}
	if err := s.Stack.StartController(ctx); err != nil {
		return err
	}
	_, err = await(ctx, 2*time.Minute, "a node that runs pods", func(ctx context.Context) (string, bool, error) {
		pods, err := s.Pods(ctx)
		if err != nil {
			return "", false, err
		}
		running := 0
		for i := range pods {
			if pods[i].Status.Phase == "Running" && pods[i].DeletionTimestamp == nil {
				running++
			}
		}
		return fmt.Sprintf("round %d: %d of %d pods run", round, running, len(pods)), running > 0, nil
	})
	return err
}
