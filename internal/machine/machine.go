// Package machine knows EC2's GPU instance types: which boards, how many, what the machine is and what it costs.
//
// It is pure: an embedded table. The table, and not the cloud's answer, says which GPUs a type has: EC2 reports 0 GPUs
// for every fractional type, and reported 0 for p5.4xlarge in 2025 (aws/karpenter-provider-aws#8368).
package machine

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// GPU is the GPUs of one machine.
type GPU struct {
	// Model is the key of the GPU model (package gpu).
	Model string
	// NameEC2 is what EC2 calls it, which is not unique: "A100" is the 40 GB board and the 80 GB board.
	NameEC2 string
	// Count is the number of boards. A fractional machine has one, of which PartitionSize is a part: never 0.
	Count int
	// PartitionSize is how much of each board the machine gets: 1, or 0.125 to 0.5 of a vGPU.
	PartitionSize float64
	// ProductName and MemoryMiB are what NVML reports on the machine; empty and 0 where nobody published it. EC2's own
	// figure for the memory is another: never compare the two.
	ProductName string
	MemoryMiB   int64
}

// Type is one instance type.
type Type struct {
	// Name is p5.48xlarge, Family p5.
	Name, Family string
	// Arch is the processor's, as kubernetes.io/arch spells it: amd64 or arm64.
	Arch string
	// Retired types are not sold any more. Unverified ones are known from secondary sources only. Note says more.
	Retired, Unverified bool
	Note                string
	GPU                 GPU
	VCPU                int
	MemoryMiB           int64
	// MaxENIs and IPv4PerENI bound the pods of a node under the VPC CNI.
	MaxENIs, IPv4PerENI int
	// PricePerHour is the on-demand list price in us-east-1, Linux, US dollars, as of PriceAsOf. HasPrice is false, and
	// the price 0, where it is not known.
	PricePerHour float64
	HasPrice     bool
	PriceAsOf    string
}

// Fractional says that the machine gets part of a board, as a vGPU.
func (t Type) Fractional() bool { return t.GPU.PartitionSize < 1 }

//go:embed data/ec2.json
var ec2JSON []byte

// table is data/ec2.json as it is written: every entry with its sources.
type table struct {
	AsOf    string            `json:"asOf"`
	Sources map[string]string `json:"sources"`
	Types   []entry           `json:"types"`
}

// Statuses of an entry.
const (
	statusCurrent    = "current"
	statusRetired    = "retired"
	statusUnverified = "unverified"
)

type entry struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	Status string `json:"status"`
	Note   string `json:"note"`
	GPU    struct {
		Model         string  `json:"model"`
		NameEC2       string  `json:"nameEC2"`
		Count         int     `json:"count"`
		PartitionSize float64 `json:"partitionSize"`
		MemoryMiBEC2  int64   `json:"memoryMiBEC2"`
		ProductName   string  `json:"productName"`
		MemoryMiB     int64   `json:"memoryMiB"`
	} `json:"gpu"`
	VCPU         int      `json:"vcpu"`
	MemoryMiB    int64    `json:"memoryMiB"`
	Arch         string   `json:"arch"`
	MaxENIs      int      `json:"maxENIs"`
	IPv4PerENI   int      `json:"ipv4PerENI"`
	PricePerHour *float64 `json:"pricePerHour"`
	PriceAsOf    string   `json:"priceAsOf"`
	Source       []string `json:"source"`
}

func (e entry) machine() Type {
	t := Type{
		Name: e.Name, Family: e.Family, Arch: e.Arch, Note: e.Note,
		Retired: e.Status == statusRetired, Unverified: e.Status == statusUnverified,
		GPU: GPU{
			Model: e.GPU.Model, NameEC2: e.GPU.NameEC2, Count: e.GPU.Count, PartitionSize: e.GPU.PartitionSize,
			ProductName: e.GPU.ProductName, MemoryMiB: e.GPU.MemoryMiB,
		},
		VCPU: e.VCPU, MemoryMiB: e.MemoryMiB, MaxENIs: e.MaxENIs, IPv4PerENI: e.IPv4PerENI,
	}
	if e.PricePerHour != nil {
		t.PricePerHour, t.HasPrice, t.PriceAsOf = *e.PricePerHour, true, e.PriceAsOf
	}
	return t
}

// types reads the embedded table once, when it is first asked for.
var types = sync.OnceValue(func() []Type {
	t, err := readTable(ec2JSON)
	if err != nil {
		// The file is compiled in and a test reads it: this cannot happen in a build that passed its tests.
		panic(fmt.Sprintf("embedded data/ec2.json: %v", err))
	}
	out := make([]Type, len(t.Types))
	for i, e := range t.Types {
		out[i] = e.machine()
	}
	slices.SortFunc(out, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return out
})

func readTable(data []byte) (table, error) {
	var t table
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(&t)
	return t, err
}

// Lookup finds an instance type by its exact name.
func Lookup(name string) (Type, bool) {
	all := types()
	i, found := slices.BinarySearchFunc(all, name, func(t Type, name string) int { return strings.Compare(t.Name, name) })
	if !found {
		return Type{}, false
	}
	return all[i], true
}

// Types lists every instance type by name.
func Types() []Type { return slices.Clone(types()) }
