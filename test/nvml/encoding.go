package nvml

import (
	"bytes"
	"fmt"
	"strings"
)

// The state file has one fact a line: a word, then numbers, then at most one text. "gpu" starts a board and the lines
// after it are about that board; "instance" is followed by "compute" lines of the same instance. What boards.json says of a
// board is written out with it, so that the C side needs no table.

func encode(s State) ([]byte, error) {
	var w bytes.Buffer
	fmt.Fprintf(&w, "driver %s\nnvml %s\ncuda %d\n", s.Driver, s.NVML, s.CUDA)
	for _, f := range s.Faults {
		if f.Name != FaultLoseInstance {
			return nil, fmt.Errorf("unknown fault %q: the library knows %q", f.Name, FaultLoseInstance)
		}
		fmt.Fprintf(&w, "fault %d %d %s\n", f.GPU, f.N, f.Name)
	}
	for i, g := range s.GPUs {
		if err := encodeGPU(&w, g); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return w.Bytes(), nil
}

func encodeGPU(w *bytes.Buffer, g GPU) error {
	b, err := lookupBoard(g.Board)
	if err != nil {
		return err
	}
	if strings.ContainsAny(g.UUID+g.Name+g.PCIBusID, "\n\r") || g.UUID == "" {
		return fmt.Errorf("UUID %q, name %q and PCI bus id %q must be one line each, UUID not empty", g.UUID, g.Name, g.PCIBusID)
	}
	var major, minor int
	if _, err := fmt.Sscanf(b.Capability, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("compute capability %q of board %s: %w", b.Capability, g.Board, err)
	}
	fmt.Fprintf(w, "gpu %s\nname %s\nbus %s\nboard %s\n", g.UUID, g.Name, g.PCIBusID, g.Board)
	fmt.Fprintf(w, "memory %d\narch %d %d %d %s\n", g.MemoryMiB, b.Architecture, major, minor, b.PCIDeviceID)
	fmt.Fprintf(w, "mig %d %d %d\n", digit(g.MIG), digit(g.MIGPending), g.Created)
	fmt.Fprintf(w, "mode %s\n", b.MIGMode)
	for _, p := range b.Profiles {
		fmt.Fprintf(w, "profile %d %d %d %d %d %d %d %d %d %d %d %s\n",
			p.Index, p.ID, p.Slices, p.Size, p.MemoryMiB, p.Max, p.SM, p.Copy, p.Decoder, p.JPEG, p.OFA, p.Name)
		for _, start := range p.Starts {
			fmt.Fprintf(w, "start %d\n", start)
		}
	}
	for _, in := range g.Instances {
		fmt.Fprintf(w, "instance %d %d %d %d\n", in.ID, in.ProfileID, in.Start, in.Size)
		for _, c := range in.Compute {
			fmt.Fprintf(w, "compute %d %d %d %d\n", c.ID, c.Profile, c.Start, c.Size)
		}
	}
	return nil
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func decode(data []byte) (State, error) {
	var s State
	for n, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if err := decodeLine(&s, line); err != nil {
			return State{}, fmt.Errorf("line %d %q: %w", n+1, line, err)
		}
	}
	return s, nil
}

func decodeLine(s *State, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "driver":
		s.Driver = rest
	case "nvml":
		s.NVML = rest
	case "cuda":
		return scan(rest, &s.CUDA)
	case "fault":
		s.Faults = append(s.Faults, Fault{})
		f := &s.Faults[len(s.Faults)-1]
		return scan(rest, &f.GPU, &f.N, &f.Name)
	case "gpu":
		s.GPUs = append(s.GPUs, GPU{UUID: rest})
	default:
		if len(s.GPUs) == 0 {
			return fmt.Errorf("%q before the first gpu", word)
		}
		return decodeGPULine(&s.GPUs[len(s.GPUs)-1], word, rest)
	}
	return nil
}

func decodeGPULine(g *GPU, word, rest string) error {
	switch word {
	case "name":
		g.Name = rest
	case "bus":
		g.PCIBusID = rest
	case "board":
		g.Board = rest
	case "memory":
		return scan(rest, &g.MemoryMiB)
	case "mig":
		var current, pending int
		err := scan(rest, &current, &pending, &g.Created)
		g.MIG, g.MIGPending = current == 1, pending == 1
		return err
	case "instance":
		g.Instances = append(g.Instances, Instance{})
		in := &g.Instances[len(g.Instances)-1]
		return scan(rest, &in.ID, &in.ProfileID, &in.Start, &in.Size)
	case "compute":
		if len(g.Instances) == 0 {
			return fmt.Errorf("compute before the first instance")
		}
		in := &g.Instances[len(g.Instances)-1]
		var c ComputeInstance
		err := scan(rest, &c.ID, &c.Profile, &c.Start, &c.Size)
		in.Compute = append(in.Compute, c)
		return err
	case "arch", "mode", "profile", "start": // of boards.json: the board's key says it all
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

func scan(text string, into ...any) error {
	_, err := fmt.Sscan(text, into...)
	return err
}
