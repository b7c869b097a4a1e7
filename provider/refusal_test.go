package provider

import (
	"regexp"
	"strings"
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
		{"a strategy that there is not", classConfig(`sharing = { strategy = "MPS" }`), `sharing\.strategy: "MPS" is not one of Exclusive, MIG, TimeSlicing`},
		{"time slicing without replicas", classConfig(`sharing = { strategy = "TimeSlicing" }`), `strategy TimeSlicing needs replicas`},
		{"replicas of one", classConfig(`sharing = { strategy = "TimeSlicing", replicas = 1 }`), `sharing\.replicas: is 1; 2 to 128 are allowed`},
		{"replicas of whole GPUs", classConfig(`sharing = { replicas = 4 }`), `two sharing strategies: replicas slice the time of GPUs`},
		{"a renaming of whole GPUs", classConfig(`sharing = { rename_by_default = true }`), `renameByDefault and failRequestsGreaterThanOne belong to strategy TimeSlicing`},
		{"a MIG strategy without MIG", classConfig(`sharing = { mig_strategy = "Single" }`), `migStrategy belongs to strategy MIG`},
		{"a MIG strategy that there is not", layoutConfig + classConfig(`sharing = { strategy = "MIG", mig_strategy = "none", layouts = [gpufleet_mig_layout.small.name] }`), `sharing\.mig_strategy: "none" is not one of Mixed, Single`},
		{"an empty MIG strategy", layoutConfig + classConfig(`sharing = { strategy = "MIG", mig_strategy = "", layouts = [gpufleet_mig_layout.small.name] }`), `sharing\.mig_strategy: "" is empty`},
		{
			"one name for instances of two kinds",
			strings.Replace(layoutConfig, "count = 7 }", `count = 1 }, { profile = "3g.40gb", count = 1 }`, 1) +
				classConfig(`sharing = { strategy = "MIG", mig_strategy = "Single", layouts = [gpufleet_mig_layout.small.name] }`) + poolConfig("p5.48xlarge", ""),
			`machines\[0\]\.instance_types: .*Single advertises every MIG instance as nvidia.com/gpu, so every GPU must be cut alike`,
		},
		{"limits of nothing", classConfig("") + poolConfig("p5.48xlarge", `limits = {}`), `limits must have at least one of gpus, nodes and hourlyCost`},
		{"a surge and no limit", classConfig("") + poolConfig("p5.48xlarge", `limits = { surge = 2 }`), `limits must have at least one of gpus, nodes and hourlyCost`},
		{"no surge", classConfig("") + poolConfig("p5.48xlarge", `limits = { gpus = 8, surge = 0 }`), `limits\.surge: is 0; 1 to 100 are allowed`},
		{"a limit below nothing", classConfig("") + poolConfig("p5.48xlarge", `limits = { nodes = -1 }`), `limits\.nodes: is -1; 0 to 100000 are allowed`},
		{"a part of a GPU", classConfig("") + poolConfig("p5.48xlarge", `limits = { gpus = 8.5 }`), `limits\.gpus`},
		{"an empty amount", classConfig("") + poolConfig("p5.48xlarge", `limits = { hourly_cost = "" }`), `limits\.hourly_cost: "" is not an amount of US dollars`},
		{"not an amount", classConfig("") + poolConfig("p5.48xlarge", `limits = { hourly_cost = "$60" }`), `limits\.hourly_cost: "\$60" is not an amount of US dollars: write digits`},
		{"an amount with an exponent", classConfig("") + poolConfig("p5.48xlarge", `limits = { hourly_cost = "1e3" }`), `"1e3" is not an amount of US dollars`},
		{"an amount that is not whole millionths", classConfig("") + poolConfig("p5.48xlarge", `limits = { hourly_cost = 100 / 3 }`), `is not an amount of US dollars`},
		{"fewer GPUs than any machine has", classConfig("") + poolConfig("p5.48xlarge", `limits = { gpus = 7 }`), `limits\.gpus: 7 is less than any machine of the pool has: the smallest, p5\.48xlarge, has 8 GPUs.*Set 8 or more`},
		{ // C51: plan fails for max_hourly lower than the cheapest allowed SKU
			"less than the cheapest machine costs",
			classConfig("") + poolConfig(`g6e.48xlarge", "p5.48xlarge`, `limits = { hourly_cost = "30.13" }`),
			`limits\.hourly_cost: \$30\.13/h is less than any machine of the pool costs: the cheapest, g6e\.48xlarge, costs \$30\.13118/h.*Set 30\.13118 or more`,
		},
		{ // C51: unknown price => refuse, not 0
			"a machine whose price nobody knows under a limit of the cost",
			classConfig("") + poolConfig(`p5.48xlarge", "p5e.48xlarge`, `limits = { hourly_cost = 1000 }`),
			`machines\[0\]\.instance_types: the price of p5e\.48xlarge is not known, and does not count as nothing: a limit of the hourly cost would never let it launch`,
		},
		{
			"limits that each machine passes another of",
			classConfig("") + poolConfig(`g6.12xlarge", "p5.4xlarge`, `limits = { gpus = 1, hourly_cost = 5 }`),
			`no machine of the pool is within all of the limits, .*g6\.12xlarge has 4 GPUs \(the limit is 1\), p5\.4xlarge costs \$6\.88/h \(the limit is \$5\.00/h\)`,
		},
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
