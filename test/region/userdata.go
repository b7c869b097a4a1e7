package region

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net"
	"net/mail"
	"strings"

	"sigs.k8s.io/yaml"
)

// What follows reads user data as nodeadm of the EKS images does: awslabs/amazon-eks-ami, nodeadm/internal/configprovider
// (parts), nodeadm/internal/api/merge.go and validation.go.

const (
	nodeConfigMediaType  = "application/node.eks.aws"
	nodeConfigAPIVersion = "node.eks.aws/v1alpha1"
	nodeConfigKind       = "NodeConfig"
	// featureInstanceIDNodeName makes the instance's id the node's name.
	featureInstanceIDNodeName = "InstanceIdNodeName"
)

// nodeConfig is a NodeConfig, as far as this region's machines look.
type nodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Spec       nodeConfigSpec `json:"spec"`
}

type nodeConfigSpec struct {
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
}

// parseUserData returns the NodeConfig that user data adds up to: several parts merge in order, later ones win.
func parseUserData(data []byte) (nodeConfigSpec, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nodeConfigSpec{}, errors.New("there is no user data")
	}
	parts, err := nodeConfigParts(data)
	if err != nil {
		return nodeConfigSpec{}, err
	}
	if len(parts) == 0 {
		return nodeConfigSpec{}, errors.New("could not find NodeConfig within UserData")
	}
	var merged nodeConfigSpec
	for _, part := range parts {
		decoded, err := decodeNodeConfig(part)
		if err != nil {
			return nodeConfigSpec{}, err
		}
		merged.merge(decoded)
	}
	return merged, merged.validate()
}

// nodeConfigParts finds the documents of type application/node.eks.aws; user data that is not multipart is one itself.
func nodeConfigParts(data []byte) ([][]byte, error) {
	reader := multipartReader(data)
	if reader == nil {
		return [][]byte{data}, nil
	}
	var out [][]byte
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the parts of the user data: %w", err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("read a part of the user data: %w", err)
		}
		mediaType, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err == nil && mediaType == nodeConfigMediaType {
			out = append(out, body)
		}
	}
}

func multipartReader(data []byte) *multipart.Reader {
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(mediaType, "multipart/") {
		return nil
	}
	return multipart.NewReader(message.Body, params["boundary"])
}

func decodeNodeConfig(data []byte) (nodeConfigSpec, error) {
	var config nodeConfig
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nodeConfigSpec{}, fmt.Errorf("decode NodeConfig: %w", err)
	}
	if config.Kind != nodeConfigKind || config.APIVersion != nodeConfigAPIVersion {
		return nodeConfigSpec{}, fmt.Errorf("decode NodeConfig: no kind %q is registered for version %q: want %s of %s",
			config.Kind, config.APIVersion, nodeConfigKind, nodeConfigAPIVersion)
	}
	return config.Spec, nil
}

// merge lays later over s: what is set wins, flags are added, the kubelet's configuration is merged by key.
func (s *nodeConfigSpec) merge(later nodeConfigSpec) {
	override(&s.Cluster.Name, later.Cluster.Name)
	override(&s.Cluster.APIServerEndpoint, later.Cluster.APIServerEndpoint)
	override(&s.Cluster.CIDR, later.Cluster.CIDR)
	if len(later.Cluster.CertificateAuthority) > 0 {
		s.Cluster.CertificateAuthority = later.Cluster.CertificateAuthority
	}
	s.Kubelet.Flags = append(s.Kubelet.Flags, later.Kubelet.Flags...)
	s.Kubelet.Config = mergeMaps(s.Kubelet.Config, later.Kubelet.Config)
	if s.FeatureGates == nil {
		s.FeatureGates = map[string]bool{}
	}
	maps.Copy(s.FeatureGates, later.FeatureGates)
}

func override(value *string, later string) {
	if later != "" {
		*value = later
	}
}

func mergeMaps(base, later map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range later {
		under, isMap := value.(map[string]any)
		before, wasMap := out[key].(map[string]any)
		if isMap && wasMap {
			value = mergeMaps(before, under)
		}
		out[key] = value
	}
	return out
}

// validate says what nodeadm says of a cluster that is not complete.
func (s *nodeConfigSpec) validate() error {
	switch {
	case s.Cluster.Name == "":
		return errors.New("Name is missing in cluster configuration") //nolint:staticcheck // nodeadm's words
	case s.Cluster.APIServerEndpoint == "":
		return errors.New("Apiserver endpoint is missing in cluster configuration") //nolint:staticcheck // nodeadm's words
	case len(s.Cluster.CertificateAuthority) == 0:
		return errors.New("Certificate authority is missing in cluster configuration") //nolint:staticcheck // nodeadm's words
	case s.Cluster.CIDR == "":
		return errors.New("CIDR is missing in cluster configuration")
	}
	if _, _, err := net.ParseCIDR(s.Cluster.CIDR); err != nil {
		return fmt.Errorf("derive the cluster's DNS address: %w", err)
	}
	return nil
}

// kubeletTaint is a taint as the kubelet's configuration and its flag spell it.
type kubeletTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// labels are what --node-labels adds up to: the flag may be given several times.
func (s *nodeConfigSpec) labels() (map[string]string, error) {
	out := map[string]string{}
	for _, list := range s.flag("node-labels") {
		for _, pair := range strings.Split(list, ",") {
			key, value, found := strings.Cut(strings.TrimSpace(pair), "=")
			if !found || key == "" {
				return nil, fmt.Errorf("kubelet flag --node-labels: malformed pair %q, expected string=string", pair)
			}
			out[key] = value
		}
	}
	return out, nil
}

// taints are the kubelet configuration's registerWithTaints; the flag --register-with-taints goes before it.
func (s *nodeConfigSpec) taints() ([]kubeletTaint, error) {
	if flags := s.flag("register-with-taints"); len(flags) > 0 {
		return parseTaintFlag(flags[len(flags)-1])
	}
	var out struct {
		Taints []kubeletTaint `json:"registerWithTaints"`
	}
	if err := s.kubeletConfig(&out); err != nil {
		return nil, err
	}
	return out.Taints, nil
}

// maxPods is the kubelet's limit, or the type's own where nobody set one.
func (s *nodeConfigSpec) maxPods(typeDefault int) (int, error) {
	var out struct {
		MaxPods int `json:"maxPods"`
	}
	if err := s.kubeletConfig(&out); err != nil {
		return 0, err
	}
	if out.MaxPods > 0 {
		return out.MaxPods, nil
	}
	return typeDefault, nil
}

func (s *nodeConfigSpec) kubeletConfig(into any) error {
	raw, err := json.Marshal(s.Kubelet.Config)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	return nil
}

// flag returns the values of every --name=value and --name value.
func (s *nodeConfigSpec) flag(name string) []string {
	var words, out []string
	for _, flag := range s.Kubelet.Flags {
		words = append(words, strings.Fields(flag)...)
	}
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			out = append(out, strings.Trim(value, `"'`))
		} else if word == "--"+name && i+1 < len(words) {
			out = append(out, words[i+1])
		}
	}
	return out
}

func parseTaintFlag(text string) ([]kubeletTaint, error) {
	var out []kubeletTaint
	for _, one := range strings.Split(text, ",") {
		keyValue, effect, found := strings.Cut(one, ":")
		if !found {
			return nil, fmt.Errorf("kubelet flag --register-with-taints: %q has no effect, expected key=value:effect", one)
		}
		key, value, _ := strings.Cut(keyValue, "=")
		out = append(out, kubeletTaint{Key: key, Value: value, Effect: effect})
	}
	return out, nil
}
