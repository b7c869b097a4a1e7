package agent

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mediaAndGraphics are the endings of profile names, by profile index. Source: comments on NVML_GPU_INSTANCE_PROFILE_* in
// nvml.h (github.com/NVIDIA/go-nvml v0.13.4-1), names as nvidia-smi mig -lgip prints them.
var mediaAndGraphics = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

// profileName is the name that NVIDIA's device plugin and DRA driver give a profile. It is computed and not fixed: the
// gigabytes are the board's, rounded up, times the eighths of it that the profile's memory takes, so that another driver
// or ECC setting can rename a profile. Source: github.com/NVIDIA/go-nvlib v0.13.0, pkg/nvlib/device, NewMigProfile.
func profileName(index int, computeSlices int32, memoryMiB, boardBytes uint64) string {
	eighths := math.Ceil(8 * float64(memoryMiB<<20) / float64(boardBytes))
	gigabytes := math.Round(eighths / 8 * math.Ceil(float64(boardBytes)/(1<<30)))
	return fmt.Sprintf("%dg.%.0fgb%s", computeSlices, gigabytes, mediaAndGraphics[index])
}

// ending is what a profile's name says beyond its size, e.g. "+me".
func ending(name string) string {
	_, after, _ := strings.Cut(name, "gb")
	return after
}
