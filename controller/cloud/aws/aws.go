// Package aws sells EC2 instances through the port in controller/cloud: one RunInstances call for one instance type in
// one zone, bought one way. It knows EC2's requests, error codes and user data, and nothing of Karpenter or Kubernetes
// clients. Where it is pointed at (region, credentials, endpoint) is the AWS SDK's default chain: nothing here is a switch
// for tests.
package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// userAgent names us in CloudTrail.
const userAgent = "gpufleet"

// httpTimeout bounds one HTTP exchange. Callers bound the whole call by its context; this is for an answer that never
// comes on a connection that stays open.
const httpTimeout = 30 * time.Second

// Options is what the environment cannot say.
type Options struct {
	// Cluster is the name that the instances' tag gpufleet.dev/cluster carries. Required.
	Cluster string
}

// Cloud launches and finds EC2 instances of one region. It is safe for concurrent use.
type Cloud struct {
	cluster string
	ec2     *ec2.Client
	ssm     *ssm.Client
}

var _ cloud.Cloud = (*Cloud)(nil)

// New connects to EC2 and SSM as the SDK's default chain says: region from AWS_REGION, credentials from the environment,
// IRSA or pod identity, endpoint from AWS_ENDPOINT_URL where it is set.
func New(ctx context.Context, opts Options) (*Cloud, error) {
	if opts.Cluster == "" {
		return nil, errors.New("no cluster name was given: instances could not be told from those of other clusters; " +
			"start the controller with --cluster-name")
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithAppID(userAgent),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(httpTimeout)),
	)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("no AWS region was found: set AWS_REGION")
	}
	return &Cloud{cluster: opts.Cluster, ec2: ec2.NewFromConfig(cfg), ssm: ssm.NewFromConfig(cfg)}, nil
}
