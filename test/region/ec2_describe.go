package region

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// keptTerminated is how long a terminated instance is still described: about an hour
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html). The books keep it for ever.
const keptTerminated = time.Hour

type runInstancesReply struct {
	header
	xmlReservation
}

type describeInstancesReply struct {
	header
	Reservations []xmlReservation `xml:"reservationSet>item"`
	NextToken    string           `xml:"nextToken,omitempty"`
}

type terminateInstancesReply struct {
	header
	Changes []xmlStateChange `xml:"instancesSet>item"`
}

type xmlReservation struct {
	ReservationID string        `xml:"reservationId"`
	OwnerID       string        `xml:"ownerId"`
	Instances     []xmlInstance `xml:"instancesSet>item"`
}

type xmlInstance struct {
	InstanceID       string          `xml:"instanceId"`
	ImageID          string          `xml:"imageId"`
	State            xmlState        `xml:"instanceState"`
	PrivateDNSName   string          `xml:"privateDnsName"`
	PrivateIP        string          `xml:"privateIpAddress"`
	StateReason      *xmlReason      `xml:"stateReason"`
	InstanceType     string          `xml:"instanceType"`
	LaunchTime       string          `xml:"launchTime"`
	Placement        xmlPlacement    `xml:"placement"`
	SubnetID         string          `xml:"subnetId"`
	VPCID            string          `xml:"vpcId"`
	Architecture     string          `xml:"architecture"`
	RootDeviceType   string          `xml:"rootDeviceType"`
	RootDeviceName   string          `xml:"rootDeviceName"`
	Lifecycle        string          `xml:"instanceLifecycle,omitempty"`
	SpotRequestID    string          `xml:"spotInstanceRequestId,omitempty"`
	ClientToken      string          `xml:"clientToken"`
	Tags             []xmlTag        `xml:"tagSet>item"`
	Groups           []xmlGroup      `xml:"groupSet>item"`
	Profile          *xmlProfile     `xml:"iamInstanceProfile"`
	Metadata         metadataOptions `xml:"metadataOptions"`
	Hypervisor       string          `xml:"hypervisor"`
	VirtualizationTy string          `xml:"virtualizationType"`
}

type xmlState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type xmlReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type xmlPlacement struct {
	AvailabilityZone string `xml:"availabilityZone"`
	Tenancy          string `xml:"tenancy"`
}

type xmlTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type xmlGroup struct {
	GroupID   string `xml:"groupId"`
	GroupName string `xml:"groupName"`
}

type xmlProfile struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type metadataOptions struct {
	State        string `xml:"state"`
	HTTPTokens   string `xml:"httpTokens"`
	HopLimit     string `xml:"httpPutResponseHopLimit"`
	HTTPEndpoint string `xml:"httpEndpoint"`
}

type xmlStateChange struct {
	InstanceID string   `xml:"instanceId"`
	Current    xmlState `xml:"currentState"`
	Previous   xmlState `xml:"previousState"`
}

// stateOf adds the number that EC2 has for a state.
func stateOf(name string) xmlState {
	codes := map[string]int{statePending: 0, stateRunning: 16, stateShuttingDown: 32, stateTerminated: 48}
	return xmlState{Code: codes[name], Name: name}
}

func reservationOf(row *instance) xmlReservation {
	return xmlReservation{ReservationID: row.reservation, OwnerID: accountID, Instances: []xmlInstance{instanceOf(row)}}
}

