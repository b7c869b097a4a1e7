package karpenter

import (
	"runtime/debug"
	"testing"
)

// What the collector is told: 50% unless GOGC says otherwise, and 90% of the container's limit where it has one.
func TestLimitMemory(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	limitMemory(1000)
	if got := debug.SetMemoryLimit(-1); got != 900 {
		t.Errorf("memory limit %d, want 900", got)
	}
	debug.SetMemoryLimit(limit)
	limitMemory(-1)
	if got := debug.SetMemoryLimit(-1); got != limit {
		t.Errorf("memory limit %d without one of the container, want %d", got, limit)
	}
	if got := debug.SetGCPercent(100); got != 50 {
		t.Errorf("GC percent %d, want 50", got)
	}
	t.Setenv("GOGC", "100")
	limitMemory(-1)
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GC percent %d although GOGC says 100", got)
	}
}
