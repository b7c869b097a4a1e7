package karpenter

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// A claim of several instance types counts as the most of each, at list prices of us-east-1.
func TestLargestOf_CountsTheMostOfEveryInstanceType(t *testing.T) {
	for name, tc := range map[string]struct {
		types []string
		want  ledger.Machine
	}{
		"one": {[]string{"g6.xlarge"}, ledger.NewMachine(1, 0.8048, true)},
		// g5.12xlarge: 4 x A10G at $5.672/h; g5.48xlarge: 8 at $16.288/h
		"the larger last":           {[]string{"g5.12xlarge", "g5.48xlarge"}, ledger.NewMachine(8, 16.288, true)},
		"the larger first":          {[]string{"g5.48xlarge", "g5.12xlarge"}, ledger.NewMachine(8, 16.288, true)},
		"a price that no list has":  {[]string{"g6.xlarge", "p5e.48xlarge"}, ledger.Machine{GPUs: 8, Price: ledger.Dollars(0.8048)}},
		"none: as large as any has": {nil, ledger.Machine{GPUs: 8}},
	} {
		claim := &karpv1.NodeClaim{}
		if tc.types != nil {
			claim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: tc.types}}
		}
		if diff := cmp.Diff(tc.want, largestOf(claim)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What the API server does not make has no room held for it.
func TestCoreClient_GivesTheRoomBackOfAClaimThatIsNotMade(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive)
	ctx := w.prepare(t, w.pods(1, "nvidia.com/gpu", 8))
	provisioner := w.provisioner(ctx)
	plan, err := provisioner.Schedule(ctx)
	if err != nil {
		t.Fatal(err)
	}
	broken := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("refused by a webhook")
		},
	})
	if err := (coreClient{broken, w.CloudProvider}).Create(ctx, plan.NewNodeClaims[0].ToNodeClaim()); err == nil {
		t.Fatal("no error")
	}
	w.wantSteady(t, 0)
	if _, err := provisioner.CreateNodeClaims(ctx, plan.NewNodeClaims); err != nil {
		t.Errorf("the next try: %v", err)
	}
	w.wantSteady(t, 8)
}

// Core does not see the pods that a limit holds back. All others it does, and always those that have a node. Only a pod that
// may have a machine of another pool too is planned for, but not where a replacement would be given up with it.
func TestCoreClient_KeepsPodsThatALimitHoldsBackFromCore(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive)
	other := testPool()
	other.Name, other.Spec.Machines = "roomy", []v1alpha1.MachineSpec{{InstanceTypes: []string{"g6.xlarge"}}}
	create(t, w, other)
	w.setLimitsOf(t, other)
	w.launched(t, "a")
	names := map[string]func(*corev1.Pod){
		"of the full pool": func(*corev1.Pod) {},
		"of another pool":  func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{v1alpha1.LabelPool: "roomy"} },
		"of no pool":       func(p *corev1.Pod) { p.Spec.NodeSelector = nil },
		"without GPUs": func(p *corev1.Pod) {
			p.Spec.NodeSelector, p.Spec.Containers[0].Resources = nil, corev1.ResourceRequirements{}
		},
		"that runs": func(p *corev1.Pod) { p.Spec.NodeName = "node-a" },
	}
	for name, change := range names {
		pod := w.pods(1, "nvidia.com/gpu", 1)[0]
		pod.Name, pod.UID = "", ""
		pod.GenerateName, pod.Labels = "pod-", map[string]string{"is": name}
		change(pod)
		create(t, w, pod)
	}
	list := func(controller string, opts ...client.ListOption) map[string]bool {
		t.Helper()
		pods := &corev1.PodList{}
		ctx := injection.WithControllerName(t.Context(), controller)
		if err := (coreClient{w.client, w.CloudProvider}).List(ctx, pods, opts...); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, pod := range pods.Items {
			seen[pod.Labels["is"]] = true
		}
		return seen
	}
	unbound, running := client.MatchingFields{"spec.nodeName": ""}, client.MatchingFields{"spec.nodeName": "node-a"}
	for name, tc := range map[string]struct {
		got, want map[string]bool
	}{
		"a replacement":                 {list("disruption", unbound), map[string]bool{"of another pool": true, "without GPUs": true}},
		"a replacement, pods of a node": {list("disruption", running), map[string]bool{"that runs": true}},
		"the provisioner":               {list("provisioner", unbound), map[string]bool{"of another pool": true, "of no pool": true, "without GPUs": true}},
		"others":                        {list("pod.events", unbound), map[string]bool{"of the full pool": true, "of another pool": true, "of no pool": true, "without GPUs": true}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s sees other pods (-want +got):\n%s", name, diff)
		}
	}
}

// The cloud has none of what a claim asks for: the room that was held for it is free at once, before a count finds out.
func TestCreate_GivesTheRoomBackThatWasHeldForAClaimThatTheCloudRefuses(t *testing.T) {
	for name, refusedBefore := range map[string]bool{"now": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limited(8, 0, ""), exclusive)
			ctx := w.prepare(t, w.pods(1, "nvidia.com/gpu", 8))
			provisioner := w.provisioner(ctx)
			plan, err := provisioner.Schedule(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := provisioner.CreateNodeClaims(ctx, plan.NewNodeClaims); err != nil {
				t.Fatal(err)
			}
			w.wantSteady(t, 8)
			none := &cloud.Error{Class: cloud.ClassCapacity, Operation: "RunInstances", Code: "InsufficientInstanceCapacity"}
			w.cloud.refuse = func(cloud.LaunchRequest) error { return none }
			if refusedBefore { // then there is nothing to try
				for _, zone := range []string{"us-east-1a", "us-east-1b"} {
					w.refused.add(offeringKey{"h100-mig", "p5.48xlarge", zone, v1alpha1.CapacityTypeOnDemand}, none)
				}
			}
			if _, err := w.Create(ctx, w.made(t, ctx, 1)[0]); err == nil {
				t.Fatal("launched")
			}
			w.wantSteady(t, 0)
		})
	}
}

// What the limits held back is planned for as soon as they do not.
func TestCoreClient_ShowsPodsToTheProvisionerWhenThereIsRoom(t *testing.T) {
	w := newWorld(t, limited(8, 0, ""), exclusive)
	ctx := injection.WithControllerName(w.prepare(t, w.pods(1, "nvidia.com/gpu", 1)), "provisioner")
	w.launched(t, "a")
	if claims := w.solve(ctx, t); len(claims) != 0 {
		t.Fatalf("%d claims planned in a full pool", len(claims))
	}
	*w.pool.Spec.Limits.GPUs = 16
	w.setLimits(t, w.CloudProvider)
	if claims := w.solve(ctx, t); len(claims) != 1 {
		t.Errorf("%d claims planned after the limit was raised, want 1", len(claims))
	}
}
