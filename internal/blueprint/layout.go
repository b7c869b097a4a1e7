package blueprint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// Layout places one MIGLayout by itself, without a machine: each entry of spec.devices, for one of its GPUs. The error
// is an *Error with the path of what is wrong; its Object is empty, since a spec has no name.
func Layout(spec v1alpha1.MIGLayoutSpec) ([]v1alpha1.MIGDevicesStatus, error) {
	if found := v1alpha1.ValidateMIGLayout(&spec); len(found) > 0 {
		return nil, &Error{Reason: v1alpha1.ReasonInvalidLayout, Path: found[0].Path, Message: found[0].Message}
	}
	model, found := gpu.Lookup(spec.GPUModel)
	if !found {
		return nil, &Error{
			Reason: v1alpha1.ReasonInvalidLayout, Path: "spec.gpuModel",
			Message: fmt.Sprintf("GPU model %s is not known; layouts can be made for %s",
				spec.GPUModel, strings.Join(gpu.MIGKeys(), ", ")),
		}
	}
	out := make([]v1alpha1.MIGDevicesStatus, len(spec.Devices))
	for i, d := range spec.Devices {
		instances, err := gpu.Place(model, demand(d.Slices))
		if err != nil {
			return nil, layoutError(err, i)
		}
		out[i] = status(model, instances)
	}
	return out, nil
}

func demand(cut []v1alpha1.MIGSlice) []gpu.Demand {
	out := make([]gpu.Demand, len(cut))
	for i, s := range cut {
		out[i] = gpu.Demand{Profile: s.Profile, Count: int(s.Count)}
	}
	return out
}

// layoutError gives the solver's error its place in the object.
func layoutError(err error, device int) error {
	out := &Error{Reason: v1alpha1.ReasonInvalidLayout, Message: err.Error()}
	var unknown *gpu.UnknownProfileError
	var unplaced *gpu.PlacementError
	switch {
	case errors.As(err, &unknown):
		out.Path = fmt.Sprintf("spec.devices[%d].slices[%d].profile", device, unknown.Index)
	case errors.As(err, &unplaced) && unplaced.Unsupported:
		out.Path = "spec.gpuModel"
	case errors.As(err, &unplaced) && unplaced.Index >= 0:
		out.Path = fmt.Sprintf("spec.devices[%d].slices[%d]", device, unplaced.Index)
	default:
		out.Path = fmt.Sprintf("spec.devices[%d].slices", device)
	}
	return out
}

func status(model gpu.Model, instances []gpu.Instance) v1alpha1.MIGDevicesStatus {
	out := v1alpha1.MIGDevicesStatus{Instances: make([]v1alpha1.MIGInstance, len(instances))}
	counts := map[string]int{}
	compute, memory := model.ComputeSlices, model.MemorySlices
	for i, in := range instances {
		out.Instances[i] = v1alpha1.MIGInstance{
			Profile:       in.Profile.Name,
			ComputeSlices: int32(in.Profile.ComputeSlices),
			Start:         int32(in.Placement.Start),
			Size:          int32(in.Placement.Size),
		}
		counts[gpu.ResourceName(in.Profile.Name)]++
		compute -= in.Profile.ComputeSlices
		memory -= in.Placement.Size
	}
	out.Resources = resourceList(counts)
	out.UnusedComputeSlices, out.UnusedMemorySlices = int32(compute), int32(memory)
	return out
}

// resolveLayout chooses the class's layout for the machine and places it on its GPUs; nil where GPUs stay whole.
func resolveLayout(
	class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout, t machine.Type, model gpu.Model,
) (*v1alpha1.LayoutBlueprint, error) {
	if sharing(class) != v1alpha1.SharingMIG {
		return nil, nil
	}
	if !model.MIGCapable() {
		return nil, classError(class, v1alpha1.ReasonSKUMismatch, "spec.sharing.strategy", cannotCut(t, model))
	}
	layout, err := chooseLayout(class, layouts, t)
	if err != nil {
		return nil, err
	}
	placed, err := Layout(layout.Spec)
	if err != nil {
		return nil, named(err, layout)
	}
	devices, err := spread(layout, placed, t)
	if err != nil {
		return nil, err
	}
	solved := &v1alpha1.LayoutBlueprint{Name: layout.Name, Devices: devices}
	if err := checkAlike(class, solved, t.Name); err != nil {
		return nil, err
	}
	return solved, nil
}

func cannotCut(t machine.Type, model gpu.Model) string {
	return fmt.Sprintf("instance type %s has %s GPUs: %s; use strategy Exclusive, or instance types with one of %s",
		t.Name, model.Key, model.NoMIG(), strings.Join(gpu.MIGKeys(), ", "))
}

