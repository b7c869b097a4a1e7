package region_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

func TestCalls_AreCountedByOperationAndCode(t *testing.T) {
	p := start(t)
	p.run()
	p.run()
	_, _ = p.ec2.RunInstances(t.Context(), request(onSpot))
	_, _ = p.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{"i-0000000000000000f"}})
	want := []region.Call{
		{Operation: "DescribeInstances", Code: "InvalidInstanceID.NotFound", Count: 1},
		{Operation: "RunInstances", Code: "IdempotentParameterMismatch", Count: 1},
		{Operation: "RunInstances", Code: "OK", Count: 2},
	}
	if diff := cmp.Diff(want, read[[]region.Call](p, "/v1/calls")); diff != "" {
		t.Error(diff)
	}
}

func TestInstances_NameTheClaimAndKeepTheDead(t *testing.T) {
	p := start(t)
	id := *p.run().InstanceId
	row := p.row(id)
	have := []string{row.Claim, row.ClaimUID, row.Token, row.Type, row.Zone, row.CapacityType}
	if diff := cmp.Diff([]string{"claim-1", "uid-1", "token-1", "g6.xlarge", "us-east-1a", "on-demand"}, have); diff != "" {
		t.Error(diff)
	}
	if status, body := p.admin(http.MethodPost, "/v1/machines/"+id+"/kill", nil); status != http.StatusOK {
		t.Fatalf("kill: %d %s", status, body)
	}
	eventually(t, "the killed instance is terminated", func() bool { return p.row(id).State == "terminated" })
	if reason := p.row(id).StateReason; !strings.HasPrefix(reason, "Server.InternalError") {
		t.Errorf("state reason %q", reason)
	}
	if status, _ := p.admin(http.MethodPost, "/v1/machines/i-0/kill", nil); status != http.StatusNotFound {
		t.Errorf("kill of an unknown machine: status %d, want 404", status)
	}
}

func TestFaults_AreSetReadAndReset(t *testing.T) {
	p := start(t)
	for name, body := range map[string]string{
		"missing-gpu":       `{"gpu":7}`,
		"lose-mig-instance": `{"gpu":3,"nth":7}`,
		"rename-resource":   `{"from":"nvidia.com/mig-1g.10gb","to":"nvidia.com/mig-1g.10gb.shared"}`,
		"hold-response":     `{"operation":"RunInstances","seconds":60}`,
	} {
		if status, got := p.admin(http.MethodPut, "/v1/faults/"+name, json.RawMessage(body)); status != http.StatusOK {
			t.Errorf("PUT %s: %d %s", name, status, got)
		}
		if diff := cmp.Diff(decoded(t, []byte(body)), read[any](p, "/v1/faults/"+name)); diff != "" {
			t.Error(diff)
		}
	}
	if status, _ := p.admin(http.MethodDelete, "/v1/faults/missing-gpu", nil); status != http.StatusNoContent {
		t.Errorf("DELETE: status %d, want 204", status)
	}
	if got := read[any](p, "/v1/faults/missing-gpu"); got != nil {
		t.Errorf("a fault that was removed is %v", got)
	}
	p.admin(http.MethodPost, "/v1/reset", nil)
	for name, value := range read[map[string]any](p, "/v1/faults") {
		if value != nil {
			t.Errorf("after reset %s is %v", name, value)
		}
	}
}

func decoded(t *testing.T, body []byte) any {
	t.Helper()
	var out any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFaults_UnknownNamesAndShapesAreRefused(t *testing.T) {
	p := start(t)
	for name, c := range map[string]struct {
		path, body string
		want       int
		says       string
	}{
		"unknown name":  {"no-such-fault", `{}`, http.StatusNotFound, "hold-response, lose-mig-instance, missing-gpu, rename-resource"},
		"unknown field": {"missing-gpu", `{"gpus":1}`, http.StatusBadRequest, `{"gpu": index from 0}`},
		"empty":         {"hold-response", `{}`, http.StatusBadRequest, "RunInstances"},
		"negative":      {"missing-gpu", `{"gpu":-1}`, http.StatusBadRequest, "gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := p.admin(http.MethodPut, "/v1/faults/"+c.path, json.RawMessage(c.body))
			var problem struct{ Error string }
			_ = json.Unmarshal(body, &problem)
			if status != c.want || !strings.Contains(problem.Error, c.says) {
				t.Errorf("got %d %q, want %d with %q", status, problem.Error, c.want, c.says)
			}
		})
	}
	if status, _ := p.admin(http.MethodGet, "/v1/faults/no-such-fault", nil); status != http.StatusNotFound {
		t.Errorf("GET of an unknown fault: status %d, want 404", status)
	}
}

func TestHoldResponse_TheEffectTakesPlaceAndTheAnswerIsLost(t *testing.T) {
	p := start(t)
	p.admin(http.MethodPut, "/v1/faults/hold-response", map[string]any{"operation": "RunInstances", "seconds": 3600})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost := make(chan error, 1)
	go func() {
		_, err := p.ec2.RunInstances(ctx, request())
		lost <- err
	}()
	eventually(t, "the launch takes effect", func() bool { return p.called("RunInstances", "OK") == 1 })
	cancel()
	if err := <-lost; err == nil {
		t.Error("the held answer arrived")
	}
	if got := p.ids(&ec2.DescribeInstancesInput{Filters: filters("client-token", "token-1")}); len(got) != 1 {
		t.Errorf("the lost launch is described as %v, want one instance", got)
	}
}

func TestHoldResponse_RemovingTheFaultReleasesTheAnswer(t *testing.T) {
	p := start(t)
	p.admin(http.MethodPut, "/v1/faults/hold-response", map[string]any{"operation": "RunInstances", "seconds": 3600})
	answered := make(chan error, 1)
	go func() {
		_, err := p.ec2.RunInstances(t.Context(), request())
		answered <- err
	}()
	eventually(t, "the launch takes effect", func() bool { return p.called("RunInstances", "OK") == 1 })
	select {
	case err := <-answered:
		t.Fatalf("the answer was not held: %v", err)
	default:
	}
	p.admin(http.MethodDelete, "/v1/faults/hold-response", nil)
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("the released answer: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the answer was still held 10 s after the fault was removed")
	}
}

func TestPatchMachine_NeedsAMachineThatBoots(t *testing.T) {
	p := start(t)
	id := *p.run().InstanceId
	if status, _ := p.admin(http.MethodPatch, "/v1/machines/"+id, map[string]any{"nvml": map[string]any{"gpus": 0}}); status != http.StatusConflict {
		t.Errorf("a region without a cluster: status %d, want 409", status)
	}
	if status, _ := p.admin(http.MethodPatch, "/v1/machines/i-0", map[string]any{}); status != http.StatusNotFound {
		t.Errorf("an unknown machine: status %d, want 404", status)
	}
}
