package region_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

func (p *place) ids(in *ec2.DescribeInstancesInput) []string {
	p.t.Helper()
	out, err := p.ec2.DescribeInstances(p.t.Context(), in)
	if err != nil {
		p.t.Fatal(err)
	}
	return idsOf(out)
}

func idsOf(out *ec2.DescribeInstancesOutput) []string {
	var ids []string
	for _, reservation := range out.Reservations {
		for _, instance := range reservation.Instances {
			ids = append(ids, *instance.InstanceId)
		}
	}
	return ids
}

func filters(pairs ...string) []types.Filter {
	var out []types.Filter
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, types.Filter{Name: aws.String(pairs[i]), Values: []string{pairs[i+1]}})
	}
	return out
}

func TestDescribeInstances_Filters(t *testing.T) {
	p := start(t)
	one := *p.run().InstanceId
	two := *p.run(token("token-2"), func(in *ec2.RunInstancesInput) { in.TagSpecifications = nil }).InstanceId
	for name, c := range map[string]struct {
		filters []types.Filter
		want    []string
	}{
		"token":               {filters("client-token", "token-2"), []string{two}},
		"unknown token":       {filters("client-token", "token-3"), nil},
		"tag":                 {filters("tag:gpufleet.dev/nodeclaim", "claim-1"), []string{one}},
		"other value":         {filters("tag:gpufleet.dev/nodeclaim", "claim-2"), nil},
		"tag key":             {filters("tag-key", "gpufleet.dev/nodeclaim-uid"), []string{one}},
		"wildcard":            {filters("tag-key", "gpufleet.dev/*"), []string{one}},
		"volume's tag":        {filters("tag-key", "of"), nil},
		"both must hold":      {filters("client-token", "token-1", "tag-key", "nothing"), nil},
		"any value will do":   {[]types.Filter{{Name: aws.String("client-token"), Values: []string{"token-1", "token-2"}}}, []string{one, two}},
		"state":               {filters("instance-state-name", "terminated"), nil},
		"no filter":           {nil, []string{one, two}},
		"every living state":  {[]types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"pending", "running"}}}, []string{one, two}},
		"zone":                {filters("availability-zone", "us-east-1a"), []string{one, two}},
		"type is not g6.12xl": {filters("instance-type", "g6.12*"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, p.ids(&ec2.DescribeInstancesInput{Filters: c.filters})); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := p.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: filters("colour", "red")})
	if code(err) != "InvalidParameterValue" {
		t.Errorf("an unknown filter: got %q, want InvalidParameterValue", code(err))
	}
}

func TestDescribeInstances_TellsWhatWasAsked(t *testing.T) {
	p := start(t)
	id := *p.run(func(in *ec2.RunInstancesInput) {
		in.MetadataOptions = &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1)}
	}).InstanceId
	out, err := p.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	got := out.Reservations[0].Instances[0]
	tags := map[string]string{}
	for _, tag := range got.Tags {
		tags[*tag.Key] = *tag.Value
	}
	if diff := cmp.Diff(map[string]string{"gpufleet.dev/nodeclaim": "claim-1", "gpufleet.dev/nodeclaim-uid": "uid-1"}, tags); diff != "" {
		t.Error(diff)
	}
	want := []string{image, "g6.xlarge", "us-east-1a", subnetA, "token-1", "ip-10-0-0-4.ec2.internal",
		"arn:aws:iam::111122223333:instance-profile/gpufleet-node", "required"}
	have := []string{*got.ImageId, string(got.InstanceType), *got.Placement.AvailabilityZone, *got.SubnetId, *got.ClientToken, *got.PrivateDnsName,
		*got.IamInstanceProfile.Arn, string(got.MetadataOptions.HttpTokens)}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if got.LaunchTime == nil || got.LaunchTime.IsZero() {
		t.Error("no launch time")
	}
}

func TestDescribeInstances_UnknownIDIsNotFound(t *testing.T) {
	p := start(t)
	known := *p.run().InstanceId
	_, err := p.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{known, "i-0000000000000000f"}})
	if code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("got %q, want InvalidInstanceID.NotFound", code(err))
	}
	_, err = p.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{"x"}})
	if code(err) != "InvalidInstanceID.Malformed" {
		t.Errorf("got %q, want InvalidInstanceID.Malformed", code(err))
	}
}

func TestDescribeInstances_PagesMeetAndLoseNothing(t *testing.T) {
	p := start(t)
	var want []string
	for i := range 12 {
		want = append(want, *p.run(token(fmt.Sprintf("token-%d", i))).InstanceId)
	}
	var got []string
	var sizes []int
	pages := ec2.NewDescribeInstancesPaginator(p.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(idsOf(page)))
		got = append(got, idsOf(page)...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(sizes, []int{5, 5, 2}) {
		t.Errorf("pages of %v", sizes)
	}
	for name, in := range map[string]*ec2.DescribeInstancesInput{
		"InvalidParameterValue":       {MaxResults: aws.Int32(4)},
		"InvalidNextToken":            {NextToken: aws.String("nonsense")},
		"InvalidParameterCombination": {MaxResults: aws.Int32(5), InstanceIds: want[:1]},
	} {
		if _, err := p.ec2.DescribeInstances(t.Context(), in); code(err) != name {
			t.Errorf("got %q, want %s", code(err), name)
		}
	}
}

func TestTerminateInstances_PassesThroughShuttingDownAndStaysDescribed(t *testing.T) {
	p := start(t)
	id := *p.run().InstanceId
	eventually(t, "the instance runs", func() bool { return p.row(id).State == "running" })
	out, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	change := out.TerminatingInstances[0]
	if change.PreviousState.Name != types.InstanceStateNameRunning || change.CurrentState.Name != types.InstanceStateNameShuttingDown {
		t.Errorf("changed from %s to %s", change.PreviousState.Name, change.CurrentState.Name)
	}
	eventually(t, "the instance is terminated", func() bool { return p.row(id).State == "terminated" })
	if got := p.ids(&ec2.DescribeInstancesInput{Filters: filters("client-token", "token-1", "instance-state-name", "terminated")}); !slices.Equal(got, []string{id}) {
		t.Errorf("a terminated instance is described as %v, want %s", got, id)
	}
	if _, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
		t.Errorf("terminating again: %v", err)
	}
	row := p.row(id)
	// 60 seconds at least of 0.8048 dollars an hour.
	if want := 0.8048 / 60; row.Dollars < want-1e-9 || row.Dollars > want+1e-9 || row.Terminated == nil || row.StateReason == "" {
		t.Errorf("the books say %+v, want %v dollars", row, want)
	}
}

func TestTerminateInstances_OneUnknownIDEndsNone(t *testing.T) {
	p := start(t)
	id := *p.run().InstanceId
	_, err := p.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id, "i-0000000000000000f"}})
	if code(err) != "InvalidInstanceID.NotFound" || p.row(id).ShuttingDown != nil {
		t.Errorf("got %q and the known instance is %s", code(err), p.row(id).State)
	}
}
