package aws

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

const (
	parameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id"

	subnetB = `<item><subnetId>subnet-0a1b2c3d4e5f60002</subnetId><availabilityZone>us-east-1b</availabilityZone></item>`
	subnetA = `<item><subnetId>subnet-0a1b2c3d4e5f60001</subnetId><availabilityZone>us-east-1a</availabilityZone></item>`
	alsoA   = `<item><subnetId>subnet-0a1b2c3d4e5f60002</subnetId><availabilityZone>us-east-1a</availabilityZone></item>`
)

func subnetsAnswer(items ...string) answer {
	return xmlAnswer(200, `<DescribeSubnetsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><subnetSet>`+
		strings.Join(items, "")+`</subnetSet></DescribeSubnetsResponse>`)
}

func parameterAnswer(value string) answer {
	return jsonAnswer(200, `{"Parameter":{"Name":"`+parameter+`","Type":"String","Value":"`+value+`"}}`)
}

func bySSM() *v1alpha1.GPUNodeClass {
	c := class()
	c.Spec.Cloud.AWS.AMI = v1alpha1.AMISpec{SSMParameter: parameter}
	return c
}

func TestResolve_ReadsTheImageFromSSMAndTheZonesFromEC2(t *testing.T) {
	c, e := serve(t, parameterAnswer("ami-0a1b2c3d4e5f60001"), subnetsAnswer(subnetB, subnetA))
	got, err := c.Resolve(t.Context(), bySSM())
	if err != nil {
		t.Fatal(err)
	}
	want := cloud.Resolved{Image: "ami-0a1b2c3d4e5f60001", Subnets: []v1alpha1.SubnetStatus{
		{ID: "subnet-0a1b2c3d4e5f60001", Zone: "us-east-1a"},
		{ID: "subnet-0a1b2c3d4e5f60002", Zone: "us-east-1b"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resolved (-want +got):\n%s", diff)
	}
	calls := e.received()
	if calls[0].target != "AmazonSSM.GetParameter" || !strings.Contains(calls[0].body, parameter) {
		t.Errorf("first call %s %s, want GetParameter of %s", calls[0].target, calls[0].body, parameter)
	}
	wantForm := map[string]string{
		"Action": "DescribeSubnets", "Version": "2016-11-15",
		"SubnetId.1": "subnet-0a1b2c3d4e5f60001", "SubnetId.2": "subnet-0a1b2c3d4e5f60002",
	}
	if diff := cmp.Diff(wantForm, formOf(t, calls[1])); diff != "" {
		t.Errorf("second call (-want +got):\n%s", diff)
	}
}

func TestResolve_TakesAnImageByIDWithoutAskingSSM(t *testing.T) {
	c, e := serve(t, subnetsAnswer(subnetA, subnetB))
	got, err := c.Resolve(t.Context(), class())
	if err != nil || got.Image != "ami-0a1b2c3d4e5f60001" || len(e.received()) != 1 {
		t.Errorf("image %s, %v after %d calls; want the class's own after 1", got.Image, err, len(e.received()))
	}
}

func TestResolve_NamesWhatIsMissing(t *testing.T) {
	noAMI := class()
	noAMI.Spec.Cloud.AWS.AMI = v1alpha1.AMISpec{}
	noSubnets := class()
	noSubnets.Spec.Cloud.AWS.Subnets = nil
	for name, tc := range map[string]struct {
		class   *v1alpha1.GPUNodeClass
		answers []answer
		want    []string
	}{
		"no class":            {nil, nil, []string{"spec.cloud.aws"}},
		"no image":            {noAMI, nil, []string{"set id or ssmParameter"}},
		"no subnets":          {noSubnets, nil, []string{"spec.cloud.aws.subnets is empty"}},
		"unknown parameter":   {bySSM(), []answer{jsonAnswer(400, `{"__type":"ParameterNotFound"}`)}, []string{parameter, "does not exist"}},
		"not an image":        {bySSM(), []answer{parameterAnswer("1.36.0-20260917")}, []string{parameter, "1.36.0-20260917", "image_id"}},
		"unknown subnet":      {class(), []answer{refusal(400, "InvalidSubnetID.NotFound", "The subnet ID 'subnet-0a1b2c3d4e5f60002' does not exist")}, []string{"InvalidSubnetID.NotFound", "subnet-0a1b2c3d4e5f60002"}},
		"subnet left out":     {class(), []answer{subnetsAnswer(subnetA)}, []string{"do not exist", "subnet-0a1b2c3d4e5f60002"}},
		"two subnets in zone": {class(), []answer{subnetsAnswer(alsoA, subnetA)}, []string{"us-east-1a", "subnet-0a1b2c3d4e5f60001 and subnet-0a1b2c3d4e5f60002"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, append(tc.answers, refusal(400, "TooManyCalls", "the test expected no further call"))...)
			got, err := c.Resolve(t.Context(), tc.class)
			if cloud.ClassOf(err) != cloud.ClassInvalid {
				t.Fatalf("got %+v and %v, want class %s", got, err, cloud.ClassInvalid)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestResolve_AnUnreachableSSMIsNotTheClassesFault(t *testing.T) {
	c, _ := serve(t, jsonAnswer(403, `{"__type":"AccessDeniedException","Message":"User: arn:aws:sts::123456789012:assumed-role/x/y is not authorized to perform: ssm:GetParameter"}`))
	_, err := c.Resolve(t.Context(), bySSM())
	if cloud.ClassOf(err) != cloud.ClassUnauthorised {
		t.Fatalf("got %v, want class %s", err, cloud.ClassUnauthorised)
	}
	assertClean(t, err)
}
