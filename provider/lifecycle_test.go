package provider

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

const (
	layoutKey = "miglayouts/h100-7x1g10gb"
	classKey  = "gpunodeclasses/h100-mig"
	poolKey   = "gpunodepools/inference"

	layoutAddress = "gpufleet_mig_layout.small"
	classAddress  = "gpufleet_node_class.h100"
	poolAddress   = "gpufleet_node_pool.inference"
)

// expect checks the plan before apply, and that nothing is left to do after it.
func expect(address string, action plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{
		PreApply:             []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, action)},
		PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
	}
}

func importStep(address, name string) resource.TestStep {
	return resource.TestStep{
		ResourceName: address, ImportState: true, ImportStateId: name, ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "name",
	}
}

func TestLifecycle_OfAllThreeObjects(t *testing.T) {
	api := newFakeAPI(t)
	fleet := func(class, pool string) string {
		return at(api.URL) + layoutConfig + classConfig(migSharing+"\n"+class) + poolConfig("p5.48xlarge", pool)
	}
	run(t,
		resource.TestStep{
			Config:           fleet("", ""),
			ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionCreate),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(poolAddress, tfjsonpath.New("resources"), knownvalue.MapExact(map[string]knownvalue.Check{
					"p5.48xlarge": knownvalue.MapExact(map[string]knownvalue.Check{"nvidia.com/mig-1g.10gb": knownvalue.Int64Exact(56)}),
				})),
			},
		},
		importStep(layoutAddress, "h100-7x1g10gb"),
		importStep(classAddress, "h100-mig"),
		importStep(poolAddress, "inference"),
		resource.TestStep{
			Config: fleet(`driver = { min_version = "550" }
				verification = { timeout = "45m" }`, `labels = { team = "search" }
				taints        = [{ key = "team", value = "search", effect = "NoSchedule" }]
				zones         = ["us-east-1b", "us-east-1a"]
				capacity_types = ["spot", "on-demand"]
				disruption    = { consolidate_after = "60m" }`),
			ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionUpdate),
			Check: func(*terraform.State) error {
				want := map[string]any{
					"workload":      "Inference",
					"nodeClassRef":  map[string]any{"name": "h100-mig"},
					"machines":      []any{map[string]any{"instanceTypes": []any{"p5.48xlarge"}}},
					"labels":        map[string]any{"team": "search"},
					"taints":        []any{map[string]any{"key": "team", "value": "search", "effect": "NoSchedule"}},
					"zones":         []any{"us-east-1a", "us-east-1b"},
					"capacityTypes": []any{"spot", "on-demand"},
					"disruption":    map[string]any{"consolidateAfter": "1h0m0s"},
				}
				if diff := cmp.Diff(want, api.spec(t, poolKey)); diff != "" {
					t.Errorf("spec of the pool (-want +got):\n%s", diff)
				}
				return nil
			},
		},
		importStep(classAddress, "h100-mig"),
		resource.TestStep{Config: fleet("", ""), ConfigPlanChecks: expect(classAddress, plancheck.ResourceActionUpdate)},
	)
	if len(api.objects) != 0 {
		t.Errorf("destroy left %d objects", len(api.objects))
	}
}

func TestRead_OfOthersKeysAndDefaultsIsNoDrift(t *testing.T) { // C65
	api := newFakeAPI(t)
	config := at(api.URL) + layoutConfig + classConfig(migSharing) + poolConfig("p5.48xlarge", `labels = { team = "search" }`)
	run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, poolKey, func(obj *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(obj.Object, "7", "spec", "labels", "generation")
					_ = unstructured.SetNestedStringSlice(obj.Object, []string{"on-demand"}, "spec", "capacityTypes")
				})
			},
			RefreshState: true, RefreshPlanChecks: resource.RefreshPlanChecks{PostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
		},
		resource.TestStep{Config: config, ConfigPlanChecks: expect(poolAddress, plancheck.ResourceActionNoop)},
	)
}

func TestRead_ShowsAnEditAsDriftAndAnObjectThatIsGoneAsOneToCreate(t *testing.T) {
	api := newFakeAPI(t)
	config := at(api.URL) + layoutConfig
	run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, layoutKey, func(obj *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(obj.Object, "A100-80GB-SXM", "spec", "gpuModel")
				})
			},
			Config: config, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionUpdate),
		},
		resource.TestStep{
			PreConfig: func() { api.set(func() { delete(api.objects, layoutKey) }) },
			Config:    config, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionCreate),
		},
	)
}

func TestCreate_LeavesAnObjectOfSomebodyElseAlone(t *testing.T) {
	api := newFakeAPI(t)
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.KindMIGLayout,
		"metadata": map[string]any{"name": "h100-7x1g10gb", "uid": "1"}, "spec": map[string]any{"gpuModel": "H100-80GB-SXM"},
	}}
	other.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate}})
	api.set(func() { api.objects[layoutKey] = other })
	run(t, resource.TestStep{Config: at(api.URL) + layoutConfig, ExpectError: words(`MIG Layout Already Exists.*managed by kubectl-create.*to = gpufleet_mig_layout`)})
}

