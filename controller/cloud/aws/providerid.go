package aws

import (
	"fmt"
	"strings"
)

// providerScheme begins what the AWS cloud provider writes into Node.spec.providerID.
// Source: https://github.com/kubernetes/cloud-provider-aws, pkg/providers/v1/instances.go.
const providerScheme = "aws:///"

// ProviderID is the Node.spec.providerID of an instance: aws:///us-east-1a/i-0123456789abcdef0.
func ProviderID(zone, id string) string {
	return providerScheme + zone + "/" + id
}

// ParseProviderID returns the zone and the instance id of a Node.spec.providerID.
func ParseProviderID(providerID string) (zone, id string, err error) {
	rest, ok := strings.CutPrefix(providerID, providerScheme)
	if ok {
		zone, id, ok = strings.Cut(rest, "/")
	}
	if !ok || zone == "" || !strings.HasPrefix(id, "i-") || len(id) == len("i-") || strings.Contains(id, "/") {
		return "", "", fmt.Errorf("providerID %q is not an EC2 instance: want %s<zone>/i-<hex>", providerID, providerScheme)
	}
	return zone, id, nil
}
