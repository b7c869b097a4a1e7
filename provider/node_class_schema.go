package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func cloudAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "Where machines of the class come from. Exactly one cloud.",
		Attributes: map[string]schema.Attribute{
			"aws": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "Amazon EC2. Every id is a resolved one: Terraform has them.",
				Attributes: map[string]schema.Attribute{
					"ami":              amiAttribute(),
					"cluster":          clusterAttribute(),
					"instance_profile": instanceProfileAttribute(),
					"security_groups": schema.SetAttribute{
						Required:            true,
						ElementType:         types.StringType,
						MarkdownDescription: fmt.Sprintf("Ids of the instances' security groups, 1 to %d. A change is for instances launched from then on.", v1alpha1.MaxSecurityGroups),
					},
					"subnets": schema.SetAttribute{
						Required:            true,
						ElementType:         types.StringType,
						MarkdownDescription: fmt.Sprintf("Ids of the subnets to launch into, 1 to %d, at most one a zone. A change is for instances launched from then on.", v1alpha1.MaxSubnets),
					},
					"root_volume": rootVolumeAttribute(),
				},
			},
		},
	}
}

func instanceProfileAttribute() schema.Attribute {
	return schema.StringAttribute{
		Required: true,
		MarkdownDescription: "Name (not ARN) of the IAM instance profile whose role may join the cluster. " +
			"A change is for instances launched from then on.",
	}
}

func amiAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "Machine image: exactly one of `id` and `ssm_parameter`. A change rolls nodes.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Id of the image, e.g. `ami-0a1b2c3d4e5f60001`.",
			},
			"ssm_parameter": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Path of the SSM parameter that holds the image's id. It is resolved once for each change of the class: " +
					"a new image in the parameter does not roll nodes.",
			},
			"family": schema.StringAttribute{
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(string(v1alpha1.AMIFamilyAL2023)),
				MarkdownDescription: fmt.Sprintf("How the image is configured at boot: %s. Default: `%s`.", oneOf(v1alpha1.AMIFamilies), v1alpha1.AMIFamilyAL2023),
			},
		},
	}
}

func clusterAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "What a node needs to join the cluster. A change rolls nodes.",
		Attributes: map[string]schema.Attribute{
			"certificate_authority": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "The cluster's certificate authority: base64 of PEM, as `aws_eks_cluster` has it in `certificate_authority[0].data`.",
			},
			"endpoint": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "URL of the API server, starting with `https://`.",
			},
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the cluster.",
			},
			"service_cidr": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Range of the cluster's Service addresses, e.g. `172.20.0.0/16`.",
			},
		},
	}
}

func rootVolumeAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		Computed: true,
		Default: objectdefault.StaticValue(types.ObjectValueMust(
			map[string]attr.Type{"size_gib": types.Int64Type},
			map[string]attr.Value{"size_gib": types.Int64Value(v1alpha1.DefaultRootVolumeGiB)},
		)),
		MarkdownDescription: "Encrypted gp3 root disk. A change rolls nodes.",
		Attributes: map[string]schema.Attribute{
			"size_gib": schema.Int64Attribute{
				Optional: true,
				Computed: true,
				Default:  int64default.StaticInt64(v1alpha1.DefaultRootVolumeGiB),
				MarkdownDescription: fmt.Sprintf("Size in GiB, %d to %d. Default: `%d`.",
					v1alpha1.MinRootVolumeGiB, v1alpha1.MaxRootVolumeGiB, v1alpha1.DefaultRootVolumeGiB),
			},
		},
	}
}

func sharingAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		Computed:            true,
		Default:             objectdefault.StaticValue(sharingDefault()),
		MarkdownDescription: fmt.Sprintf("How pods share the GPUs of a node. Default: strategy `%s`. A change rolls nodes.", v1alpha1.SharingExclusive),
		Attributes: map[string]schema.Attribute{
			"fail_requests_greater_than_one": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: fmt.Sprintf("Whether the device plugin refuses a pod that asks for more than one share: two shares may be of one GPU. "+
					"Only with strategy `%s`. Default: `false`. A change rolls nodes.", v1alpha1.SharingTimeSlicing),
			},
			"layouts": schema.SetAttribute{
				Optional:    true,
				ElementType: types.StringType,
				MarkdownDescription: fmt.Sprintf("Names of MIG layouts, one for each GPU model of the class's pools, at most %d. Only with strategy `%s`, and needed there. "+
					"Write `gpufleet_mig_layout.<label>.name`. A change rolls nodes.", v1alpha1.MaxLayouts, v1alpha1.SharingMIG),
			},
			"mig_strategy": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: fmt.Sprintf("By which names MIG instances are advertised, one of %s. `%s`: each profile by its own, such as `nvidia.com/mig-1g.10gb`. "+
					"`%s`: all as `%s`; every GPU of a node must then be cut alike, by one profile. Only with strategy `%s`. Default: `%s`. A change rolls nodes.",
					oneOf(v1alpha1.MIGStrategies), v1alpha1.MIGMixed, v1alpha1.MIGSingle, v1alpha1.ResourceGPU, v1alpha1.SharingMIG, v1alpha1.MIGStrategies[0]),
			},
			"rename_by_default": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: fmt.Sprintf("Whether shares are advertised as `%s%s` instead of `%s`, so that a pod that wants a whole GPU does not get a share by chance. "+
					"Only with strategy `%s`. Default: `false`. A change rolls nodes.", v1alpha1.ResourceGPU, v1alpha1.SharedSuffix, v1alpha1.ResourceGPU, v1alpha1.SharingTimeSlicing),
			},
			"replicas": schema.Int64Attribute{
				Optional: true,
				MarkdownDescription: fmt.Sprintf("How many pods may share one GPU, %d to %d. They take turns; their memory and their faults are not kept apart. "+
					"Only with strategy `%s`, and needed there. No default. A change rolls nodes.", v1alpha1.MinReplicas, v1alpha1.MaxReplicas, v1alpha1.SharingTimeSlicing),
			},
			"strategy": schema.StringAttribute{
				Optional: true,
				Computed: true,
				Default:  stringdefault.StaticString(string(v1alpha1.SharingExclusive)),
				MarkdownDescription: fmt.Sprintf("One of %s. `%s` gives a pod whole GPUs, `%s` cuts them by `layouts`, `%s` lets `replicas` pods take turns on each. "+
					"Default: `%s`. A change rolls nodes.",
					oneOf(v1alpha1.SharingStrategies), v1alpha1.SharingExclusive, v1alpha1.SharingMIG, v1alpha1.SharingTimeSlicing, v1alpha1.SharingExclusive),
			},
		},
	}
}

// sharingDefault is what a class without the attribute has: its strategy, and nothing else.
func sharingDefault() types.Object {
	layouts := types.SetType{ElemType: types.StringType}
	return types.ObjectValueMust(
		map[string]attr.Type{
			"fail_requests_greater_than_one": types.BoolType, "layouts": layouts, "mig_strategy": types.StringType,
			"rename_by_default": types.BoolType, "replicas": types.Int64Type, "strategy": types.StringType,
		},
		map[string]attr.Value{
			"fail_requests_greater_than_one": types.BoolNull(), "layouts": types.SetNull(types.StringType), "mig_strategy": types.StringNull(),
			"rename_by_default": types.BoolNull(), "replicas": types.Int64Null(), "strategy": types.StringValue(string(v1alpha1.SharingExclusive)),
		},
	)
}

func driverAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "What the node's NVIDIA driver must be. Default: any. A change rolls nodes.",
		Attributes: map[string]schema.Attribute{
			"min_version": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Lowest driver version that a node may have, e.g. `550` or `550.90.07`.",
			},
		},
	}
}

func verificationAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		Computed: true,
		Default: objectdefault.StaticValue(types.ObjectValueMust(
			map[string]attr.Type{"timeout": types.StringType},
			map[string]attr.Value{"timeout": types.StringValue(v1alpha1.DefaultVerificationTimeout)},
		)),
		MarkdownDescription: "Bounds on the proof that a node is what was ordered. A change touches no verified node.",
		Attributes: map[string]schema.Attribute{
			"timeout": schema.StringAttribute{
				Optional: true,
				Computed: true,
				Default:  stringdefault.StaticString(v1alpha1.DefaultVerificationTimeout),
				MarkdownDescription: fmt.Sprintf("How long a registered node may stay unverified before it is replaced, from `%s` to `%s`. Default: `%s`.",
					spell(v1alpha1.MinVerificationTimeout), spell(v1alpha1.MaxVerificationTimeout), v1alpha1.DefaultVerificationTimeout),
			},
		},
	}
}
