package region

import "slices"

type describeSubnetsReply struct {
	header
	Subnets   []xmlSubnet `xml:"subnetSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

type xmlSubnet struct {
	ID       string   `xml:"subnetId"`
	State    string   `xml:"state"`
	VPCID    string   `xml:"vpcId"`
	CIDR     string   `xml:"cidrBlock"`
	Free     int      `xml:"availableIpAddressCount"`
	Zone     string   `xml:"availabilityZone"`
	ZoneID   string   `xml:"availabilityZoneId"`
	OwnerID  string   `xml:"ownerId"`
	PublicIP bool     `xml:"mapPublicIpOnLaunch"`
	Tags     []xmlTag `xml:"tagSet>item"`
}

func (r *Region) describeSubnets(q query) (reply, *apiError) {
	ids := q.list("SubnetId")
	for _, id := range ids {
		if _, ok := lookupSubnet(func(s subnet) bool { return s.ID == id }); !ok {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	hits, failure := selected(subnets(), q, func(s subnet) bool { return len(ids) == 0 || slices.Contains(ids, s.ID) }, subnetAttributes)
	if failure != nil {
		return nil, failure
	}
	rows, next, failure := page(q, hits, 1000, byIndex)
	if failure != nil {
		return nil, failure
	}
	out := &describeSubnetsReply{NextToken: next}
	for _, s := range rows {
		out.Subnets = append(out.Subnets, xmlSubnet{
			ID: s.ID, State: "available", VPCID: vpcID, CIDR: s.CIDR, Free: 4091 - r.addressesIn(s),
			Zone: s.Zone, ZoneID: s.ZoneID, OwnerID: accountID,
		})
	}
	return out, nil
}

// addressesIn counts the instances that hold an address of the subnet.
func (r *Region) addressesIn(s subnet) int {
	n := 0
	for _, row := range r.books.all() {
		if row.subnet.ID == s.ID && row.state != stateTerminated {
			n++
		}
	}
	return n
}

func subnetAttributes(s subnet) attributes {
	return func(name string) ([]string, bool) {
		switch name {
		case "subnet-id":
			return []string{s.ID}, true
		case "vpc-id":
			return []string{vpcID}, true
		case "availability-zone", "availabilityZone":
			return []string{s.Zone}, true
		case "availability-zone-id", "availabilityZoneId":
			return []string{s.ZoneID}, true
		case "state":
			return []string{"available"}, true
		default:
			return nil, false
		}
	}
}

type describeSecurityGroupsReply struct {
	header
	Groups    []xmlSecurityGroup `xml:"securityGroupInfo>item"`
	NextToken string             `xml:"nextToken,omitempty"`
}

type xmlSecurityGroup struct {
	ID          string `xml:"groupId"`
	Name        string `xml:"groupName"`
	Description string `xml:"groupDescription"`
	VPCID       string `xml:"vpcId"`
	OwnerID     string `xml:"ownerId"`
}

func (r *Region) describeSecurityGroups(q query) (reply, *apiError) {
	if failure := knownGroups(q.list("GroupId")); failure != nil {
		return nil, failure
	}
	all := []xmlSecurityGroup{{ID: securityGroupID, Name: "gpufleet-nodes", Description: "nodes of the fleet", VPCID: vpcID, OwnerID: accountID}}
	hits, failure := selected(all, q, func(xmlSecurityGroup) bool { return true }, func(g xmlSecurityGroup) attributes {
		return func(name string) ([]string, bool) {
			values := map[string]string{"group-id": g.ID, "group-name": g.Name, "vpc-id": g.VPCID}
			value, known := values[name]
			return []string{value}, known
		}
	})
	if failure != nil {
		return nil, failure
	}
	return &describeSecurityGroupsReply{Groups: hits}, nil
}

type describeImagesReply struct {
	header
	Images    []xmlImage `xml:"imagesSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

type xmlImage struct {
	ID             string `xml:"imageId"`
	Name           string `xml:"name"`
	State          string `xml:"imageState"`
	OwnerID        string `xml:"imageOwnerId"`
	OwnerAlias     string `xml:"imageOwnerAlias"`
	Public         bool   `xml:"isPublic"`
	Architecture   string `xml:"architecture"`
	Type           string `xml:"imageType"`
	RootDeviceType string `xml:"rootDeviceType"`
	RootDeviceName string `xml:"rootDeviceName"`
	Created        string `xml:"creationDate"`
	Virtualization string `xml:"virtualizationType"`
}

func (r *Region) describeImages(q query) (reply, *apiError) {
	for _, id := range q.list("ImageId") {
		if failure := knownImage(id); failure != nil {
			return nil, failure
		}
	}
	all := []xmlImage{{
		ID: imageID, Name: imageName, State: "available", OwnerID: "602401143452", OwnerAlias: "amazon", Public: true,
		Architecture: "x86_64", Type: "machine", RootDeviceType: "ebs", RootDeviceName: "/dev/xvda",
		Created: "2026-09-17T00:00:00.000Z", Virtualization: "hvm",
	}}
	hits, failure := selected(all, q, func(xmlImage) bool { return true }, func(i xmlImage) attributes {
		return func(name string) ([]string, bool) {
			values := map[string]string{"image-id": i.ID, "name": i.Name, "state": i.State, "architecture": i.Architecture, "owner-alias": i.OwnerAlias}
			value, known := values[name]
			return []string{value}, known
		}
	})
	if failure != nil {
		return nil, failure
	}
	return &describeImagesReply{Images: hits}, nil
}
