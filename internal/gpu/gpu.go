// Package gpu knows NVIDIA's GPU models: what they are called, how MIG can cut them, and whether a layout can be placed.
//
// It is pure: an embedded table and a search. It may import nothing of the cluster, the cloud or NVML. The table serves
// decisions before a machine exists; on the node, the agent asks the board itself.
package gpu

import (
	"slices"
	"strconv"
	"strings"
)

// Placement is a place on a board, in memory slices, as nvidia-smi mig -lgipp counts them.
type Placement struct{ Start, Size int }

// mask has one bit for each memory slice that the placement covers.
func (p Placement) mask() uint32 { return (1<<p.Size - 1) << p.Start }

// Media says which media engines (video decoders, JPEG, optical flow) a profile holds.
type Media string

// Kinds of media extensions, as profile names end with them. Source: NVIDIA/go-nvml gen/nvml/nvml.h,
// NVML_GPU_INSTANCE_PROFILE_*.
const (
	MediaShared Media = ""        // a share of the decoders that goes with the slices
	MediaOne    Media = "+me"     // the media extensions; one instance of the board may hold them
	MediaAll    Media = "+me.all" // every media engine; only instances without any may stand beside it
	MediaNone   Media = "-me"     // no media engine
)

// Profile is one shape that MIG can cut out of a model.
type Profile struct {
	// Name as NVIDIA writes it, e.g. 1g.10gb+me.
	Name string
	// NVMLIndex is the NVML_GPU_INSTANCE_PROFILE_* number; ID is what nvidia-smi mig -lgip prints. They differ on every
	// real board.
	NVMLIndex, ID int
	// ComputeSlices is the number before "g". MemorySlices is the size of a placement.
	ComputeSlices, MemorySlices int
	// MemoryMiB is what one driver reported, 0 where nobody published it. It changes with the driver: for display only.
	MemoryMiB int64
	// MaxInstances is how many the board can hold when nothing else is on it.
	MaxInstances int
	// Placements are the permitted places, by start.
	Placements []Placement
	// Media says which media engines go with it.
	Media Media
}

// Attribute is what follows the size in the profile's name: "+me", "-me", "+gfx" or nothing. Drivers rename the size
// (1g.24gb is 1g.23gb to another), never this.
func (p Profile) Attribute() string { return Attribute(p.Name) }

// Attribute is what follows the size in a profile's name.
func Attribute(profile string) string {
	if i := strings.IndexAny(profile, "+-"); i >= 0 {
		return profile[i:]
	}
	return ""
}

// Model is one GPU model: a board, its memory and its form factor.
type Model struct {
	// Key is our name for it, e.g. H100-80GB-SXM.
	Key string
	// ProductNames are the names that NVML reports for it.
	ProductNames []string
	Architecture string
	// ComputeSlices and MemorySlices are what MIG divides; 0 where the board has no MIG or nobody published its placements.
	ComputeSlices, MemorySlices int
	// Confidence says where the placements come from: read from hardware, from documentation, or inferred; "no MIG", or
	// "not sourced" where the board can do MIG and nobody published its placements.
	Confidence string
	// Profiles are in NVIDIA's order, the smallest first.
	Profiles []Profile
}

// MIGCapable says whether layouts can be made for the model.
func (m Model) MIGCapable() bool { return m.MemorySlices > 0 }

// NoMIG says in words why layouts cannot be made for the model; nothing where they can.
func (m Model) NoMIG() string {
	switch {
	case m.MIGCapable():
		return ""
	case m.Confidence == confidenceNoMIG:
		return "the model has no MIG"
	}
	return "the model can do MIG, but no public source lists its placements"
}

// Profile finds a profile by its exact name.
func (m Model) Profile(name string) (Profile, bool) {
	if i := m.index(name); i >= 0 {
		return m.Profiles[i], true
	}
	return Profile{}, false
}

func (m Model) index(name string) int {
	return slices.IndexFunc(m.Profiles, func(p Profile) bool { return p.Name == name })
}

func (m Model) profileNames() []string {
	names := make([]string, len(m.Profiles))
	for i, p := range m.Profiles {
		names[i] = p.Name
	}
	return names
}

// nearest is the profile with the same compute slices and attribute whose size is closest to the one asked for: what
// somebody means who copied a layout from another board, or from another driver's name for this one.
func (m Model) nearest(name string) (string, bool) {
	slicesAsked, sizeAsked, ok := parseName(name)
	if !ok {
		return "", false
	}
	best, bestGap := "", 0
	for _, p := range m.Profiles {
		computeSlices, size, _ := parseName(p.Name)
		if computeSlices != slicesAsked || Attribute(name) != p.Attribute() {
			continue
		}
		if gap := max(size-sizeAsked, sizeAsked-size); best == "" || gap < bestGap {
			best, bestGap = p.Name, gap
		}
	}
	return best, best != ""
}

// parseName reads "2g.20gb+me" as 2 compute slices and 20 GB.
func parseName(name string) (computeSlices, gb int, ok bool) {
	shape := strings.TrimSuffix(name, Attribute(name))
	before, after, found := strings.Cut(strings.TrimSuffix(shape, "gb"), "g.")
	if !found {
		return 0, 0, false
	}
	computeSlices, err1 := strconv.Atoi(before)
	gb, err2 := strconv.Atoi(after)
	return computeSlices, gb, err1 == nil && err2 == nil
}

// ResourceName is the extended resource that NVIDIA's device plugin advertises for a profile under its mixed strategy:
// nvidia.com/mig-1g.10gb, and nvidia.com/mig-1g.10gb.me for 1g.10gb+me. Source: NVIDIA/k8s-device-plugin,
// internal/rm: "+" becomes ".".
func ResourceName(profile string) string {
	return "nvidia.com/mig-" + strings.ReplaceAll(profile, "+", ".")
}
