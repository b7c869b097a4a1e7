package provider

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// wire is a provider spoken to as Terraform does, for what no configuration can bring about.
type wire struct {
	t *testing.T
	tfprotov6.ProviderServer
}

// configured is a provider with the given attributes in its block.
func configured(t *testing.T, block map[string]any) wire {
	t.Helper()
	server, err := factories()["gpufleet"]()
	if err != nil {
		t.Fatal(err)
	}
	w := wire{t, server}
	config := w.dynamic(value(t, connectionSchema().Type().TerraformType(context.Background()), block))
	resp, err := server.ConfigureProvider(context.Background(), &tfprotov6.ConfigureProviderRequest{TerraformVersion: "1.11.4", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	w.noErrors(resp.Diagnostics)
	return w
}

func (w wire) dynamic(v tftypes.Value) *tfprotov6.DynamicValue {
	w.t.Helper()
	d, err := tfprotov6.NewDynamicValue(v.Type(), v)
	if err != nil {
		w.t.Fatal(err)
	}
	return &d
}

func (w wire) noErrors(diags []*tfprotov6.Diagnostic) {
	w.t.Helper()
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			w.t.Fatalf("%s: %s", d.Summary, d.Detail)
		}
	}
}

func typeName(r resource.Resource) string { return kindOf(r).terraformType() }

// plan asks for the plan of a new resource.
func (w wire) plan(r resource.Resource, config tftypes.Value) (tftypes.Value, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	prior := w.dynamic(tftypes.NewValue(config.Type(), nil))
	resp, err := w.PlanResourceChange(context.Background(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: typeName(r), PriorState: prior, ProposedNewState: w.dynamic(config), Config: w.dynamic(config),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	planned, err := resp.PlannedState.Unmarshal(config.Type())
	if err != nil {
		w.t.Fatal(err)
	}
	return planned, resp.Diagnostics
}

// read asks for a refresh.
func (w wire) read(r resource.Resource, state tftypes.Value) (tftypes.Value, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	resp, err := w.ReadResource(context.Background(), &tfprotov6.ReadResourceRequest{TypeName: typeName(r), CurrentState: w.dynamic(state)})
	if err != nil {
		w.t.Fatal(err)
	}
	read, err := resp.NewState.Unmarshal(state.Type())
	if err != nil {
		w.t.Fatal(err)
	}
	return read, resp.Diagnostics
}

// Numbers of a refreshed state must come as those of the state file do: see server.
func TestRead_AnswersInJSON(t *testing.T) {
	api := newFakeAPI(t)
	w := configured(t, map[string]any{"host": api.URL})
	c := full()["mig_layout"]
	state := configOf(t, c.resource, c.config)
	x := mustExpand(t, c.resource, state)
	api.set(func() { api.objects["miglayouts/l"] = migLayoutKind.object(x) })
	resp, err := w.ReadResource(context.Background(), &tfprotov6.ReadResourceRequest{TypeName: typeName(c.resource), CurrentState: w.dynamic(state)})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.NewState.MsgPack) > 0 || !strings.Contains(string(resp.NewState.JSON), `"count":7`) {
		t.Errorf("MessagePack %d bytes, JSON %s", len(resp.NewState.MsgPack), resp.NewState.JSON)
	}
	got, diags := w.read(c.resource, state)
	w.noErrors(diags)
	if diffs, err := state.Diff(got); err != nil || len(diffs) > 0 {
		t.Errorf("%v %v", diffs, err)
	}
}

// withDefaults is a configuration as a plan fills it in.
func withDefaults(t *testing.T, r resource.Resource, config map[string]any) tftypes.Value {
	t.Helper()
	planned, diags := configured(t, nil).plan(r, configOf(t, r, config))
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			t.Fatal(d.Detail)
		}
	}
	return planned
}

