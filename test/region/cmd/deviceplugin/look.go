package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpu is one board as the plugin sees it: whether MIG is on, and the profile of each MIG device.
type gpu struct {
	Index    int
	MIG      bool
	Profiles []string
}

// look asks NVML what the machine has.
func look(library string) (gpus []gpu, err error) {
	lib := nvml.New(nvml.WithLibraryPath(library))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("load NVML from %s: %s", library, lib.ErrorString(ret))
	}
	defer func() { err = errors.Join(err, failed("shut NVML down", lib.Shutdown())) }()
	count, ret := lib.DeviceGetCount()
	if err := failed("count the GPUs", ret); err != nil {
		return nil, err
	}
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if err := failed(fmt.Sprintf("open GPU %d", i), ret); err != nil {
			return nil, err
		}
		one, err := lookAt(device, i)
		if err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		gpus = append(gpus, one)
	}
	return gpus, nil
}

func failed(what string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %w", what, ret)
}

func lookAt(device nvml.Device, index int) (gpu, error) {
	mode, _, ret := device.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return gpu{Index: index}, nil
	}
	if err := failed("read the MIG mode", ret); err != nil {
		return gpu{}, err
	}
	one := gpu{Index: index, MIG: mode == nvml.DEVICE_MIG_ENABLE}
	if !one.MIG {
		return one, nil
	}
	most, ret := device.GetMaxMigDeviceCount()
	if err := failed("ask how many MIG devices there may be", ret); err != nil {
		return gpu{}, err
	}
	for i := range most {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := failed(fmt.Sprintf("open MIG device %d", i), ret); err != nil {
			return gpu{}, err
		}
		profile, err := profileOf(device, mig)
		if err != nil {
			return gpu{}, fmt.Errorf("MIG device %d: %w", i, err)
		}
		one.Profiles = append(one.Profiles, profile)
	}
	return one, nil
}

// profileOf names a MIG device as NVIDIA's own programs do, by its slices, its share of the board's memory and the engines
// that its GPU instance was made with (NVIDIA/go-nvlib, pkg/nvlib/device: GetProfile, NewMigProfile).
func profileOf(parent, mig nvml.Device) (string, error) {
	attributes, ret := mig.GetAttributes()
	if err := failed("read its attributes", ret); err != nil {
		return "", err
	}
	memory, ret := parent.GetMemoryInfo()
	if err := failed("read the board's memory", ret); err != nil {
		return "", err
	}
	suffix, err := enginesOf(parent, mig)
	if err != nil {
		return "", err
	}
	return profileName(int(attributes.ComputeInstanceSliceCount), int(attributes.GpuInstanceSliceCount),
		attributes.MemorySizeMB, memory.Total, suffix), nil
}

// profileName is 1g.10gb, or 1c.2g.20gb where a compute instance does not fill its GPU instance. The gigabytes are the
// eighths of the board that the device's memory reaches into, of the board's GiB rounded up.
func profileName(computeSlices, gpuSlices int, memoryMiB, totalBytes uint64, suffix string) string {
	const mib, gib = 1 << 20, 1 << 30
	eighths := math.Ceil(float64(memoryMiB) * mib / float64(totalBytes) * 8)
	gigabytes := int(math.Round(eighths / 8 * float64((totalBytes+gib-1)/gib)))
	name := fmt.Sprintf("%dg.%dgb%s", gpuSlices, gigabytes, suffix)
	if computeSlices != gpuSlices {
		return fmt.Sprintf("%dc.%s", computeSlices, name)
	}
	return name
}

func enginesOf(parent, mig nvml.Device) (string, error) {
	id, ret := mig.GetGpuInstanceId()
	if err := failed("ask for its GPU instance", ret); err != nil {
		return "", err
	}
	instance, ret := parent.GetGpuInstanceById(id)
	if err := failed("open its GPU instance", ret); err != nil {
		return "", err
	}
	info, ret := instance.GetInfo()
	if err := failed("read its GPU instance", ret); err != nil {
		return "", err
	}
	for index := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		profile, ret := parent.GetGpuInstanceProfileInfo(index)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if err := failed(fmt.Sprintf("read GPU instance profile %d", index), ret); err != nil {
			return "", err
		}
		if profile.Id == info.ProfileId {
			return engineSuffix(index), nil
		}
	}
	return "", fmt.Errorf("no profile of the board has id %d", info.ProfileId)
}

func engineSuffix(profileIndex int) string {
	switch profileIndex {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return "+me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return "+gfx"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return "-me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return "+me.all"
	default:
		return ""
	}
}