// chooseLayout finds the one layout of the class that is for the machine's GPU model.
func chooseLayout(class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout, t machine.Type) (*v1alpha1.MIGLayout, error) {
	var chosen *v1alpha1.MIGLayout
	for i, name := range class.Spec.Sharing.Layouts {
		path := fmt.Sprintf("spec.sharing.layouts[%d]", i)
		layout := layouts[name]
		if layout == nil {
			return nil, classError(class, v1alpha1.ReasonInvalidLayout, path, Missing("MIG layout", name))
		}
		if layout.Spec.GPUModel != t.GPU.Model {
			continue
		}
		if chosen != nil {
			return nil, classError(class, v1alpha1.ReasonInvalidClass, path,
				fmt.Sprintf("layouts %s and %s are both for %s; a class has one layout for each GPU model",
					chosen.Name, layout.Name, t.GPU.Model))
		}
		chosen = layout
	}
	if chosen == nil {
		return nil, noLayout(class, layouts, t)
	}
	return chosen, nil
}

// noLayout says which models the class's layouts are for, and what would do. A model that nobody knows is the more
// useful thing to say.
func noLayout(class *v1alpha1.GPUNodeClass, layouts map[string]*v1alpha1.MIGLayout, t machine.Type) error {
	var have, types []string
	for _, name := range class.Spec.Sharing.Layouts {
		layout := layouts[name]
		if _, found := gpu.Lookup(layout.Spec.GPUModel); !found {
			_, err := Layout(layout.Spec)
			return named(err, layout)
		}
		have = append(have, fmt.Sprintf("layout %s of class %s is for %s", name, class.Name, layout.Spec.GPUModel))
		types = append(types, typesWith(layout.Spec.GPUModel)...)
	}
	possible := fmt.Sprintf("add a layout for %s to the class", t.GPU.Model)
	if len(types) > 0 {
		slices.Sort(types)
		possible += ", or use " + strings.Join(types, ", ")
	}
	return classError(class, v1alpha1.ReasonSKUMismatch, "spec.sharing.layouts",
		fmt.Sprintf("instance type %s has %s GPUs, but %s: %s", t.Name, t.GPU.Model, strings.Join(have, " and "), possible))
}

// spread gives every GPU of the machine its instances. GPUs that no entry names stay whole.
func spread(layout *v1alpha1.MIGLayout, placed []v1alpha1.MIGDevicesStatus, t machine.Type) ([]v1alpha1.DeviceLayout, error) {
	whole := indexes(t.GPU.Count)
	devices := make([]v1alpha1.DeviceLayout, 0, len(placed)+1)
	for i, d := range layout.Spec.Devices {
		gpus := slices.Sorted(slices.Values(d.GPUs))
		if len(gpus) == 0 {
			gpus = indexes(t.GPU.Count)
		}
		if last := gpus[len(gpus)-1]; int(last) >= t.GPU.Count {
			return nil, &Error{
				Reason: v1alpha1.ReasonSKUMismatch, Object: object(v1alpha1.KindMIGLayout, layout.Name),
				Path:    fmt.Sprintf("spec.devices[%d].gpus[%d]", i, slices.Index(d.GPUs, last)),
				Message: outOfRange(last, layout.Name, t),
			}
		}
		devices = append(devices, v1alpha1.DeviceLayout{GPUs: gpus, Instances: placed[i].Instances})
		whole = slices.DeleteFunc(whole, func(g int32) bool { return slices.Contains(gpus, g) })
	}
	if len(whole) > 0 {
		devices = append(devices, v1alpha1.DeviceLayout{GPUs: whole})
	}
	return devices, nil
}

func outOfRange(index int32, layout string, t machine.Type) string {
	have := fmt.Sprintf("%d GPUs, 0 to %d", t.GPU.Count, t.GPU.Count-1)
	if t.GPU.Count == 1 {
		have = "1 GPU, 0"
	}
	return fmt.Sprintf("layout %s names GPU %d, but instance type %s has %s; leave gpus out to cut every GPU",
		layout, index, t.Name, have)
}

func indexes(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

func classError(class *v1alpha1.GPUNodeClass, reason, path, message string) error {
	return &Error{Reason: reason, Object: object(v1alpha1.KindGPUNodeClass, class.Name), Path: path, Message: message}
}

// named adds the layout's name to an error of Layout.
func named(err error, layout *v1alpha1.MIGLayout) error {
	var e *Error
	if errors.As(err, &e) {
		e.Object = object(v1alpha1.KindMIGLayout, layout.Name)
	}
	return err
}
