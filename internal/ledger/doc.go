// Package ledger decides whether a pool may launch one more machine, in physical GPUs, nodes and dollars an hour.
//
// There is one ledger for a pool, whatever the number of Karpenter NodePools that the pool is made of. It keeps two sums:
//
//   - Steady: the claims that are neither being deleted nor marked for disruption;
//   - Outstanding: every claim that asked for a machine, and every instance that is not confirmed gone.
//
// A launch needs steady + new <= limits and outstanding + new <= limits + surge. With one hard sum a full pool could
// never replace a node; with Karpenter's sum, which leaves out what is being deleted (state/cluster.go, v1.15.0), a
// draining node makes room for one more machine than is paid for.
//
// The caller tells what happens, in this order for one launch:
//
//	Reserve   before the claim is made, under a name of its own (Admission), so that none is made only to be refused
//	Reserve   before the launch is written down or asked for; a refusal is a *Refusal
//	Settle    the cloud says that a machine runs for it; also for one that an earlier try started
//	Release   the cloud says that nothing came of it
//	Observe   it started and ended at once: count it until Gone, and Reserve the next attempt
//	Forget    the instance is confirmed gone, and its claim with it
//
// Whether a claim is leaving comes from SetLeaving. Rebuild counts everything anew from the cluster's claims and the
// cloud's list: after a start nothing may launch before it, and from time to time it heals whatever was missed. Where
// knowledge is late the ledger counts too much, never too little.
//
// The package is pure: no clock, no client, no cloud, and no Kubernetes. What a machine counts (its physical boards,
// whatever the resources of the node are called) is the caller's, from the Blueprint.
package ledger
