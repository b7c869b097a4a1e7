package region

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	// Limits of RunInstances: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
	maxUserData    = 16384
	maxClientToken = 64
	// defaultRootGiB is the root disk of an EKS image where the request says nothing.
	defaultRootGiB = 20
)

// launch is what a RunInstances call asks for, resolved.
type launch struct {
	token          string
	hash           string
	typeName       string
	subnet         subnet
	securityGroups []string
	capacityType   string
	profile        string
	userData       []byte
	tags           map[string]string
	rootGiB        int64
	metadata       metadataOptions
}

// runInstances launches one instance. A token that launched before, with the same parameters and in the same zone, gets
// the instance of that time, in the state that it is in now.
func (r *Region) runInstances(q query) (reply, *apiError) {
	l, failure := parseLaunch(q)
	if failure != nil {
		return nil, failure
	}
	kind, failure := r.sells(l)
	if failure != nil {
		return nil, failure
	}
	if q.get("DryRun") == "true" {
		return nil, &apiError{http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."}
	}
	row, launched, failure := r.launch(l, kind)
	if failure != nil {
		return nil, failure
	}
	if launched {
		r.live(row)
	}
	now, _ := r.books.find(row.id)
	return &runInstancesReply{xmlReservation: reservationOf(&now)}, nil
}

// launch writes the instance into the books, unless its token is there already. False: it was.
func (r *Region) launch(l launch, kind instanceType) (*instance, bool, *apiError) {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	// The same token in another zone launches again: EC2's idempotency is kept within an Availability Zone
	// (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html).
	key := l.subnet.Zone + "/" + l.token
	if before, used := r.books.tokens[key]; used && l.token != "" {
		if before.hash != l.hash {
			return nil, false, refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		}
		return before, false, nil
	}
	if err := r.overQuota(l, kind); err != nil {
		return nil, false, err
	}
	if !r.capacity.take(l.typeName, l.subnet.Zone, l.capacityType) {
		return nil, false, noCapacity(l)
	}
	row := r.books.add(l, kind)
	if l.token != "" {
		r.books.tokens[key] = row
	}
	return row, true, nil
}

// add writes a new row. The caller holds mu.
func (b *books) add(l launch, kind instanceType) *instance {
	inZone := 0
	for _, row := range b.rows {
		if row.subnet.ID == l.subnet.ID {
			inZone++
		}
	}
	row := &instance{
		launch: l, kind: kind, seq: len(b.rows),
		id: "i-0" + hexID(8), reservation: "r-0" + hexID(8), address: l.subnet.address(inZone),
		launched: *now(), state: statePending, end: make(chan struct{}),
	}
	b.rows = append(b.rows, row)
	b.byID[row.id] = row
	return row
}

func noCapacity(l launch) *apiError {
	// RunInstances answers shortage with HTTP 500
	// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, server errors).
	return &apiError{http.StatusInternalServerError, "InsufficientInstanceCapacity", fmt.Sprintf(
		"We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity.",
		l.typeName, l.subnet.Zone)}
}

// sells checks that what a launch names exists here.
func (r *Region) sells(l launch) (instanceType, *apiError) {
	kind, ok := r.catalog.lookup(l.typeName)
	if !ok {
		return kind, refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", l.typeName)
	}
	if !slices.Contains(kind.Zones, l.subnet.Zone) {
		return kind, refuse("Unsupported",
			"Your requested instance type (%s) is not supported in your requested Availability Zone (%s). Please retry your request by not specifying an Availability Zone or choosing %s.",
			l.typeName, l.subnet.Zone, strings.Join(kind.Zones, ", "))
	}
	if !slices.Contains(kind.UsageClasses, l.capacityType) {
		return kind, refuse("Unsupported", "The instance type %s is not sold as %s.", l.typeName, l.capacityType)
	}
	return kind, nil
}

func parseLaunch(q query) (launch, *apiError) {
	l := launch{token: q.get("ClientToken"), typeName: q.get("InstanceType"), hash: q.hash(), rootGiB: rootDisk(q), metadata: parseMetadata(q)}
	steps := []func(*launch, query) *apiError{
		checkCounts, checkImage, parseNetwork, parseMarket, parseProfile, decodeUserData, parseTags,
	}
	if len(l.token) > maxClientToken {
		return l, refuse("InvalidParameterValue", "ClientToken has %d characters: at most %d are allowed.", len(l.token), maxClientToken)
	}
	for _, step := range steps {
		if failure := step(&l, q); failure != nil {
			return l, failure
		}
	}
	return l, nil
}

// hash is over every parameter but the token itself and what names the call.
func (q query) hash() string {
	names := make([]string, 0, len(q.Values))
	for name := range q.Values {
		if !slices.Contains([]string{"Action", "Version", "ClientToken", "DryRun"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		fmt.Fprintf(sum, "%q=%q\n", name, q.Values[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func checkCounts(l *launch, q query) *apiError {
	for _, name := range []string{"MinCount", "MaxCount", "ImageId", "InstanceType"} {
		if q.get(name) == "" {
			return refuse("MissingParameter", "The request must contain the parameter %s", name)
		}
	}
	if q.get("MinCount") != "1" || q.get("MaxCount") != "1" {
		return refuse("InvalidParameterValue", "This region launches one instance a call: MinCount and MaxCount must be 1, got %s and %s.", q.get("MinCount"), q.get("MaxCount"))
	}
	return nil
}

func checkImage(_ *launch, q query) *apiError {
	return knownImage(q.get("ImageId"))
}

func knownImage(id string) *apiError {
	switch {
	case id == imageID:
		return nil
	case !strings.HasPrefix(id, "ami-"):
		return refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
	default:
		return refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
}

// parseNetwork reads subnet and security groups from the instance or from its first network interface, never from both.
func parseNetwork(l *launch, q query) *apiError {
	const card = "NetworkInterface.1."
	subnetID, groups := q.get("SubnetId"), q.list("SecurityGroupId")
	if q.Has(card + "DeviceIndex") {
		if subnetID != "" || len(groups) > 0 {
			return refuse("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request")
		}
		subnetID, groups = q.get(card+"SubnetId"), q.list(card+"SecurityGroupId")
	}
	zone := q.get("Placement.AvailabilityZone")
	chosen, ok := lookupSubnet(func(s subnet) bool {
		return (subnetID == "" || s.ID == subnetID) && (zone == "" || s.Zone == zone)
	})
	if !ok {
		return noSubnet(subnetID, zone)
	}
	if len(groups) == 0 {
		groups = []string{securityGroupID}
	}
	l.subnet, l.securityGroups = chosen, groups
	return knownGroups(groups)
}

func noSubnet(subnetID, zone string) *apiError {
	_, subnetKnown := lookupSubnet(func(s subnet) bool { return s.ID == subnetID })
	switch {
	case subnetID != "" && !subnetKnown:
		return refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnetID)
	default:
		return refuse("InvalidParameterValue", "Value (%s) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: us-east-1a, us-east-1b, us-east-1c; subnet asked for: %q.", zone, subnetID)
	}
}

func knownGroups(groups []string) *apiError {
	for _, id := range groups {
		if id != securityGroupID {
			return refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	return nil
}

func parseMarket(l *launch, q query) *apiError {
	switch market := q.get("InstanceMarketOptions.MarketType"); market {
	case "":
		l.capacityType = onDemand
	case spot:
		l.capacityType = spot
	default:
		return refuse("InvalidParameterValue", "Value (%s) for parameter marketType is invalid: this region has spot.", market)
	}
	return nil
}

// parseProfile reads the instance profile, by name or by ARN.
func parseProfile(l *launch, q query) *apiError {
	name := q.get("IamInstanceProfile.Name")
	if arn := q.get("IamInstanceProfile.Arn"); arn != "" {
		name = arn[strings.LastIndex(arn, "/")+1:]
	}
	if name != "" && name != instanceProfile {
		return refuse("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", name)
	}
	l.profile = name
	return nil
}

func decodeUserData(l *launch, q query) *apiError {
	raw, err := base64.StdEncoding.DecodeString(q.get("UserData"))
	if err != nil {
		return refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > maxUserData {
		return refuse("InvalidParameterValue", "User data is limited to %d bytes", maxUserData)
	}
	l.userData = raw
	return nil
}

// parseTags reads the tags for the instance; those for its volumes and interfaces are accepted and dropped.
func parseTags(l *launch, q query) *apiError {
	l.tags = map[string]string{}
	for i := 1; q.Has(indexed("TagSpecification", i) + ".ResourceType"); i++ {
		spec := indexed("TagSpecification", i)
		if q.get(spec+".ResourceType") != "instance" {
			continue
		}
		for j := 1; q.Has(indexed(spec+".Tag", j) + ".Key"); j++ {
			tag := indexed(spec+".Tag", j)
			key := q.get(tag + ".Key")
			if strings.HasPrefix(strings.ToLower(key), "aws:") {
				return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
			}
			l.tags[key] = q.get(tag + ".Value")
		}
	}
	return nil
}

func rootDisk(q query) int64 {
	size, err := strconv.ParseInt(q.get("BlockDeviceMapping.1.Ebs.VolumeSize"), 10, 64)
	if err != nil {
		return defaultRootGiB
	}
	return size
}

func parseMetadata(q query) metadataOptions {
	pick := func(name, otherwise string) string {
		if value := q.get("MetadataOptions." + name); value != "" {
			return value
		}
		return otherwise
	}
	return metadataOptions{
		State: "applied", HTTPTokens: pick("HttpTokens", "optional"),
		HopLimit: pick("HttpPutResponseHopLimit", "1"), HTTPEndpoint: pick("HttpEndpoint", "enabled"),
	}
}