// Another state made it, with the same manager: taking it over would end in destroying its machines.
func TestCreate_LeavesAnObjectOfAnotherStateAlone(t *testing.T) {
	api := newFakeAPI(t)
	run(t, resource.TestStep{Config: at(api.URL) + layoutConfig})
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.KindMIGLayout,
		"metadata": map[string]any{"name": "h100-7x1g10gb", "uid": "1"}, "spec": map[string]any{"gpuModel": "H100-80GB-SXM"},
	}}
	other.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: kube.FieldManager, Operation: metav1.ManagedFieldsOperationApply}})
	api.set(func() { api.objects[layoutKey] = other })
	run(t, resource.TestStep{Config: at(api.URL) + layoutConfig, ExpectError: words(`MIG Layout Already Exists.*managed by gpufleet-terraform.*interrupted run.*import`)})
	api.set(func() {
		if model, _, _ := unstructured.NestedString(api.objects[layoutKey].Object, "spec", "gpuModel"); model != "H100-80GB-SXM" || api.objects[layoutKey].GetUID() != "1" {
			t.Errorf("the object was touched: %v", api.objects[layoutKey].Object)
		}
	})
}

// A wrong context looks like a cluster without gpufleet: the state must not be emptied by it.
func TestRead_KeepsTheStateWhereTheKindIsNotServed(t *testing.T) {
	api := newFakeAPI(t)
	config := at(api.URL) + layoutConfig
	run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: func() { api.set(func() { api.notFoundPage = true }) },
			Config:    config, PlanOnly: true, ExpectError: words(`gpufleet Not Installed In The Cluster.*points at another cluster.*terraform state rm`),
		},
		resource.TestStep{
			PreConfig: func() { api.set(func() { api.notFoundPage = false }) },
			Config:    config, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionNoop),
		},
	)
}

func TestCreate_RefusesASecondResourceOfTheSameName(t *testing.T) {
	api := newFakeAPI(t)
	config := at(api.URL) + layoutConfig + strings.Replace(layoutConfig, `"small"`, `"again"`, 1)
	run(t, resource.TestStep{Config: config, ExpectError: words(`MIG Layout Already Exists.*another resource of this configuration`)})
}

func TestApply_SaysWhatIsWrongWithTheEnvironmentInOneDiagnostic(t *testing.T) {
	for _, c := range []struct {
		name   string
		host   func(*fakeAPI) string
		fault  func(*fakeAPI)
		config string
		want   string
	}{
		{name: "no API server", host: func(*fakeAPI) string { return nowhere }, want: `Error: Cluster Unreachable.*http://127.0.0.1:9 did not answer.*Original error:.*connection refused`},
		{name: "no CRDs", fault: func(f *fakeAPI) { f.notFoundPage = true }, want: `Error: gpufleet Not Installed In The Cluster.*does not serve miglayouts.*Original error: .*could not find the requested resource`},
		{name: "no permission", fault: func(f *fakeAPI) {
			f.refuse = func(r *http.Request) *apierrors.StatusError {
				if r.Method == http.MethodPatch {
					return forbidden()
				}
				return nil
			}
		}, want: `Error: Not Allowed To Create MIG Layout.*get, list, watch, create, patch and delete on miglayouts.gpufleet.dev.*plan-only`},
		{name: "credentials that the server does not know", fault: func(f *fakeAPI) {
			f.refuse = func(*http.Request) *apierrors.StatusError { return apierrors.NewUnauthorized("token expired") }
		}, want: `Error: Cluster Credentials Not Accepted`},
		{name: "a field that the server refuses", fault: func(f *fakeAPI) {
			f.refuse = func(r *http.Request) *apierrors.StatusError {
				if r.Method != http.MethodPatch {
					return nil
				}
				e := apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v1alpha1.KindMIGLayout).GroupKind(), "h100-7x1g10gb", nil)
				e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.devices[0].slices[0].count", Message: "must be lower"}}
				return e
			}
		}, want: `Error: MIG Layout Refused By The API Server.*devices\[0\]\.slices\[0\]\.count: .*must be lower`},
		{name: "nothing configured", config: `provider "gpufleet" {}`, want: `Error: Kubernetes Connection Not Configured.*KUBE_CONFIG_PATH`},
		{name: "a kubeconfig that is not there", config: `provider "gpufleet" { config_path = "/nonexistent/kubeconfig" }`, want: `Error: Kubernetes Connection Configured Wrongly.*"/nonexistent/kubeconfig" cannot be read`},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := newFakeAPI(t)
			if c.fault != nil {
				c.fault(api)
			}
			provider := c.config
			if provider == "" {
				host := api.URL
				if c.host != nil {
					host = c.host(api)
				}
				provider = at(host)
			}
			run(t, resource.TestStep{Config: provider + layoutConfig, ExpectError: words(c.want)})
		})
	}
}

