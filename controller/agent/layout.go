package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Steps of a pass, as AgentFailure.Step names them.
const (
	stepLoad     = "load-nvml"
	stepRead     = "read"
	stepSetMode  = "set-mode"
	stepDestroy  = "destroy"
	stepCreate   = "create"
	stepReadBack = "read-back"
)

// stepError is a step that failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// at says which step failed; nil stays nil.
func at(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// applyLayout brings every board that the layout names to its instances. A board that fails keeps no other from its
// layout; a board that the machine does not have is left to verification.
func applyLayout(ctx context.Context, s Session, count int, layout *v1alpha1.LayoutBlueprint) error {
	var errs []error
	for _, device := range layout.Devices {
		for _, index := range device.GPUs {
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			if int(index) >= count {
				continue
			}
			b, err := s.Board(int(index))
			if err == nil {
				err = applyBoard(b, device.Instances)
			} else {
				err = at(stepRead, err)
			}
			if err != nil {
				errs = append(errs, onGPU(int(index), err))
			}
		}
	}
	return errors.Join(errs...)
}

func onGPU(index int, err error) error {
	step := stepRead
	if failed := (*stepError)(nil); errors.As(err, &failed) {
		step = failed.step
	}
	return at(step, fmt.Errorf("GPU %d: %w", index, err))
}

// applyBoard cuts one board. A board that no instances are wanted of is taken out of MIG mode: a GPU in MIG mode without
// instances is of no use to anybody.
func applyBoard(b Board, wanted []v1alpha1.MIGInstance) error {
	mode, err := b.MIGMode()
	if err != nil {
		return at(stepRead, err)
	}
	if !mode.Capable {
		if len(wanted) == 0 {
			return nil
		}
		return at(stepSetMode, fmt.Errorf("the layout wants %d MIG instances of a board that cannot do MIG", len(wanted)))
	}
	if len(wanted) == 0 {
		return unpartition(b, mode)
	}
	if mode, err = ensureMode(b, mode, true); err != nil || !mode.Enabled {
		return err
	}
	return partition(b, wanted)
}

func unpartition(b Board, mode MIGMode) error {
	if mode.Enabled {
		if err := destroyForeign(b, nil); err != nil {
			return err
		}
	}
	_, err := ensureMode(b, mode, false)
	return err
}

// ensureMode sets the MIG mode where it is or will be another, and returns the mode that is then in effect. A mode that
// waits for a reset is no failure: the inventory shows it.
func ensureMode(b Board, mode MIGMode, enabled bool) (MIGMode, error) {
	if mode.Enabled == enabled && mode.PendingEnabled == enabled {
		return mode, nil
	}
	if err := b.SetMIGMode(enabled); err != nil {
		return mode, at(stepSetMode, err)
	}
	mode, err := b.MIGMode()
	if err != nil {
		return mode, at(stepReadBack, err)
	}
	if mode.Enabled != enabled && mode.PendingEnabled != enabled {
		return mode, at(stepSetMode, fmt.Errorf("setting MIG mode to enabled=%t changed nothing", enabled))
	}
	return mode, nil
}

// partition destroys what the layout does not have and creates what it lacks, in the places that it was solved for.
func partition(b Board, wanted []v1alpha1.MIGInstance) error {
	profiles, err := b.Profiles()
	if err != nil {
		return at(stepRead, err)
	}
	resolved := make([]resolvedInstance, 0, len(wanted))
	for _, w := range wanted {
		p, err := resolve(profiles, w)
		if err != nil {
			return at(stepCreate, err)
		}
		resolved = append(resolved, resolvedInstance{p, Placement{Start: w.Start, Size: w.Size}})
	}
	if err := destroyForeign(b, resolved); err != nil {
		return err
	}
	have, err := b.Instances()
	if err != nil {
		return at(stepRead, err)
	}
	for _, r := range resolved {
		if slices.ContainsFunc(have, r.is) {
			continue
		}
		if err := b.Create(r.profile, r.at); err != nil {
			return at(stepCreate, err)
		}
	}
	return nil
}

// resolvedInstance is an instance of the layout with the profile that this driver has for it.
type resolvedInstance struct {
	profile Profile
	at      Placement
}

// is says whether an instance that exists is this one. One without a compute instance, as a crash leaves it, is not.
func (r resolvedInstance) is(in Instance) bool {
	return in.Usable && in.ProfileID == r.profile.ID && in.At == r.at
}

// resolve finds the device's profile for an instance of the layout by compute slices, place and media or graphics engines,
// because drivers rename profiles: 1g.24gb of one GB200 is 1g.23gb of another (github.com/NVIDIA/mig-parted issue 227).
func resolve(profiles []Profile, w v1alpha1.MIGInstance) (Profile, error) {
	place := Placement{Start: w.Start, Size: w.Size}
	var offered []string
	for _, p := range profiles {
		if p.ComputeSlices == w.ComputeSlices && ending(p.Name) == ending(w.Profile) && slices.Contains(p.Placements, place) {
			return p, nil
		}
		offered = append(offered, p.Name)
	}
	return Profile{}, fmt.Errorf("the driver has no MIG profile like %s with %d compute slices at %s; it offers %s",
		w.Profile, w.ComputeSlices, place, strings.Join(offered, ", "))
}

func destroyForeign(b Board, wanted []resolvedInstance) error {
	have, err := b.Instances()
	if err != nil {
		return at(stepRead, err)
	}
	for _, in := range have {
		if slices.ContainsFunc(wanted, func(r resolvedInstance) bool { return r.is(in) }) {
			continue
		}
		if err := b.Destroy(in); err != nil {
			return at(stepDestroy, err)
		}
	}
	return nil
}
