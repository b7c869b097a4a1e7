// Command terraform-provider-gpufleet is the Terraform provider's binary.
package main

import (
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/gpufleet/terraform-provider-gpufleet/provider"
)

// version is set by the release: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run so that a debugger such as delve can be attached")
	flag.Parse()

	var opts []tf6server.ServeOpt
	if *debug {
		opts = append(opts, tf6server.WithManagedDebug())
	}
	if err := tf6server.Serve("registry.terraform.io/gpufleet/gpufleet", provider.Server(version), opts...); err != nil {
		log.Fatal(err)
	}
}
