package karpenter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
)

func TestCreate_WritesTheJournalBeforeItAsks(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	w.cloud.refuse = func(req cloud.LaunchRequest) error {
		current := w.reread(t, claim)
		entry, err := readJournal(current)
		if err != nil || entry == nil || entry.Token != req.Token {
			t.Errorf("when the cloud is asked, the journal is %+v (%v), want token %s", entry, err, req.Token)
		}
		if !controllerutil.ContainsFinalizer(current, v1alpha1.FinalizerInstance) {
			t.Error("when the cloud is asked, the claim lacks our finalizer")
		}
		return nil
	}
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if created.Status.ProviderID != "aws:///us-east-1a/i-0001" {
		t.Errorf("provider id %q", created.Status.ProviderID)
	}
	slices := created.Status.Capacity["nvidia.com/mig-1g.10gb"]
	if slices.Value() != 56 {
		t.Errorf("capacity says %d slices, want 56", slices.Value())
	}
}

func TestCreate_LeavesTheClaimOfCoreAloneSoThatItsPatchSucceeds(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	stored := claim.DeepCopy()
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if claim.ResourceVersion != stored.ResourceVersion {
		t.Fatal("Create changed the resource version of the object that core passed")
	}
	// What core does next: pkg/controllers/nodeclaim/lifecycle.
	claim.Status.ProviderID = created.Status.ProviderID
	if err := w.client.Status().Patch(t.Context(), claim.DeepCopy(), client.MergeFrom(stored)); err != nil {
		t.Fatalf("core's patch of the launch: %v", err)
	}
	current := w.reread(t, claim)
	if current.Status.ProviderID == "" || current.Annotations[v1alpha1.AnnotationLaunch] == "" {
		t.Errorf("after core's patch: provider id %q, journal %q", current.Status.ProviderID, current.Annotations[v1alpha1.AnnotationLaunch])
	}
}

func TestCreate_AdoptsTheInstanceOfALostAnswer(t *testing.T) {
	for _, lag := range []bool{false, true} {
		w := newWorld(t)
		claim := w.claim(t, "a")
		w.cloud.loseAnswer = &cloud.Error{Class: cloud.ClassTransient, Operation: "RunInstances", Err: errors.New("connection reset")}
		_, err := w.Create(t.Context(), claim)
		var create *cloudprovider.CreateError
		if !errors.As(err, &create) {
			t.Fatalf("a lost answer is %v, want a CreateError: core must keep the claim", err)
		}
		w.cloud.loseAnswer, w.cloud.hidden = nil, lag
		created, err := w.Create(t.Context(), w.reread(t, claim))
		if err != nil {
			t.Fatal(err)
		}
		if len(w.cloud.instances) != 1 || created.Status.ProviderID != "aws:///us-east-1a/i-0001" {
			t.Errorf("lag=%v: %d instances for one claim, provider id %q", lag, len(w.cloud.instances), created.Status.ProviderID)
		}
	}
}

func TestCreate_ResumesWithTheJournalsChoiceAfterTheClassChanged(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	w.cloud.loseAnswer = &cloud.Error{Class: cloud.ClassTransient, Operation: "RunInstances"}
	if _, err := w.Create(t.Context(), claim); err == nil {
		t.Fatal("want an error")
	}
	class := nodeclass.New()
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "h100-mig"}, class); err != nil {
		t.Fatal(err)
	}
	class.Status.AMI = "ami-2"
	class.Status.Subnets = class.Status.Subnets[1:]
	if err := w.client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.cloud.loseAnswer, w.cloud.hidden = nil, true
	if _, err := w.Create(t.Context(), w.reread(t, claim)); err != nil {
		t.Fatal(err)
	}
	first, second := w.cloud.launches[0], w.cloud.launches[1]
	if first.Token != second.Token || second.Image != "ami-1" || second.Zone != "us-east-1a" || second.Subnet != "subnet-a" {
		t.Errorf("the second call asks for %+v, want the journal's image, zone and subnet with the same token", second)
	}
}

