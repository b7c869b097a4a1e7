package aws

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// answer is one HTTP answer of the endpoint.
type answer func(w http.ResponseWriter, r *http.Request)

// endpoint answers each call with the next of its answers, the last again and again, and keeps what it was asked.
type endpoint struct {
	t       *testing.T
	answers []answer

	mu    sync.Mutex
	calls []call
}

// call is one request as it was on the wire.
type call struct {
	body      string
	form      url.Values
	target    string
	userAgent string
}

// serve starts an endpoint and a Cloud that finds it by the environment, as in production.
func serve(t *testing.T, answers ...answer) (*Cloud, *endpoint) {
	t.Helper()
	e := &endpoint{t: t, answers: answers}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return connect(t, server.URL), e
}

func connect(t *testing.T, url string) *Cloud {
	t.Helper()
	setEnv(t, url)
	c, err := New(t.Context(), Options{Cluster: "prod"})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

// setEnv is the SDK's whole environment, so that nothing of the machine that runs the test comes in.
func setEnv(t *testing.T, url string) {
	t.Helper()
	for key, value := range map[string]string{
		"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_DEFAULT_REGION": "", "AWS_MAX_ATTEMPTS": "", "AWS_RETRY_MODE": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "testdata/none", "AWS_SHARED_CREDENTIALS_FILE": "testdata/none",
	} {
		t.Setenv(key, value)
	}
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.t.Errorf("reading the request: %v", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		form = nil // SSM speaks JSON
	}
	e.mu.Lock()
	next := e.answers[min(len(e.calls), len(e.answers)-1)]
	e.calls = append(e.calls, call{string(body), form, r.Header.Get("X-Amz-Target"), r.UserAgent()})
	e.mu.Unlock()
	next(w, r)
}

func (e *endpoint) received() []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]call(nil), e.calls...)
}

// refusal is an error of the EC2 Query API.
func refusal(status int, code, message string) answer {
	return xmlAnswer(status, fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>ea966190-f9aa-478e-9ede-cb5432daacc0</RequestID></Response>`,
		code, message))
}

func xmlAnswer(status int, body string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func jsonAnswer(status int, body string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// class is a complete node class.
func class() *v1alpha1.GPUNodeClass {
	return &v1alpha1.GPUNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "h100-mig"},
		Spec: v1alpha1.GPUNodeClassSpec{Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets:         []string{"subnet-0a1b2c3d4e5f60002", "subnet-0a1b2c3d4e5f60001"},
			SecurityGroups:  []string{"sg-0b", "sg-0a"},
			InstanceProfile: "gpufleet-node",
			AMI:             v1alpha1.AMISpec{Family: v1alpha1.AMIFamilyAL2023, ID: "ami-0a1b2c3d4e5f60001"},
			RootVolume:      v1alpha1.RootVolumeSpec{SizeGiB: 200},
			Cluster: v1alpha1.ClusterSpec{
				Name:                 "prod",
				Endpoint:             "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com",
				CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
				ServiceCIDR:          "172.20.0.0/16",
			},
		}}},
	}
}

// launch is a complete launch of an on-demand machine.
func launch() cloud.LaunchRequest {
	return cloud.LaunchRequest{
		Token:        "5f0c3f0e-1-us-east-1a",
		Claim:        cloud.Claim{Name: "inference-0-x7k2p", UID: "5f0c3f0e-8d0c-4f5e-9a51-0c7d6e1f2a3b", NodePool: "inference-0", Pool: "inference"},
		Class:        class(),
		InstanceType: "p5.48xlarge",
		Zone:         "us-east-1a",
		CapacityType: v1alpha1.CapacityTypeOnDemand,
		Image:        "ami-0a1b2c3d4e5f60001",
		Subnet:       "subnet-0a1b2c3d4e5f60001",
		Labels: map[string]string{
			"karpenter.sh/nodepool":            "inference-0",
			"gpufleet.dev/pool":                "inference",
			"node.kubernetes.io/instance-type": "p5.48xlarge",
		},
		Taints: []corev1.Taint{
			{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule},
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
			{Key: "gpufleet.dev/unverified", Effect: corev1.TaintEffectNoSchedule},
		},
	}
}
