package v1alpha1_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// What Kubernetes says of names, of k8s.io/apimachinery/pkg/util/validation.
const (
	nameRule  = `name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`
	valueRule = `a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`
)

func TestValidateGPUNodePool_HoldsLabelsToTheRulesOfNodes(t *testing.T) {
	const (
		ours   = "labels under gpufleet.dev, karpenter.sh and nvidia.com are set by gpufleet"
		theirs = "labels under kubernetes.io and k8s.io are Kubernetes' own; use node-restriction.kubernetes.io for yours"
	)
	long := strings.Repeat("a", 64)
	for _, tc := range []struct {
		name, key, value string
		want             []string
	}{
		{"without a domain", "team", "search", nil},
		{"of the user's domain", "example.com/team", "Search_1.x", nil},
		{"without a value", "team", "", nil},
		{"as long as may be", "example.com/" + long[1:], long[1:], nil},
		{"a name with a space", "my team", "x", []string{`label key "my team": ` + nameRule}},
		{"no name", "example.com/", "x", []string{`label key "example.com/": name part must be non-empty`, `label key "example.com/": ` + nameRule}},
		{"a long name", long, "x", []string{`label key "` + long + `": name part must be no more than 63 bytes`}},
		{"a value with a space", "team", "my team", []string{`label team has value "my team": ` + valueRule}},
		{"a long value", "team", long, []string{`label team has value "` + long + `": must be no more than 63 bytes`}},
		{"of a domain below gpufleet's", "eu.gpufleet.dev/x", "y", []string{"label eu.gpufleet.dev/x: " + ours}},
		{"of a domain below Karpenter's", "compat.karpenter.sh/x", "y", []string{"label compat.karpenter.sh/x: " + ours}},
		{"of a domain below NVIDIA's", "gpu.nvidia.com/x", "y", []string{"label gpu.nvidia.com/x: " + ours}},
		{"of a domain that ends alike", "notnvidia.com/x", "y", nil},
		{"of Kubernetes", "kubernetes.io/hostname", "x", []string{"label kubernetes.io/hostname: " + theirs}},
		{"of a domain below Kubernetes'", "node-role.kubernetes.io/gpu", "", []string{"label node-role.kubernetes.io/gpu: " + theirs}},
		{"of the old domain", "k8s.io/x", "y", []string{"label k8s.io/x: " + theirs}},
		{"of a domain below the old one", "kops.k8s.io/x", "y", []string{"label kops.k8s.io/x: " + theirs}},
		{"of the domain that Kubernetes leaves to users", "node-restriction.kubernetes.io/team", "x", nil},
		{"named as a domain", "kubernetes.io", "x", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validPool()
			spec.Labels = map[string]string{tc.key: tc.value}
			compare(t, at("spec.labels", tc.want), v1alpha1.ValidateGPUNodePool(spec))
		})
	}
}

func at(path string, messages []string) []violation {
	var out []violation
	for _, each := range messages {
		out = append(out, violation{Path: path, Message: each})
	}
	return out
}

// A map has no order; what is said of it has.
func TestValidateGPUNodePool_SaysWhatIsWrongWithLabelsInTheirOrder(t *testing.T) {
	spec := validPool()
	spec.Labels = map[string]string{"d d": "", "a a": "", "c c": "", "b b": ""}
	want := at("spec.labels", []string{`label key "a a": ` + nameRule, `label key "b b": ` + nameRule, `label key "c c": ` + nameRule, `label key "d d": ` + nameRule})
	for range 20 {
		compare(t, want, v1alpha1.ValidateGPUNodePool(spec))
	}
}

func TestValidateGPUNodePool_HoldsTaintsToTheRulesOfNodes(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) v1alpha1.TaintSpec {
		return v1alpha1.TaintSpec{Key: key, Value: value, Effect: effect}
	}
	long := strings.Repeat("a", 64)
	for _, tc := range []struct {
		name   string
		taints []v1alpha1.TaintSpec
		want   []violation
	}{
		{"with a domain and a value", []v1alpha1.TaintSpec{taint("example.com/team", "search", "NoExecute")}, nil},
		{"under a subdomain of ours", []v1alpha1.TaintSpec{taint("sub.gpufleet.dev/x", "", "NoSchedule")},
			[]violation{{"spec.taints[0].key", "taints nvidia.com/gpu and those under gpufleet.dev and karpenter.sh are set by gpufleet"}}},
		{"one that the kubelet sets", []v1alpha1.TaintSpec{taint("node.kubernetes.io/unschedulable", "", "NoSchedule")},
			[]violation{{"spec.taints[0].key", "taint node.kubernetes.io/unschedulable: taints under kubernetes.io and k8s.io are Kubernetes' own"}}},
		{"a key with a space", []v1alpha1.TaintSpec{taint("my team", "", "NoSchedule")},
			[]violation{{"spec.taints[0]", `taint key "my team": ` + nameRule}}},
		{"a value with a space", []v1alpha1.TaintSpec{taint("ok", "", "NoSchedule"), taint("team", "my team", "NoSchedule")},
			[]violation{{"spec.taints[1]", `taint team has value "my team": ` + valueRule}}},
		{"a long value", []v1alpha1.TaintSpec{taint("team", long, "NoSchedule")}, []violation{
			{"spec.taints[0].value", "has 64 characters; at most 63 are allowed"},
			{"spec.taints[0]", `taint team has value "` + long + `": must be no more than 63 bytes`},
		}},
		{"one key, two effects", []v1alpha1.TaintSpec{taint("team", "a", "NoSchedule"), taint("team", "a", "NoExecute")}, nil},
		{"two keys, one effect", []v1alpha1.TaintSpec{taint("team", "a", "NoSchedule"), taint("org", "a", "NoSchedule")}, nil},
		// A node has at most one taint of a key and an effect, whatever their values.
		{"one key and effect, two values", []v1alpha1.TaintSpec{taint("team", "a", "NoSchedule"), taint("org", "", "NoSchedule"), taint("team", "b", "NoSchedule")},
			[]violation{{"spec.taints[2]", "taint team:NoSchedule is given twice"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validPool()
			spec.Taints = tc.taints
			compare(t, tc.want, v1alpha1.ValidateGPUNodePool(spec))
		})
	}
}

