package karpenter

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/cost"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// working launches a claim and gives it a node on which one pod takes all GPUs.
func (w *world) working(t *testing.T, name, instanceType string, gpus int64) (*karpv1.NodeClaim, *corev1.Node) {
	t.Helper()
	claim := w.launched(t, name, instanceType)
	claim.Status.NodeName = name
	claim = w.with(t, claim, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: claim.Labels},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
		Status: corev1.NodeStatus{
			Capacity: claim.Status.Capacity, Allocatable: claim.Status.Allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for key, value := range map[string]string{corev1.LabelHostname: name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"} {
		node.Labels[key] = value
	}
	create(t, w, node)
	pod := w.pods(1, "nvidia.com/gpu", gpus)[0]
	pod.Name, pod.UID, pod.Spec.NodeName = "on-"+name, types.UID("on-"+name), name
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "work", UID: "work"}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	create(t, w, pod)
	return claim, node
}

// disrupt runs one pass of core's own disruption controller.
func (w *world) disrupt(t *testing.T, ctx context.Context) error {
	t.Helper()
	said := record.NewFakeRecorder(100)
	recorder := events.NewRecorder(said)
	defer func() {
		close(said.Events)
		for event := range said.Events {
			t.Log(event)
		}
	}()
	matcher, err := health.NewRepairPolicyMatcher(ctx, w.CloudProvider)
	if err != nil {
		t.Fatal(err)
	}
	c := coreClient{w.client, w.CloudProvider}
	cluster := state.NewCluster(w.clock, c, w.CloudProvider, state.WithRepairPolicyMatcher(matcher))
	claims, nodes := &karpv1.NodeClaimList{}, &corev1.NodeList{}
	for _, list := range []client.ObjectList{claims, nodes} {
		if err := w.client.List(ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range claims.Items {
		cluster.UpdateNodeClaim(&claims.Items[i])
	}
	for i := range nodes.Items {
		if err := cluster.UpdateNode(ctx, &nodes.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	provisioner := w.provisionerOver(ctx, cluster)
	queue := disruption.NewQueue(c, recorder, cluster, w.clock, provisioner)
	_, err = disruption.NewController(ctx, w.clock, c, provisioner, w.CloudProvider, recorder, cluster, queue, cost.NewClusterCost(ctx, w.CloudProvider, c)).Reconcile(ctx)
	return err
}

// Drift and repair of the only node of a full pool, while two more pods wait for the pool and must not have the room of the
// replacement: core's own controller plans and makes exactly one claim, which says what it replaces and launches.
func TestAFullPool_ReplacesItsOnlyNodeWhilePodsWait(t *testing.T) {
	for name, tc := range map[string]struct {
		machines [][]string
		breaks   func(t *testing.T, w *world, claim *karpv1.NodeClaim, node *corev1.Node)
	}{
		"drift":                         {[][]string{{"p5.48xlarge"}}, drifts},
		"drift, a pool of two entries":  {[][]string{{"g6.xlarge"}, {"p5.48xlarge"}}, drifts},
		"repair":                        {[][]string{{"p5.48xlarge"}}, fails},
		"repair, a pool of two entries": {[][]string{{"g6.xlarge"}, {"p5.48xlarge"}}, fails},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limited(8, 0, ""), exclusive, machines(tc.machines...))
			waiting := append(w.pods(1, "nvidia.com/gpu", 1), w.pods(2, "nvidia.com/gpu", 8)[1])
			ctx := w.prepare(t, waiting)
			claim, node := w.working(t, "old", "p5.48xlarge", 8)
			claim.Labels[karpv1.NodePoolLabelKey] = w.nodePool(t, len(tc.machines)-1).Name
			if err := w.client.Update(ctx, claim); err != nil {
				t.Fatal(err)
			}
			node.Labels[karpv1.NodePoolLabelKey] = claim.Labels[karpv1.NodePoolLabelKey]
			if err := w.client.Update(ctx, node); err != nil {
				t.Fatal(err)
			}
			tc.breaks(t, w, claim, node)
			if err := w.disrupt(t, ctx); err != nil {
				t.Fatal(err)
			}
			made := w.madeBeside(t, ctx, "old")
			if len(made) != 1 {
				t.Fatalf("%d replacements, want 1", len(made))
			}
			if got := made[0].Annotations[v1alpha1.AnnotationReplaces]; got != "uid-old" {
				t.Errorf("the replacement says that it replaces %q, want uid-old", got)
			}
			if _, err := w.Create(ctx, made[0]); err != nil {
				t.Errorf("the replacement does not launch: %v", err)
			}
		})
	}
}

func drifts(t *testing.T, w *world, claim *karpv1.NodeClaim, _ *corev1.Node) {
	w.with(t, w.reread(t, claim), karpv1.ConditionTypeDrifted)
}

func fails(t *testing.T, w *world, _ *karpv1.NodeClaim, node *corev1.Node) {
	t.Helper()
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began.Add(-repairAfter - time.Minute))
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// madeBeside are the claims that core has made beside another.
func (w *world) madeBeside(t *testing.T, ctx context.Context, other string) []*karpv1.NodeClaim {
	t.Helper()
	list := &karpv1.NodeClaimList{}
	if err := w.client.List(ctx, list); err != nil {
		t.Fatal(err)
	}
	var claims []*karpv1.NodeClaim
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Name != other {
			claim.UID = types.UID("uid-" + claim.Name)
			if err := w.client.Update(ctx, claim); err != nil {
				t.Fatal(err)
			}
			claims = append(claims, claim)
		}
	}
	return claims
}

