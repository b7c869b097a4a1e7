package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// runInstancesAnswer follows the example in https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html.
const runInstancesAnswer = `<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId><reservationId>r-0a1b2c3d4e5f60001</reservationId><ownerId>123456789012</ownerId>
<instancesSet>` + instanceItem + `</instancesSet></RunInstancesResponse>`

const instanceItem = `<item>
<instanceId>i-0a1b2c3d4e5f60001</instanceId><imageId>ami-0a1b2c3d4e5f60001</imageId>
<instanceState><code>0</code><name>pending</name></instanceState>
<clientToken>5f0c3f0e-1-us-east-1a</clientToken><instanceType>p5.48xlarge</instanceType><instanceLifecycle>spot</instanceLifecycle>
<launchTime>2026-11-29T10:00:00.000Z</launchTime>
<placement><availabilityZone>us-east-1a</availabilityZone><tenancy>default</tenancy></placement>
<stateReason><code>pending</code><message>pending</message></stateReason>
<tagSet>
<item><key>gpufleet.dev/cluster</key><value>prod</value></item>
<item><key>gpufleet.dev/nodeclaim</key><value>inference-0-x7k2p</value></item>
<item><key>gpufleet.dev/nodeclaim-uid</key><value>5f0c3f0e-8d0c-4f5e-9a51-0c7d6e1f2a3b</value></item>
<item><key>gpufleet.dev/nodepool</key><value>inference-0</value></item>
<item><key>gpufleet.dev/pool</key><value>inference</value></item>
</tagSet></item>`

// instance is instanceItem as the port tells it.
func instance() cloud.Instance {
	return cloud.Instance{
		ID: "i-0a1b2c3d4e5f60001", ProviderID: "aws:///us-east-1a/i-0a1b2c3d4e5f60001",
		State: cloud.StatePending, StateReason: "pending",
		InstanceType: "p5.48xlarge", Zone: "us-east-1a", CapacityType: v1alpha1.CapacityTypeSpot,
		Image: "ami-0a1b2c3d4e5f60001", Token: "5f0c3f0e-1-us-east-1a", Cluster: "prod",
		Claim:      cloud.Claim{Name: "inference-0-x7k2p", UID: "5f0c3f0e-8d0c-4f5e-9a51-0c7d6e1f2a3b", NodePool: "inference-0", Pool: "inference"},
		LaunchedAt: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC),
	}
}

func TestLaunch_ReturnsWhatEC2Accepted(t *testing.T) {
	c, _ := serve(t, xmlAnswer(200, runInstancesAnswer))
	got, err := c.Launch(t.Context(), launch())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(instance(), got); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
}

