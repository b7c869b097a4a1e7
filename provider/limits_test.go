package provider

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sums is a check of effective_limits. Nil is null: not limited.
func sums(steady, withSurge map[string]knownvalue.Check) knownvalue.Check {
	all := func(of map[string]knownvalue.Check) knownvalue.Check {
		checks := map[string]knownvalue.Check{"gpus": knownvalue.Null(), "nodes": knownvalue.Null(), "hourly_cost": knownvalue.Null()}
		for name, check := range of {
			checks[name] = check
		}
		return knownvalue.ObjectExact(checks)
	}
	return knownvalue.ObjectExact(map[string]knownvalue.Check{"steady": all(steady), "with_surge": all(withSurge)})
}

type parts = map[string]knownvalue.Check

var (
	number = knownvalue.Int64Exact
	amount = knownvalue.StringExact
)

func TestPlan_ShowsBothSumsOfTheLimits(t *testing.T) {
	limits := tfjsonpath.New("limits")
	for _, c := range []struct {
		name, instanceTypes, limits string
		want                        knownvalue.Check
		surge                       int64
	}{
		{"physical GPUs, whatever they are cut into", "p5.48xlarge", `gpus = 8`, sums(parts{"gpus": number(8)}, parts{"gpus": number(16)}), 1},
		{"dollars, exactly", "p5.48xlarge", `hourly_cost = "110.080"`, sums(parts{"hourly_cost": amount("110.08")}, parts{"hourly_cost": amount("165.12")}), 1},
		{"whole dollars, as a number", "p5.48xlarge", `hourly_cost = 100`, sums(parts{"hourly_cost": amount("100")}, parts{"hourly_cost": amount("155.04")}), 1},
		// 4 GPUs at $4.6016 and 1 GPU at $6.88: the surge has the more of each.
		{
			"two of the largest machine", `g6.12xlarge", "p5.4xlarge`, `gpus = 8, nodes = 3, hourly_cost = "20.5", surge = 2`,
			sums(parts{"gpus": number(8), "nodes": number(3), "hourly_cost": amount("20.5")}, parts{"gpus": number(16), "nodes": number(5), "hourly_cost": amount("34.26")}), 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, planStep(`provider "gpufleet" {}`+layoutConfig+classFor(c.instanceTypes)+poolConfig(c.instanceTypes, "limits = { "+c.limits+" }"),
				plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("effective_limits"), c.want),
				plancheck.ExpectKnownValue(poolAddress, limits.AtMapKey("surge"), number(c.surge)),
			))
		})
	}
}

// classFor is a class of whole GPUs, or of cut ones on the machine that has a layout.
func classFor(instanceTypes string) string {
	if instanceTypes == "p5.48xlarge" {
		return classConfig(migSharing)
	}
	return classConfig("")
}

func TestPlan_OfAPoolWithoutLimitsShowsNone(t *testing.T) {
	run(t, planStep(`provider "gpufleet" {}`+classConfig("")+poolConfig("p5.48xlarge", ""),
		plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("limits"), knownvalue.Null()),
		plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("effective_limits"), knownvalue.Null()),
	))
}

// planPool plans a class of whole GPUs and then a pool of it, and returns the pool's attributes.
func planPool(t *testing.T, pool map[string]any) (map[string]tftypes.Value, []*tfprotov6.Diagnostic) {
	t.Helper()
	w := configured(t, nil)
	class := full()["node_class"]
	delete(class.config, "sharing")
	_, diags := w.plan(class.resource, configOf(t, class.resource, class.config))
	w.noErrors(diags)
	planned, diags := w.plan(newNodePoolResource(), configOf(t, newNodePoolResource(), pool))
	var attributes map[string]tftypes.Value
	if err := planned.As(&attributes); err != nil {
		t.Fatal(err)
	}
	return attributes, diags
}

func limitedPool(limits any, instanceTypes ...any) map[string]any {
	return map[string]any{
		"name": "p", "workload": "Batch", "node_class": "c", "limits": limits, "machines": []any{map[string]any{"instance_types": instanceTypes}},
	}
}

