package region_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

const (
	image   = "ami-0a1b2c3d4e5f60001"
	group   = "sg-0a1b2c3d4e5f60001"
	subnetA = "subnet-0a1b2c3d4e5f60001"
	subnetB = "subnet-0a1b2c3d4e5f60002"
	subnetC = "subnet-0a1b2c3d4e5f60003"
)

// place is a region of books only, met by the SDK as the product meets it: through the environment.
type place struct {
	*region.Region
	t   *testing.T
	aws aws.Config
	ec2 *ec2.Client
}

func start(t *testing.T) *place {
	t.Helper()
	r, err := region.Start(t.Context(), region.Config{Dir: t.TempDir(), Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	t.Setenv("AWS_ENDPOINT_URL", r.Endpoint())
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRetryMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	return &place{Region: r, t: t, aws: cfg, ec2: ec2.NewFromConfig(cfg)}
}

// request is a launch that the region takes; edits change it.
func request(edits ...func(*ec2.RunInstancesInput)) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		ClientToken: aws.String("token-1"), ImageId: aws.String(image), InstanceType: "g6.xlarge",
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: aws.String(subnetA), SecurityGroupIds: []string{group},
		IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String("gpufleet-node")},
		UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte("hello"))),
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{Key: aws.String("of"), Value: aws.String("the volume")}}},
			{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{
				{Key: aws.String("gpufleet.dev/nodeclaim"), Value: aws.String("claim-1")},
				{Key: aws.String("gpufleet.dev/nodeclaim-uid"), Value: aws.String("uid-1")},
			}},
		},
	}
	for _, edit := range edits {
		edit(in)
	}
	return in
}

func token(value string) func(*ec2.RunInstancesInput) {
	return func(in *ec2.RunInstancesInput) { in.ClientToken = aws.String(value) }
}

func inSubnet(id string) func(*ec2.RunInstancesInput) {
	return func(in *ec2.RunInstancesInput) { in.SubnetId = aws.String(id) }
}

func ofType(name types.InstanceType) func(*ec2.RunInstancesInput) {
	return func(in *ec2.RunInstancesInput) { in.InstanceType = name }
}

func onSpot(in *ec2.RunInstancesInput) {
	in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
}

// run launches, and fails the test where that is refused.
func (p *place) run(edits ...func(*ec2.RunInstancesInput)) types.Instance {
	p.t.Helper()
	out, err := p.ec2.RunInstances(p.t.Context(), request(edits...))
	if err != nil {
		p.t.Fatal(err)
	}
	return out.Instances[0]
}

// code is the code of an error as AWS told it, "" for no error.
func code(err error) string {
	var api smithy.APIError
	if err != nil && !errors.As(err, &api) {
		return "not of the API: " + err.Error()
	}
	if err == nil {
		return ""
	}
	return api.ErrorCode()
}

// admin calls the admin port and returns status and body.
func (p *place) admin(method, path string, body any) (int, []byte) {
	p.t.Helper()
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			p.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.AdminURL()+path, bytes.NewReader(payload))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, out
}

// read reads a list of the admin port.
func read[T any](p *place, path string) T {
	p.t.Helper()
	status, body := p.admin(http.MethodGet, path, nil)
	var out T
	if err := json.Unmarshal(body, &out); err != nil || status != http.StatusOK {
		p.t.Fatalf("GET %s: status %d, %v: %s", path, status, err, body)
	}
	return out
}

func (p *place) row(id string) region.Instance {
	p.t.Helper()
	for _, row := range read[[]region.Instance](p, "/v1/instances") {
		if row.ID == id {
			return row
		}
	}
	p.t.Fatalf("instance %s is not in the books", id)
	return region.Instance{}
}

func (p *place) called(operation, result string) int {
	p.t.Helper()
	for _, call := range read[[]region.Call](p, "/v1/calls") {
		if call.Operation == operation && call.Code == result {
			return call.Count
		}
	}
	return 0
}

// eventually waits for a condition, at most 10 s.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited 10 s for this: %s", what)
		case <-tick.C:
		}
	}
}

func TestStop_MayBeCalledTwiceAndEndsHeldAnswers(t *testing.T) {
	p := start(t)
	p.admin(http.MethodPut, "/v1/faults/hold-response", map[string]any{"operation": "RunInstances", "seconds": 3600})
	answered := make(chan error, 1)
	go func() {
		_, err := p.ec2.RunInstances(context.WithoutCancel(t.Context()), request())
		answered <- err
	}()
	eventually(t, "the launch takes effect", func() bool { return p.called("RunInstances", "OK") == 1 })
	p.Stop()
	p.Stop()
	select {
	case err := <-answered:
		t.Logf("the held call ended with: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the held call had no end 10 s after Stop")
	}
}

func TestStart_SaysWhichKubeconfigCannotBeRead(t *testing.T) {
	_, err := region.Start(t.Context(), region.Config{Dir: t.TempDir(), Kubeconfig: "/no/such/kubeconfig"})
	if err == nil || !strings.Contains(err.Error(), "/no/such/kubeconfig") {
		t.Fatalf("Start: got %v, want an error that names the file", err)
	}
}