func TestLaunch_SendsExactlyWhatWasOrdered(t *testing.T) {
	c, e := serve(t, xmlAnswer(200, runInstancesAnswer))
	if _, err := c.Launch(t.Context(), launch()); err != nil {
		t.Fatal(err)
	}
	got := formOf(t, e.received()[0])
	delete(got, "UserData") // TestUserData_IsTheGoldenFile
	want := map[string]string{
		"Action": "RunInstances", "Version": "2016-11-15",
		"ClientToken": "5f0c3f0e-1-us-east-1a", "MinCount": "1", "MaxCount": "1",
		"InstanceType": "p5.48xlarge", "ImageId": "ami-0a1b2c3d4e5f60001",
		"Placement.AvailabilityZone": "us-east-1a",
		"SubnetId":                   "subnet-0a1b2c3d4e5f60001",
		"SecurityGroupId.1":          "sg-0a", "SecurityGroupId.2": "sg-0b",
		"IamInstanceProfile.Name": "gpufleet-node",

		"MetadataOptions.HttpEndpoint": "enabled", "MetadataOptions.HttpTokens": "required",
		"MetadataOptions.HttpPutResponseHopLimit": "1", "MetadataOptions.InstanceMetadataTags": "disabled",

		"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
		"BlockDeviceMapping.1.Ebs.VolumeSize": "200", "BlockDeviceMapping.1.Ebs.Encrypted": "true",
		"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
	}
	for i, resource := range []string{"instance", "volume"} {
		prefix := "TagSpecification." + []string{"1", "2"}[i] + "."
		want[prefix+"ResourceType"] = resource
		for j, tag := range [][2]string{
			{"Name", "inference-0-x7k2p"},
			{"gpufleet.dev/cluster", "prod"},
			{"gpufleet.dev/nodeclaim", "inference-0-x7k2p"},
			{"gpufleet.dev/nodeclaim-uid", "5f0c3f0e-8d0c-4f5e-9a51-0c7d6e1f2a3b"},
			{"gpufleet.dev/nodepool", "inference-0"},
			{"gpufleet.dev/pool", "inference"},
		} {
			n := prefix + "Tag." + string(rune('1'+j)) + "."
			want[n+"Key"], want[n+"Value"] = tag[0], tag[1]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if agent := e.received()[0].userAgent; !strings.Contains(agent, "gpufleet") {
		t.Errorf("user agent %q does not name gpufleet", agent)
	}
}

func TestLaunch_SpotIsOneTimeAndEndsOnInterruption(t *testing.T) {
	c, e := serve(t, xmlAnswer(200, runInstancesAnswer))
	req := launch()
	req.CapacityType = v1alpha1.CapacityTypeSpot
	if _, err := c.Launch(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	got := formOf(t, e.received()[0])
	maps.DeleteFunc(got, func(key, _ string) bool { return !strings.HasPrefix(key, "InstanceMarketOptions.") })
	want := map[string]string{
		"InstanceMarketOptions.MarketType":                               "spot",
		"InstanceMarketOptions.SpotOptions.SpotInstanceType":             "one-time",
		"InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("market options (-want +got):\n%s", diff)
	}
}

func TestLaunch_RefusesWhatCouldNotBeFoundAgainBeforeAnyCall(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*cloud.LaunchRequest)
		want   string
	}{
		"no token":        {func(r *cloud.LaunchRequest) { r.Token = "" }, "lacks: token"},
		"long token":      {func(r *cloud.LaunchRequest) { r.Token = strings.Repeat("a", 65) }, "65 characters"},
		"no claim":        {func(r *cloud.LaunchRequest) { r.Claim = cloud.Claim{} }, "lacks: claim name, claim uid"},
		"no place":        {func(r *cloud.LaunchRequest) { r.Zone, r.Subnet = "", "" }, "lacks: zone, subnet"},
		"no machine":      {func(r *cloud.LaunchRequest) { r.InstanceType, r.Image = "", "" }, "lacks: instance type, image"},
		"no class":        {func(r *cloud.LaunchRequest) { r.Class = nil }, "spec.cloud.aws"},
		"no AWS in class": {func(r *cloud.LaunchRequest) { r.Class.Spec.Cloud.AWS = nil }, "spec.cloud.aws"},
		"other family":    {func(r *cloud.LaunchRequest) { r.Class.Spec.Cloud.AWS.AMI.Family = "Bottlerocket" }, "Bottlerocket"},
		"other purchase":  {func(r *cloud.LaunchRequest) { r.CapacityType = "reserved" }, `"reserved"`},
		"user data too long": {func(r *cloud.LaunchRequest) {
			r.Class.Spec.Cloud.AWS.Cluster.CertificateAuthority = strings.Repeat("A", 16384)
		}, "EC2 takes at most 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := serve(t, xmlAnswer(200, runInstancesAnswer))
			req := launch()
			tc.change(&req)
			_, err := c.Launch(t.Context(), req)
			_, hashErr := c.RequestHash(req)
			for _, err := range []error{err, hashErr} {
				if cloud.ClassOf(err) != cloud.ClassInvalid || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want class %s and %q", err, cloud.ClassInvalid, tc.want)
				}
			}
			if calls := e.received(); len(calls) != 0 {
				t.Errorf("%d calls went out, want none", len(calls))
			}
		})
	}
}