func TestCreate_TriesTheNextZoneOnShortageAndClosesTheOffering(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	w.cloud.refuse = func(req cloud.LaunchRequest) error {
		if req.Zone == "us-east-1a" {
			return &cloud.Error{Class: cloud.ClassCapacity, Operation: "RunInstances", Code: "InsufficientInstanceCapacity", Message: "none left"}
		}
		return nil
	}
	created, err := w.Create(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if created.Labels[corev1.LabelTopologyZone] != "us-east-1b" {
		t.Errorf("launched in %q", created.Labels[corev1.LabelTopologyZone])
	}
	if w.cloud.launches[0].Token == w.cloud.launches[1].Token {
		t.Error("two zones were asked with one token: EC2 would start both")
	}
	types, err := w.GetInstanceTypes(t.Context(), w.nodePool(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	if open := types[0].Offerings.Available(); len(open) != 1 || open[0].Zone() != "us-east-1b" {
		t.Errorf("open offerings %+v, want us-east-1b alone", open)
	}
	w.clock.Step(refusalTTL + time.Second)
	types, err = w.GetInstanceTypes(t.Context(), w.nodePool(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	if open := types[0].Offerings.Available(); len(open) != 2 {
		t.Errorf("%d offerings are open after the time is over, want 2", len(open))
	}
}

func TestCreate_EndsTheClaimWhenEveryZoneRefused(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	w.cloud.refuse = func(cloud.LaunchRequest) error {
		return &cloud.Error{Class: cloud.ClassCapacity, Operation: "RunInstances", Code: "InsufficientInstanceCapacity", Message: "none left"}
	}
	_, err := w.Create(t.Context(), claim)
	if !cloudprovider.IsInsufficientCapacityError(err) {
		t.Fatalf("%v, want InsufficientCapacity", err)
	}
	for _, words := range []string{"p5.48xlarge", "inference", "InsufficientInstanceCapacity"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}
	entry, err := readJournal(w.reread(t, claim))
	if err != nil || entry.open() {
		t.Errorf("the journal is still open: %+v, %v", entry, err)
	}
}

func TestCreate_WhatCannotLaunchEndsTheClaimAndAsksNothing(t *testing.T) {
	cases := map[string]struct {
		prepare func(t *testing.T, w *world)
		is      func(error) bool
	}{
		"the pool is gone":  {func(t *testing.T, w *world) { remove(t, w, w.pool) }, cloudprovider.IsInsufficientCapacityError},
		"the class is gone": {func(t *testing.T, w *world) { remove(t, w, testClass()) }, cloudprovider.IsInsufficientCapacityError},
		"the layout is gone": {func(t *testing.T, w *world) {
			remove(t, w, &v1alpha1.MIGLayout{ObjectMeta: objectMeta("h100-7x1g10gb")})
		}, cloudprovider.IsInsufficientCapacityError},
		"the class is not ready": {func(t *testing.T, w *world) {
			class := nodeclass.New()
			if err := w.client.Get(t.Context(), client.ObjectKey{Name: "h100-mig"}, class); err != nil {
				t.Fatal(err)
			}
			class.Generation = 2
			if err := w.client.Update(t.Context(), class); err != nil {
				t.Fatal(err)
			}
		}, cloudprovider.IsNodeClassNotReadyError},
	}
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			claim := w.claim(t, "a")
			each.prepare(t, w)
			_, err := w.Create(t.Context(), claim)
			if !each.is(err) {
				t.Errorf("got %v", err)
			}
			if len(w.cloud.launches) != 0 {
				t.Errorf("%d calls to the cloud, want none", len(w.cloud.launches))
			}
		})
	}
}

func TestCreate_LaunchesNothingForAClaimThatIsGoing(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	stale := claim.DeepCopy()
	remove(t, w, claim)
	if _, err := w.Create(t.Context(), stale); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v, want an error that says so", err)
	}
	if len(w.cloud.launches) != 0 {
		t.Errorf("%d calls to the cloud, want none", len(w.cloud.launches))
	}
}

func TestCreate_BootsWithEveryTaintAndLabel(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Create(t.Context(), w.claim(t, "a")); err != nil {
		t.Fatal(err)
	}
	req := w.cloud.launches[0]
	var taints []string
	for _, taint := range req.Taints {
		taints = append(taints, taint.ToString())
	}
	want := "nvidia.com/gpu=present:NoSchedule gpufleet.dev/workload=Inference:NoSchedule gpufleet.dev/unverified:NoSchedule karpenter.sh/unregistered:NoExecute"
	if got := strings.Join(taints, " "); got != want {
		t.Errorf("taints\n%s, want\n%s", got, want)
	}
	for key, value := range map[string]string{
		v1alpha1.LabelPool: "inference", v1alpha1.LabelGPUModel: "H100-80GB-SXM", v1alpha1.LabelLayout: "h100-7x1g10gb",
		karpv1.CapacityTypeLabelKey: "on-demand", karpv1.NodePoolLabelKey: "inference-0",
	} {
		if req.Labels[key] != value {
			t.Errorf("label %s is %q, want %q", key, req.Labels[key], value)
		}
	}
}

func TestCreate_WritesTheJournalAgainWhenSomebodyElseWroteTheClaim(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	// The first read is stale by one write, as when core sets a condition between our read and our patch.
	w.live = &staleOnce{Reader: w.client, object: claim.DeepCopy()}
	touched := claim.DeepCopy()
	touched.Labels["touched"] = "yes"
	if err := w.client.Update(t.Context(), touched); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if current := w.reread(t, claim); current.Labels["touched"] != "yes" || current.Annotations[v1alpha1.AnnotationLaunch] == "" {
		t.Errorf("labels %v, annotations %v", current.Labels, current.Annotations)
	}
}

// staleOnce answers the first read with an old object.
type staleOnce struct {
	client.Reader
	object *karpv1.NodeClaim
}

func (s *staleOnce) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if s.object == nil {
		return s.Reader.Get(ctx, key, into, opts...)
	}
	s.object.DeepCopyInto(into.(*karpv1.NodeClaim))
	s.object = nil
	return nil
}

