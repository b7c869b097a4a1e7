package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// sharing is the part of the configuration that makes several resources of one device (NVIDIA/k8s-device-plugin v0.20.0,
// api/config/v1, sharing.go and replicas.go).
type sharing struct {
	TimeSlicing *timeSlicing `json:"timeSlicing"`
	MPS         any          `json:"mps"`
}

// timeSlicing: FailRequestsGreaterThanOne is about what a container may ask for, and changes nothing here.
type timeSlicing struct {
	RenameByDefault            bool       `json:"renameByDefault"`
	FailRequestsGreaterThanOne bool       `json:"failRequestsGreaterThanOne"`
	Resources                  []replicas `json:"resources"`
}

type replicas struct {
	Name     string `json:"name"`
	Rename   any    `json:"rename"`
	Devices  any    `json:"devices"`
	Replicas *int   `json:"replicas"`
}

// The plugin reads these two through maps, so their keys are case-sensitive, unlike those of the rest.

func (s *timeSlicing) UnmarshalJSON(data []byte) error {
	type plain timeSlicing
	return exact(data, (*plain)(s), "renameByDefault", "failRequestsGreaterThanOne", "resources")
}

func (r *replicas) UnmarshalJSON(data []byte) error {
	type plain replicas
	return exact(data, (*plain)(r), "name", "rename", "devices", "replicas")
}

// exact unmarshals an object that has no other keys than these, letter by letter.
func exact(data []byte, into any, keys ...string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	for key := range object {
		if !slices.Contains(keys, key) {
			return fmt.Errorf("unknown field %q: want %s", key, strings.Join(keys, ", "))
		}
	}
	return json.Unmarshal(data, into)
}

const (
	domain       = "nvidia.com/"
	sharedSuffix = ".shared"
)

// resource is the name with the prefix that the plugin adds where it is left out.
func (r replicas) resource() string { return domain + strings.TrimPrefix(r.Name, domain) }

func (s sharing) check() error {
	if s.MPS != nil {
		return errors.New("sharing.mps is set: this stand-in shares by time only, leave it out")
	}
	if s.TimeSlicing == nil {
		return nil
	}
	if len(s.TimeSlicing.Resources) == 0 {
		return errors.New("sharing.timeSlicing: no resources specified")
	}
	seen := map[string]bool{}
	for i, r := range s.TimeSlicing.Resources {
		if err := r.check(); err != nil {
			return fmt.Errorf("sharing.timeSlicing.resources[%d]: %w", i, err)
		}
		if seen[r.resource()] {
			return fmt.Errorf("sharing.timeSlicing.resources[%d]: %s is given twice", i, r.resource())
		}
		seen[r.resource()] = true
	}
	return nil
}

// check refuses rename and devices too: the plugin reads them, warns, and goes on without them.
func (r replicas) check() error {
	switch {
	case r.Name == "":
		return errors.New("no resource name specified")
	case r.Replicas == nil:
		return errors.New("no replicas specified")
	case *r.Replicas < 2:
		return fmt.Errorf("number of replicas must be >= 2, not %d", *r.Replicas)
	case r.Rename != nil || r.Devices != nil:
		return errors.New("rename and devices are ignored by the plugin: leave them out")
	}
	return nil
}

// apply multiplies what the configuration names, whatever it is: GPUs, or MIG devices under either strategy. A name that
// the machine does not have is passed over (NVIDIA/k8s-device-plugin, internal/rm/device_map.go).
func (s sharing) apply(counts map[string]int64) map[string]int64 {
	if s.TimeSlicing == nil {
		return counts
	}
	shared := map[string]int64{}
	factor := map[string]int64{}
	for _, r := range s.TimeSlicing.Resources {
		factor[r.resource()] = int64(*r.Replicas)
	}
	for name, n := range counts {
		f, named := factor[name]
		switch {
		case !named:
			shared[name] = n
		case s.TimeSlicing.RenameByDefault:
			shared[name+sharedSuffix] = n * f
		default:
			shared[name] = n * f
		}
	}
	return shared
}
