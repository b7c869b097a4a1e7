package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// connection is the provider block. Its attributes are those of the Kubernetes and Helm providers.
type connection struct {
	Host                  types.String `tfsdk:"host"`
	Username              types.String `tfsdk:"username"`
	Password              types.String `tfsdk:"password"`
	Token                 types.String `tfsdk:"token"`
	Insecure              types.Bool   `tfsdk:"insecure"`
	TLSServerName         types.String `tfsdk:"tls_server_name"`
	ClientCertificate     types.String `tfsdk:"client_certificate"`
	ClientKey             types.String `tfsdk:"client_key"`
	ClusterCACertificate  types.String `tfsdk:"cluster_ca_certificate"`
	ConfigPath            types.String `tfsdk:"config_path"`
	ConfigPaths           types.List   `tfsdk:"config_paths"`
	ConfigContext         types.String `tfsdk:"config_context"`
	ConfigContextAuthInfo types.String `tfsdk:"config_context_auth_info"`
	ConfigContextCluster  types.String `tfsdk:"config_context_cluster"`
	ProxyURL              types.String `tfsdk:"proxy_url"`
	Exec                  *execCommand `tfsdk:"exec"`
}

type execCommand struct {
	APIVersion types.String `tfsdk:"api_version"`
	Command    types.String `tfsdk:"command"`
	Args       types.List   `tfsdk:"args"`
	Env        types.Map    `tfsdk:"env"`
}

func connectionSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Declare a fleet of GPU nodes on Kubernetes: pools by workload class, MIG layouts, and nodes that are proved to be what was ordered.\n\n" +
			"The connection to the cluster is configured as in the Kubernetes provider.",
		Attributes: map[string]schema.Attribute{
			"client_certificate":       text("PEM certificate for TLS client authentication.", kube.EnvClientCertificate),
			"client_key":               secret("PEM key for TLS client authentication.", kube.EnvClientKey),
			"cluster_ca_certificate":   text("PEM bundle of the cluster's certificate authority.", kube.EnvClusterCACertificate),
			"config_context":           text("Context to use of the kubeconfig. Default: its current context.", kube.EnvConfigContext),
			"config_context_auth_info": text("User to use of the kubeconfig. Default: that of the context.", kube.EnvConfigContextAuthInfo),
			"config_context_cluster":   text("Cluster to use of the kubeconfig. Default: that of the context.", kube.EnvConfigContextCluster),
			"config_path": text("Path of a kubeconfig. Default: none; neither `KUBECONFIG` nor `~/.kube/config` is read unless it is named here.",
				kube.EnvConfigPath),
			"config_paths": schema.ListAttribute{
				Optional:            true,
				ElementType:         types.StringType,
				MarkdownDescription: fmt.Sprintf("Paths of kubeconfigs to merge, instead of `config_path`. Environment: `%s`, separated as `PATH` is. Default: none.", kube.EnvConfigPaths),
			},
			"exec":            execAttribute(),
			"host":            text("Address of the API server, e.g. `https://10.0.0.1:6443`. Default: that of the kubeconfig; never localhost.", kube.EnvHost),
			"insecure":        insecureAttribute(),
			"password":        secret("Password for basic authentication.", kube.EnvPassword),
			"proxy_url":       text("Proxy for requests to the API server. Default: as the environment says (`HTTPS_PROXY`).", kube.EnvProxyURL),
			"tls_server_name": text("Name to check the server's certificate against. Default: the host's.", kube.EnvTLSServerName),
			"token":           secret("Bearer token.", kube.EnvToken),
			"username":        text("User for basic authentication.", kube.EnvUser),
		},
	}
}

func insecureAttribute() schema.Attribute {
	return schema.BoolAttribute{
		Optional:            true,
		MarkdownDescription: fmt.Sprintf("Whether to skip the check of the server's certificate. Environment: `%s`. Default: `false`.", kube.EnvInsecure),
	}
}

func execAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "Command that prints credentials, e.g. `aws eks get-token`. It is run again when they expire, and gets no terminal. Default: none.",
		Attributes: map[string]schema.Attribute{
			"api_version": schema.StringAttribute{Required: true, MarkdownDescription: "Version of the credentials' format, e.g. `client.authentication.k8s.io/v1`."},
			"args":        schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Arguments of the command. Default: none."},
			"command":     schema.StringAttribute{Required: true, MarkdownDescription: "Command to run."},
			"env":         schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: "Environment variables for the command, beside Terraform's own. Default: none."},
		},
	}
}

func text(description, env string) schema.StringAttribute {
	if !strings.Contains(description, "Default: ") {
		description += " Default: none."
	}
	return schema.StringAttribute{Optional: true, MarkdownDescription: fmt.Sprintf("%s Environment: `%s`.", description, env)}
}

func secret(description, env string) schema.StringAttribute {
	a := text(description, env)
	a.Sensitive = true
	return a
}

// config is the connection in the terms of internal/kube.
func (c connection) config(ctx context.Context) (kube.Config, diag.Diagnostics) {
	var diags diag.Diagnostics
	out := kube.Config{
		Host:                  c.Host.ValueString(),
		Username:              c.Username.ValueString(),
		Password:              c.Password.ValueString(),
		Token:                 c.Token.ValueString(),
		Insecure:              c.Insecure.ValueBool(),
		TLSServerName:         c.TLSServerName.ValueString(),
		ClientCertificate:     c.ClientCertificate.ValueString(),
		ClientKey:             c.ClientKey.ValueString(),
		ClusterCACertificate:  c.ClusterCACertificate.ValueString(),
		ConfigContext:         c.ConfigContext.ValueString(),
		ConfigContextAuthInfo: c.ConfigContextAuthInfo.ValueString(),
		ConfigContextCluster:  c.ConfigContextCluster.ValueString(),
		ProxyURL:              c.ProxyURL.ValueString(),
	}
	diags.Append(c.ConfigPaths.ElementsAs(ctx, &out.ConfigPaths, false)...)
	if path := c.ConfigPath.ValueString(); path != "" {
		if len(out.ConfigPaths) > 0 {
			diags.AddError("Kubernetes Connection Configured Wrongly", "config_path and config_paths are both given: give one of them.")
		}
		out.ConfigPaths = []string{path}
	}
	if c.Exec != nil {
		out.Exec = &kube.Exec{APIVersion: c.Exec.APIVersion.ValueString(), Command: c.Exec.Command.ValueString()}
		diags.Append(c.Exec.Args.ElementsAs(ctx, &out.Exec.Args, false)...)
		diags.Append(c.Exec.Env.ElementsAs(ctx, &out.Exec.Env, false)...)
	}
	return out, diags
}

// unknownAttributes are the attributes of the provider block that are wholly or partly unknown.
func unknownAttributes(config tftypes.Value) ([]string, error) {
	if config.IsNull() {
		return nil, nil
	}
	var attributes map[string]tftypes.Value
	if err := config.As(&attributes); err != nil {
		return nil, err
	}
	var unknown []string
	for name, v := range attributes {
		if !v.IsFullyKnown() {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown, nil
}