func TestCreate_EndsAClaimWhoseLostMachineThePoolNoLongerOffers(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, w *world){
		"the layout is gone": func(t *testing.T, w *world) {
			remove(t, w, &v1alpha1.MIGLayout{ObjectMeta: objectMeta("h100-7x1g10gb")})
		},
		"the instance type is no longer named": func(t *testing.T, w *world) {
			w.pool.Spec.Machines = []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.4xlarge"}}}
			if err := w.client.Update(t.Context(), w.pool); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			claim := w.claim(t, "a")
			w.cloud.loseAnswer = &cloud.Error{Class: cloud.ClassTransient, Operation: "RunInstances"}
			if _, err := w.Create(t.Context(), claim); err == nil {
				t.Fatal("want an error")
			}
			w.cloud.loseAnswer = nil
			change(t, w)
			_, err := w.Create(t.Context(), w.reread(t, claim))
			if !cloudprovider.IsInsufficientCapacityError(err) {
				t.Fatalf("%v, want an error that core ends the claim on: kept, it would stop every pool", err)
			}
			// What core does then: it deletes the claim and drops its own finalizer. Ours ends the machine by its token.
			claim = w.reread(t, claim)
			claim.Finalizers = []string{v1alpha1.FinalizerInstance}
			if err := w.client.Update(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			remove(t, w, claim)
			w.finalize(t, w.reread(t, claim))
			if len(w.cloud.terminated) != 1 {
				t.Errorf("ended %v, want the one machine", w.cloud.terminated)
			}
		})
	}
}

// A launch that is asked again minutes later starts the cloud's lag anew: without that the finalizer would believe an
// early NotFound and leave a machine that nobody owns.
func TestCreate_RenewsTheTimeOfAskingWhenItAsksAgain(t *testing.T) {
	w := newWorld(t)
	claim := w.claim(t, "a")
	w.cloud.refuse = func(cloud.LaunchRequest) error {
		return &cloud.Error{Class: cloud.ClassThrottled, Operation: "RunInstances"}
	}
	if _, err := w.Create(t.Context(), claim); err == nil {
		t.Fatal("want an error")
	}
	w.clock.Step(10 * time.Minute)
	w.cloud.refuse, w.cloud.loseAnswer = nil, &cloud.Error{Class: cloud.ClassTransient, Operation: "RunInstances"}
	if _, err := w.Create(t.Context(), w.reread(t, claim)); err == nil {
		t.Fatal("want an error")
	}
	claim = w.reread(t, claim)
	claim.Finalizers = []string{v1alpha1.FinalizerInstance}
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	remove(t, w, claim)
	w.cloud.hidden = true
	w.finalize(t, w.reread(t, claim))
	if !w.exists(t, claim) {
		t.Error("the claim went while the cloud may not know yet what it has just started")
	}
}

func TestGetInstanceTypes_OfAPoolThatIsNotAcceptedIsAnErrorAndNotAnEmptyList(t *testing.T) {
	w := newWorld(t)
	nodePool := w.nodePool(t, 0)
	remove(t, w, &v1alpha1.MIGLayout{ObjectMeta: objectMeta("h100-7x1g10gb")})
	types, err := w.GetInstanceTypes(t.Context(), nodePool)
	if err == nil || !strings.Contains(err.Error(), "h100-7x1g10gb") {
		t.Errorf("%v, %v: an empty list would be drift of every node", types, err)
	}
}
