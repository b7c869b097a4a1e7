package aws

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

// The tests in this file drive the whole adapter against the emulated region, which remembers tokens and instances.

// inRegion starts a region whose instances are books only: no machine boots.
func inRegion(t *testing.T) (*Cloud, *region.Region) {
	t.Helper()
	r, err := region.Start(t.Context(), region.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return connect(t, r.Endpoint()), r
}

// order is a launch that the region can fulfil.
func order() cloud.LaunchRequest {
	req := launch()
	req.Class.Spec.Cloud.AWS.Subnets = []string{"subnet-0a1b2c3d4e5f60003", "subnet-0a1b2c3d4e5f60001"}
	req.Class.Spec.Cloud.AWS.SecurityGroups = []string{"sg-0a1b2c3d4e5f60001"}
	return req
}

func mustLaunch(t *testing.T, c *Cloud, req cloud.LaunchRequest) cloud.Instance {
	t.Helper()
	instance, err := c.Launch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

func TestRegion_AnInstanceIsFoundByTokenByIDAndInTheList(t *testing.T) {
	c, _ := inRegion(t)
	req := order()
	launched := mustLaunch(t, c, req)
	want := cloud.Instance{
		ID: launched.ID, ProviderID: "aws:///us-east-1a/" + launched.ID,
		State: launched.State, StateReason: launched.StateReason, LaunchedAt: launched.LaunchedAt,
		InstanceType: "p5.48xlarge", Zone: "us-east-1a", CapacityType: v1alpha1.CapacityTypeOnDemand,
		Image: req.Image, Token: req.Token, Cluster: "prod", Claim: req.Claim,
	}
	byToken, err := c.FindByToken(t.Context(), req.Token)
	if err != nil {
		t.Fatal(err)
	}
	byID, err := c.Describe(t.Context(), launched.ID)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := c.List(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := c.List(t.Context(), "staging")
	if err != nil || len(elsewhere) != 0 {
		t.Errorf("another cluster lists %v, %v; want nothing", ids(elsewhere), err)
	}
	for name, got := range map[string][]cloud.Instance{"launched": {launched}, "by token": {byToken}, "by id": {byID}, "listed": listed} {
		for i := range got {
			// The machine may have moved on between the calls.
			got[i].State, got[i].StateReason = want.State, want.StateReason
		}
		if diff := cmp.Diff([]cloud.Instance{want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRegion_ASpotInstanceIsToldAsSpot(t *testing.T) {
	c, _ := inRegion(t)
	req := order()
	req.CapacityType = v1alpha1.CapacityTypeSpot
	id := mustLaunch(t, c, req).ID
	if got, err := c.Describe(t.Context(), id); err != nil || got.CapacityType != v1alpha1.CapacityTypeSpot {
		t.Errorf("capacity type %s, %v; want spot", got.CapacityType, err)
	}
}

func TestRegion_TheSameTokenIsTheSameInstance(t *testing.T) {
	c, _ := inRegion(t)
	first := mustLaunch(t, c, order())
	again := order()
	slices.Reverse(again.Taints)
	if second := mustLaunch(t, c, again); second.ID != first.ID {
		t.Errorf("the replay returned %s, want %s", second.ID, first.ID)
	}
	if listed, err := c.List(t.Context(), "prod"); err != nil || len(listed) != 1 {
		t.Errorf("%d instances, %v; want 1", len(listed), err)
	}
}

func TestRegion_TheSameTokenWithAnotherRequestIsTokenReused(t *testing.T) {
	c, _ := inRegion(t)
	first := mustLaunch(t, c, order())
	other := order()
	other.Labels["gpufleet.dev/pool"] = "batch"
	if _, err := c.Launch(t.Context(), other); cloud.ClassOf(err) != cloud.ClassTokenReused {
		t.Errorf("got %v, want class %s", err, cloud.ClassTokenReused)
	}
	if adopted, err := c.FindByToken(t.Context(), other.Token); err != nil || adopted.ID != first.ID {
		t.Errorf("the token finds %s, %v; want %s", adopted.ID, err, first.ID)
	}
}

func TestRegion_ALostAnswerIsAdoptedByItsToken(t *testing.T) {
	c, r := inRegion(t)
	fault(t, r, "hold-response", `{"operation":"RunInstances","seconds":60}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Launch(ctx, order()); cloud.ClassOf(err) != cloud.ClassTransient || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the deadline, of class %s", err, cloud.ClassTransient)
	}
	found, err := c.FindByToken(t.Context(), order().Token)
	if err != nil {
		t.Fatal(err)
	}
	fault(t, r, "hold-response", "")
	if replayed := mustLaunch(t, c, order()); replayed.ID != found.ID {
		t.Errorf("the replay returned %s, want %s", replayed.ID, found.ID)
	}
}

func TestRegion_TerminateEndsAnInstanceForGood(t *testing.T) {
	c, _ := inRegion(t)
	req := order()
	id := mustLaunch(t, c, req).ID
	for range 2 {
		if err := c.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	awaitTerminated(t, c, id)
	if err := c.Terminate(t.Context(), id); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("terminating it once more: %v", err)
	}
	if listed, err := c.List(t.Context(), "prod"); err != nil || len(listed) != 0 {
		t.Errorf("the list holds %v, %v; want nothing", ids(listed), err)
	}
	if got, err := c.FindByToken(t.Context(), req.Token); err != nil || got.ID != id || !got.State.Gone() {
		t.Errorf("the token finds %+v, %v; want %s, terminated", got, err, id)
	}
}

func TestRegion_ResolveFollowsTheSSMParameter(t *testing.T) {
	c, _ := inRegion(t)
	class := order().Class
	class.Spec.Cloud.AWS.AMI = v1alpha1.AMISpec{SSMParameter: parameter}
	got, err := c.Resolve(t.Context(), class)
	want := cloud.Resolved{Image: "ami-0a1b2c3d4e5f60001", Subnets: []v1alpha1.SubnetStatus{
		{ID: "subnet-0a1b2c3d4e5f60001", Zone: "us-east-1a"}, {ID: "subnet-0a1b2c3d4e5f60003", Zone: "us-east-1c"},
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, resolved (-want +got):\n%s", err, diff)
	}
}

func TestRegion_WhatDoesNotExistIsInvalid(t *testing.T) {
	c, _ := inRegion(t)
	for name, call := range map[string]func() error{
		"image": func() error {
			req := order()
			req.Image = "ami-0ffffffffffffffff"
			_, err := c.Launch(t.Context(), req)
			return err
		},
		"subnet of another zone": func() error {
			req := order()
			req.Subnet = "subnet-0a1b2c3d4e5f60002"
			_, err := c.Launch(t.Context(), req)
			return err
		},
		"instance profile": func() error {
			req := order()
			req.Class.Spec.Cloud.AWS.InstanceProfile = "nobody"
			_, err := c.Launch(t.Context(), req)
			return err
		},
		"subnet": func() error {
			class := order().Class
			class.Spec.Cloud.AWS.Subnets = []string{"subnet-0ffffffffffffffff"}
			_, err := c.Resolve(t.Context(), class)
			return err
		},
		"parameter": func() error {
			class := order().Class
			class.Spec.Cloud.AWS.AMI = v1alpha1.AMISpec{SSMParameter: "/aws/service/nothing/image_id"}
			_, err := c.Resolve(t.Context(), class)
			return err
		},
	} {
		if err := call(); err == nil || cloud.ClassOf(err) != cloud.ClassInvalid {
			t.Errorf("%s: got %v, want class %s", name, err, cloud.ClassInvalid)
		}
	}
	if _, err := c.Describe(t.Context(), "i-0ffffffffffffffff"); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("describing no instance: %v, want ErrNotFound", err)
	}
	if err := c.Terminate(t.Context(), "i-0ffffffffffffffff"); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("terminating no instance: %v, want ErrNotFound", err)
	}
	if listed, err := c.List(t.Context(), "prod"); err != nil || len(listed) != 0 {
		t.Errorf("the list holds %v, %v; want nothing", ids(listed), err)
	}
}

// fault sets a fault of the region, or clears it where there is no body.
func fault(t *testing.T, r *region.Region, name, body string) {
	t.Helper()
	method := http.MethodPut
	if body == "" {
		method = http.MethodDelete
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.AdminURL()+"/v1/faults/"+name, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		t.Fatalf("%s fault %s: %s", method, name, res.Status)
	}
}

func awaitTerminated(t *testing.T, c *Cloud, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := c.Describe(ctx, id)
		if err == nil && got.State.Gone() {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("instance %s is %s (%v) after 5s, want terminated", id, got.State, err)
		case <-tick.C:
		}
	}
}
