package blueprint

import (
	"bytes"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// pluginConfig is the part of NVIDIA's device plugin configuration that we set. Source: NVIDIA/k8s-device-plugin
// v0.20.0, api/config/v1. The plugin drops keys that it does not know without a word
// (NVIDIA/k8s-device-plugin#1433), so nothing is written here by hand.
type pluginConfig struct {
	Version string      `json:"version"`
	Flags   pluginFlags `json:"flags"`
	// Sharing is left out where nothing is shared: the plugin refuses fewer than 2 replicas.
	Sharing *pluginSharing `json:"sharing,omitempty"`
}

type pluginFlags struct {
	MIGStrategy string `json:"migStrategy"`
}

type pluginSharing struct {
	TimeSlicing pluginTimeSlicing `json:"timeSlicing"`
}

type pluginTimeSlicing struct {
	RenameByDefault            bool `json:"renameByDefault,omitempty"`
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
	// Resources are by the names that they have before they are renamed.
	Resources []pluginReplicas `json:"resources"`
}

type pluginReplicas struct {
	Name     string `json:"name"`
	Replicas int32  `json:"replicas"`
}

// MIG strategies of the device plugin: none advertises every GPU whole, mixed each MIG profile under its own name and
// GPUs without MIG whole, single every MIG instance as a GPU.
const (
	pluginMIGNone   = "none"
	pluginMIGMixed  = "mixed"
	pluginMIGSingle = "single"
)

// DevicePluginConfig is the device plugin's configuration for the nodes of one pool, as YAML. The pool's Blueprints
// share a class, so they agree; where they do not, the caller mixed pools.
func DevicePluginConfig(bps ...v1alpha1.Blueprint) ([]byte, error) {
	if len(bps) == 0 {
		return nil, errors.New("no Blueprint to configure the device plugin for")
	}
	var out []byte
	for i, bp := range bps {
		data, err := yaml.Marshal(configOf(bp))
		if err != nil {
			return nil, fmt.Errorf("device plugin configuration of pool %s: %w", bp.Pool, err)
		}
		if i > 0 && (bp.Pool != bps[0].Pool || !bytes.Equal(data, out)) {
			return nil, fmt.Errorf("one device plugin configuration for pool %s (%s) and pool %s (%s): each pool needs its own",
				bps[0].Pool, bps[0].Sharing, bp.Pool, bp.Sharing)
		}
		out = data
	}
	return out, nil
}

func configOf(bp v1alpha1.Blueprint) pluginConfig {
	out := pluginConfig{Version: "v1", Flags: pluginFlags{MIGStrategy: pluginMIG(bp)}}
	if bp.Sharing == v1alpha1.SharingTimeSlicing {
		out.Sharing = &pluginSharing{TimeSlicing: pluginTimeSlicing{
			RenameByDefault:            bp.RenameByDefault,
			FailRequestsGreaterThanOne: bp.FailRequestsGreaterThanOne,
			Resources:                  []pluginReplicas{{Name: v1alpha1.ResourceGPU, Replicas: bp.Replicas}},
		}}
	}
	return out
}

func pluginMIG(bp v1alpha1.Blueprint) string {
	switch {
	case bp.Sharing != v1alpha1.SharingMIG:
		return pluginMIGNone
	case bp.MIGStrategy == v1alpha1.MIGSingle:
		return pluginMIGSingle
	}
	return pluginMIGMixed
}
