package agent

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// DefaultLibrary is NVML's name for the dynamic linker.
const DefaultLibrary = "libnvidia-ml.so.1"

// NewLibrary is NVML at a path, or by name where the dynamic linker finds it.
func NewLibrary(path string) Library { return library{path} }

type library struct{ path string }

// needed are the symbols without which nothing can be read. go-nvml leaves symbols to the dynamic linker, which ends the
// process when one is called that the library lacks, so each is looked up before its first call.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString",
	"nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion_v2",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
	"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo",
}

// neededForMIG are the symbols without which a driver cannot do MIG.
var neededForMIG = []string{
	"nvmlDeviceGetMigMode", "nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstanceProfileInfo",
	"nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstances", "nvmlDeviceGetGpuInstanceById",
	"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceGetInfo", "nvmlGpuInstanceDestroy",
	"nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceCreateComputeInstance",
	"nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceDestroy",
}

func (l library) Open() (Session, error) {
	if err := l.probe(); err != nil {
		return nil, err
	}
	n := nvml.New(nvml.WithLibraryPath(l.path))
	if ret := n.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("initialising NVML (%s): %w", l.path, ret)
	}
	s := &session{nvml: n}
	for _, symbol := range neededForMIG {
		if err := n.Extensions().LookupSymbol(symbol); err != nil {
			s.withoutMIG = symbol
		}
	}
	return s, nil
}

// probe loads the library by itself first, because go-nvml swallows the dynamic linker's reason.
func (l library) probe() (err error) {
	lib := dl.New(l.path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := lib.Open(); err != nil {
		return fmt.Errorf("loading NVML: %w", err)
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	for _, symbol := range needed {
		if err := lib.Lookup(symbol); err != nil {
			return fmt.Errorf("NVML (%s) is too old or not NVML: %w", l.path, err)
		}
	}
	return nil
}

type session struct {
	nvml nvml.Interface
	// withoutMIG names a symbol of MIG that the driver lacks; empty where it has them all.
	withoutMIG string
}

func (s *session) Close() error { return failed("shutting NVML down", s.nvml.Shutdown()) }

func (s *session) Versions() (Versions, error) {
	driver, ret := s.nvml.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return Versions{}, failed("reading the driver's version", ret)
	}
	lib, ret := s.nvml.SystemGetNVMLVersion()
	if ret != nvml.SUCCESS {
		return Versions{}, failed("reading NVML's version", ret)
	}
	cuda, ret := s.nvml.SystemGetCudaDriverVersion_v2()
	if ret != nvml.SUCCESS {
		return Versions{}, failed("reading CUDA's version", ret)
	}
	// nvml.h: 13000 is 13.0, NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR.
	return Versions{Driver: driver, NVML: lib, CUDA: fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)}, nil
}

func (s *session) BoardCount() (int, error) {
	count, ret := s.nvml.DeviceGetCount()
	return count, failed("counting GPUs", ret)
}

func (s *session) Board(index int) (Board, error) {
	device, ret := s.nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, failed("opening the GPU", ret)
	}
	return &board{device: device, withoutMIG: s.withoutMIG}, nil
}

type board struct {
	device     nvml.Device
	withoutMIG string
}

func (b *board) Identity() (Identity, error) {
	uuid, ret := b.device.GetUUID()
	if ret != nvml.SUCCESS {
		return Identity{}, failed("reading the UUID", ret)
	}
	name, ret := b.device.GetName()
	if ret != nvml.SUCCESS {
		return Identity{}, failed("reading the product name", ret)
	}
	pci, ret := b.device.GetPciInfo()
	if ret != nvml.SUCCESS {
		return Identity{}, failed("reading the PCI bus id", ret)
	}
	memory, ret := b.device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return Identity{}, failed("reading the memory", ret)
	}
	return Identity{UUID: uuid, ProductName: name, PCIBusID: text(pci.BusId[:]), MemoryMiB: int64(memory.Total >> 20)}, nil
}

// text is a C string in a fixed array.
func text(chars []int8) string {
	var out []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}

// failed is nil where the call succeeded.
func failed(doing string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, ret)
}
