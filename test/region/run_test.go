package region_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

func TestRunInstances_ReplayOfATokenReturnsTheSameInstance(t *testing.T) {
	p := start(t)
	first, again := p.run(), p.run()
	if *first.InstanceId != *again.InstanceId {
		t.Errorf("the same call with the same token launched %s and %s", *first.InstanceId, *again.InstanceId)
	}
	if n := len(read[[]region.Instance](p, "/v1/instances")); n != 1 {
		t.Errorf("the books hold %d instances, want 1", n)
	}
}

func TestRunInstances_ReplayReturnsAnInstanceThatHasEnded(t *testing.T) {
	p := start(t)
	first := p.run()
	if _, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*first.InstanceId}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the instance is terminated", func() bool { return p.row(*first.InstanceId).State == "terminated" })
	again := p.run()
	if *again.InstanceId != *first.InstanceId || again.State.Name != types.InstanceStateNameTerminated {
		t.Errorf("replay returned %s in state %s, want %s, terminated", *again.InstanceId, again.State.Name, *first.InstanceId)
	}
}

func TestRunInstances_SameTokenOtherParametersIsRefused(t *testing.T) {
	p := start(t)
	p.run()
	for name, edit := range map[string]func(*ec2.RunInstancesInput){
		"type":      ofType("g6.12xlarge"),
		"user data": func(in *ec2.RunInstancesInput) { in.UserData = aws.String("b3RoZXI=") },
		"market":    onSpot,
		"tag":       func(in *ec2.RunInstancesInput) { in.TagSpecifications[1].Tags[0].Value = aws.String("claim-2") },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.ec2.RunInstances(t.Context(), request(edit))
			if got := code(err); got != "IdempotentParameterMismatch" {
				t.Errorf("got %q, want IdempotentParameterMismatch", got)
			}
			if got := httpStatus(err); got != http.StatusBadRequest {
				t.Errorf("HTTP status %d, want 400", got)
			}
		})
	}
}

func TestRunInstances_SameTokenInAnotherZoneLaunchesAgain(t *testing.T) {
	p := start(t)
	a, b := p.run(), p.run(inSubnet(subnetB))
	if *a.InstanceId == *b.InstanceId {
		t.Errorf("one token in two zones launched only %s", *a.InstanceId)
	}
	if got := []string{*a.Placement.AvailabilityZone, *b.Placement.AvailabilityZone}; !cmp.Equal(got, []string{"us-east-1a", "us-east-1b"}) {
		t.Errorf("zones %v", got)
	}
}

func TestRunInstances_RefusesAsAWSDoes(t *testing.T) {
	p := start(t)
	set := func(edit func(*ec2.RunInstancesInput)) func(*ec2.RunInstancesInput) { return edit }
	for name, c := range map[string]struct {
		edit func(*ec2.RunInstancesInput)
		want string
	}{
		"unknown image":        {set(func(in *ec2.RunInstancesInput) { in.ImageId = aws.String("ami-0000000000000000f") }), "InvalidAMIID.NotFound"},
		"malformed image":      {set(func(in *ec2.RunInstancesInput) { in.ImageId = aws.String("latest") }), "InvalidAMIID.Malformed"},
		"unknown type":         {ofType("p9.48xlarge"), "InvalidParameterValue"},
		"unknown subnet":       {inSubnet("subnet-0000000000000000f"), "InvalidSubnetID.NotFound"},
		"unknown group":        {set(func(in *ec2.RunInstancesInput) { in.SecurityGroupIds = []string{"sg-0000000000000000f"} }), "InvalidGroup.NotFound"},
		"unknown profile":      {set(func(in *ec2.RunInstancesInput) { in.IamInstanceProfile.Name = aws.String("other") }), "InvalidParameterValue"},
		"two instances":        {set(func(in *ec2.RunInstancesInput) { in.MaxCount = aws.Int32(2) }), "InvalidParameterValue"},
		"user data not base64": {set(func(in *ec2.RunInstancesInput) { in.UserData = aws.String("%") }), "InvalidUserData.Malformed"},
		"type not in zone":     {func(in *ec2.RunInstancesInput) { ofType("p4de.24xlarge")(in); inSubnet(subnetC)(in) }, "Unsupported"},
		"subnet and network":   {withInterface, "InvalidParameterCombination"},
		"zone against subnet": {set(func(in *ec2.RunInstancesInput) {
			in.Placement = &types.Placement{AvailabilityZone: aws.String("us-east-1b")}
		}), "InvalidParameterValue"},
		"token too long": {token(strings.Repeat("x", 65)), "InvalidParameterValue"},
		"dry run":        {set(func(in *ec2.RunInstancesInput) { in.DryRun = aws.Bool(true) }), "DryRunOperation"},
		"user data of 16385 bytes": {set(func(in *ec2.RunInstancesInput) {
			in.UserData = aws.String(base64.StdEncoding.EncodeToString(make([]byte, 16385)))
		}), "InvalidParameterValue"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.ec2.RunInstances(t.Context(), request(c.edit))
			if got := code(err); got != c.want {
				t.Errorf("got %q (%v), want %s", got, err, c.want)
			}
		})
	}
	if n := len(read[[]region.Instance](p, "/v1/instances")); n != 0 {
		t.Errorf("refused launches left %d instances", n)
	}
}