// A node is replaced, the controller is killed before it can end the old one, and core takes its mark off the old one after
// the restart. The pool launches nothing more, and the old node goes when the new one is ready.
func TestBooks_FinishAReplacementThatCoreHasForgotten(t *testing.T) {
	w, old, replacement := fullWithReplacement(t, drifts)
	w.forgets(t, "old")
	w.wantSteady(t, 16)
	w.endReplaced(t)
	if w.isGoing(t, old) {
		t.Fatal("the old claim is ended before its replacement is ready")
	}
	if _, err := w.Create(t.Context(), w.claim(t, "one more")); !cloudprovider.IsInsufficientCapacityError(err) {
		t.Errorf("one more beside the two: %v, want a refusal", err)
	}
	w.with(t, w.reread(t, replacement), karpv1.ConditionTypeInitialized)
	w.endReplaced(t)
	if !w.isGoing(t, old) || w.isGoing(t, replacement) {
		t.Errorf("the old claim is going: %t, the new one: %t", w.isGoing(t, old), w.isGoing(t, replacement))
	}
	w.books.claimChanged(t.Context(), old)
	w.wantSteady(t, 8)
}

// What keeps the old node, with the new one ready.
func TestBooks_LeaveTheOldNodeAlone(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world, old, replacement *karpv1.NodeClaim){
		"core has chosen it, and ends it when it sees fit": func(t *testing.T, w *world, _, _ *karpv1.NodeClaim) { w.chooses(t, "old") },
		"the pool is within its limits": func(t *testing.T, w *world, _, _ *karpv1.NodeClaim) {
			*w.pool.Spec.Limits.GPUs = 16
			w.setLimits(t, w.CloudProvider)
		},
		"it drifts no more, and is not broken: a job may run there": func(t *testing.T, w *world, old, _ *karpv1.NodeClaim) {
			claim := w.reread(t, old)
			if err := claim.StatusConditions().Clear(karpv1.ConditionTypeDrifted); err != nil {
				t.Fatal(err)
			}
			w.writeStatus(t, claim)
		},
		"what replaces it is older": func(t *testing.T, w *world, _, replacement *karpv1.NodeClaim) {
			w.annotate(t, replacement, func(claim *karpv1.NodeClaim) { claim.CreationTimestamp = metav1.NewTime(began.Add(-time.Hour)) })
		},
		"what replaces it names itself": func(t *testing.T, w *world, _, replacement *karpv1.NodeClaim) {
			w.annotate(t, replacement, func(claim *karpv1.NodeClaim) { claim.Annotations[v1alpha1.AnnotationReplaces] = string(claim.UID) })
			drifts(t, w, replacement, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, old, replacement := fullWithReplacement(t, drifts)
			w.forgets(t, "old")
			w.with(t, w.reread(t, replacement), karpv1.ConditionTypeInitialized)
			change(t, w, old, replacement)
			w.endReplaced(t)
			if w.isGoing(t, old) || w.isGoing(t, replacement) {
				t.Errorf("the old claim is going: %t, the new one: %t", w.isGoing(t, old), w.isGoing(t, replacement))
			}
		})
	}
}

