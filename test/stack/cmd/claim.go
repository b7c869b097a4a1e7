package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// process names one process for good: a pid alone comes back after a while, a pid with its start does not.
type process struct {
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// claim makes this process the one that runs the stage, until release. Two that claim at once are kept apart by a lock
// on the file; the file itself stays, and claims nothing once its process is gone.
func (s stage) claim() (release func() error, err error) {
	file, err := os.OpenFile(s.claimFile(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("claiming the stage: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("claiming the stage: another process runs it: %w", err), file.Close())
	}
	self := process{PID: os.Getpid()}
	if self.Started, err = startOf(self.PID); err == nil {
		err = overwrite(file, self)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claiming the stage: %w", err), file.Close())
	}
	return file.Close, nil
}

func overwrite(file *os.File, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(data, '\n'), 0)
	return err
}

// owner is the process that runs the stage; ok is false when none does. A pid is believed only if its process started
// when the file says: after a crash, somebody else's process may have it.
func (s stage) owner() (p process, ok bool, err error) {
	data, err := os.ReadFile(s.claimFile())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, fmt.Errorf("asking who runs the stage: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return process{}, false, fmt.Errorf("asking who runs the stage: %s: %w", s.claimFile(), err)
	}
	started, err := startOf(p.PID)
	if err != nil {
		return process{}, false, err
	}
	return p, started != "" && started == p.Started, nil
}

// writeState replaces the file that tells up and status what runs.
func (s stage) writeState(st state) error {
	data, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(s.dir, ".state.json.next")
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return fmt.Errorf("writing the stage's state: %w", err)
	}
	return os.Rename(next, s.stateFile())
}

func (s stage) readState() (st state, err error) {
	data, err := os.ReadFile(s.stateFile())
	if err != nil {
		return state{}, err
	}
	return st, json.Unmarshal(data, &st)
}
