package karpenter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/multierr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

type change = func(*v1alpha1.GPUNodePool, *classObject)

// limited bounds the pool. 0 leaves a limit out.
func limited(gpus, nodes int64, hourlyCost string) change {
	return func(pool *v1alpha1.GPUNodePool, _ *classObject) {
		pool.Spec.Limits = &v1alpha1.LimitsSpec{HourlyCost: hourlyCost}
		if gpus > 0 {
			pool.Spec.Limits.GPUs = ptr.To(gpus)
		}
		if nodes > 0 {
			pool.Spec.Limits.Nodes = ptr.To(nodes)
		}
	}
}

func machines(entries ...[]string) change {
	return func(pool *v1alpha1.GPUNodePool, _ *classObject) {
		pool.Spec.Machines = nil
		for _, types := range entries {
			pool.Spec.Machines = append(pool.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: types})
		}
	}
}

func timeSliced(replicas int32) change {
	return func(_ *v1alpha1.GPUNodePool, class *classObject) {
		class.Spec.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: ptr.To(replicas)}
	}
}

// C03: one burst of five whole-node pods, nodes = 3. In the simulation the pseudo-resource holds.
func TestC03_OneBurstMakesNoMoreClaimsThanTheLimit(t *testing.T) {
	for name, change := range map[string][]change{
		"nodes, whole GPUs":  {limited(0, 3, ""), exclusive},
		"gpus, whole GPUs":   {limited(24, 0, ""), exclusive},
		"gpus, MIG slices":   {limited(24, 0, "")},
		"gpus, time-sliced":  {limited(24, 0, ""), timeSliced(4)},
		"dollars: 3 x 55.04": {limited(0, 0, "165.12"), exclusive},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change...)
			bp := w.blueprint(t)
			var resource corev1.ResourceName
			var all int64
			for each, quantity := range bp.Resources {
				resource, all = each, quantity.Value()
			}
			if claims := w.schedule(t, w.pods(5, resource, all)); len(claims) != 3 {
				t.Errorf("%d claims, want 3", len(claims))
			}
		})
	}
}

// C03: concurrent passes do not see each other's claims, so Create is the authority.
func TestC03_ConcurrentLaunchesNeverPassTheLimit(t *testing.T) {
	w := newWorld(t, limited(0, 3, ""))
	var claims []*karpv1.NodeClaim
	for i := range 10 {
		claims = append(claims, w.claim(t, fmt.Sprintf("claim-%d", i)))
	}
	w.wantLaunched(t, 3, claims)
}

