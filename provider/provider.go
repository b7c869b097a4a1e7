package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	tfprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// providerName is the prefix of every resource type.
const providerName = "gpufleet"

var _ tfprovider.Provider = (*fleetProvider)(nil)

// fleetProvider is the tfprovider. It holds nothing but its version: what its resources share is made by Configure.
type fleetProvider struct {
	version string
	getenv  func(string) string
}

// New makes the tfprovider. version is that of the release, "dev" in a build from source.
func New(version string) func() tfprovider.Provider {
	return func() tfprovider.Provider { return &fleetProvider{version: version, getenv: os.Getenv} }
}

// Metadata names the tfprovider.
func (p *fleetProvider) Metadata(_ context.Context, _ tfprovider.MetadataRequest, resp *tfprovider.MetadataResponse) {
	resp.TypeName = providerName
	resp.Version = p.version
}

// Schema describes the connection.
func (p *fleetProvider) Schema(_ context.Context, _ tfprovider.SchemaRequest, resp *tfprovider.SchemaResponse) {
	resp.Schema = connectionSchema()
}

// Configure prepares a client for the cluster. It connects to nothing: a plan of new resources needs no cluster. Where
// the cluster is made by the same run, its address is unknown at plan; then there is no client, and nobody guesses one.
func (p *fleetProvider) Configure(ctx context.Context, req tfprovider.ConfigureRequest, resp *tfprovider.ConfigureResponse) {
	unknown, err := unknownAttributes(req.Config.Raw)
	if err != nil {
		resp.Diagnostics.AddError("Unexpected Provider Configuration", "This is a bug in the provider: it cannot read its own configuration."+original(err))
		return
	}
	if len(unknown) > 0 {
		resp.ResourceData = newSession(nil, unknown)
		return
	}
	var c connection
	if resp.Diagnostics.Append(req.Config.Get(ctx, &c)...); resp.Diagnostics.HasError() {
		return
	}
	config, diags := c.config(ctx)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	config, err = config.FromEnvironment(p.getenv)
	if err != nil {
		resp.Diagnostics.AddError("Kubernetes Connection Configured Wrongly", sentence(err.Error()))
		return
	}
	config.UserAgent = "terraform-provider-gpufleet/" + p.version + " Terraform/" + req.TerraformVersion
	resp.ResourceData = newSession(kube.NewClient(config, p.getenv), nil)
}

// Resources lists the resources.
func (p *fleetProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newMIGLayoutResource, newNodeClassResource, newNodePoolResource}
}

// DataSources lists none yet.
func (p *fleetProvider) DataSources(context.Context) []func() datasource.DataSource {
	return nil
}
