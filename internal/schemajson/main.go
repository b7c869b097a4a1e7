// Command schemajson prints the provider's schema as "terraform providers schema -json" would, for
// tfplugindocs --providers-schema. Taken from the provider itself, the documentation does not depend on which version of
// Terraform is installed: an old one leaves out what it does not know.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpufleet/provider"
)

// address is where tfplugindocs looks for the provider called gpufleet.
const address = "registry.terraform.io/hashicorp/gpufleet"

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "schemajson:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server := providerserver.NewProtocol6(provider.New("dev")())()
	resp, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return err
	}
	for _, d := range resp.Diagnostics {
		return fmt.Errorf("the provider has no schema: %s: %s", d.Summary, d.Detail)
	}
	p, err := schemaOf(resp.Provider)
	if err != nil {
		return err
	}
	schemas := providerSchemas{Provider: p, ResourceSchemas: map[string]*schema{}}
	for name, s := range resp.ResourceSchemas {
		if schemas.ResourceSchemas[name], err = schemaOf(s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return json.NewEncoder(out).Encode(document{FormatVersion: "1.0", ProviderSchemas: map[string]providerSchemas{address: schemas}})
}