// C03: four of core's provisioners plan for the same five pods at once, each within the limit of three nodes. Of the 12
// claims that they mean to make, 3 are made.
func TestC03_ConcurrentPassesOfTheProvisionerMakeNoMoreClaimsThanTheLimit(t *testing.T) {
	w := newWorld(t, limited(0, 3, ""), exclusive)
	ctx := w.prepare(t, w.pods(5, "nvidia.com/gpu", 8))
	const passes = 4
	plans := make([]scheduling.Results, passes)
	for i := range plans {
		var err error
		if plans[i], err = w.provisioner(ctx).Schedule(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(plans[i].NewNodeClaims); n != 3 {
			t.Fatalf("a pass plans %d claims, want 3", n)
		}
	}
	var wg sync.WaitGroup
	var refused atomic.Int32
	for _, plan := range plans {
		wg.Go(func() {
			_, err := w.provisioner(ctx).CreateNodeClaims(ctx, plan.NewNodeClaims)
			for _, each := range multierr.Errors(err) {
				if !strings.Contains(each.Error(), "pool inference: limit nodes 3 is reached: 3 in use, 1 asked") {
					t.Errorf("refused by %v, want the ledger's words", each)
				}
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if n := refused.Load(); n != 9 {
		t.Errorf("%d claims refused, want 9 of 12", n)
	}
	w.wantLaunched(t, 3, w.made(t, ctx, 3))
}

// C01: a pool of two entries, each a NodePool of its own with the whole limit. Ten pods of one GPU make eight claims of the
// first; the second's would be the ninth, and core means to make it in the same pass.
func TestC01_TheEntriesOfAPoolMakeNoMoreClaimsThanItsLimit(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive, machines([]string{"g6.xlarge"}, []string{"p5.48xlarge"}))
	ctx := w.prepare(t, w.pods(10, "nvidia.com/gpu", 1))
	provisioner := w.provisioner(ctx)
	plan, err := provisioner.Schedule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(plan.NewNodeClaims); n != 9 {
		t.Fatalf("core plans %d claims, want 9: this test proves nothing then", n)
	}
	// In turn, the small ones first: they are made all at once, and whichever comes first takes the room.
	for i, planned := range plan.NewNodeClaims {
		_, err = provisioner.CreateNodeClaims(ctx, []*scheduling.NodeClaim{planned})
		if (i < 8) != (err == nil) {
			t.Fatalf("claim %d of 9: %v", i+1, err)
		}
	}
	if !strings.Contains(err.Error(), "pool inference: limit gpus 8 is reached: 8 in use, 8 asked") {
		t.Errorf("the ninth is refused by %v", err)
	}
	w.wantLaunched(t, 8, w.made(t, ctx, 8))
	if again := w.solve(ctx, t); len(again) != 0 {
		t.Errorf("%d claims planned in a full pool", len(again))
	}
}

// made are the NodeClaims that core has made, with UIDs as the API server gives them.
func (w *world) made(t *testing.T, ctx context.Context, want int) []*karpv1.NodeClaim {
	t.Helper()
	list := &karpv1.NodeClaimList{}
	if err := w.client.List(ctx, list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != want {
		t.Fatalf("%d NodeClaims made, want %d", len(list.Items), want)
	}
	var claims []*karpv1.NodeClaim
	for i := range list.Items {
		claim := &list.Items[i]
		claim.UID = types.UID("uid-" + claim.Name)
		if err := w.client.Update(ctx, claim); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, claim)
	}
	return claims
}

// wantLaunched launches the claims at once: so many come, and the ledger refuses the others.
func (w *world) wantLaunched(t *testing.T, want int, claims []*karpv1.NodeClaim) {
	t.Helper()
	var wg sync.WaitGroup
	results := make([]error, len(claims))
	for i, claim := range claims {
		wg.Go(func() { _, results[i] = w.Create(t.Context(), claim) })
	}
	wg.Wait()
	launched := 0
	for _, err := range results {
		var refusal *ledger.Refusal
		switch {
		case err == nil:
			launched++
		case !cloudprovider.IsInsufficientCapacityError(err) || !errors.As(err, &refusal):
			t.Errorf("refused by %v, want the ledger's words", err)
		}
	}
	if launched != want || len(w.cloud.instances) != want {
		t.Errorf("%d launched, %d instances, want %d", launched, len(w.cloud.instances), want)
	}
}

// C02: nodes that never join. Every claim counts from when it is asked for until its instance is gone.
func TestC02_ClaimsThatNeverJoinCountUntilTheirInstanceIsGone(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""))
	for i := range 20 {
		claim := w.claim(t, fmt.Sprintf("claim-%d", i))
		_, err := w.Create(t.Context(), claim)
		if err == nil {
			// Its pod is deleted, and so is the claim; the instance takes its time to end.
			remove(t, w, w.reread(t, claim))
			w.books.claimChanged(t.Context(), w.reread(t, claim))
		}
		alive, err := w.cloud.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		// limit 8 and a surge of one node of 8
		if len(alive)*8 > 16 {
			t.Fatalf("after %d claims %d GPUs are outstanding, limit 8 and surge 8", i+1, len(alive)*8)
		}
	}
	if len(w.cloud.instances) != 2 {
		t.Errorf("%d instances ever, want 2: the second while the first is leaving", len(w.cloud.instances))
	}
}

func TestOfferings_AreClosedWhereTheLedgerWouldRefuse(t *testing.T) {
	for name, limit := range map[string]change{"gpus": limited(8, 0, ""), "nodes": limited(0, 1, ""), "dollars": limited(0, 0, "55.04")} {
		t.Run(name, func(t *testing.T) { offeringsOfAFullPool(t, newWorld(t, limit)) })
	}
}

func offeringsOfAFullPool(t *testing.T, w *world) {
	t.Helper()
	if w.open(t, "provisioner", "p5.48xlarge") == 0 {
		t.Fatal("no offering is open in an empty pool")
	}
	claim := w.launched(t, "a")
	for _, controller := range []string{"provisioner", "disruption"} {
		if n := w.open(t, controller, "p5.48xlarge"); n != 0 {
			t.Errorf("%d offerings are open to the %s in a full pool: claims would be made to be refused", n, controller)
		}
	}
	w.with(t, claim, karpv1.ConditionTypeDrifted)
	if w.open(t, "disruption", "p5.48xlarge") == 0 {
		t.Error("no offering is open for a replacement: a full pool could never replace a node")
	}
	if n := w.open(t, "provisioner", "p5.48xlarge"); n != 0 {
		t.Errorf("%d offerings are open in a full pool whose node drifts", n)
	}
	w.chooses(t, "a")
	if w.open(t, "disruption", "p5.48xlarge") == 0 {
		t.Error("no offering is open while the replacement is made")
	}
	if w.open(t, "provisioner", "p5.48xlarge") == 0 {
		t.Error("no offering is open although the one node is leaving: its pods get no other")
	}
}

// open counts the offerings of an instance type that one of core's controllers sees open.
func (w *world) open(t *testing.T, controller, instanceType string) int {
	t.Helper()
	types, err := w.GetInstanceTypes(injection.WithControllerName(t.Context(), controller), w.nodePool(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range types {
		if each.Name == instanceType {
			return len(each.Offerings.Available())
		}
	}
	t.Fatalf("no instance type %s", instanceType)
	return 0
}

// A full pool of a machine of 8 GPUs and one of 1. Where the small one drifts, there is room for another small one and not for
// a large one, which Create would refuse: core would try again and again, and get no further. Where both drift, the small one
// goes first. Where the large one breaks, there is room for it.
func TestOfferings_AreOpenForWhatCanReplaceTheSmallestNode(t *testing.T) {
	for name, tc := range map[string]struct {
		drifts     []string
		breaks     string
		large, any bool
	}{
		"nothing":          {nil, "", false, false},
		"the small one":    {[]string{"small"}, "", false, true},
		"the large one":    {[]string{"large"}, "", true, true},
		"both":             {[]string{"small", "large"}, "", false, true},
		"the large breaks": {nil, "large", true, true},
		"the small breaks": {nil, "small", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limited(9, 0, ""), exclusive, machines([]string{"p5.48xlarge"}, []string{"g6.xlarge"}))
			claims, nodes := map[string]*karpv1.NodeClaim{}, map[string]*corev1.Node{}
			claims["large"], nodes["large"] = w.working(t, "large", "p5.48xlarge", 8)
			claims["small"], nodes["small"] = w.working(t, "small", "g6.xlarge", 1)
			for _, each := range tc.drifts {
				drifts(t, w, claims[each], nil)
			}
			if tc.breaks != "" {
				fails(t, w, nil, nodes[tc.breaks])
			}
			if open := w.open(t, "disruption", "p5.48xlarge") > 0; open != tc.large {
				t.Errorf("a large machine may be planned: %t, want %t", open, tc.large)
			}
			if open := w.open(t, "disruption", "g6.xlarge") > 0; open != tc.any {
				t.Errorf("a small machine may be planned: %t, want %t", open, tc.any)
			}
		})
	}
}

func TestCreate_ReplacesTheOnlyNodeOfAFullPool(t *testing.T) {
	for name, disrupt := range map[string]func(t *testing.T, w *world, old *karpv1.NodeClaim){
		"drift or repair: core marks the old claim": func(t *testing.T, w *world, old *karpv1.NodeClaim) {
			old.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Drifted", "Drifted")
			if err := w.client.Status().Update(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		},
		"the old claim is being deleted": func(t *testing.T, w *world, old *karpv1.NodeClaim) { remove(t, w, old) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limited(8, 0, ""))
			old := w.claim(t, "old")
			if _, err := w.Create(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			// No watch has told the ledger: Create itself looks.
			disrupt(t, w, w.reread(t, old))
			if _, err := w.Create(t.Context(), w.claim(t, "new")); err != nil {
				t.Fatalf("the replacement is refused: %v", err)
			}
			_, err := w.Create(t.Context(), w.claim(t, "one too many"))
			var refusal *ledger.Refusal
			if !errors.As(err, &refusal) {
				t.Errorf("one more beside the two: %v, want a refusal", err)
			}
		})
	}
}

func TestBooks_NothingLaunchesBeforeTheyCountAfterARestart(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""))
	if _, err := w.Create(t.Context(), w.claim(t, "a")); err != nil {
		t.Fatal(err)
	}
	restarted := NewCloudProvider(w.client, w.client, w.cloud, "test", w.clock)
	w.setLimits(t, restarted)
	next := w.claim(t, "b")
	_, err := restarted.Create(t.Context(), next)
	var create *cloudprovider.CreateError
	if !errors.As(err, &create) {
		t.Fatalf("before the count: %v, want a CreateError that core tries again", err)
	}
	if err := restarted.books.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = restarted.Create(t.Context(), next)
	var refusal *ledger.Refusal
	if !errors.As(err, &refusal) {
		t.Errorf("after the count: %v, want a refusal: the pool is full", err)
	}
}

