package region

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:embed types.json
var typesJSON []byte

// catalog is what this region sells, and the driver that its images carry.
type catalog struct {
	Driver string         `json:"driver"`
	NVML   string         `json:"nvml"`
	CUDA   int            `json:"cuda"`
	Types  []instanceType `json:"types"`
}

// instanceType is one instance type as EC2 tells it, and the boards that such a machine really holds.
type instanceType struct {
	Name      string `json:"name"`
	VCPUs     int    `json:"vcpus"`
	MemoryMiB int64  `json:"memoryMiB"`
	// GPU is EC2's own words: its names and memory are not the driver's.
	GPU struct {
		Name      string `json:"name"`
		Count     int    `json:"count"`
		MemoryMiB int64  `json:"memoryMiB"`
	} `json:"gpu"`
	// Board is what NVML finds on the machine: one board for each bus.
	Board struct {
		Key       string   `json:"key"`
		Product   string   `json:"product"`
		MemoryMiB int64    `json:"memoryMiB"`
		Buses     []string `json:"buses"`
	} `json:"board"`
	ENIs         int      `json:"enis"`
	IPv4PerENI   int      `json:"ipv4PerENI"`
	MaxPods      int      `json:"maxPods"`
	EFA          int      `json:"efa"`
	Disks        int      `json:"disks"`
	DiskGB       int      `json:"diskGB"`
	UsageClasses []string `json:"usageClasses"`
	Zones        []string `json:"zones"`
	// OnDemand and Spot are US dollars an hour.
	OnDemand float64 `json:"onDemand"`
	Spot     float64 `json:"spot"`
}

// price is the dollars an hour of one way to buy the type.
func (t instanceType) price(capacityType string) float64 {
	if capacityType == spot {
		return t.Spot
	}
	return t.OnDemand
}

func loadCatalog() (*catalog, error) {
	var c catalog
	if err := json.Unmarshal(typesJSON, &c); err != nil {
		return nil, fmt.Errorf("read the region's instance types: %w", err)
	}
	slices.SortFunc(c.Types, func(a, b instanceType) int { return strings.Compare(a.Name, b.Name) })
	return &c, nil
}

func (c *catalog) lookup(name string) (instanceType, bool) {
	i := slices.IndexFunc(c.Types, func(t instanceType) bool { return t.Name == name })
	if i < 0 {
		return instanceType{}, false
	}
	return c.Types[i], true
}
