// Package diagnose says why a GPU pod waits: exactly one reason of v1alpha1.HoldReasons for each pod, with the numbers,
// what would free it, and what else stands in its way.
//
// It is pure: pods, nodes and pools come in as values that somebody read at one moment, verdicts go out. The controller
// and the command line read in their own ways and ask the same functions, so that they cannot disagree. No client comes in
// here, no clock and no cloud.
//
// A pod is held if no node of the pool, and no machine on its way to it, can be expected to take it, and none may be
// launched that could. What may still be launched holds nobody back, since which pods a new machine is for is Karpenter's
// to say; the pods that it leaves over are held as soon as the machine is reserved. One exception: for the pods that a node
// was to take which turned out not to be what was ordered, Karpenter launches nothing until it is replaced. So a pool that is full and that nobody
// waits for is quiet, and so is one that grows.
package diagnose
