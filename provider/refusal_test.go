package provider

import (
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
)

// words matches text however Terraform wraps it.
func words(text string) *regexp.Regexp {
	return regexp.MustCompile("(?s)" + regexp.MustCompile(`\s+`).ReplaceAllString(text, `[\s│]+`))
}

func TestPlan_RefusesWhatCannotExist(t *testing.T) {
	api := newFakeAPI(t)
	for _, c := range []struct {
		name, config, want string
	}{
		{
			"more instances than fit",
			`resource "gpufleet_mig_layout" "x" {
			  name      = "x"
			  gpu_model = "H100-80GB-SXM"
			  devices   = [{ slices = [{ profile = "1g.10gb", count = 8 }] }]
			}`,
			`devices\[0\]\.slices\[0\]: .*8 x 1g.10gb: at most 7`,
		},
		{
			"slices that add up and cannot be placed", // 3g+3g+1g: seven compute slices, and no place for the last
			`resource "gpufleet_mig_layout" "x" {
			  name      = "x"
			  gpu_model = "H100-80GB-SXM"
			  devices   = [{ slices = [{ profile = "3g.40gb", count = 2 }, { profile = "1g.10gb", count = 1 }] }]
			}`,
			`Invalid MIG Layout`,
		},
		{
			"a profile that the model does not have",
			`resource "gpufleet_mig_layout" "x" {
			  name      = "x"
			  gpu_model = "H100-80GB-SXM"
			  devices   = [{ slices = [{ profile = "1g.5gb", count = 7 }] }]
			}`,
			`devices\[0\]\.slices\[0\]\.profile: .*1g.5gb`,
		},
		{
			"a model that nobody knows",
			`resource "gpufleet_mig_layout" "x" {
			  name      = "x"
			  gpu_model = "H1000"
			  devices   = [{ slices = [{ profile = "1g.5gb", count = 7 }] }]
			}`,
			`GPU model H1000 is not known`,
		},
		{
			"a GPU that two entries name",
			`resource "gpufleet_mig_layout" "x" {
			  name      = "x"
			  gpu_model = "H100-80GB-SXM"
			  devices = [
			    { gpus = [0, 1], slices = [{ profile = "1g.10gb", count = 7 }] },
			    { gpus = [1, 2], slices = [{ profile = "7g.80gb", count = 1 }] },
			  ]
			}`,
			`a GPU is named in two entries of devices`,
		},
		{
			"a name that Kubernetes does not have",
			`resource "gpufleet_mig_layout" "x" {
			  name      = "My_Layout"
			  gpu_model = "H100-80GB-SXM"
			  devices   = [{ slices = [{ profile = "1g.10gb", count = 7 }] }]
			}`,
			`"My_Layout" must be a name of a Kubernetes object`,
		},
		{"two sharing strategies", layoutConfig + classConfig(`sharing = { layouts = [gpufleet_mig_layout.small.name] }`), `two sharing strategies`},
		{"MIG without a layout", classConfig(`sharing = { strategy = "MIG" }`), `strategy MIG needs at least one layout`},
		{"a layout that is nowhere", classConfig(`sharing = { strategy = "MIG", layouts = ["gone"] }`), `MIG layout "gone" does not exist`},
		{"an H100 layout on A100s", layoutConfig + classConfig(migSharing) + poolConfig("p4d.24xlarge", ""), `machines\[0\]\.instance_types: .*p4d.24xlarge has A100-40GB GPUs`},
		{"an instance type that nobody knows", layoutConfig + classConfig(migSharing) + poolConfig("p5.47xlarge", ""), `instance type p5.47xlarge is not a known GPU instance type`},
		{
			"a class that is nowhere",
			`resource "gpufleet_node_pool" "x" {
			  name       = "x"
			  workload   = "Batch"
			  node_class = "gone"
			  machines   = [{ instance_types = ["p5.48xlarge"] }]
			}`,
			`node class "gone" does not exist: declare it, or name one that does\. It is neither in this configuration nor in the cluster\. Refer to it as gpufleet_node_class\.<label>\.name`,
		},
		{"a taint of ours", classConfig("") + poolConfig("p5.48xlarge", `taints = [{ key = "nvidia.com/gpu", effect = "NoSchedule" }]`), `taints\[0\]\.key: taints nvidia.com/gpu and those under`},
		{"a label of ours", classConfig("") + poolConfig("p5.48xlarge", `labels = { "gpufleet.dev/pool" = "x" }`), `labels under gpufleet.dev`},
		{"a workload that there is not", `resource "gpufleet_node_pool" "x" {
			  name       = "x"
			  workload   = "Training"
			  node_class = "h100"
			  machines   = [{ instance_types = ["p5.48xlarge"] }]
			}`, `"Training" is not one of Inference, Batch, Research`},
		{"not a duration", classConfig(`verification = { timeout = "ten minutes" }`), `"ten minutes" is not a duration`},
		{"a duration out of range", classConfig(`verification = { timeout = "3h" }`), `timeout must be from 1m to 2h`},
		{"an empty optional", classConfig(`sharing = { strategy = "" }`), `sharing\.strategy: "" is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, resource.TestStep{Config: at(api.URL) + c.config, PlanOnly: true, ExpectError: words(c.want)})
		})
	}
}

func TestPlan_OfNewResourcesNeedsNoCluster(t *testing.T) {
	config := layoutConfig + classConfig(migSharing) + poolConfig("p5.48xlarge", "")
	for name, provider := range map[string]string{
		"nothing configured": `provider "gpufleet" {}`,
		"nobody listens":     at(nowhere),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, planStep(provider+config,
				plancheck.ExpectKnownValue("gpufleet_node_pool.inference", tfjsonpath.New("resources").AtMapKey("p5.48xlarge").AtMapKey("nvidia.com/mig-1g.10gb"), knownvalue.Int64Exact(56)),
				plancheck.ExpectKnownValue("gpufleet_node_pool.inference", tfjsonpath.New("node_selector").AtMapKey("gpufleet.dev/pool"), knownvalue.StringExact("inference")),
			))
		})
	}
}

// planStep checks a plan without applying it.
func planStep(config string, checks ...plancheck.PlanCheck) resource.TestStep {
	return resource.TestStep{
		Config: config, PlanOnly: true, ExpectNonEmptyPlan: true,
		ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: checks},
	}
}
