package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// EnvState names the environment variable with the path of the machine's state file. The library reads that file under
// a lock at every call, so one process that changes the variable between calls sees another machine.
const EnvState = "NVML_STATE_FILE"

// FaultLoseInstance makes the Nth GPU instance that is created on GPU report success and not exist.
const FaultLoseInstance = "lose-instance"

// State is one machine as NVML sees it.
type State struct {
	// Driver and NVML are versions, e.g. 580.95.05 and 13.580.95.05; CUDA is as NVML writes it, 13000 for 13.0.
	Driver, NVML string
	CUDA         int
	// GPUs are the boards in NVML's order.
	GPUs   []GPU
	Faults []Fault
}

// GPU is one board.
type GPU struct {
	UUID, Name, PCIBusID string
	// Board is a key of boards.json; it decides what the board can do.
	Board string
	// MemoryMiB is the total that nvmlDeviceGetMemoryInfo gives.
	MemoryMiB int64
	// MIG is the current mode, MIGPending the mode after the next reset.
	MIG, MIGPending bool
	// Created counts the GPU instances ever created, for faults.
	Created   int
	Instances []Instance
}

// Instance is one GPU instance; ProfileID is what nvidia-smi mig -lgip prints, Start and Size are memory slices.
type Instance struct {
	ID, ProfileID, Start, Size int
	// Compute are its compute instances. Without one there is no MIG device.
	Compute []ComputeInstance
}

// ComputeInstance is one compute instance; Start and Size are compute slices of its GPU instance.
type ComputeInstance struct {
	ID, Profile, Start, Size int
}

// Fault is something that goes wrong on this machine.
type Fault struct {
	Name   string
	GPU, N int
}

// Reboot is what a reboot does to NVML's state: MIG instances never survive one. MIG mode does on Ampere, where it is
// kept in the InfoROM and a pending change takes effect, and does not from Hopper on, where it lives as long as the
// driver is loaded. Source: NVIDIA MIG User Guide, "MIG mode" and "Persistence".
func (s *State) Reboot() {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Instances = nil
		if boardOrZero(g.Board).MIGMode == migAtOnce {
			g.MIGPending = false
		}
		g.MIG = g.MIGPending
	}
}

// Write replaces the machine's state.
func Write(path string, s State) error {
	data, err := encode(s)
	if err != nil {
		return fmt.Errorf("writing NVML state %s: %w", path, err)
	}
	return locked(path, func() error { return replace(path, data) })
}

// Read returns the machine's state.
func Read(path string) (s State, err error) {
	err = locked(path, func() error {
		s, err = read(path)
		return err
	})
	return s, err
}

// Update changes the machine's state in one step, which no call of the library can come between.
func Update(path string, change func(*State) error) error {
	return locked(path, func() error {
		s, err := read(path)
		if err != nil {
			return err
		}
		if err := change(&s); err != nil {
			return err
		}
		data, err := encode(s)
		if err != nil {
			return fmt.Errorf("writing NVML state %s: %w", path, err)
		}
		return replace(path, data)
	})
}

func read(path string) (State, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("reading NVML state: %w", err)
	}
	s, err := decode(data)
	if err != nil {
		return State{}, fmt.Errorf("reading NVML state %s: %w", path, err)
	}
	return s, nil
}

// locked runs f under the lock that the library takes too. It is a file of its own because the state file is replaced.
func locked(path string, f func() error) (err error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("locking NVML state: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := flock(int(lock.Fd())); err != nil {
		return fmt.Errorf("locking NVML state %s: %w", path, err)
	}
	return f()
}

// flock waits for the lock; the runtime's own signals may interrupt the wait.
func flock(fd int) error {
	for {
		if err := syscall.Flock(fd, syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".nvml-*")
	if err != nil {
		return fmt.Errorf("writing NVML state: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing NVML state %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}
