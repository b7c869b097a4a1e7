// Package holds says why pods wait for a pool: in the pool's status and conditions, in events on the pool and on each pod
// that is held, in metrics, and to whoever is to be notified. Why a pod waits is internal/diagnose's to say; this package
// reads what it is decided from, and writes what follows.
package holds