func TestBooks_CountFailsClosed(t *testing.T) {
	w := newWorld(t)
	w.cloud.listErr = errors.New("throttled")
	restarted := NewCloudProvider(w.client, w.client, w.cloud, "test", w.clock)
	w.setLimits(t, restarted)
	if err := restarted.books.count(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if _, err := restarted.Create(t.Context(), w.claim(t, "a")); err == nil {
		t.Error("launched without knowing what runs")
	}
}

// Faults stay in their pool: one claim whose journal nobody can read keeps its own pool from launching, and no other.
func TestBooks_CountTheOtherPoolsWhereAJournalCannotBeRead(t *testing.T) {
	w := newWorld(t)
	for name, journal := range map[string]string{"broken": "{not json", "fine": ""} {
		pool := testPool()
		pool.Name = name
		claim := &karpv1.NodeClaim{ObjectMeta: objectMeta("claim-of-" + name)}
		claim.Labels, claim.UID = map[string]string{v1alpha1.LabelPool: name}, types.UID("uid-"+name)
		if journal != "" {
			claim.Annotations = map[string]string{v1alpha1.AnnotationLaunch: journal}
		}
		for _, object := range []client.Object{pool, claim} {
			if err := w.client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		w.ledger.SetLimits(name, ledger.Limits{})
	}
	err := w.books.count(t.Context())
	if err == nil || !strings.Contains(err.Error(), "pool broken cannot be counted") || !strings.Contains(err.Error(), "claim-of-broken") {
		t.Errorf("the error is %v", err)
	}
	for name, ready := range map[string]bool{"broken": false, "fine": true, w.pool.Name: true} {
		if got := w.ledger.Usage(name).Ready; got != ready {
			t.Errorf("pool %s may launch: %t, want %t", name, got, ready)
		}
	}
}

func TestBooks_EndInstancesWithoutAClaimAfterAGraceAndNeverAnothers(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	if _, err := w.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.cloud.instances["orphan"] = &cloud.Instance{
		ID: "i-orphan", State: cloud.StateRunning, InstanceType: "p5.48xlarge", LaunchedAt: began,
		Claim: cloud.Claim{Name: "gone", UID: "uid-gone", Pool: "inference"},
	}
	w.cloud.instances["bastion"] = &cloud.Instance{ID: "i-bastion", State: cloud.StateRunning, InstanceType: "m5.large", LaunchedAt: began}
	count := func() {
		t.Helper()
		if err := w.books.count(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count()
	count()
	if len(w.cloud.terminated) != 0 {
		t.Fatalf("ended %v within the grace", w.cloud.terminated)
	}
	w.clock.Step(orphanGrace + time.Second)
	count()
	if len(w.cloud.terminated) != 0 {
		t.Fatalf("ended %v at the first sight", w.cloud.terminated)
	}
	count()
	if fmt.Sprint(w.cloud.terminated) != "[i-orphan]" {
		t.Errorf("ended %v, want the orphan alone", w.cloud.terminated)
	}
}

func TestCreate_UnderACostLimit(t *testing.T) {
	cases := map[string]struct {
		limit    string
		machine  string
		launched int
	}{
		"two p5 at 55.04 fit 110.08":    {"110.08", "p5.48xlarge", 2},
		"one fits 110.07":               {"110.07", "p5.48xlarge", 1},
		"an unknown price fits nothing": {"1000000", "p5e.48xlarge", 0},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, exclusive, limited(0, 0, each.limit), machines([]string{each.machine}))
			launched := 0
			for i := range 4 {
				if _, err := w.Create(t.Context(), w.claim(t, fmt.Sprintf("claim-%d", i), each.machine)); err == nil {
					launched++
				}
			}
			if launched != each.launched {
				t.Errorf("%d launched, want %d", launched, each.launched)
			}
		})
	}
}

// C19: 24 replicas on one GPU; 6 pods of 4 fill one node, 7 need two.
func TestC19_SharesScaleFromZero(t *testing.T) {
	for pods, nodes := range map[int]int{6: 1, 7: 2} {
		w := newWorld(t, timeSliced(24), machines([]string{"g5.xlarge"}))
		if claims := w.schedule(t, w.pods(pods, "nvidia.com/gpu", 4)); len(claims) != nodes {
			t.Errorf("%d pods of 4 shares: %d nodes, want %d", pods, len(claims), nodes)
		}
	}
}

// A node offers 8 shares: of 4 GPUs, two each.
func TestSimulation_NineSharesNeedTwoNodesOfEight(t *testing.T) {
	for pods, nodes := range map[int]int{8: 1, 9: 2} {
		w := newWorld(t, timeSliced(2), machines([]string{"g6.12xlarge"}))
		if claims := w.schedule(t, w.pods(pods, "nvidia.com/gpu", 1)); len(claims) != nodes {
			t.Errorf("%d pods of one share: %d nodes, want %d", pods, len(claims), nodes)
		}
	}
}

func TestSimulation_FourPodsThatShareOneGPUStartOneNode(t *testing.T) {
	w := newWorld(t, timeSliced(4), machines([]string{"g6.xlarge"}))
	if claims := w.schedule(t, w.pods(4, "nvidia.com/gpu", 1)); len(claims) != 1 {
		t.Errorf("%d nodes for four pods that share one GPU, want 1", len(claims))
	}
}

// With one NodePool for both core would take the big machine: it packs until only that is left. Both orders, so that none
// comes of the names of the NodePools.
func TestSimulation_KeepsThePreferenceOfMachines(t *testing.T) {
	small, big := []string{"g6.xlarge"}, []string{"p5.48xlarge"}
	for _, tc := range []struct {
		order  [][]string
		claims int
	}{
		{[][]string{small, big}, 8},
		{[][]string{big, small}, 1},
	} {
		w := newWorld(t, exclusive, machines(tc.order...))
		claims := w.schedule(t, w.pods(8, "nvidia.com/gpu", 1))
		if len(claims) != tc.claims {
			t.Errorf("%d claims by preference %v, want %d", len(claims), tc.order, tc.claims)
		}
		for _, options := range claims {
			if !slices.Equal(options, tc.order[0]) {
				t.Errorf("a claim of %v by preference %v", options, tc.order)
			}
		}
	}
}

// The one machine of 8 GPUs of a full pool drifts, since the pool names machines of 1 GPU now. They come one by one: where the
// surge has room for one of them only, none is planned, and where it is as large as the machine that is there, all are.
func TestOfferings_AreClosedWhereAReplacementHasRoomInPartOnly(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive)
	claim, _ := w.working(t, "old", "p5.48xlarge", 8)
	drifts(t, w, claim, nil)
	w.pool.Spec.Machines = []v1alpha1.MachineSpec{{InstanceTypes: []string{"g6.xlarge"}}}
	if err := w.client.Update(t.Context(), w.pool); err != nil {
		t.Fatal(err)
	}
	bounds, err := blueprint.Limits(w.pool, []v1alpha1.Blueprint{w.blueprint(t)})
	if err != nil || bounds.Surge.GPUs != 1 {
		t.Fatalf("surge %+v (%v)", bounds.Surge, err)
	}
	w.ledger.SetLimits("inference", bounds)
	if n := w.open(t, "disruption", "g6.xlarge"); n != 0 {
		t.Errorf("%d offerings are open where one of eight machines has room", n)
	}
	bounds, err = blueprint.Limits(w.pool, []v1alpha1.Blueprint{w.blueprint(t)}, machineOf("p5.48xlarge"))
	if err != nil || bounds.Surge.GPUs != 8 {
		t.Fatalf("surge %+v (%v)", bounds.Surge, err)
	}
	w.ledger.SetLimits("inference", bounds)
	if n := w.open(t, "disruption", "g6.xlarge"); n == 0 {
		t.Error("no offering is open where all eight have room")
	}
}