func TestUnknownConnection_NeverConnectsAndKeepsTheState(t *testing.T) { // C61
	api := newFakeAPI(t)
	t.Setenv(kube.EnvHost, api.URL) // what the environment says must not stand in for what is not known yet
	w := configured(t, map[string]any{"host": unknownValue{}, "token": unknownValue{}})
	warnings := 0
	for _, c := range full() {
		state := configOf(t, c.resource, c.config)
		got, diags := w.read(c.resource, state)
		if diffs, err := state.Diff(got); err != nil || len(diffs) > 0 {
			t.Errorf("the state changed: %v %v", diffs, err)
		}
		w.noErrors(diags)
		for _, d := range diags {
			warnings++
			if !strings.Contains(d.Detail, `["host" "token"]`) {
				t.Errorf("the warning does not name the attributes: %s", d.Detail)
			}
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings, want one for the run", warnings)
	}
	pool := full()["node_pool"]
	_, diags := w.plan(pool.resource, configOf(t, pool.resource, pool.config))
	w.noErrors(diags)
	if len(api.requests) > 0 {
		t.Errorf("requests: %v", api.requests)
	}
}

func TestUnknownConnection_IsAnErrorForApply(t *testing.T) {
	w := configured(t, map[string]any{"host": unknownValue{}})
	layout := full()["mig_layout"]
	config := configOf(t, layout.resource, layout.config)
	resp, err := w.ApplyResourceChange(context.Background(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: typeName(layout.resource), PriorState: w.dynamic(tftypes.NewValue(config.Type(), nil)), PlannedState: w.dynamic(config), Config: w.dynamic(config),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Diagnostics) != 1 || resp.Diagnostics[0].Summary != "Kubernetes Connection Not Known Yet" {
		t.Errorf("diagnostics: %v", resp.Diagnostics)
	}
}

// Validate is called with nothing configured, and with whatever a user may write.
func TestValidate_OfEveryVariantDoesNotPanic(t *testing.T) { // C63
	w := configured(t, nil)
	for name, c := range full() {
		for i, v := range variants(t, configOf(t, c.resource, c.config)) {
			if _, err := w.ValidateResourceConfig(context.Background(), &tfprotov6.ValidateResourceConfigRequest{TypeName: typeName(c.resource), Config: w.dynamic(v)}); err != nil {
				t.Errorf("%s, variant %d: %v", name, i, err)
			}
			w.plan(c.resource, v)
		}
	}
}

func TestPlan_LeavesResourcesUnknownWhereALayoutIsNotKnownYet(t *testing.T) {
	w := configured(t, map[string]any{"host": nowhere})
	layout, class, pool := full()["mig_layout"], full()["node_class"], full()["node_pool"]
	layout.config["devices"] = unknownValue{}
	for _, c := range []struct {
		resource resource.Resource
		config   map[string]any
	}{{layout.resource, layout.config}, {class.resource, class.config}} {
		_, diags := w.plan(c.resource, configOf(t, c.resource, c.config))
		w.noErrors(diags)
	}
	planned, diags := w.plan(pool.resource, configOf(t, pool.resource, pool.config))
	w.noErrors(diags)
	var attributes map[string]tftypes.Value
	if err := planned.As(&attributes); err != nil {
		t.Fatal(err)
	}
	if attributes["resources"].IsKnown() || attributes["effective_limits"].IsKnown() || !attributes["tolerations"].IsFullyKnown() {
		t.Errorf("resources %v, sums of the limits %v, tolerations %v", attributes["resources"], attributes["effective_limits"], attributes["tolerations"])
	}
}

// A read-only role, or a cluster that is not ready, must not stop a plan.
func TestPlan_GoesOnWhereTheClusterDoesNotSay(t *testing.T) {
	for name, fault := range map[string]func(*fakeAPI){
		"CRDs are not there": func(f *fakeAPI) { f.notFoundPage = true },
		"nobody answers":     func(f *fakeAPI) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			api := newFakeAPI(t)
			fault(api)
			pool := full()["node_pool"]
			w := configured(t, map[string]any{"host": api.URL})
			_, diags := w.plan(pool.resource, configOf(t, pool.resource, pool.config))
			w.noErrors(diags)
		})
	}
}