func instanceOf(row *instance) xmlInstance {
	out := xmlInstance{
		InstanceID: row.id, ImageID: imageID, State: stateOf(row.state), InstanceType: row.typeName,
		LaunchTime: row.launched.Format("2006-01-02T15:04:05.000Z"),
		Placement:  xmlPlacement{AvailabilityZone: row.subnet.Zone, Tenancy: "default"},
		SubnetID:   row.subnet.ID, VPCID: vpcID, Architecture: "x86_64", RootDeviceType: "ebs", RootDeviceName: "/dev/xvda",
		ClientToken: row.token, Tags: tagSet(row.tags), Metadata: row.metadata, Hypervisor: "nitro", VirtualizationTy: "hvm",
	}
	for _, id := range row.securityGroups {
		out.Groups = append(out.Groups, xmlGroup{GroupID: id, GroupName: "gpufleet-nodes"})
	}
	if row.profile != "" {
		out.Profile = &xmlProfile{ARN: "arn:aws:iam::" + accountID + ":instance-profile/" + row.profile, ID: "AIPA" + strings.ToUpper(accountID)}
	}
	if row.capacityType == spot {
		out.Lifecycle, out.SpotRequestID = spot, "sir-"+row.id[len(row.id)-8:]
	}
	if row.reason != nil {
		out.StateReason = &xmlReason{Code: row.reason.Code, Message: row.reason.Message}
	}
	// EC2 takes the addresses of a terminated instance back.
	if row.state != stateTerminated {
		out.PrivateDNSName, out.PrivateIP = row.privateDNS(), row.address
	}
	return out
}

func tagSet(tags map[string]string) []xmlTag {
	var out []xmlTag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, xmlTag{Key: key, Value: tags[key]})
	}
	return out
}

func (r *Region) describeInstances(q query) (reply, *apiError) {
	ids := q.list("InstanceId")
	if len(ids) > 0 && q.Has("MaxResults") {
		return nil, refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	visible := slices.DeleteFunc(r.books.all(), func(i instance) bool {
		return i.terminated != nil && time.Since(*i.terminated) > keptTerminated
	})
	if failure := knownInstances(visible, ids); failure != nil {
		return nil, failure
	}
	var hits []instance
	filters := q.filters()
	for _, row := range visible {
		ok, failure := matches(filters, row.attributes)
		if failure != nil {
			return nil, failure
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, row.id)) {
			hits = append(hits, row)
		}
	}
	return describedPage(q, hits)
}

func describedPage(q query, hits []instance) (reply, *apiError) {
	rows, next, failure := page(q, hits, 1000, func(_ int, i instance) int { return i.seq })
	if failure != nil {
		return nil, failure
	}
	out := &describeInstancesReply{NextToken: next}
	for i := range rows {
		out.Reservations = append(out.Reservations, reservationOf(&rows[i]))
	}
	return out, nil
}

func knownInstances(visible []instance, ids []string) *apiError {
	var missing []string
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") {
			return refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		if !slices.ContainsFunc(visible, func(i instance) bool { return i.id == id }) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	noun := "ID '%s' does not exist"
	if len(missing) > 1 {
		noun = "IDs '%s' do not exist"
	}
	return refuse("InvalidInstanceID.NotFound", "The instance "+noun, strings.Join(missing, ", "))
}

// attributes are what an instance can be filtered by.
func (i instance) attributes(name string) ([]string, bool) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		value, has := i.tags[key]
		if !has {
			return nil, true
		}
		return []string{value}, true
	}
	switch name {
	case "client-token":
		return []string{i.token}, true
	case "instance-id":
		return []string{i.id}, true
	case "instance-state-name":
		return []string{i.state}, true
	case "instance-type":
		return []string{i.typeName}, true
	case "availability-zone":
		return []string{i.subnet.Zone}, true
	case "subnet-id":
		return []string{i.subnet.ID}, true
	case "tag-key":
		return slices.Collect(maps.Keys(i.tags)), true
	default:
		return nil, false
	}
}

// terminateInstances begins the end of every instance named, or of none if one is unknown. It may be repeated.
func (r *Region) terminateInstances(q query) (reply, *apiError) {
	ids := q.list("InstanceId")
	if len(ids) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter InstanceId")
	}
	if failure := knownInstances(r.books.all(), ids); failure != nil {
		return nil, failure
	}
	out := &terminateInstancesReply{}
	for _, id := range ids {
		before, after, _ := r.books.shutDown(id, stateReason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"})
		out.Changes = append(out.Changes, xmlStateChange{InstanceID: id, Current: stateOf(after), Previous: stateOf(before)})
	}
	slices.SortFunc(out.Changes, func(a, b xmlStateChange) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	return out, nil
}