func (w *world) annotate(t *testing.T, claim *karpv1.NodeClaim, change func(*karpv1.NodeClaim)) {
	t.Helper()
	current := w.reread(t, claim)
	change(current)
	if err := w.client.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
}

// Of two machines that were to take a node's place one failed, and core has given the replacement up: the old node stays,
// and counts.
func TestBooks_KeepANodeWhoseReplacementIsSmaller(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive, machines([]string{"g6.xlarge"}, []string{"p5.48xlarge"}))
	old, _ := w.working(t, "old", "p5.48xlarge", 8)
	drifts(t, w, old, nil)
	w.chooses(t, "old")
	replacement := w.replacement(t, "new", "g6.xlarge")
	w.with(t, w.reread(t, replacement), karpv1.ConditionTypeInitialized)
	w.forgets(t, "old")
	w.endReplaced(t)
	if w.isGoing(t, old) {
		t.Error("a node of 8 GPUs is ended for one of 1")
	}
	w.wantSteady(t, 9)
}

// Core does not say what a claim replaces. Where it replaces two nodes at once and neither has a replacement yet, it cannot be
// told, and is not guessed.
func TestBooks_DoNotGuessWhatIsReplaced(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.launched(t, name)
		w.chooses(t, name)
	}
	want := func(uid string) {
		t.Helper()
		if got, err := w.books.chosenNow(t.Context(), "inference"); err != nil || got != uid {
			t.Errorf("it replaces %q (%v), want %q", got, err, uid)
		}
	}
	want("")
	first := w.launched(t, "new")
	w.annotate(t, first, func(claim *karpv1.NodeClaim) {
		claim.Annotations[v1alpha1.AnnotationReplaces] = "uid-a"
	})
	want("uid-b")
	w.forgets(t, "b")
	want("uid-a") // a second machine for the same node
}

// The replacement fails: the old claim counts as one that stays, and the other's machine until it is gone.
func TestBooks_ANodeStaysWhenItsReplacementIsGone(t *testing.T) {
	w, _, replacement := fullWithReplacement(t, drifts)
	w.forgets(t, "old")
	remove(t, w, w.reread(t, replacement))
	w.books.claimChanged(t.Context(), replacement)
	w.wantSteady(t, 8)
	if n := w.ledger.Usage("inference").Outstanding.GPUs; n != 16 {
		t.Errorf("%d GPUs outstanding, want 16 until the replacement's machine is gone", n)
	}
}

// Core marks a claim whose machine it reboots too: it stays, and counts.
func TestBooks_ANodeThatIsOnlyRebootedStays(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""))
	w.launched(t, "old")
	w.with(t, w.reread(t, &karpv1.NodeClaim{ObjectMeta: objectMeta("old")}), karpv1.ConditionTypeRebooting, karpv1.ConditionTypeDisruptionReason)
	w.wantSteady(t, 8)
}

// The drain of a broken node is bounded, as core's repair bounds it: its pods may never answer.
func TestBooks_BoundTheDrainOfANodeThatDidNotDrift(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(*testing.T, *world, *karpv1.NodeClaim, *corev1.Node)
		bound  string
	}{
		"broken":  {fails, began.Add(drainFor).Format(time.RFC3339)},
		"drifted": {drifts, ""},
	} {
		w, old, replacement := fullWithReplacement(t, tc.breaks)
		w.forgets(t, "old")
		w.with(t, w.reread(t, replacement), karpv1.ConditionTypeInitialized)
		w.endReplaced(t)
		if got := w.reread(t, old).Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; got != tc.bound {
			t.Errorf("%s: the drain ends at %q, want %q", name, got, tc.bound)
		}
	}
}