func TestPlan_WarnsOfLimitsThatLeaveMachinesOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits map[string]any
		types  []any
		want   []string
	}{
		{"all of them launch", map[string]any{"gpus": 8, "nodes": 1, "hourly_cost": "55.04"}, []any{"p5.48xlarge"}, nil},
		{"no GPUs", map[string]any{"gpus": 0}, []any{"p5.48xlarge"}, []string{"limits.gpus: 0 launches nothing"}},
		{"no nodes", map[string]any{"gpus": 8, "nodes": 0}, []any{"p5.48xlarge"}, []string{"limits.nodes: 0 launches nothing"}},
		{"no money, and no price either", map[string]any{"hourly_cost": "0.00"}, []any{"p5e.48xlarge"}, []string{"limits.hourly_cost: 0 launches nothing"}},
		{
			"only the smaller fits", map[string]any{"gpus": 7}, []any{"g6.12xlarge", "p5.48xlarge"},
			[]string{"some machines of the pool are never launched within these limits: p5.48xlarge has 8 GPUs (the limit is 7)."},
		},
		{
			"only the cheaper fits", map[string]any{"hourly_cost": "55.039999"}, []any{"g6.12xlarge", "p5.48xlarge"},
			[]string{"some machines of the pool are never launched within these limits: p5.48xlarge costs $55.04/h (the limit is $55.039999/h)."},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, diags := planPool(t, limitedPool(c.limits, c.types...))
			if len(diags) != len(c.want) {
				t.Fatalf("%d diagnostics, want %d: %v", len(diags), len(c.want), diags)
			}
			for i, d := range diags {
				if d.Severity != tfprotov6.DiagnosticSeverityWarning || d.Summary != "Limits Leave Machines Out" || !strings.HasPrefix(d.Detail, c.want[i]) {
					t.Errorf("got %s: %s: %s, want a warning: %s", d.Severity, d.Summary, d.Detail, c.want[i])
				}
			}
		})
	}
}

func TestPlan_LeavesTheSumsUnknownWhereALimitIsNotKnownYet(t *testing.T) {
	for name, limits := range map[string]any{
		"all limits": unknownValue{},
		"one limit":  map[string]any{"gpus": 8, "hourly_cost": unknownValue{}},
	} {
		t.Run(name, func(t *testing.T) {
			planned, diags := planPool(t, limitedPool(limits, "p5.48xlarge"))
			if len(diags) > 0 || planned["effective_limits"].IsKnown() || !planned["resources"].IsFullyKnown() {
				t.Errorf("sums %v, resources %v, %v", planned["effective_limits"], planned["resources"], diags)
			}
		})
	}
	// A limit that is known is held to the machines whatever the others will be.
	_, diags := planPool(t, limitedPool(map[string]any{"gpus": 7, "hourly_cost": unknownValue{}}, "p5.48xlarge"))
	if len(diags) != 1 || !strings.HasPrefix(diags[0].Detail, "limits.gpus: 7 is less than any machine") {
		t.Errorf("diagnostics: %v", diags)
	}
}

// sent checks a field of the spec of an object in the cluster, as JSON.
func sent(t *testing.T, api *fakeAPI, key, field, want string) resource.TestCheckFunc {
	return func(*terraform.State) error {
		got, err := json.Marshal(api.spec(t, key)[field])
		if err == nil && string(got) != want {
			err = fmt.Errorf("%s of %s:\n got %s\nwant %s", field, key, got, want)
		}
		return err
	}
}

func TestLifecycle_OfLimitsIsInPlace(t *testing.T) {
	api := newFakeAPI(t)
	fleet := func(pool string) string {
		return at(api.URL) + layoutConfig + classConfig(migSharing) + poolConfig("p5.48xlarge", pool)
	}
	effective := tfjsonpath.New("effective_limits")
	is := func(want string) resource.TestCheckFunc { return sent(t, api, poolKey, "limits", want) }
	run(t,
		resource.TestStep{Config: fleet(`limits = { gpus = 8 }`), ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionCreate), Check: is(`{"gpus":8,"surge":1}`)},
		importStep(poolAddress, "inference"),
		resource.TestStep{
			Config: fleet(`limits = { gpus = 16, hourly_cost = "110.080" }`), ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionUpdate),
			Check: is(`{"gpus":16,"hourlyCost":"110.080","surge":1}`),
		},
		// The same amount, spelled otherwise by the user and then by somebody in the cluster.
		resource.TestStep{Config: fleet(`limits = { gpus = 16, hourly_cost = 110.08 }`), ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionNoop)},
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, poolKey, func(obj *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(obj.Object, "110.0800", "spec", "limits", "hourlyCost")
				})
			},
			RefreshState: true, RefreshPlanChecks: resource.RefreshPlanChecks{PostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
		},
		// A limit that somebody lifted is a difference, and the plan puts it back.
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, poolKey, func(obj *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(obj.Object, int64(64), "spec", "limits", "gpus")
				})
			},
			Config: fleet(`limits = { gpus = 16, hourly_cost = 110.08 }`), ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionUpdate),
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue(poolAddress, effective, sums(
				parts{"gpus": number(16), "hourly_cost": amount("110.08")}, parts{"gpus": number(24), "hourly_cost": amount("165.12")}))},
		},
		resource.TestStep{
			Config: fleet(""), ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionUpdate), Check: is(`null`),
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue(poolAddress, effective, knownvalue.Null())},
		},
	)
}

