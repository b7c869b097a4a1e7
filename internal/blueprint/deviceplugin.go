package blueprint

import (
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
}

type pluginFlags struct {
	MIGStrategy string `json:"migStrategy"`
}

// MIG strategies of the device plugin: none advertises every GPU whole, mixed each MIG profile under its own name and
// GPUs without MIG whole.
const (
	pluginMIGNone  = "none"
	pluginMIGMixed = "mixed"
)

// DevicePluginConfig is the device plugin's configuration for the nodes of one pool, as YAML. The pool's Blueprints
// share a class, so they agree; where they do not, the caller mixed pools.
func DevicePluginConfig(bps ...v1alpha1.Blueprint) ([]byte, error) {
	if len(bps) == 0 {
		return nil, errors.New("no Blueprint to configure the device plugin for")
	}
	first := bps[0]
	for _, bp := range bps[1:] {
		if bp.Pool != first.Pool || bp.Sharing != first.Sharing {
			return nil, fmt.Errorf("one device plugin configuration for pool %s (%s) and pool %s (%s): each pool needs its own",
				first.Pool, first.Sharing, bp.Pool, bp.Sharing)
		}
	}
	strategy := pluginMIGNone
	if first.Sharing == v1alpha1.SharingMIG {
		strategy = pluginMIGMixed
	}
	out, err := yaml.Marshal(pluginConfig{Version: "v1", Flags: pluginFlags{MIGStrategy: strategy}})
	if err != nil {
		return nil, fmt.Errorf("device plugin configuration of pool %s: %w", first.Pool, err)
	}
	return out, nil
}
