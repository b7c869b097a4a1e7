// Package holds says why pods wait for a pool: in the pool's status and its LimitReached condition, in events on the pool
// and on each pod that is held, and in metrics.
//
// A pod is held by a limit if no node of the pool, and no machine on its way to it, can be expected to take it, and the
// ledger refuses every machine that could serve it. decide is that rule, over plain values: it knows no client. What the
// ledger would still admit holds nobody back, since which pods a new machine is for is Karpenter's to say; the pods that
// it leaves over are held as soon as the machine is reserved. So a pool that is full and that nobody waits for is quiet,
// and so is one that grows.
package holds
