package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Look reads what NVML sees and changes nothing. What could not be read is said in Failure; ObservedAt is left to the
// caller.
func Look(lib Library) v1alpha1.Inventory {
	return pass(context.Background(), lib, nil)
}

// pass applies the layout, where one is given, and reads back what is really there: that every call reported success
// proves nothing.
func pass(ctx context.Context, lib Library, layout *v1alpha1.LayoutBlueprint) v1alpha1.Inventory {
	var inv v1alpha1.Inventory
	inv.Failure = failure(inSession(lib, func(s Session) error {
		count, err := s.BoardCount()
		if err != nil {
			return at(stepRead, err)
		}
		var applied error
		if layout != nil {
			applied = applyLayout(ctx, s, count, layout)
		}
		step := stepRead
		if layout != nil {
			step = stepReadBack
		}
		return errors.Join(applied, at(step, look(s, count, &inv)))
	}))
	return inv
}

// inSession runs f in a session of its own, so that no handle outlives the pass.
func inSession(lib Library, f func(Session) error) (err error) {
	s, err := lib.Open()
	if err != nil {
		return at(stepLoad, err)
	}
	defer func() { err = errors.Join(err, at(stepRead, s.Close())) }()
	return f(s)
}

// look fills in all that can be read. What cannot is named in the error, and a board whose identity cannot is left out.
func look(s Session, count int, inv *v1alpha1.Inventory) error {
	versions, err := s.Versions()
	if err != nil {
		return err
	}
	inv.DriverVersion, inv.NVMLVersion, inv.CUDAVersion = versions.Driver, versions.NVML, versions.CUDA
	var errs []error
	for index := range count {
		gpu, err := lookAt(s, index)
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", index, err))
		}
		if gpu.UUID != "" {
			inv.GPUs = append(inv.GPUs, gpu)
		}
	}
	return errors.Join(errs...)
}

func lookAt(s Session, index int) (v1alpha1.GPUInventory, error) {
	b, err := s.Board(index)
	if err != nil {
		return v1alpha1.GPUInventory{}, err
	}
	id, err := b.Identity()
	if err != nil {
		return v1alpha1.GPUInventory{}, err
	}
	gpu := v1alpha1.GPUInventory{
		Index:       int32(index),
		UUID:        id.UUID,
		ProductName: id.ProductName,
		MemoryMiB:   id.MemoryMiB,
		PCIBusID:    id.PCIBusID,
	}
	gpu.MIG, err = lookAtMIG(b)
	return gpu, err
}

func lookAtMIG(b Board) (*v1alpha1.MIGInventory, error) {
	mode, err := b.MIGMode()
	if err != nil || !mode.Capable {
		return nil, err
	}
	mig := &v1alpha1.MIGInventory{Enabled: mode.Enabled, PendingEnabled: mode.PendingEnabled}
	if !mode.Enabled {
		return mig, nil
	}
	profiles, err := b.Profiles()
	if err != nil {
		return nil, err
	}
	instances, err := b.Instances()
	if err != nil {
		return nil, err
	}
	for _, in := range instances {
		i := slices.IndexFunc(profiles, func(p Profile) bool { return p.ID == in.ProfileID })
		if i < 0 {
			return nil, fmt.Errorf("the GPU instance at %s has profile id %d, which the driver does not offer", in.At, in.ProfileID)
		}
		mig.Instances = append(mig.Instances, v1alpha1.MIGInstance{
			Profile:       profiles[i].Name,
			ComputeSlices: profiles[i].ComputeSlices,
			Start:         in.At.Start,
			Size:          in.At.Size,
		})
	}
	slices.SortFunc(mig.Instances, func(x, y v1alpha1.MIGInstance) int { return int(x.Start - y.Start) })
	return mig, nil
}

// failure is the report of an error: its first step, and all that went wrong in one line.
func failure(err error) *v1alpha1.AgentFailure {
	if err == nil {
		return nil
	}
	f := &v1alpha1.AgentFailure{Step: stepRead, Message: strings.ReplaceAll(err.Error(), "\n", "; ")}
	if failed := (*stepError)(nil); errors.As(err, &failed) {
		f.Step = failed.step
	}
	return f
}

// resetDue says whether a board's MIG mode waits for a reset.
func resetDue(inv v1alpha1.Inventory) bool {
	return slices.ContainsFunc(inv.GPUs, func(g v1alpha1.GPUInventory) bool {
		return g.MIG != nil && g.MIG.Enabled != g.MIG.PendingEnabled
	})
}
