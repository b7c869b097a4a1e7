package region

import (
	"slices"
	"strings"
)

type describeInstanceTypesReply struct {
	header
	Types     []xmlInstanceType `xml:"instanceTypeSet>item"`
	NextToken string            `xml:"nextToken,omitempty"`
}

type xmlInstanceType struct {
	Name         string     `xml:"instanceType"`
	Current      bool       `xml:"currentGeneration"`
	UsageClasses []string   `xml:"supportedUsageClasses>item"`
	BareMetal    bool       `xml:"bareMetal"`
	Hypervisor   string     `xml:"hypervisor"`
	Archs        []string   `xml:"processorInfo>supportedArchitectures>item"`
	VCPUs        int        `xml:"vCpuInfo>defaultVCpus"`
	MemoryMiB    int64      `xml:"memoryInfo>sizeInMiB"`
	Storage      bool       `xml:"instanceStorageSupported"`
	Disks        xmlDisks   `xml:"instanceStorageInfo"`
	GPUs         xmlGPUs    `xml:"gpuInfo"`
	Network      xmlNetwork `xml:"networkInfo"`
}

type xmlDisks struct {
	TotalGB int       `xml:"totalSizeInGB"`
	Disks   []xmlDisk `xml:"disks>item"`
}

type xmlDisk struct {
	SizeGB int    `xml:"sizeInGB"`
	Count  int    `xml:"count"`
	Type   string `xml:"type"`
}

type xmlGPUs struct {
	GPUs     []xmlGPU `xml:"gpus>item"`
	TotalMiB int64    `xml:"totalGpuMemoryInMiB"`
}

type xmlGPU struct {
	Name          string  `xml:"name"`
	Manufacturer  string  `xml:"manufacturer"`
	Count         int     `xml:"count"`
	LogicalCount  float64 `xml:"logicalGpuCount"`
	PartitionSize float64 `xml:"gpuPartitionSize"`
	MemoryMiB     int64   `xml:"memoryInfo>sizeInMiB"`
}

type xmlNetwork struct {
	ENIs       int     `xml:"maximumNetworkInterfaces"`
	IPv4PerENI int     `xml:"ipv4AddressesPerInterface"`
	EFA        bool    `xml:"efaSupported"`
	EFAInfo    *xmlEFA `xml:"efaInfo"`
}

type xmlEFA struct {
	Interfaces int `xml:"maximumEfaInterfaces"`
}

func xmlType(t instanceType) xmlInstanceType {
	out := xmlInstanceType{
		Name: t.Name, Current: !strings.HasPrefix(t.Name, "g5."), UsageClasses: t.UsageClasses, Hypervisor: "nitro",
		Archs: []string{"x86_64"}, VCPUs: t.VCPUs, MemoryMiB: t.MemoryMiB, Storage: true,
		Disks: xmlDisks{TotalGB: t.Disks * t.DiskGB, Disks: []xmlDisk{{SizeGB: t.DiskGB, Count: t.Disks, Type: "ssd"}}},
		GPUs: xmlGPUs{TotalMiB: int64(t.GPU.Count) * t.GPU.MemoryMiB, GPUs: []xmlGPU{{
			Name: t.GPU.Name, Manufacturer: "NVIDIA", Count: t.GPU.Count, LogicalCount: float64(t.GPU.Count),
			PartitionSize: 1, MemoryMiB: t.GPU.MemoryMiB,
		}}},
		Network: xmlNetwork{ENIs: t.ENIs, IPv4PerENI: t.IPv4PerENI, EFA: t.EFA > 0},
	}
	if t.EFA > 0 {
		out.Network.EFAInfo = &xmlEFA{Interfaces: t.EFA}
	}
	return out
}

func (r *Region) describeInstanceTypes(q query) (reply, *apiError) {
	names := q.list("InstanceType")
	var unknown []string
	for _, name := range names {
		if _, ok := r.catalog.lookup(name); !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
	}
	hits, failure := selected(r.catalog.Types, q, func(t instanceType) bool {
		return len(names) == 0 || slices.Contains(names, t.Name)
	}, typeAttributes)
	if failure != nil {
		return nil, failure
	}
	rows, next, failure := page(q, hits, 100, byIndex)
	if failure != nil {
		return nil, failure
	}
	out := &describeInstanceTypesReply{NextToken: next}
	for _, t := range rows {
		out.Types = append(out.Types, xmlType(t))
	}
	return out, nil
}

func typeAttributes(t instanceType) attributes {
	return func(name string) ([]string, bool) {
		switch name {
		case "instance-type":
			return []string{t.Name}, true
		case "supported-usage-class":
			return t.UsageClasses, true
		case "processor-info.supported-architecture":
			return []string{"x86_64"}, true
		case "hypervisor":
			return []string{"nitro"}, true
		case "bare-metal":
			return []string{"false"}, true
		default:
			return nil, false
		}
	}
}

// selected are the items that a call names and that its filters let pass.
func selected[T any](items []T, q query, named func(T) bool, of func(T) attributes) ([]T, *apiError) {
	var out []T
	for _, item := range items {
		ok, failure := matches(q.filters(), of(item))
		if failure != nil {
			return nil, failure
		}
		if ok && named(item) {
			out = append(out, item)
		}
	}
	return out, nil
}

type describeInstanceTypeOfferingsReply struct {
	header
	Offerings []xmlOffering `xml:"instanceTypeOfferingSet>item"`
	NextToken string        `xml:"nextToken,omitempty"`
}

type xmlOffering struct {
	InstanceType string `xml:"instanceType"`
	LocationType string `xml:"locationType"`
	Location     string `xml:"location"`
}

func (r *Region) describeInstanceTypeOfferings(q query) (reply, *apiError) {
	offerings, failure := r.offerings(q.get("LocationType"))
	if failure != nil {
		return nil, failure
	}
	hits, failure := selected(offerings, q, func(xmlOffering) bool { return true }, offeringAttributes)
	if failure != nil {
		return nil, failure
	}
	rows, next, failure := page(q, hits, 1000, byIndex)
	if failure != nil {
		return nil, failure
	}
	return &describeInstanceTypeOfferingsReply{Offerings: rows, NextToken: next}, nil
}

func (r *Region) offerings(locationType string) ([]xmlOffering, *apiError) {
	var out []xmlOffering
	for _, t := range r.catalog.Types {
		locations := t.Zones
		switch locationType {
		case "", "region":
			locationType, locations = "region", []string{regionName}
		case "availability-zone":
		case "availability-zone-id":
			locations = zoneIDs(t.Zones)
		default:
			return nil, refuse("InvalidParameterValue", "Value (%s) for parameter locationType is invalid.", locationType)
		}
		for _, location := range locations {
			out = append(out, xmlOffering{InstanceType: t.Name, LocationType: locationType, Location: location})
		}
	}
	return out, nil
}

func zoneIDs(zones []string) []string {
	var out []string
	for _, s := range subnets() {
		if slices.Contains(zones, s.Zone) {
			out = append(out, s.ZoneID)
		}
	}
	return out
}

func offeringAttributes(o xmlOffering) attributes {
	return func(name string) ([]string, bool) {
		switch name {
		case "instance-type":
			return []string{o.InstanceType}, true
		case "location":
			return []string{o.Location}, true
		default:
			return nil, false
		}
	}
}
