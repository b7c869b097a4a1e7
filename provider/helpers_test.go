package provider

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
)

// run drives the real Terraform through steps, with the provider in this process.
func run(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	t.Setenv("CHECKPOINT_DISABLE", "1")
	t.Setenv("TF_CLI_CONFIG_FILE", "")
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: factories(), Steps: steps})
}

func factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"gpufleet": func() (tfprotov6.ProviderServer, error) { return Server("test")(), nil },
	}
}

// at is a provider block for an address.
func at(host string) string {
	return fmt.Sprintf("provider \"gpufleet\" {\n  host = %q\n}\n", host)
}

const layoutConfig = `
resource "gpufleet_mig_layout" "small" {
  name      = "h100-7x1g10gb"
  gpu_model = "H100-80GB-SXM"
  devices   = [{ slices = [{ profile = "1g.10gb", count = 7 }] }]
}
`

// classConfig is a class whose sharing block is given.
func classConfig(sharing string) string {
	return `
resource "gpufleet_node_class" "h100" {
  name = "h100-mig"
  cloud = { aws = {
    subnets          = ["subnet-0a1b2c3d4e5f60001"]
    security_groups  = ["sg-0a1b2c3d4e5f60001"]
    instance_profile = "gpufleet-node"
    ami              = { id = "ami-0a1b2c3d4e5f60001" }
    cluster = {
      name                  = "gpufleet"
      endpoint              = "https://10.0.0.1:6443"
      certificate_authority = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
      service_cidr          = "10.96.0.0/16"
    }
  } }
  ` + sharing + `
}
`
}

const migSharing = `sharing = { strategy = "MIG", layouts = [gpufleet_mig_layout.small.name] }`

// poolConfig is a pool of one instance type with more attributes.
func poolConfig(instanceType, more string) string {
	return `
resource "gpufleet_node_pool" "inference" {
  name       = "inference"
  workload   = "Inference"
  node_class = gpufleet_node_class.h100.name
  machines   = [{ instance_types = ["` + instanceType + `"] }]
  ` + more + `
}
`
}

// nowhere is an address that nothing listens on: port 9 is "discard".
const nowhere = "http://127.0.0.1:9"
