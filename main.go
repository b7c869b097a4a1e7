// Command terraform-provider-gpufleet is the Terraform provider's binary.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/gpufleet/terraform-provider-gpufleet/provider"
)

// version is set by the release: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run so that a debugger such as delve can be attached")
	flag.Parse()

	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: "registry.terraform.io/gpufleet/gpufleet",
		Debug:   *debug,
	})
	if err != nil {
		log.Fatal(err)
	}
}
