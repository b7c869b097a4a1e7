package region

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Names of the faults that may be set.
const (
	faultMissingGPU      = "missing-gpu"
	faultLoseMIGInstance = "lose-mig-instance"
	faultRenameResource  = "rename-resource"
	faultHoldResponse    = "hold-response"
)

func faultNames() []string {
	return []string{faultHoldResponse, faultLoseMIGInstance, faultMissingGPU, faultRenameResource}
}

// missingGPU: machines that boot from now on lack the board with this index.
type missingGPU struct {
	GPU int `json:"gpu"`
}

// loseMIGInstance: on machines that boot from now on, the nth GPU instance created on a GPU reports success and does not exist.
type loseMIGInstance struct {
	GPU int `json:"gpu"`
	Nth int `json:"nth"`
}

// renameResource: device plugins advertise a resource under another name.
type renameResource struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// holdResponse: an operation takes effect and its answer is held.
type holdResponse struct {
	Operation string `json:"operation"`
	Seconds   int    `json:"seconds"`
}

// faults is what is wrong with the region on purpose.
type faults struct {
	// mu guards set, and that changed is closed and renewed with each change of it.
	mu      sync.Mutex
	set     map[string]any
	changed chan struct{}
}

func newFaults() *faults {
	return &faults{set: map[string]any{}, changed: make(chan struct{})}
}

// errUnknownFault: no fault has this name.
var errUnknownFault = errors.New("unknown fault")

func checkFaultName(name string) error {
	for _, known := range faultNames() {
		if name == known {
			return nil
		}
	}
	return fmt.Errorf("%w %q: there are %s", errUnknownFault, name, strings.Join(faultNames(), ", "))
}

// put sets a fault from its JSON body.
func (f *faults) put(name string, body []byte) error {
	if err := checkFaultName(name); err != nil {
		return err
	}
	value, err := parseFault(name, body)
	if err != nil {
		return fmt.Errorf("fault %s: %w", name, err)
	}
	f.change(func() { f.set[name] = value })
	return nil
}

func (f *faults) remove(name string) error {
	if err := checkFaultName(name); err != nil {
		return err
	}
	f.change(func() { delete(f.set, name) })
	return nil
}

func (f *faults) clear() { f.change(func() { f.set = map[string]any{} }) }

func (f *faults) change(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
	close(f.changed)
	f.changed = make(chan struct{})
}

// all returns every known fault with its value, nil where it is not set.
func (f *faults) all() map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]any{}
	for _, name := range faultNames() {
		out[name] = f.set[name]
	}
	return out
}

// fault returns a fault if it is set.
func fault[T any](f *faults, name string) (T, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	value, ok := f.set[name].(T)
	return value, ok
}

func parseFault(name string, body []byte) (any, error) {
	switch name {
	case faultMissingGPU:
		return decodeFault(body, func(v missingGPU) bool { return v.GPU >= 0 }, `{"gpu": index from 0}`)
	case faultLoseMIGInstance:
		return decodeFault(body, func(v loseMIGInstance) bool { return v.GPU >= 0 && v.Nth > 0 }, `{"gpu": index from 0, "nth": from 1}`)
	case faultRenameResource:
		return decodeFault(body, func(v renameResource) bool { return v.From != "" && v.To != "" }, `{"from": "resource", "to": "resource"}`)
	default:
		return decodeFault(body, func(v holdResponse) bool { return v.Operation != "" && v.Seconds > 0 }, `{"operation": "RunInstances", "seconds": from 1}`)
	}
}

func decodeFault[T any](body []byte, valid func(T) bool, shape string) (any, error) {
	var value T
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("want %s: %w", shape, err)
	}
	if !valid(value) {
		return nil, fmt.Errorf("want %s, got %s", shape, body)
	}
	return value, nil
}

// hold waits as long as the answer to an operation is held: until the time is over, the fault is gone or the caller is.
func (f *faults) hold(ctx context.Context, operation string) {
	since := time.Now()
	for {
		f.mu.Lock()
		held, ok := f.set[faultHoldResponse].(holdResponse)
		changed := f.changed
		f.mu.Unlock()
		if !ok || held.Operation != operation {
			return
		}
		left := time.Duration(held.Seconds)*time.Second - time.Since(since)
		if left <= 0 {
			return
		}
		wait(ctx, left, changed)
		if ctx.Err() != nil {
			return
		}
	}
}

// wait returns when the time is over, the channel is closed or the context is done.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}