func TestUpdate_NamesFieldAndManagerOfAConflict(t *testing.T) {
	api := newFakeAPI(t)
	changed := strings.Replace(layoutConfig, "1g.10gb\", count = 7", "7g.80gb\", count = 1", 1)
	run(t,
		resource.TestStep{Config: at(api.URL) + layoutConfig},
		resource.TestStep{
			PreConfig: func() {
				api.set(func() {
					api.refuse = func(r *http.Request) *apierrors.StatusError {
						if r.Method == http.MethodPatch {
							return fieldConflict(".spec.devices", "kubectl-edit")
						}
						return nil
					}
				})
			},
			Config: at(api.URL) + changed, ExpectError: words(`MIG Layout Managed By Somebody Else.*\.spec\.devices \(set by kubectl-edit\)`),
		},
		resource.TestStep{
			PreConfig: func() { api.set(func() { api.refuse = nil }) },
			Config:    at(api.URL) + changed, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionUpdate),
		},
	)
}

func TestCreate_FailsWithTheControllersWordsAndIsReplaced(t *testing.T) {
	api := newFakeAPI(t)
	api.controller = reject("the controller does not like it")
	run(t,
		resource.TestStep{Config: at(api.URL) + layoutConfig, ExpectError: words(`MIG Layout Not Accepted.*SKUMismatch: the controller does not like it`)},
		resource.TestStep{
			PreConfig: func() { api.set(func() { api.controller = accept }) },
			Config:    at(api.URL) + layoutConfig, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionReplace),
		},
	)
}

func TestCreate_ThatOnlyTakesTooLongIsAWarning(t *testing.T) {
	api := newFakeAPI(t)
	api.controller = ignore
	config := at(api.URL) + strings.Replace(layoutConfig, "}\n", "  timeouts = { create = \"1s\", update = \"1s\" }\n}\n", 1)
	run(t,
		resource.TestStep{Config: config, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionCreate)},
		resource.TestStep{Config: config, ConfigPlanChecks: expect(layoutAddress, plancheck.ResourceActionNoop)},
		resource.TestStep{
			Config:      strings.Replace(config, "1g.10gb\", count = 7", "7g.80gb\", count = 1", 1),
			ExpectError: words(`MIG Layout Not Accepted Yet.*did not become true within 1s.*controller has not looked at it`),
		},
	)
}

func TestDelete_OfAPoolWaitsForItsMachinesAndSaysWhatHoldsIt(t *testing.T) { // C64
	api := newFakeAPI(t)
	config := at(api.URL) + layoutConfig + classConfig(migSharing) + poolConfig("p5.48xlarge", `timeouts = { delete = "1s" }`)
	draining := func(obj *unstructured.Unstructured) {
		accept(obj)
		obj.SetFinalizers([]string{v1alpha1.FinalizerPool})
		if obj.GetDeletionTimestamp() != nil {
			setCondition(obj, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDraining, "2 instances are not confirmed terminated: pod default/job-1 blocks")
		}
	}
	run(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			PreConfig: func() {
				api.edit(t, poolKey, func(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{v1alpha1.FinalizerPool}) })
				api.set(func() { api.controller = draining })
			},
			Config: config, Destroy: true,
			ExpectError: words(`Node Pool Still Being Deleted.*not gone within 1s.*Remaining finalizers: gpufleet.dev/pool.*Draining: 2 instances are not confirmed terminated: pod default/job-1 blocks`),
		},
		resource.TestStep{
			PreConfig: func() {
				api.set(func() { delete(api.objects, poolKey); api.controller = accept })
			},
			Config: config, Destroy: true,
		},
	)
}

func TestPlan_FindsClassAndLayoutInTheCluster(t *testing.T) {
	api := newFakeAPI(t)
	fleet := at(api.URL) + layoutConfig + classConfig(migSharing)
	alone := strings.Replace(poolConfig("p5.48xlarge", ""), "gpufleet_node_class.h100.name", `"h100-mig"`, 1)
	run(t,
		resource.TestStep{Config: fleet},
		resource.TestStep{
			Config: fleet + alone,
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("resources").AtMapKey("p5.48xlarge").AtMapKey("nvidia.com/mig-1g.10gb"), knownvalue.Int64Exact(56)),
			}},
		},
		// A change of the layout alone changes what the pool outputs, and the plan says so.
		resource.TestStep{
			Config: at(api.URL) + strings.Replace(layoutConfig, "1g.10gb\", count = 7", "7g.80gb\", count = 1", 1) + classConfig(migSharing) + poolConfig("p5.48xlarge", ""),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(poolAddress, tfjsonpath.New("resources").AtMapKey("p5.48xlarge").AtMapKey("nvidia.com/mig-7g.80gb"), knownvalue.Int64Exact(8)),
				},
				PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
			},
		},
	)
}

func TestImport_OfAnObjectThatIsNotThere(t *testing.T) {
	api := newFakeAPI(t)
	run(t, resource.TestStep{
		Config: at(api.URL) + layoutConfig, ResourceName: layoutAddress, ImportState: true, ImportStateId: "gone",
		ExpectError: regexp.MustCompile("Cannot import non-existent remote object"),
	})
}