func TestValidateGPUNodePool_RefusesTwoEqualEntries(t *testing.T) {
	for _, tc := range []struct {
		name     string
		machines [][]string
		want     []violation
	}{
		{"a type in two entries", [][]string{{"p5.48xlarge"}, {"p5.48xlarge", "p5.4xlarge"}}, nil},
		{"the same", [][]string{{"p5.48xlarge"}, {"p5.4xlarge"}, {"p5.48xlarge"}},
			[]violation{{"spec.machines[2].instanceTypes", "entry 0 names the same instance types"}}},
		{"the same in another order", [][]string{{"p4d.24xlarge"}, {"p5.48xlarge", "p5.4xlarge"}, {"p5.4xlarge", "p5.48xlarge"}},
			[]violation{{"spec.machines[2].instanceTypes", "entry 1 names the same instance types"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validPool()
			spec.Machines = nil
			for _, types := range tc.machines {
				spec.Machines = append(spec.Machines, v1alpha1.MachineSpec{InstanceTypes: types})
			}
			compare(t, tc.want, v1alpha1.ValidateGPUNodePool(spec))
			for i, types := range tc.machines {
				if got := strings.Join(spec.Machines[i].InstanceTypes, " "); got != strings.Join(types, " ") {
					t.Errorf("entry %d became %s", i, got)
				}
			}
		})
	}
}

func TestValidateGPUNodePool_WantsWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration][]string{
		0:                       nil,
		90 * time.Second:        nil,
		168 * time.Hour:         nil,
		1500 * time.Millisecond: {"1.5s is not a whole number of seconds"},
		time.Nanosecond:         {"1ns is not a whole number of seconds"},
	} {
		t.Run(d.String(), func(t *testing.T) {
			spec := validPool()
			spec.Disruption = &v1alpha1.DisruptionSpec{ConsolidateAfter: &metav1.Duration{Duration: d}}
			compare(t, at("spec.disruption.consolidateAfter", want), v1alpha1.ValidateGPUNodePool(spec))
		})
	}
}

func TestValidateGPUNodeClass_WantsACertificateInBase64(t *testing.T) {
	const refused = "is not the base64 of a PEM certificate, as a kubeconfig's certificate-authority-data is"
	pem := func(kind string) string {
		return "-----BEGIN " + kind + "-----\nAAAA\n-----END " + kind + "-----\n"
	}
	base64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, tc := range []struct {
		name, authority string
		want            []string
	}{
		{"a certificate", base64(pem("CERTIFICATE")), nil},
		{"two certificates", base64(pem("CERTIFICATE") + pem("CERTIFICATE")), nil},
		{"a certificate as a file has it", pem("CERTIFICATE"), []string{refused}},
		{"a key", base64(pem("PRIVATE KEY")), []string{refused}},
		{"other text", base64("ca"), []string{refused}},
		{"a certificate, encoded twice", base64(base64(pem("CERTIFICATE"))), []string{refused}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validClass()
			spec.Cloud.AWS.Cluster.CertificateAuthority = tc.authority
			compare(t, at("spec.cloud.aws.cluster.certificateAuthority", tc.want), v1alpha1.ValidateGPUNodeClass(spec))
		})
	}
}

func TestValidateGPUNodeClass_WantsTheServicesCIDR(t *testing.T) {
	for cidr, want := range map[string][]string{
		"10.100.0.0/16": nil,
		"fd00:10::/108": nil,
		"":              {"must be given"},
		"10.100.0.1":    {`"10.100.0.1" is not a CIDR such as 10.100.0.0/16`},
		"10.100.0.0/33": {`"10.100.0.0/33" is not a CIDR such as 10.100.0.0/16`},
		"services":      {`"services" is not a CIDR such as 10.100.0.0/16`},
	} {
		t.Run(cidr, func(t *testing.T) {
			spec := validClass()
			spec.Cloud.AWS.Cluster.ServiceCIDR = cidr
			compare(t, at("spec.cloud.aws.cluster.serviceCIDR", want), v1alpha1.ValidateGPUNodeClass(spec))
		})
	}
}
