package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// MIG strategies of the device plugin.
const (
	strategyNone   = "none"
	strategySingle = "single"
	strategyMixed  = "mixed"
)

// config is NVIDIA's device plugin configuration v1 (NVIDIA/k8s-device-plugin, api/config/v1). Every key of it is here, so
// that one which is not can be refused: the real plugin drops unknown keys in silence (its issue 1433), which hides what
// this stand-in is there to show.
type config struct {
	Version   string  `json:"version"`
	Flags     flags   `json:"flags"`
	Resources any     `json:"resources"`
	Sharing   sharing `json:"sharing"`
	IMEX      any     `json:"imex"`
}

type flags struct {
	MIGStrategy             string `json:"migStrategy"`
	FailOnInitError         any    `json:"failOnInitError"`
	MPSRoot                 any    `json:"mpsRoot"`
	NVIDIADriverRoot        any    `json:"nvidiaDriverRoot"`
	NVIDIADevRoot           any    `json:"nvidiaDevRoot"`
	GDRCopyEnabled          any    `json:"gdrcopyEnabled"`
	GDSEnabled              any    `json:"gdsEnabled"`
	MOFEDEnabled            any    `json:"mofedEnabled"`
	UseNodeFeatureAPI       any    `json:"useNodeFeatureAPI"`
	DeviceDiscoveryStrategy any    `json:"deviceDiscoveryStrategy"`
	Plugin                  any    `json:"plugin"`
	GFD                     any    `json:"gfd"`
}

func parseConfig(data []byte) (config, error) {
	var c config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return config{}, err
	}
	if c.Version != "v1" {
		return config{}, fmt.Errorf("version is %q: want v1", c.Version)
	}
	switch c.Flags.MIGStrategy {
	case "":
		c.Flags.MIGStrategy = strategyNone
	case strategyNone, strategySingle, strategyMixed:
	default:
		return config{}, fmt.Errorf("flags.migStrategy is %q: want %s, %s or %s", c.Flags.MIGStrategy, strategyNone, strategySingle, strategyMixed)
	}
	return c, c.Sharing.check()
}
