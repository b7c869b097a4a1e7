package region

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goodNodeConfig = `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://127.0.0.1:6443
    certificateAuthority: Y2E=
    cidr: 10.96.0.0/16
  kubelet:
    config:
      maxPods: 50
      registerWithTaints:
        - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
        - {key: karpenter.sh/unregistered, effect: NoExecute}
    flags:
      - --node-labels=gpufleet.dev/pool=inference,karpenter.sh/capacity-type=on-demand
  featureGates:
    InstanceIdNodeName: true
`

// multipartData joins parts, each "content type\n\nbody".
func multipartData(parts ...string) []byte {
	var out strings.Builder
	out.WriteString("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"BOUNDARY\"\r\n\r\n")
	for _, part := range parts {
		out.WriteString("--BOUNDARY\r\nContent-Type: " + part + "\r\n")
	}
	out.WriteString("--BOUNDARY--\r\n")
	return []byte(out.String())
}

func nodeConfigPart(yaml string) string { return "application/node.eks.aws\r\n\r\n" + yaml }

// overlay is a second part that sets only what it is given.
func overlay(spec string) string {
	return nodeConfigPart("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n" + spec)
}

type understood struct {
	Cluster, Node string
	Labels        map[string]string
	Taints        []string
	MaxPods       int
}

func understand(t *testing.T, data []byte) understood {
	t.Helper()
	config, err := parseUserData(data)
	if err != nil {
		t.Fatal(err)
	}
	node, err := newNode(row(t, "g6.xlarge"), &config)
	if err != nil {
		t.Fatal(err)
	}
	out := understood{Cluster: config.Cluster.Name, Node: node.Name, Labels: map[string]string{}}
	for key, value := range node.Labels {
		if !strings.Contains(key, "kubernetes.io/") {
			out.Labels[key] = value
		}
	}
	for _, taint := range node.Spec.Taints {
		out.Taints = append(out.Taints, taint.ToString())
	}
	out.MaxPods = int(node.Status.Capacity.Pods().Value())
	return out
}

func TestUserData_IsUnderstoodAsNodeadmDoes(t *testing.T) {
	base := understood{
		Cluster: "demo", Node: "i-0123456789abcdef0",
		Labels:  map[string]string{"gpufleet.dev/pool": "inference", "karpenter.sh/capacity-type": "on-demand"},
		Taints:  []string{"node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule", "nvidia.com/gpu=present:NoSchedule", "karpenter.sh/unregistered:NoExecute"},
		MaxPods: 50,
	}
	but := func(edit func(*understood)) understood {
		out := base
		edit(&out)
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want understood
	}{
		"one part":             {multipartData(nodeConfigPart(goodNodeConfig)), base},
		"no multipart":         {[]byte(goodNodeConfig), base},
		"a script beside it":   {multipartData("text/x-shellscript; charset=us-ascii\r\n\r\n#!/bin/sh\necho hello", nodeConfigPart(goodNodeConfig)), base},
		"media type parameter": {multipartData("application/node.eks.aws; charset=utf-8\r\n\r\n" + goodNodeConfig), base},
		"later part wins": {
			multipartData(nodeConfigPart(goodNodeConfig), overlay("  cluster: {name: other}\n  kubelet: {config: {maxPods: 20}}\n")),
			but(func(u *understood) { u.Cluster, u.MaxPods = "other", 20 }),
		},
		"taints are replaced, not added": {
			multipartData(nodeConfigPart(goodNodeConfig), overlay("  kubelet: {config: {registerWithTaints: [{key: a, effect: NoSchedule}]}}\n")),
			but(func(u *understood) { u.Taints = []string{base.Taints[0], "a:NoSchedule"} }),
		},
		"flags are added, and the later label wins": {
			multipartData(nodeConfigPart(goodNodeConfig), overlay("  kubelet: {flags: ['--node-labels=gpufleet.dev/pool=batch', '--node-labels x=y']}\n")),
			but(func(u *understood) {
				u.Labels = map[string]string{"gpufleet.dev/pool": "batch", "karpenter.sh/capacity-type": "on-demand", "x": "y"}
			}),
		},
		"private DNS name": {
			multipartData(nodeConfigPart(goodNodeConfig), overlay("  featureGates: {InstanceIdNodeName: false}\n")),
			but(func(u *understood) { u.Node = "ip-10-0-0-4.ec2.internal" }),
		},
		"the kubelet's flag goes before its configuration": {
			multipartData(nodeConfigPart(goodNodeConfig), overlay("  kubelet: {flags: ['--register-with-taints=b=c:NoExecute']}\n")),
			but(func(u *understood) { u.Taints = []string{base.Taints[0], "b=c:NoExecute"} }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, understand(t, c.data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUserData_BrokenIsSaidInNodeadmsWords(t *testing.T) {
	without := func(line string) []byte {
		return multipartData(nodeConfigPart(strings.Replace(goodNodeConfig, line, "", 1)))
	}
	replaced := func(from, to string) []byte {
		return multipartData(nodeConfigPart(strings.Replace(goodNodeConfig, from, to, 1)))
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"none":             {nil, "there is no user data"},
		"blank":            {[]byte(" \n"), "there is no user data"},
		"only a script":    {multipartData("text/x-shellscript\r\n\r\necho"), "could not find NodeConfig within UserData"},
		"a script alone":   {[]byte("#!/bin/sh\necho"), "decode NodeConfig"},
		"no YAML":          {multipartData(nodeConfigPart("\tnot: yaml")), "decode NodeConfig"},
		"other kind":       {replaced("kind: NodeConfig", "kind: Config"), `no kind "Config"`},
		"other version":    {replaced("v1alpha1", "v9"), `version "node.eks.aws/v9"`},
		"no name":          {without("    name: demo\n"), "Name is missing in cluster configuration"},
		"no endpoint":      {without("    apiServerEndpoint: https://127.0.0.1:6443\n"), "Apiserver endpoint is missing in cluster configuration"},
		"no CA":            {without("    certificateAuthority: Y2E=\n"), "Certificate authority is missing in cluster configuration"},
		"CA not in base64": {replaced("Y2E=", "'%'"), "illegal base64"},
		"no CIDR":          {without("    cidr: 10.96.0.0/16\n"), "CIDR is missing in cluster configuration"},
		"CIDR is none":     {replaced("10.96.0.0/16", "10.96.0.0"), "invalid CIDR address"},
		"unended part":     {[]byte("Content-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nContent-Type: application/node.eks.aws\r\n\r\nx"), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseUserData(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestUserData_BrokenKubeletSettingsStopTheKubelet(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"label without value":  {"  kubelet: {flags: ['--node-labels=broken']}\n", "malformed pair"},
		"taints are no list":   {"  kubelet: {config: {registerWithTaints: none}}\n", "kubelet's configuration"},
		"taint without effect": {"  kubelet: {flags: ['--register-with-taints=a=b']}\n", "no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := parseUserData(multipartData(nodeConfigPart(goodNodeConfig), overlay(c.spec)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := newNode(row(t, "g6.xlarge"), &config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