func TestRequestHash_IsOfTheBytesThatLaunchSends(t *testing.T) {
	c, e := serve(t, xmlAnswer(200, runInstancesAnswer))
	hash, err := c.RequestHash(launch())
	if err != nil {
		t.Fatal(err)
	}
	if calls := e.received(); len(calls) != 0 {
		t.Fatalf("hashing made %d calls, want none", len(calls))
	}
	if _, err := c.Launch(t.Context(), launch()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(e.received()[0].body))
	if want := hex.EncodeToString(sum[:]); hash != want {
		t.Errorf("hash %s, want that of the body on the wire, %s", hash, want)
	}
}

func TestRequestHash_IsEqualForEqualRequestsAndDiffersForOthers(t *testing.T) {
	c, _ := serve(t, xmlAnswer(200, runInstancesAnswer))
	hashOf := func(change func(*cloud.LaunchRequest)) string {
		req := launch()
		change(&req)
		hash, err := c.RequestHash(req)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	same := hashOf(func(*cloud.LaunchRequest) {})
	for name, change := range map[string]func(*cloud.LaunchRequest){
		"again":                   func(*cloud.LaunchRequest) {},
		"security groups swapped": func(r *cloud.LaunchRequest) { slices.Reverse(r.Class.Spec.Cloud.AWS.SecurityGroups) },
		"taints swapped":          func(r *cloud.LaunchRequest) { slices.Reverse(r.Taints) },
		"status of the class":     func(r *cloud.LaunchRequest) { r.Class.Status.AMI = "ami-0b" },
	} {
		if got := hashOf(change); got != same {
			t.Errorf("%s: hash %s, want %s", name, got, same)
		}
	}
	for name, change := range map[string]func(*cloud.LaunchRequest){
		"token":         func(r *cloud.LaunchRequest) { r.Token = "other" },
		"claim":         func(r *cloud.LaunchRequest) { r.Claim.UID = "other" },
		"instance type": func(r *cloud.LaunchRequest) { r.InstanceType = "p5.4xlarge" },
		"zone":          func(r *cloud.LaunchRequest) { r.Zone = "us-east-1b" },
		"capacity type": func(r *cloud.LaunchRequest) { r.CapacityType = v1alpha1.CapacityTypeSpot },
		"image":         func(r *cloud.LaunchRequest) { r.Image = "ami-0b" },
		"label":         func(r *cloud.LaunchRequest) { r.Labels["a"] = "b" },
		"taint":         func(r *cloud.LaunchRequest) { r.Taints[0].Effect = corev1.TaintEffectNoExecute },
		"volume":        func(r *cloud.LaunchRequest) { r.Class.Spec.Cloud.AWS.RootVolume.SizeGiB = 201 },
	} {
		if got := hashOf(change); got == same {
			t.Errorf("%s: the hash did not change", name)
		}
	}
}

func TestNew_SaysWhatIsMissing(t *testing.T) {
	setEnv(t, "http://127.0.0.1:1")
	if _, err := New(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "--cluster-name") {
		t.Errorf("without a cluster: %v, want a word about --cluster-name", err)
	}
	t.Setenv("AWS_REGION", "")
	if _, err := New(t.Context(), Options{Cluster: "prod"}); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v, want a word about AWS_REGION", err)
	}
}

// formOf returns a Query request's parameters, and fails the test on one that is given twice.
func formOf(t *testing.T, c call) map[string]string {
	t.Helper()
	out := make(map[string]string, len(c.form))
	for key, values := range c.form {
		if len(values) != 1 {
			t.Errorf("parameter %s has %d values", key, len(values))
		}
		out[key] = values[0]
	}
	return out
}

func userDataOnTheWire(t *testing.T, c call) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(c.form.Get("UserData"))
	if err != nil {
		t.Fatal(errors.Join(errors.New("UserData is not base64"), err))
	}
	return raw
}
