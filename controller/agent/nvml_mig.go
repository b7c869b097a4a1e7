package agent

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func (b *board) MIGMode() (MIGMode, error) {
	if b.withoutMIG != "" {
		return MIGMode{}, nil
	}
	current, pending, ret := b.device.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return MIGMode{}, nil
	}
	if ret != nvml.SUCCESS {
		return MIGMode{}, failed("reading the MIG mode", ret)
	}
	return MIGMode{
		Capable:        true,
		Enabled:        current == nvml.DEVICE_MIG_ENABLE,
		PendingEnabled: pending == nvml.DEVICE_MIG_ENABLE,
	}, nil
}

func (b *board) SetMIGMode(enabled bool) error {
	if b.withoutMIG != "" {
		return fmt.Errorf("the driver cannot do MIG: its NVML lacks %s", b.withoutMIG)
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if enabled {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, ret := b.device.SetMigMode(mode)
	if ret != nvml.SUCCESS {
		return failed("setting the MIG mode", ret)
	}
	// nvml.h, nvmlDeviceSetMigMode: where a reset cannot be had, as in a virtual machine, the mode waits for a reboot.
	if activation != nvml.SUCCESS && activation != nvml.ERROR_RESET_REQUIRED {
		return fmt.Errorf("activating the MIG mode, stop whatever holds the GPU: %w", activation)
	}
	return nil
}

func (b *board) Profiles() ([]Profile, error) {
	infos, err := b.profileInfos()
	if err != nil {
		return nil, err
	}
	memory, ret := b.device.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil, failed("reading the memory", ret)
	}
	var profiles []Profile
	for _, p := range infos {
		slices := int32(p.info.SliceCount)
		profile := Profile{
			Name:          profileName(p.index, slices, p.info.MemorySizeMB, memory.Total),
			Index:         p.index,
			ID:            int(p.info.Id),
			ComputeSlices: slices,
		}
		placements, ret := b.device.GetGpuInstancePossiblePlacements(&p.info)
		if ret != nvml.SUCCESS {
			return nil, failed("reading the placements of "+profile.Name, ret)
		}
		for _, at := range placements {
			profile.Placements = append(profile.Placements, placement(at))
		}
		profiles = append(profiles, profile)
	}
	return profiles, nil
}

func placement(p nvml.GpuInstancePlacement) Placement {
	return Placement{Start: int32(p.Start), Size: int32(p.Size)}
}

type indexedInfo struct {
	index int
	info  nvml.GpuInstanceProfileInfo
}

// profileInfos asks for every profile that nvml.h knows: boards have few of them, and older drivers know fewer.
func (b *board) profileInfos() ([]indexedInfo, error) {
	if b.withoutMIG != "" {
		return nil, nil
	}
	var infos []indexedInfo
	for index := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := b.device.GetGpuInstanceProfileInfo(index)
		switch ret {
		case nvml.SUCCESS:
			infos = append(infos, indexedInfo{index, info})
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT:
		default:
			return nil, failed(fmt.Sprintf("reading MIG profile %d", index), ret)
		}
	}
	return infos, nil
}

func (b *board) Instances() ([]Instance, error) {
	infos, err := b.profileInfos()
	if err != nil {
		return nil, err
	}
	var instances []Instance
	for _, p := range infos {
		found, ret := b.device.GetGpuInstances(&p.info)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("reading the GPU instances of MIG profile %d", p.index), ret)
		}
		for _, gi := range found {
			instance, err := read(gi)
			if err != nil {
				return nil, err
			}
			instances = append(instances, instance)
		}
	}
	return instances, nil
}

func read(gi nvml.GpuInstance) (Instance, error) {
	info, ret := gi.GetInfo()
	if ret != nvml.SUCCESS {
		return Instance{}, failed("reading a GPU instance", ret)
	}
	computes, err := computeInstances(gi)
	if err != nil {
		return Instance{}, err
	}
	return Instance{
		ID:        int(info.Id),
		ProfileID: int(info.ProfileId),
		At:        placement(info.Placement),
		Usable:    len(computes) > 0,
	}, nil
}

func (b *board) Create(profile Profile, at Placement) error {
	info, ret := b.device.GetGpuInstanceProfileInfo(profile.Index)
	if ret != nvml.SUCCESS {
		return failed("reading MIG profile "+profile.Name, ret)
	}
	gi, ret := b.device.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
	if ret != nvml.SUCCESS {
		return failed(fmt.Sprintf("creating %s at %s", profile.Name, at), ret)
	}
	compute, err := spanning(gi, info.SliceCount)
	if err != nil {
		return err
	}
	if _, ret := gi.CreateComputeInstance(&compute); ret != nvml.SUCCESS {
		return failed(fmt.Sprintf("creating the compute instance of %s at %s", profile.Name, at), ret)
	}
	return nil
}

// spanning is the compute instance profile that takes a whole GPU instance.
func spanning(gi nvml.GpuInstance, slices uint32) (nvml.ComputeInstanceProfileInfo, error) {
	infos, err := computeProfiles(gi)
	if err != nil {
		return nvml.ComputeInstanceProfileInfo{}, err
	}
	for _, info := range infos {
		if info.SliceCount == slices {
			return info, nil
		}
	}
	return nvml.ComputeInstanceProfileInfo{}, fmt.Errorf("the driver has no compute instance profile of %d slices, only %d others", slices, len(infos))
}

func computeProfiles(gi nvml.GpuInstance) ([]nvml.ComputeInstanceProfileInfo, error) {
	var infos []nvml.ComputeInstanceProfileInfo
	for index := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(index, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		switch ret {
		case nvml.SUCCESS:
			infos = append(infos, info)
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT:
		default:
			return nil, failed(fmt.Sprintf("reading compute instance profile %d", index), ret)
		}
	}
	return infos, nil
}

func computeInstances(gi nvml.GpuInstance) ([]nvml.ComputeInstance, error) {
	infos, err := computeProfiles(gi)
	if err != nil {
		return nil, err
	}
	var all []nvml.ComputeInstance
	for _, info := range infos {
		found, ret := gi.GetComputeInstances(&info)
		if ret != nvml.SUCCESS {
			return nil, failed("reading the compute instances", ret)
		}
		all = append(all, found...)
	}
	return all, nil
}

func (b *board) Destroy(instance Instance) error {
	gi, ret := b.device.GetGpuInstanceById(instance.ID)
	if ret != nvml.SUCCESS {
		return failed(fmt.Sprintf("opening GPU instance %d", instance.ID), ret)
	}
	computes, err := computeInstances(gi)
	if err != nil {
		return err
	}
	for _, compute := range computes {
		err = errors.Join(err, failed("destroying a compute instance", compute.Destroy()))
	}
	if err != nil {
		return err
	}
	return failed(fmt.Sprintf("destroying the GPU instance at %s", instance.At), gi.Destroy())
}
