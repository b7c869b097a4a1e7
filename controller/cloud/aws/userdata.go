package aws

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

const (
	// maxUserData is EC2's limit on user data, before base64.
	// Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html.
	maxUserData = 16384
	// boundary is fixed: a random one would make each request's bytes differ, and a replay with the same token would be
	// refused as another request.
	boundary = "GPUFLEET"
)

// nodeConfig is what AL2023's nodeadm reads: node.eks.aws/v1alpha1, those of its fields that we set.
// Source: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/.
type nodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Spec       nodeConfigSpec `json:"spec"`
}

type nodeConfigSpec struct {
	Cluster      nodeCluster     `json:"cluster"`
	Kubelet      nodeKubelet     `json:"kubelet"`
	FeatureGates map[string]bool `json:"featureGates"`
}

type nodeCluster struct {
	Name                 string `json:"name"`
	APIServerEndpoint    string `json:"apiServerEndpoint"`
	CertificateAuthority string `json:"certificateAuthority"`
	CIDR                 string `json:"cidr"`
}

type nodeKubelet struct {
	Config kubeletConfig `json:"config"`
	Flags  []string      `json:"flags,omitempty"`
}

// kubeletConfig is part of kubelet.config.k8s.io/v1beta1 KubeletConfiguration.
type kubeletConfig struct {
	RegisterWithTaints []corev1.Taint `json:"registerWithTaints,omitempty"`
}

// userData is the machine's boot configuration. It holds no secret: whoever may read the instance's attributes, and every
// pod on the host's network, can read it.
func userData(req cloud.LaunchRequest) ([]byte, error) {
	body, err := yaml.Marshal(newNodeConfig(req.Class.Spec.Cloud.AWS.Cluster, req))
	if err != nil {
		return nil, fmt.Errorf("encoding the NodeConfig: %w", err)
	}
	out, err := mimeArchive("application/node.eks.aws", body)
	if err != nil {
		return nil, err
	}
	if len(out) > maxUserData {
		return nil, fmt.Errorf("user data of GPUNodeClass %s is %d bytes, and EC2 takes at most %d: "+
			"shorten spec.cloud.aws.cluster.certificateAuthority (%d bytes) or the pool's labels and taints (%d and %d of them)",
			req.Class.Name, len(out), maxUserData,
			len(req.Class.Spec.Cloud.AWS.Cluster.CertificateAuthority), len(req.Labels), len(req.Taints))
	}
	return out, nil
}

func newNodeConfig(cluster v1alpha1.ClusterSpec, req cloud.LaunchRequest) nodeConfig {
	var flags []string
	if labels := nodeLabels(req.Labels); labels != "" {
		flags = append(flags, "--node-labels="+labels)
	}
	return nodeConfig{
		APIVersion: "node.eks.aws/v1alpha1",
		Kind:       "NodeConfig",
		Spec: nodeConfigSpec{
			Cluster: nodeCluster{
				Name:                 cluster.Name,
				APIServerEndpoint:    cluster.Endpoint,
				CertificateAuthority: cluster.CertificateAuthority,
				CIDR:                 cluster.ServiceCIDR,
			},
			Kubelet: nodeKubelet{Config: kubeletConfig{RegisterWithTaints: sortedTaints(req.Taints)}, Flags: flags},
			// The node's name is the instance's id: no private DNS name to guess, and the node's role need not describe
			// instances.
			FeatureGates: map[string]bool{"InstanceIdNodeName": true},
		},
	}
}

// nodeLabels is the value of the kubelet's --node-labels, sorted. Labels that the kubelet may not set on itself are left
// out, because it refuses to start with one; Karpenter puts them on the node when it registers.
func nodeLabels(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if kubeletMaySet(key) {
			pairs = append(pairs, key+"="+labels[key])
		}
	}
	return strings.Join(pairs, ",")
}

// kubeletLabels are those in Kubernetes' own domains that a kubelet may set beside the namespaces kubelet.kubernetes.io and
// node.kubernetes.io. Source: https://github.com/kubernetes/kubelet, pkg/apis/well_known_labels.go.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
	corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

func kubeletMaySet(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found || !(within(namespace, "kubernetes.io") || within(namespace, "k8s.io")) {
		return true
	}
	return slices.Contains(kubeletLabels, key) ||
		within(namespace, corev1.LabelNamespaceSuffixKubelet) || within(namespace, corev1.LabelNamespaceSuffixNode)
}

func within(namespace, domain string) bool {
	return namespace == domain || strings.HasSuffix(namespace, "."+domain)
}

func sortedTaints(taints []corev1.Taint) []corev1.Taint {
	return slices.SortedFunc(slices.Values(taints), func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
}

// mimeArchive wraps one part as the multipart document that nodeadm and cloud-init read.
func mimeArchive(contentType string, body []byte) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=%q\r\n\r\n", boundary)
	writer := multipart.NewWriter(&out)
	if err := writer.SetBoundary(boundary); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	part, err := writer.CreatePart(textproto.MIMEHeader{"Content-Type": {contentType}})
	if err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	if _, err := part.Write(body); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	return out.Bytes(), nil
}
