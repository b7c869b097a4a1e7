package region_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/google/go-cmp/cmp"
)

func TestDescribeInstanceTypes_TellsGPUsInEC2sWords(t *testing.T) {
	p := start(t)
	out, err := p.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"p5.48xlarge"}})
	if err != nil {
		t.Fatal(err)
	}
	got := out.InstanceTypes[0]
	gpu := got.GpuInfo.Gpus[0]
	have := []any{got.InstanceType, *got.VCpuInfo.DefaultVCpus, *got.MemoryInfo.SizeInMiB, *gpu.Name, *gpu.Count, *gpu.MemoryInfo.SizeInMiB,
		*gpu.GpuPartitionSize, *got.GpuInfo.TotalGpuMemoryInMiB, *got.NetworkInfo.EfaInfo.MaximumEfaInterfaces, *got.InstanceStorageInfo.TotalSizeInGB}
	want := []any{types.InstanceType("p5.48xlarge"), int32(192), int64(2097152), "H100", int32(8), int32(81920), 1.0, int32(655360), int32(32), int64(30400)}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	_, err = p.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"p9.large"}})
	if code(err) != "InvalidInstanceType" {
		t.Errorf("an unknown type: got %q, want InvalidInstanceType", code(err))
	}
}

func TestDescribeInstanceTypes_Pages(t *testing.T) {
	p := start(t)
	var names []types.InstanceType
	pages := ec2.NewDescribeInstanceTypesPaginator(p.ec2, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(5)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range page.InstanceTypes {
			names = append(names, info.InstanceType)
		}
	}
	want := []types.InstanceType{"g5.12xlarge", "g5.48xlarge", "g5.xlarge", "g6.12xlarge", "g6.xlarge", "g6e.12xlarge",
		"p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5.4xlarge"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeInstanceTypeOfferings_ByZone(t *testing.T) {
	p := start(t)
	out, err := p.ec2.DescribeInstanceTypeOfferings(t.Context(), &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: filters("instance-type", "p4de.24xlarge"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.InstanceTypeOfferings) != 1 || *out.InstanceTypeOfferings[0].Location != "us-east-1b" {
		t.Errorf("p4de.24xlarge is offered as %+v, want us-east-1b only", out.InstanceTypeOfferings)
	}
}

func TestDescribeSubnetsImagesAndGroups(t *testing.T) {
	p := start(t)
	subnets, err := p.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{subnetA, subnetC}})
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]string{}
	for _, s := range subnets.Subnets {
		zones[*s.SubnetId] = *s.AvailabilityZone
	}
	if diff := cmp.Diff(map[string]string{subnetA: "us-east-1a", subnetC: "us-east-1c"}, zones); diff != "" {
		t.Error(diff)
	}
	images, err := p.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{image}})
	if err != nil || len(images.Images) != 1 || images.Images[0].State != types.ImageStateAvailable {
		t.Errorf("images %+v, %v", images, err)
	}
	groups, err := p.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{group}})
	if err != nil || len(groups.SecurityGroups) != 1 {
		t.Errorf("security groups %+v, %v", groups, err)
	}
	for want, call := range map[string]func() error{
		"InvalidSubnetID.NotFound": func() error {
			_, err := p.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0000000000000000f"}})
			return err
		},
		"InvalidAMIID.NotFound": func() error {
			_, err := p.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{"ami-0000000000000000f"}})
			return err
		},
		"InvalidGroup.NotFound": func() error {
			_, err := p.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-0000000000000000f"}})
			return err
		},
		"InvalidAction": func() error {
			_, err := p.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
			return err
		},
	} {
		if got := code(call()); got != want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

func TestGetParameter_NamesTheImage(t *testing.T) {
	p := start(t)
	client := ssm.NewFromConfig(p.aws)
	out, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{
		Name: aws.String("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id"),
	})
	if err != nil || *out.Parameter.Value != image {
		t.Fatalf("got %+v, %v, want %s", out, err, image)
	}
	_, err = client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/aws/service/nothing")})
	if code(err) != "ParameterNotFound" {
		t.Errorf("got %q, want ParameterNotFound", code(err))
	}
	if p.called("GetParameter", "OK") != 1 || p.called("GetParameter", "ParameterNotFound") != 1 {
		t.Errorf("calls %+v", p.called("GetParameter", "OK"))
	}
}
