package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

const (
	opDescribeInstances  = "DescribeInstances"
	opTerminateInstances = "TerminateInstances"
	// pageSize is the most that DescribeInstances returns at once.
	pageSize = 1000
)

// Tags of our instances and their volumes. There is none of karpenter.sh/nodepool, karpenter.k8s.aws/ec2nodeclass and
// eks:eks-cluster-name among them: AWS's own Karpenter, if the cluster runs it too, takes an instance that carries those
// and that no NodeClaim of its own knows for an orphan, and terminates it after 30 seconds.
// Source: https://github.com/aws/karpenter-provider-aws, pkg/controllers/nodeclaim/garbagecollection/controller.go.
const (
	tagCluster  = v1alpha1.Group + "/cluster"
	tagClaim    = v1alpha1.Group + "/nodeclaim"
	tagClaimUID = v1alpha1.Group + "/nodeclaim-uid"
	tagNodePool = v1alpha1.Group + "/nodepool"
	tagPool     = v1alpha1.Group + "/pool"
	tagName     = "Name"
)

// tagSpecifications tags at launch, not after: a crash between two calls would leave an instance that nobody can find.
func (c *Cloud) tagSpecifications(req cloud.LaunchRequest) []types.TagSpecification {
	tags := []types.Tag{
		{Key: ptr(tagName), Value: &req.Claim.Name},
		{Key: ptr(tagCluster), Value: &c.cluster},
		{Key: ptr(tagClaim), Value: &req.Claim.Name},
		{Key: ptr(tagClaimUID), Value: &req.Claim.UID},
		{Key: ptr(tagNodePool), Value: &req.Claim.NodePool},
		{Key: ptr(tagPool), Value: &req.Claim.Pool},
	}
	return []types.TagSpecification{
		{ResourceType: types.ResourceTypeInstance, Tags: tags},
		{ResourceType: types.ResourceTypeVolume, Tags: tags},
	}
}

// FindByToken returns the instance that a token started, in whatever state. EC2 shows a terminated one for about an hour.
func (c *Cloud) FindByToken(ctx context.Context, token string) (cloud.Instance, error) {
	if token == "" {
		return cloud.Instance{}, invalid(opDescribeInstances, errors.New("no launch token was given"))
	}
	found, err := c.describe(ctx, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: ptr("client-token"), Values: []string{token}}},
	})
	if err != nil {
		return cloud.Instance{}, err
	}
	// A token names one instance in one zone. Should there be several all the same, the one that still costs money matters.
	for _, instance := range found {
		if !instance.State.Ending() {
			return instance, nil
		}
	}
	if len(found) == 0 {
		return cloud.Instance{}, fmt.Errorf("%s: launch token %s: %w", opDescribeInstances, token, cloud.ErrNotFound)
	}
	return found[0], nil
}

// Describe returns one instance, a terminated one too for as long as EC2 shows it.
func (c *Cloud) Describe(ctx context.Context, id string) (cloud.Instance, error) {
	if id == "" {
		return cloud.Instance{}, invalid(opDescribeInstances, errors.New("no instance id was given"))
	}
	found, err := c.describe(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if hasCode(err, codeInstanceNotFound) || err == nil && len(found) == 0 {
		return cloud.Instance{}, notFound(opDescribeInstances, id)
	}
	if err != nil {
		return cloud.Instance{}, err
	}
	return found[0], nil
}

// List returns every instance of a cluster that is not terminated, of all pages, or an error.
func (c *Cloud) List(ctx context.Context, cluster string) ([]cloud.Instance, error) {
	if cluster == "" {
		return nil, invalid(opDescribeInstances, errors.New("no cluster name was given"))
	}
	return c.describe(ctx, &ec2.DescribeInstancesInput{
		MaxResults: ptr[int32](pageSize),
		Filters: []types.Filter{
			{Name: ptr("tag:" + tagCluster), Values: []string{cluster}},
			{Name: ptr("instance-state-name"), Values: []string{
				string(cloud.StatePending), string(cloud.StateRunning), string(cloud.StateShuttingDown),
				string(cloud.StateStopping), string(cloud.StateStopped),
			}},
		},
	})
}

// Terminate asks for the end of an instance. EC2 accepts it for one that is ending or ended already.
func (c *Cloud) Terminate(ctx context.Context, id string) error {
	if id == "" {
		return invalid(opTerminateInstances, errors.New("no instance id was given"))
	}
	_, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	if hasCode(err, codeInstanceNotFound) {
		return notFound(opTerminateInstances, id)
	}
	if err != nil {
		return failed(opTerminateInstances, err)
	}
	return nil
}

func notFound(operation, id string) error {
	return fmt.Errorf("%s: instance %s: %w", operation, id, cloud.ErrNotFound)
}

// describe reads all pages, or fails.
func (c *Cloud) describe(ctx context.Context, input *ec2.DescribeInstancesInput) ([]cloud.Instance, error) {
	var out []cloud.Instance
	pages := ec2.NewDescribeInstancesPaginator(c.ec2, input)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed(opDescribeInstances, err)
		}
		for _, reservation := range page.Reservations {
			for _, instance := range reservation.Instances {
				out = append(out, fromEC2(instance))
			}
		}
	}
	return out, nil
}

func fromEC2(in types.Instance) cloud.Instance {
	tags := make(map[string]string, len(in.Tags))
	for _, tag := range in.Tags {
		tags[deref(tag.Key)] = deref(tag.Value)
	}
	out := cloud.Instance{
		ID:           deref(in.InstanceId),
		InstanceType: string(in.InstanceType),
		CapacityType: v1alpha1.CapacityTypeOnDemand,
		Image:        deref(in.ImageId),
		Token:        deref(in.ClientToken),
		Cluster:      tags[tagCluster],
		Claim:        cloud.Claim{Name: tags[tagClaim], UID: tags[tagClaimUID], NodePool: tags[tagNodePool], Pool: tags[tagPool]},
		LaunchedAt:   deref[time.Time](in.LaunchTime),
		StateReason:  stateReason(in),
	}
	if in.State != nil {
		out.State = cloud.State(in.State.Name)
	}
	if in.InstanceLifecycle == types.InstanceLifecycleTypeSpot {
		out.CapacityType = v1alpha1.CapacityTypeSpot
	}
	if in.Placement != nil {
		out.Zone = deref(in.Placement.AvailabilityZone)
	}
	out.ProviderID = ProviderID(out.Zone, out.ID)
	return out
}

// stateReason says why EC2 moved the instance, e.g. "Server.InsufficientInstanceCapacity: ..." for one that never ran.
func stateReason(in types.Instance) string {
	if in.StateReason == nil {
		return ""
	}
	code, message := deref(in.StateReason.Code), scrub(deref(in.StateReason.Message))
	// EC2 repeats the code at the front of most messages.
	if code == "" || len(message) >= len(code) && message[:len(code)] == code {
		return message
	}
	return code + ": " + message
}

func deref[T any](pointer *T) (value T) {
	if pointer != nil {
		value = *pointer
	}
	return value
}