// Somebody takes the launch journal off a claim, or writes into it: after a restart its machine counts as one that stays all
// the same, and its pool is counted.
func TestBooks_CountAClaimWhoseJournalIsTakenAwayOrSpoiled(t *testing.T) {
	unknown := func(claim *karpv1.NodeClaim) { claim.Annotations[v1alpha1.AnnotationLaunch] = "x" }
	t.Run("spoiled, and the answer was lost", func(t *testing.T) {
		w := newWorld(t, limited(16, 0, ""))
		claim := w.claim(t, "a")
		if _, err := w.Create(t.Context(), claim); err != nil { // nobody writes the provider id down
			t.Fatal(err)
		}
		w.annotate(t, claim, unknown)
		w.wantCounted(t, 8, 8)
	})
	t.Run("it is leaving", func(t *testing.T) {
		w := newWorld(t, limited(16, 0, ""))
		w.launched(t, "a")
		w.chooses(t, "a")
		w.wantCounted(t, 0, 8)
	})
	for name, change := range map[string]func(*karpv1.NodeClaim){
		"taken away": func(claim *karpv1.NodeClaim) { delete(claim.Annotations, v1alpha1.AnnotationLaunch) },
		"spoiled":    unknown,
	} {
		t.Run(name, func(t *testing.T) { countedWithout(t, change) })
	}
}

func countedWithout(t *testing.T, change func(*karpv1.NodeClaim)) {
	t.Helper()
	w := newWorld(t, limited(16, 0, ""))
	w.annotate(t, w.launched(t, "a"), change)
	w.wantCounted(t, 8, 8)
}

// wantCounted is what a controller that has just started counts.
func (w *world) wantCounted(t *testing.T, steady, outstanding int64) {
	t.Helper()
	restarted := NewCloudProvider(w.client, w.client, w.cloud, "test", w.clock)
	w.setLimits(t, restarted)
	if err := restarted.books.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	usage := restarted.ledger.Usage("inference")
	if usage.Steady.GPUs != steady || usage.Outstanding.GPUs != outstanding {
		t.Errorf("steady %d, outstanding %d GPUs; want %d and %d", usage.Steady.GPUs, usage.Outstanding.GPUs, steady, outstanding)
	}
}

// fullWithReplacement is a pool with a limit of 8 GPUs, whose one node of 8 core replaces since something is the matter with
// it: the replacement has launched.
func fullWithReplacement(t *testing.T, breaks func(*testing.T, *world, *karpv1.NodeClaim, *corev1.Node)) (w *world, old, replacement *karpv1.NodeClaim) {
	t.Helper()
	w = newWorld(t, limited(8, 0, ""), exclusive)
	old, node := w.working(t, "old", "p5.48xlarge", 8)
	breaks(t, w, old, node)
	w.chooses(t, "old")
	replacement = w.replacement(t, "new", "p5.48xlarge")
	w.wantSteady(t, 8)
	return w, old, replacement
}

// replacement is a claim that core has made for what it has chosen, launched.
func (w *world) replacement(t *testing.T, name, instanceType string) *karpv1.NodeClaim {
	t.Helper()
	uids, err := w.books.chosenNow(t.Context(), "inference")
	if err != nil {
		t.Fatal(err)
	}
	claim := w.launched(t, name, instanceType)
	claim.Annotations[v1alpha1.AnnotationReplaces] = uids
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func (w *world) endReplaced(t *testing.T) {
	t.Helper()
	if err := w.books.endReplaced(t.Context(), "inference"); err != nil {
		t.Fatal(err)
	}
}

func (w *world) isGoing(t *testing.T, claim *karpv1.NodeClaim) bool {
	t.Helper()
	return !w.reread(t, claim).DeletionTimestamp.IsZero()
}

func (w *world) wantSteady(t *testing.T, gpus int64) {
	t.Helper()
	if got := w.ledger.Usage("inference").Steady.GPUs; got != gpus {
		t.Errorf("%d GPUs steady, want %d", got, gpus)
	}
}
