package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	resourceGPU    = "nvidia.com/gpu"
	resourcePrefix = "nvidia.com/mig-"
)

// advertise counts what the plugin advertises under a MIG strategy (NVIDIA/k8s-device-plugin, README, "MIG support").
func advertise(strategy string, gpus []gpu, warnings io.Writer) (map[string]int64, error) {
	switch strategy {
	case strategyMixed:
		return advertiseMixed(gpus, warnings), nil
	case strategySingle:
		return advertiseSingle(gpus)
	default:
		return whole(len(gpus)), nil
	}
}

// whole is no resource at all where there is nothing to count.
func whole(n int) map[string]int64 {
	if n == 0 {
		return map[string]int64{}
	}
	return map[string]int64{resourceGPU: int64(n)}
}

// advertiseMixed: MIG devices by profile, whole GPUs as such. Only profiles whose compute instance fills the GPU instance
// have a resource.
func advertiseMixed(gpus []gpu, warnings io.Writer) map[string]int64 {
	counts := map[string]int64{}
	for _, g := range gpus {
		switch {
		case !g.MIG:
			counts[resourceGPU]++
		case len(g.Profiles) == 0:
			fmt.Fprintf(warnings, "GPU %d: MIG is enabled and there is no MIG device on it: it is not advertised\n", g.Index)
		}
		for _, profile := range g.Profiles {
			if strings.Contains(profile, "c.") {
				fmt.Fprintf(warnings, "GPU %d: MIG device %s has no resource: it is not advertised\n", g.Index, profile)
				continue
			}
			counts[resourcePrefix+strings.ReplaceAll(profile, "+", ".")]++
		}
	}
	return counts
}

// advertiseSingle: MIG devices, all alike and on every GPU, count as GPUs; without MIG the GPUs do.
func advertiseSingle(gpus []gpu) (map[string]int64, error) {
	var devices []string
	mig := 0
	for _, g := range gpus {
		if !g.MIG {
			continue
		}
		mig++
		if len(g.Profiles) == 0 {
			return nil, fmt.Errorf("migStrategy single: GPU %d has MIG enabled and no MIG device", g.Index)
		}
		devices = append(devices, g.Profiles...)
	}
	if mig == 0 {
		return whole(len(gpus)), nil
	}
	if mig != len(gpus) {
		return nil, errors.New("migStrategy single: all GPUs must have MIG enabled or none")
	}
	for _, profile := range devices {
		if profile != devices[0] {
			return nil, fmt.Errorf("migStrategy single: more than one MIG device type present: %s and %s", devices[0], profile)
		}
	}
	return whole(len(devices)), nil
}
