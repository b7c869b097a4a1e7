package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

const (
	opRunInstances = "RunInstances"
	// maxToken is the length of an EC2 client token.
	// Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html, ClientToken.
	maxToken = 64
	// rootDevice is the root disk of every AL2023 image.
	rootDevice = "/dev/xvda"
)

// Launch starts one instance. Called again with the same token and the same request it returns the same instance.
func (c *Cloud) Launch(ctx context.Context, req cloud.LaunchRequest) (cloud.Instance, error) {
	input, err := c.runInstancesInput(req)
	if err != nil {
		return cloud.Instance{}, invalid(opRunInstances, err)
	}
	// EC2 answers a shortage with HTTP 500 (InsufficientInstanceCapacity is one of its server errors), which the SDK would
	// try three times over. What follows a failed launch is the caller's decision, so each call is one attempt.
	out, err := c.ec2.RunInstances(ctx, input, func(o *ec2.Options) { o.RetryMaxAttempts = 1 })
	if err != nil {
		return cloud.Instance{}, withQuota(failed(opRunInstances, err), req.InstanceType, req.CapacityType)
	}
	if len(out.Instances) != 1 {
		err := fmt.Errorf("asked for 1 instance with token %s, and the answer holds %d", req.Token, len(out.Instances))
		return cloud.Instance{}, failed(opRunInstances, err)
	}
	return fromEC2(out.Instances[0]), nil
}

