package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

const (
	opResolve         = "Resolve"
	opDescribeSubnets = "DescribeSubnets"
	opGetParameter    = "GetParameter"
)

// Resolve returns the image's id and the zones of the subnets that a class names, the subnets by zone.
func (c *Cloud) Resolve(ctx context.Context, class *v1alpha1.GPUNodeClass) (cloud.Resolved, error) {
	if class == nil || class.Spec.Cloud.AWS == nil {
		return cloud.Resolved{}, invalid(opResolve, errors.New("there is no GPUNodeClass with spec.cloud.aws"))
	}
	image, err := c.resolveImage(ctx, class.Spec.Cloud.AWS.AMI)
	if err != nil {
		return cloud.Resolved{}, err
	}
	subnets, err := c.resolveSubnets(ctx, class.Spec.Cloud.AWS.Subnets)
	if err != nil {
		return cloud.Resolved{}, err
	}
	return cloud.Resolved{Image: image, Subnets: subnets}, nil
}

func (c *Cloud) resolveImage(ctx context.Context, ami v1alpha1.AMISpec) (string, error) {
	switch {
	case ami.ID != "":
		return ami.ID, nil
	case ami.SSMParameter == "":
		return "", invalid(opResolve, errors.New("spec.cloud.aws.ami names no image: set id or ssmParameter"))
	}
	out, err := c.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: &ami.SSMParameter})
	if hasCode(err, "ParameterNotFound") {
		// SSM's own message is empty.
		return "", invalid(opGetParameter, fmt.Errorf("SSM parameter %s does not exist in this region: "+
			"check spec.cloud.aws.ami.ssmParameter", ami.SSMParameter))
	}
	if err != nil {
		return "", failed(opGetParameter, err)
	}
	var value string
	if out.Parameter != nil {
		value = deref(out.Parameter.Value)
	}
	if !strings.HasPrefix(value, "ami-") {
		return "", invalid(opGetParameter, fmt.Errorf("SSM parameter %s holds %q, which is not an image id: "+
			"choose one whose path ends in image_id", ami.SSMParameter, value))
	}
	return value, nil
}

func (c *Cloud) resolveSubnets(ctx context.Context, ids []string) ([]v1alpha1.SubnetStatus, error) {
	if len(ids) == 0 {
		return nil, invalid(opResolve, errors.New("spec.cloud.aws.subnets is empty: name at least one subnet"))
	}
	var found []v1alpha1.SubnetStatus
	pages := ec2.NewDescribeSubnetsPaginator(c.ec2, &ec2.DescribeSubnetsInput{SubnetIds: slices.Sorted(slices.Values(ids))})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed(opDescribeSubnets, err)
		}
		for _, subnet := range page.Subnets {
			found = append(found, v1alpha1.SubnetStatus{ID: deref(subnet.SubnetId), Zone: deref(subnet.AvailabilityZone)})
		}
	}
	if err := checkSubnets(ids, found); err != nil {
		return nil, invalid(opDescribeSubnets, err)
	}
	slices.SortFunc(found, func(a, b v1alpha1.SubnetStatus) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// checkSubnets refuses subnets that do not exist, and two in one zone: a launch is for a zone, and nothing would say which
// of the two it meant.
func checkSubnets(asked []string, found []v1alpha1.SubnetStatus) error {
	byZone := make(map[string]string, len(found))
	known := make(map[string]bool, len(found))
	for _, subnet := range found {
		known[subnet.ID] = true
		if other, taken := byZone[subnet.Zone]; taken {
			return fmt.Errorf("spec.cloud.aws.subnets has two subnets in zone %s, %s and %s: keep one a zone",
				subnet.Zone, min(other, subnet.ID), max(other, subnet.ID))
		}
		byZone[subnet.Zone] = subnet.ID
	}
	var missing []string
	for _, id := range slices.Sorted(slices.Values(asked)) {
		if !known[id] {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("spec.cloud.aws.subnets names subnets that do not exist in this region: %s", strings.Join(missing, ", "))
	}
	return nil
}