func withInterface(in *ec2.RunInstancesInput) {
	in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: in.SubnetId}}
}

func TestRunInstances_TakesSubnetAndGroupsFromTheNetworkInterface(t *testing.T) {
	p := start(t)
	got := p.run(func(in *ec2.RunInstancesInput) {
		in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: aws.String(subnetB), Groups: []string{group},
		}}
		in.SubnetId, in.SecurityGroupIds = nil, nil
	})
	if *got.SubnetId != subnetB || *got.Placement.AvailabilityZone != "us-east-1b" || *got.SecurityGroups[0].GroupId != group {
		t.Errorf("got subnet %s in %s, groups %v", *got.SubnetId, *got.Placement.AvailabilityZone, got.SecurityGroups)
	}
}

func TestRunInstances_ShortageIsInsufficientInstanceCapacityWithStatus500(t *testing.T) {
	p := start(t)
	status, body := p.admin(http.MethodPut, "/v1/capacity", []region.Capacity{{Type: "g6.xlarge", Zone: "us-east-1a", CapacityType: "on-demand", Free: 1}})
	if status != http.StatusOK {
		t.Fatalf("PUT /v1/capacity: %d %s", status, body)
	}
	first := p.run()
	_, err := p.ec2.RunInstances(t.Context(), request(token("token-2")))
	if code(err) != "InsufficientInstanceCapacity" || httpStatus(err) != http.StatusInternalServerError {
		t.Errorf("got %q with status %d, want InsufficientInstanceCapacity with 500", code(err), httpStatus(err))
	}
	p.run(token("token-2"), inSubnet(subnetB))
	p.run(token("token-2"), onSpot)
	if _, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*first.InstanceId}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the place is given back", func() bool {
		return read[[]region.Capacity](p, "/v1/capacity")[0].Free == 1
	})
}

// g6.xlarge has 4 vCPUs: a quota of 8 admits two, in whatever zones, and spot machines count apart.
func TestRunInstances_BeyondTheQuotaOfVCPUs(t *testing.T) {
	p := start(t)
	quotas := []region.Quota{{Bucket: "G", CapacityType: "on-demand", VCPUs: 8}, {Bucket: "G", CapacityType: "spot", VCPUs: 3}}
	if status, body := p.admin(http.MethodPut, "/v1/quotas", quotas); status != http.StatusOK {
		t.Fatalf("PUT /v1/quotas: %d %s", status, body)
	}
	first := p.run()
	p.run(token("token-2"), inSubnet(subnetB))
	_, err := p.ec2.RunInstances(t.Context(), request(token("token-3")))
	if code(err) != "VcpuLimitExceeded" || httpStatus(err) != http.StatusBadRequest || !strings.Contains(err.Error(), "limit of 8 ") {
		t.Errorf("got %q with status %d: %v; want VcpuLimitExceeded with 400 and the limit", code(err), httpStatus(err), err)
	}
	if _, err := p.ec2.RunInstances(t.Context(), request(token("token-4"), onSpot)); code(err) != "MaxSpotInstanceCountExceeded" {
		t.Errorf("got %q for spot, want MaxSpotInstanceCountExceeded", code(err))
	}
	if got := read[[]region.Quota](p, "/v1/quotas"); len(got) != 2 || got[0].Used != 8 || got[1].Used != 0 {
		t.Errorf("quotas are %+v, want 8 used on demand and 0 on spot", got)
	}
	if _, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*first.InstanceId}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the vCPUs are given back", func() bool { return read[[]region.Quota](p, "/v1/quotas")[0].Used == 4 })
	p.run(token("token-3"))
	if status, body := p.admin(http.MethodPut, "/v1/quotas", []region.Quota{{Bucket: "M", CapacityType: "on-demand", VCPUs: 8}}); status != http.StatusBadRequest {
		t.Errorf("a bucket that there is not: %d %s, want 400", status, body)
	}
}

func TestRunInstances_SpotIsMarkedAndPricedAsSuch(t *testing.T) {
	p := start(t)
	spot, demand := p.run(onSpot), p.run(token("token-2"))
	if spot.InstanceLifecycle != types.InstanceLifecycleTypeSpot || demand.InstanceLifecycle != "" {
		t.Errorf("lifecycles %q and %q", spot.InstanceLifecycle, demand.InstanceLifecycle)
	}
	if got, than := p.row(*spot.InstanceId), p.row(*demand.InstanceId); got.CapacityType != "spot" || got.PricePerHour >= than.PricePerHour {
		t.Errorf("spot is %s at %v, on-demand %v", got.CapacityType, got.PricePerHour, than.PricePerHour)
	}
}

func httpStatus(err error) int {
	var response *awshttp.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
}
