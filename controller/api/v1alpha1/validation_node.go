package v1alpha1

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// What follows goes beyond the CRDs: rules of nodes, which the API server would refuse only when it is too late, on an
// object of Karpenter or at the boot of a machine that is paid for.

// ownDomains are those whose labels gpufleet and what it drives set, and taintDomains those of taints, subdomains too: of
// NVIDIA's only nvidia.com/gpu is ours. kubeletDomains are those that only Kubernetes may set on a node.
var (
	ownDomains     = []string{Group, "karpenter.sh", "nvidia.com"}
	taintDomains   = []string{Group, "karpenter.sh"}
	kubeletDomains = []string{"kubernetes.io", "k8s.io"}
)

// restrictionDomain is the one under kubernetes.io that is meant for users' labels.
const restrictionDomain = "node-restriction.kubernetes.io"

func (v *violations) nodeLabels(path string, labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		v.qualified(path, "label", key, labels[key])
		domain, _, found := strings.Cut(key, "/")
		if found && within(domain, ownDomains) && !hasAnyPrefix(key, ReservedPrefixes) {
			v.add(path, fmt.Sprintf("label %s: %s", key, MessageReservedLabels))
		}
		if found && within(domain, kubeletDomains) && domain != restrictionDomain {
			v.add(path, fmt.Sprintf("label %s: labels under kubernetes.io and k8s.io are Kubernetes' own; use %s for yours", key, restrictionDomain))
		}
	}
}

func (v *violations) nodeTaints(path string, taints []TaintSpec) {
	for i, taint := range taints {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.qualified(at, "taint", taint.Key, taint.Value)
		domain, _, found := strings.Cut(taint.Key, "/")
		if found && within(domain, taintDomains) && !hasAnyPrefix(taint.Key, ReservedTaintPrefixes) {
			v.add(at+".key", MessageReservedTaints)
		}
		if found && within(domain, kubeletDomains) {
			v.add(at+".key", fmt.Sprintf("taint %s: taints under kubernetes.io and k8s.io are Kubernetes' own", taint.Key))
		}
		for j := range i {
			if taints[j].Key == taint.Key && taints[j].Effect == taint.Effect {
				v.add(at, fmt.Sprintf("taint %s:%s is given twice", taint.Key, taint.Effect))
			}
		}
	}
}

// qualified holds a key and its value to Kubernetes' rules.
func (v *violations) qualified(path, kind, key, value string) {
	for _, problem := range validation.IsQualifiedName(key) {
		v.add(path, fmt.Sprintf("%s key %q: %s", kind, key, problem))
	}
	for _, problem := range validation.IsValidLabelValue(value) {
		v.add(path, fmt.Sprintf("%s %s has value %q: %s", kind, key, value, problem))
	}
}

// entries refuses two entries that name the same machines: each entry is a NodePool, named after them.
func (v *violations) entries(path string, machines []MachineSpec) {
	for i := range machines {
		for j := range i {
			if slices.Equal(slices.Sorted(slices.Values(machines[i].InstanceTypes)), slices.Sorted(slices.Values(machines[j].InstanceTypes))) {
				v.add(fmt.Sprintf("%s[%d].instanceTypes", path, i), fmt.Sprintf("entry %d names the same instance types", j))
			}
		}
	}
}

// wholeSeconds is what Karpenter's durations can say.
func (v *violations) wholeSeconds(path string, d time.Duration) {
	if d%time.Second != 0 {
		v.add(path, fmt.Sprintf("%s is not a whole number of seconds", d))
	}
}

// cluster holds what nodeadm reads at boot to its form: a node that cannot read it never joins, and is paid for.
func (v *violations) cluster(path string, cluster ClusterSpec) {
	if cluster.CertificateAuthority != "" && !isCertificate(cluster.CertificateAuthority) {
		v.add(path+".certificateAuthority", "is not the base64 of a PEM certificate, as a kubeconfig's certificate-authority-data is")
	}
	if cluster.ServiceCIDR == "" {
		return
	}
	if _, err := netip.ParsePrefix(cluster.ServiceCIDR); err != nil {
		v.add(path+".serviceCIDR", fmt.Sprintf("%q is not a CIDR such as 10.100.0.0/16", cluster.ServiceCIDR))
	}
}

func isCertificate(text string) bool {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	block, _ := pem.Decode(data)
	return block != nil && block.Type == "CERTIFICATE"
}

func within(domain string, domains []string) bool {
	return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

func sortedKeys(labels map[string]string) []string {
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
