package region

import (
	"fmt"
	"slices"
)

// What an account finds in this region before it has done anything. The ids are constants so that examples may name them.
const (
	regionName = "us-east-1"
	accountID  = "111122223333"
	vpcID      = "vpc-0a1b2c3d4e5f60001"

	securityGroupID = "sg-0a1b2c3d4e5f60001"
	imageID         = "ami-0a1b2c3d4e5f60001"
	imageName       = "amazon-eks-node-al2023-x86_64-nvidia-1.36-v20260917"
	instanceProfile = "gpufleet-node"
	// imageParameter is where EKS publishes its newest image with NVIDIA's driver.
	imageParameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
)

// Capacity types, in the region's own words.
const (
	onDemand = "on-demand"
	spot     = "spot"
)

// subnet is one of the default subnets: one a zone.
type subnet struct {
	ID, Zone, ZoneID, CIDR string
	// Octet is the third of the subnet's first address: 10.0.Octet.0/20.
	Octet int
}

func subnets() []subnet {
	return []subnet{
		{ID: "subnet-0a1b2c3d4e5f60001", Zone: "us-east-1a", ZoneID: "use1-az1", CIDR: "10.0.0.0/20", Octet: 0},
		{ID: "subnet-0a1b2c3d4e5f60002", Zone: "us-east-1b", ZoneID: "use1-az2", CIDR: "10.0.16.0/20", Octet: 16},
		{ID: "subnet-0a1b2c3d4e5f60003", Zone: "us-east-1c", ZoneID: "use1-az4", CIDR: "10.0.32.0/20", Octet: 32},
	}
}

func lookupSubnet(match func(subnet) bool) (subnet, bool) {
	all := subnets()
	if i := slices.IndexFunc(all, match); i >= 0 {
		return all[i], true
	}
	return subnet{}, false
}

// address is the nth address that the subnet gives out. AWS keeps the first four of a subnet; the last is the broadcast.
func (s subnet) address(n int) string {
	host := 4 + n%(4096-5)
	return fmt.Sprintf("10.0.%d.%d", s.Octet+host/256, host%256)
}
