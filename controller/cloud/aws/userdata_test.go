package aws

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// parsedNodeConfig is written from nodeadm's documentation, not from our own type.
type parsedNodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority []byte `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Kubelet struct {
			Config map[string]any `json:"config"`
			Flags  []string       `json:"flags"`
		} `json:"kubelet"`
		FeatureGates map[string]bool `json:"featureGates"`
	} `json:"spec"`
}

func TestUserData_IsTheGoldenFile(t *testing.T) {
	c, e := serve(t, xmlAnswer(200, runInstancesAnswer))
	if _, err := c.Launch(t.Context(), launch()); err != nil {
		t.Fatal(err)
	}
	got := userDataOnTheWire(t, e.received()[0])
	want, err := os.ReadFile("testdata/userdata.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.ReplaceAll(string(got), "\r\n", "\n")); diff != "" {
		t.Errorf("user data (-want +got):\n%s", diff)
	}
}

func TestUserData_IsReadAsOneNodeConfig(t *testing.T) {
	raw, err := userData(launch())
	if err != nil {
		t.Fatal(err)
	}
	var got parsedNodeConfig
	if err := yaml.UnmarshalStrict(onlyPart(t, raw), &got); err != nil {
		t.Fatalf("the NodeConfig does not parse: %v", err)
	}
	var want parsedNodeConfig
	want.APIVersion, want.Kind = "node.eks.aws/v1alpha1", "NodeConfig"
	want.Spec.Cluster.Name = "prod"
	want.Spec.Cluster.APIServerEndpoint = "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com"
	want.Spec.Cluster.CertificateAuthority = []byte("-----BEGIN CERTIFICATE-----\n")
	want.Spec.Cluster.CIDR = "172.20.0.0/16"
	want.Spec.Kubelet.Config = map[string]any{"registerWithTaints": []any{
		map[string]any{"key": "gpufleet.dev/unverified", "effect": "NoSchedule"},
		map[string]any{"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
		map[string]any{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
	}}
	want.Spec.Kubelet.Flags = []string{
		"--node-labels=gpufleet.dev/pool=inference,karpenter.sh/nodepool=inference-0,node.kubernetes.io/instance-type=p5.48xlarge",
	}
	want.Spec.FeatureGates = map[string]bool{"InstanceIdNodeName": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("NodeConfig (-want +got):\n%s", diff)
	}
}

// onlyPart reads a MIME document as cloud-init does and returns its one part.
func onlyPart(t *testing.T, raw []byte) []byte {
	t.Helper()
	message, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	mediaType, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/mixed" {
		t.Fatalf("content type %q (%v), want multipart/mixed", mediaType, err)
	}
	reader := multipart.NewReader(message.Body, params["boundary"])
	part, err := reader.NextRawPart()
	if err != nil {
		t.Fatal(err)
	}
	if got := part.Header.Get("Content-Type"); got != "application/node.eks.aws" {
		t.Errorf("the part is of type %q, want application/node.eks.aws", got)
	}
	body, err := io.ReadAll(part)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.NextRawPart(); err != io.EOF {
		t.Errorf("after the first part: %v, want the end", err)
	}
	return body
}

func TestUserData_TakesWhatFitsAndNotAByteMore(t *testing.T) {
	req := launch()
	fixed, err := userData(req)
	if err != nil {
		t.Fatal(err)
	}
	room := 16384 - len(fixed)
	ca := &req.Class.Spec.Cloud.AWS.Cluster.CertificateAuthority
	*ca += strings.Repeat("A", room)
	if raw, err := userData(req); err != nil || len(raw) != 16384 {
		t.Errorf("at the limit: %d bytes, %v; want 16384 and no error", len(raw), err)
	}
	*ca += "A"
	_, err = userData(req)
	if err == nil || !strings.Contains(err.Error(), "GPUNodeClass h100-mig is 16385 bytes, and EC2 takes at most 16384") {
		t.Errorf("one byte over: %v, want an error with both numbers", err)
	}
}

// The kubelet ends at once with "unknown 'kubernetes.io' or 'k8s.io' labels" when it is told one that it may not set.
func TestUserData_LeavesOutLabelsThatTheKubeletRefuses(t *testing.T) {
	got := nodeLabels(map[string]string{
		"topology.kubernetes.io/zone":         "us-east-1a",
		"topology.k8s.aws/zone-id":            "use1-az1",
		"node-role.kubernetes.io/gpu":         "",
		"node-restriction.kubernetes.io/team": "a",
		"x.node.kubernetes.io/y":              "1",
		"kubelet.kubernetes.io/z":             "2",
		"k8s.io/cloud-provider":               "aws",
		"nvidia.com/device-plugin.config":     "inference",
		"plain":                               "p",
	})
	const want = "kubelet.kubernetes.io/z=2,nvidia.com/device-plugin.config=inference,plain=p," +
		"topology.k8s.aws/zone-id=use1-az1,topology.kubernetes.io/zone=us-east-1a,x.node.kubernetes.io/y=1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := nodeLabels(nil); got != "" {
		t.Errorf("no labels gave %q", got)
	}
}
