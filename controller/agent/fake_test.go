package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// fakeLibrary is NVML in memory, for what the shared library in test/nvml cannot do: fail at will and record calls.
type fakeLibrary struct {
	openErr error
	boards  []*fakeBoard
	// hang keeps Open from returning until it is closed; nil hangs nothing.
	hang chan struct{}
}

func (l *fakeLibrary) Open() (Session, error) {
	if l.hang != nil {
		<-l.hang
	}
	if l.openErr != nil {
		return nil, l.openErr
	}
	return fakeSession{l}, nil
}

type fakeSession struct{ *fakeLibrary }

func (fakeSession) Close() error { return nil }
func (fakeSession) Versions() (Versions, error) {
	return Versions{Driver: "580.95.05", NVML: "13.580.95.05", CUDA: "13.0"}, nil
}
func (s fakeSession) BoardCount() (int, error) { return len(s.boards), nil }
func (s fakeSession) Board(i int) (Board, error) {
	if s.boards[i].lost {
		return nil, errors.New("GPU is lost")
	}
	return s.boards[i], nil
}

type fakeBoard struct {
	name      string
	mode      MIGMode
	profiles  []Profile
	instances []Instance
	// calls are the changes that were asked for.
	calls []string
	lost  bool
	// stuck: SetMIGMode succeeds and changes nothing; held: it fails and leaves the mode pending; so
	// many times as pends says it succeeds and the mode waits for a reset.
	stuck, held bool
	pends       int
	// createErr fails every Create; silent makes it succeed and create nothing.
	createErr error
	silent    bool
}

func (b *fakeBoard) Identity() (Identity, error) {
	return Identity{UUID: "GPU-" + b.name, ProductName: b.name, PCIBusID: "00000000:53:00.0", MemoryMiB: 81559}, nil
}
func (b *fakeBoard) MIGMode() (MIGMode, error) { return b.mode, nil }
func (b *fakeBoard) SetMIGMode(enabled bool) error {
	b.calls = append(b.calls, fmt.Sprintf("mode %t", enabled))
	if b.stuck {
		return nil
	}
	b.mode.PendingEnabled = enabled
	if b.held {
		return errors.New("In use by another client")
	}
	if b.pends--; b.pends < 0 {
		b.mode.Enabled = enabled
	}
	return nil
}
func (b *fakeBoard) Profiles() ([]Profile, error) { return b.profiles, nil }
func (b *fakeBoard) Instances() ([]Instance, error) {
	return slices.Clone(b.instances), nil
}
func (b *fakeBoard) Create(p Profile, at Placement) error {
	b.calls = append(b.calls, fmt.Sprintf("create %s %s", p.Name, at))
	if b.createErr != nil || b.silent {
		return b.createErr
	}
	b.instances = append(b.instances, Instance{ID: len(b.instances) + 100, ProfileID: p.ID, At: at, Usable: true})
	return nil
}
func (b *fakeBoard) Destroy(in Instance) error {
	b.calls = append(b.calls, fmt.Sprintf("destroy %s", in.At))
	b.instances = slices.DeleteFunc(b.instances, func(x Instance) bool { return x.ID == in.ID })
	return nil
}

// h100 is a board with some of the profiles of an H100 80GB (nvidia-smi mig -lgip, -lgipp).
func h100(enabled bool) *fakeBoard {
	return &fakeBoard{
		name: "NVIDIA H100 80GB HBM3",
		mode: MIGMode{Capable: true, Enabled: enabled, PendingEnabled: enabled},
		profiles: []Profile{
			{Name: "1g.10gb", Index: 0, ID: 19, ComputeSlices: 1, Placements: places(1, 0, 1, 2, 3, 4, 5, 6)},
			{Name: "1g.10gb+me", Index: 7, ID: 20, ComputeSlices: 1, Placements: places(1, 0, 1, 2, 3, 4, 5, 6)},
			{Name: "1g.20gb", Index: 9, ID: 15, ComputeSlices: 1, Placements: places(2, 0, 2, 4, 6)},
			{Name: "2g.20gb", Index: 1, ID: 14, ComputeSlices: 2, Placements: places(2, 0, 2, 4)},
			{Name: "3g.40gb", Index: 2, ID: 9, ComputeSlices: 3, Placements: places(4, 0, 4)},
		},
	}
}

func places(size int32, starts ...int32) (all []Placement) {
	for _, start := range starts {
		all = append(all, Placement{Start: start, Size: size})
	}
	return all
}

func wanted(profile string, slices, start, size int32) v1alpha1.MIGInstance {
	return v1alpha1.MIGInstance{Profile: profile, ComputeSlices: slices, Start: start, Size: size}
}

// layoutOf is one entry for the given GPUs.
func layoutOf(instances []v1alpha1.MIGInstance, gpus ...int32) *v1alpha1.LayoutBlueprint {
	return &v1alpha1.LayoutBlueprint{Name: "test", Devices: []v1alpha1.DeviceLayout{{GPUs: gpus, Instances: instances}}}
}

// sevenOnes is the layout h100-7x1g10gb of one board.
func sevenOnes() (all []v1alpha1.MIGInstance) {
	for start := range int32(7) {
		all = append(all, wanted("1g.10gb", 1, start, 1))
	}
	return all
}
