package aws

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// quotas are the vCPU quotas that GPU instances count against, the first whose prefix fits. EC2's refusal does not say
// which it was. The spot quota of the P6 family is not among them: public sources disagree about it.
// Source: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html.
var quotas = []struct {
	capacityType v1alpha1.CapacityType
	prefixes     []string
	code, name   string
}{
	{v1alpha1.CapacityTypeOnDemand, []string{"p"}, "L-417A185B", "Running On-Demand P instances"},
	{v1alpha1.CapacityTypeOnDemand, []string{"g", "vt"}, "L-DB2E81BA", "Running On-Demand G and VT instances"},
	{v1alpha1.CapacityTypeSpot, []string{"p2.", "p3", "p4"}, "L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"},
	{v1alpha1.CapacityTypeSpot, []string{"p5"}, "L-C4BD4855", "All P5 Spot Instance Requests"},
	{v1alpha1.CapacityTypeSpot, []string{"g", "vt"}, "L-3819A6DF", "All G and VT Spot Instance Requests"},
}

// withQuota adds the instance type and the quota that it counts against to the message of a vCPU quota error.
func withQuota(err error, instanceType string, capacityType v1alpha1.CapacityType) error {
	var refused *cloud.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Code != "VcpuLimitExceeded" && refused.Code != "MaxSpotInstanceCountExceeded" {
		return err
	}
	asked := fmt.Sprintf("%s, %s", instanceType, capacityType)
	for _, quota := range quotas {
		if quota.capacityType == capacityType && hasAnyPrefix(instanceType, quota.prefixes) {
			asked += fmt.Sprintf(": quota %s, %s", quota.code, quota.name)
			break
		}
	}
	refused.Message += " (" + asked + ")"
	return err
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}
