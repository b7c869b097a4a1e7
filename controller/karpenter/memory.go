package karpenter

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much may be allocated between two collections, in percent of what is in use. Passes over a large fleet leave
// much behind, and the controller waits most of the time: memory counts for more than the collector's share of it. GOGC says
// otherwise.
const gcPercent = 50

// limitMemory keeps the process small, and within 90% of what its container may have: core's own rule, in the constructor that
// is not used here (pkg/operator/operator.go, v1.15.0). A limit that is not positive is none.
func limitMemory(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