// RequestHash is the SHA-256, in hex, of the body that Launch would send. It is taken from the SDK's own serializer, not
// from our input: a new field in a newer SDK must not look like another request.
func (c *Cloud) RequestHash(req cloud.LaunchRequest) (string, error) {
	input, err := c.runInstancesInput(req)
	if err != nil {
		return "", invalid(opRunInstances, err)
	}
	var body []byte
	// Nothing is sent, so there is nothing to cancel.
	_, err = c.ec2.RunInstances(context.Background(), input, func(o *ec2.Options) {
		o.APIOptions = append(o.APIOptions, keepBody(&body))
	})
	if err != nil {
		return "", failed(opRunInstances, err)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// keepBody ends a RunInstances call behind its serializer, before it is signed and sent, and keeps the body.
func keepBody(body *[]byte) func(*middleware.Stack) error {
	keep := middleware.SerializeMiddlewareFunc("gpufleet:KeepBody", func(
		_ context.Context, in middleware.SerializeInput, _ middleware.SerializeHandler,
	) (out middleware.SerializeOutput, metadata middleware.Metadata, err error) {
		request, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return out, metadata, fmt.Errorf("the SDK serialized a %T, not an HTTP request", in.Request)
		}
		*body, err = io.ReadAll(request.GetStream())
		out.Result = &ec2.RunInstancesOutput{}
		return out, metadata, err
	})
	return func(stack *middleware.Stack) error {
		return stack.Serialize.Insert(keep, "OperationSerializer", middleware.After)
	}
}

// runInstancesInput is the whole launch, equal in every byte for equal requests: a replay with other bytes under the same
// token is refused by EC2.
func (c *Cloud) runInstancesInput(req cloud.LaunchRequest) (*ec2.RunInstancesInput, error) {
	if err := complete(req); err != nil {
		return nil, err
	}
	market, err := marketOptions(req.CapacityType)
	if err != nil {
		return nil, err
	}
	boot, err := userData(req)
	if err != nil {
		return nil, err
	}
	spec := req.Class.Spec.Cloud.AWS
	return &ec2.RunInstancesInput{
		ClientToken:  &req.Token,
		MinCount:     ptr[int32](1),
		MaxCount:     ptr[int32](1),
		InstanceType: types.InstanceType(req.InstanceType),
		ImageId:      &req.Image,
		// The subnet decides the zone. Both are sent so that EC2 refuses a subnet that lies elsewhere.
		Placement: &types.Placement{AvailabilityZone: &req.Zone},
		// Subnet and groups stand here and not in a network interface specification, so that the subnet's own setting
		// decides about a public address: we never ask for one.
		SubnetId:              &req.Subnet,
		SecurityGroupIds:      slices.Sorted(slices.Values(spec.SecurityGroups)),
		IamInstanceProfile:    &types.IamInstanceProfileSpecification{Name: &spec.InstanceProfile},
		InstanceMarketOptions: market,
		MetadataOptions:       metadataOptions(),
		BlockDeviceMappings:   []types.BlockDeviceMapping{rootVolume(spec.RootVolume)},
		TagSpecifications:     c.tagSpecifications(req),
		UserData:              ptr(base64.StdEncoding.EncodeToString(boot)),
	}, nil
}

// complete refuses a request that would launch something nobody could find again, or that EC2 would fill in itself: with
// an empty token the SDK makes up a random one.
func complete(req cloud.LaunchRequest) error {
	if req.Class == nil || req.Class.Spec.Cloud.AWS == nil {
		return errors.New("the launch names no GPUNodeClass with spec.cloud.aws")
	}
	if family := req.Class.Spec.Cloud.AWS.AMI.Family; family != "" && family != v1alpha1.AMIFamilyAL2023 {
		return fmt.Errorf("GPUNodeClass %s: spec.cloud.aws.ami.family is %q, and only %s can be configured at boot",
			req.Class.Name, family, v1alpha1.AMIFamilyAL2023)
	}
	var missing []string
	for _, field := range []struct{ name, value string }{
		{"token", req.Token}, {"claim name", req.Claim.Name}, {"claim uid", req.Claim.UID},
		{"instance type", req.InstanceType}, {"zone", req.Zone}, {"image", req.Image}, {"subnet", req.Subnet},
	} {
		if field.value == "" {
			missing = append(missing, field.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the launch for NodeClaim %q lacks: %s", req.Claim.Name, strings.Join(missing, ", "))
	}
	if len(req.Token) > maxToken {
		return fmt.Errorf("the launch token %s has %d characters, and EC2 takes at most %d", req.Token, len(req.Token), maxToken)
	}
	return nil
}

// marketOptions is how the instance is bought; nil is on-demand.
func marketOptions(capacityType v1alpha1.CapacityType) (*types.InstanceMarketOptionsRequest, error) {
	switch capacityType {
	case v1alpha1.CapacityTypeOnDemand:
		return nil, nil
	case v1alpha1.CapacityTypeSpot:
		// One-time and terminate: a persistent request, or one that stops, would bring an instance back for a claim that
		// was replaced long ago. No maximum price: EC2's default is the on-demand price.
		return &types.InstanceMarketOptionsRequest{
			MarketType: types.MarketTypeSpot,
			SpotOptions: &types.SpotMarketOptions{
				SpotInstanceType:             types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
			},
		}, nil
	default:
		return nil, fmt.Errorf("capacity type %q is not offered: want one of %v", capacityType, v1alpha1.CapacityTypes)
	}
}

// metadataOptions lets the node reach the instance metadata and pods not: session tokens only, one hop. Tags stay out of
// the metadata because EC2 refuses keys with a slash there, which ours have, and an account may have them on by default.
func metadataOptions() *types.InstanceMetadataOptionsRequest {
	return &types.InstanceMetadataOptionsRequest{
		HttpEndpoint:            types.InstanceMetadataEndpointStateEnabled,
		HttpTokens:              types.HttpTokensStateRequired,
		HttpPutResponseHopLimit: ptr[int32](1),
		InstanceMetadataTags:    types.InstanceMetadataTagsStateDisabled,
	}
}

func rootVolume(spec v1alpha1.RootVolumeSpec) types.BlockDeviceMapping {
	return types.BlockDeviceMapping{
		DeviceName: ptr(rootDevice),
		Ebs: &types.EbsBlockDevice{
			VolumeType:          types.VolumeTypeGp3,
			VolumeSize:          ptr(spec.SizeGiB),
			Encrypted:           ptr(true),
			DeleteOnTermination: ptr(true),
		},
	}
}

func ptr[T any](value T) *T { return &value }