func TestRead_OfLimitsThatSomebodyElseSetIsNoDrift(t *testing.T) { // C65
	api := newFakeAPI(t)
	config := at(api.URL) + classConfig("") + poolConfig("p5.48xlarge", "")
	run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, poolKey, func(obj *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(obj.Object, int64(8), "spec", "limits", "gpus")
				})
			},
			RefreshState: true, RefreshPlanChecks: resource.RefreshPlanChecks{PostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
		},
		resource.TestStep{Config: config, ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(poolAddress, tfjsonpath.New("effective_limits"), knownvalue.Null()),
		}},
	)
}

// Whoever writes limits with kubectl may leave the surge out: the controller takes one, and so does the import.
func TestImport_OfLimitsWithoutASurgePlansNothing(t *testing.T) {
	api := newFakeAPI(t)
	config := at(api.URL) + classConfig("") + poolConfig("p5.48xlarge", "limits = { gpus = 8 }")
	withoutSurge := func() {
		api.edit(t, poolKey, func(obj *unstructured.Unstructured) {
			unstructured.RemoveNestedField(obj.Object, "spec", "limits", "surge")
		})
	}
	imported := importStep(poolAddress, "inference")
	imported.PreConfig = withoutSurge
	run(t,
		resource.TestStep{Config: config},
		imported,
		resource.TestStep{
			PreConfig:    withoutSurge,
			RefreshState: true, RefreshPlanChecks: resource.RefreshPlanChecks{PostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
		},
	)
}

func TestAmounts_AreComparedExactly(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"110.080", "110.08", true},
		{"0110.08", "110.08", true},
		{"100", "100.000000", true},
		{"0.1", "0.100001", false},
		{"9007199254740993", "9007199254740992", false}, // one in floating point
		{"", "", false},
		{"", "0", false},
	} {
		if got := equalAmounts(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: equal is %t", c.a, c.b, got)
		}
	}
}

// How pods share a node's GPUs decides what it offers; the limits count its boards.
func TestPlan_OfSharingShowsWhatANodeOffers(t *testing.T) {
	for _, c := range []struct {
		name, sharing, instanceType, resource string
		want                                  int64
	}{
		{"four replicas of each of four GPUs", `strategy = "TimeSlicing", replicas = 4`, "g6.12xlarge", "nvidia.com/gpu", 16},
		{"renamed", `strategy = "TimeSlicing", replicas = 4, rename_by_default = true`, "g6.12xlarge", "nvidia.com/gpu.shared", 16},
		{"MIG instances under one name", `strategy = "MIG", mig_strategy = "Single", layouts = [gpufleet_mig_layout.small.name]`, "p5.48xlarge", "nvidia.com/gpu", 56},
	} {
		t.Run(c.name, func(t *testing.T) {
			offered := tfjsonpath.New("resources").AtMapKey(c.instanceType)
			run(t, planStep(`provider "gpufleet" {}`+layoutConfig+classConfig("sharing = { "+c.sharing+" }")+poolConfig(c.instanceType, `limits = { gpus = 8 }`),
				plancheck.ExpectKnownValue(poolAddress, offered, knownvalue.MapExact(parts{c.resource: number(c.want)})),
				plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("effective_limits").AtMapKey("steady").AtMapKey("gpus"), number(8)),
			))
		})
	}
}

func TestLifecycle_OfTimeSlicingIsInPlace(t *testing.T) { // C65: replicas update in place
	api := newFakeAPI(t)
	fleet := func(sharing string) string { return at(api.URL) + classConfig("sharing = { "+sharing+" }") }
	is := func(want string) resource.TestCheckFunc { return sent(t, api, classKey, "sharing", want) }
	run(t,
		resource.TestStep{
			Config: fleet(`strategy = "TimeSlicing", replicas = 4`), ConfigPlanChecks: expect(classAddress, plancheck.ResourceActionCreate),
			Check: is(`{"replicas":4,"strategy":"TimeSlicing"}`),
		},
		importStep(classAddress, "h100-mig"),
		resource.TestStep{
			Config: fleet(`strategy = "TimeSlicing", replicas = 8, rename_by_default = true, fail_requests_greater_than_one = false`), ConfigPlanChecks: expect(classAddress, plancheck.ResourceActionUpdate),
			Check: is(`{"failRequestsGreaterThanOne":false,"renameByDefault":true,"replicas":8,"strategy":"TimeSlicing"}`),
		},
		importStep(classAddress, "h100-mig"),
		resource.TestStep{
			Config: at(api.URL) + classConfig(""), ConfigPlanChecks: expect(classAddress, plancheck.ResourceActionUpdate),
			Check: is(`{"strategy":"Exclusive"}`),
		},
	)
}
