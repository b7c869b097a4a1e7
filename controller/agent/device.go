package agent

import "fmt"

// Library opens sessions with NVML.
type Library interface {
	// Open loads and initialises NVML. Every session that it returns needs its Close.
	Open() (Session, error)
}

// Session is NVML between its initialisation and its shutdown.
type Session interface {
	Versions() (Versions, error)
	BoardCount() (int, error)
	Board(index int) (Board, error)
	Close() error
}

// Board is one physical GPU. What it returns holds no handles.
type Board interface {
	Identity() (Identity, error)
	MIGMode() (MIGMode, error)
	// SetMIGMode asks for the mode. That it succeeded does not say that the mode is in effect: read MIGMode.
	SetMIGMode(enabled bool) error
	// Profiles are the GPU instance profiles that the board offers.
	Profiles() ([]Profile, error)
	// Instances are the GPU instances that exist, in no order.
	Instances() ([]Instance, error)
	// Create makes a GPU instance at the given memory slices and one compute instance that spans it. That it succeeded
	// does not say that the instance exists: read Instances.
	Create(profile Profile, at Placement) error
	// Destroy removes a GPU instance and its compute instances.
	Destroy(instance Instance) error
}

// Versions are as NVML reports them; CUDA is written as e.g. 13.0.
type Versions struct{ Driver, NVML, CUDA string }

// Identity is what a board is.
type Identity struct {
	UUID, ProductName, PCIBusID string
	MemoryMiB                   int64
}

// MIGMode is the mode that is in effect and the one that will be after the next reset.
type MIGMode struct{ Capable, Enabled, PendingEnabled bool }

// Profile is a GPU instance profile as this driver knows it on this board.
type Profile struct {
	// Name is as NVIDIA writes it, e.g. 1g.10gb+me.
	Name string
	// Index is NVML_GPU_INSTANCE_PROFILE_* and ID what instances refer to; the two are never the same thing.
	Index, ID     int
	ComputeSlices int32
	Placements    []Placement
}

// Placement is a place in memory slices.
type Placement struct{ Start, Size int32 }

// Instance is a GPU instance. It is Usable where it has a compute instance: without one no pod can get at it.
type Instance struct {
	ID, ProfileID int
	At            Placement
	Usable        bool
}

func (p Placement) String() string { return fmt.Sprintf("%d:%d", p.Start, p.Size) }
