// Package invariants holds what must be so whatever happens, as pure functions over what the region's books say and what
// was asked for. Nothing that starts a stage may come in: its tests run with every test.
package invariants

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

// tagPool says which pool an instance was launched for.
const tagPool = "gpufleet.dev/pool"

// PoolOf is the pool that an instance was launched for.
func PoolOf(i region.Instance) string { return i.Tags[tagPool] }

// Terminated is the state of an instance that is gone.
const Terminated = "terminated"

// Limits are what a pool may have from a time on. What is nil does not limit.
type Limits struct {
	From        time.Time
	GPUs, Nodes *int64
}

// Pool is a pool with every change of its limits, oldest first.
type Pool struct {
	Name    string
	Changes []Limits
	// Surge is how many machines may be there beyond the limits, each as large as one of Largest GPUs.
	Surge, Largest int64
}

// Launches wants each launch within the limits that were in force, and the surge, together with every machine of the pool
// that was not gone then. One that was decided under limits that were lowered meanwhile may come late by some grace. A
// machine's GPUs are by its type.
func Launches(books []region.Instance, pools []Pool, gpus map[string]int64, grace time.Duration) []string {
	var broken []string
	for _, pool := range pools {
		for _, launch := range books {
			if PoolOf(launch) != pool.Name {
				continue
			}
			nodes, boards := there(books, launch, gpus)
			maxGPUs, maxNodes := pool.allowed(launch.Launched, grace)
			if maxGPUs != nil && boards > *maxGPUs {
				broken = append(broken, fmt.Sprintf("pool %s: with %s of %s there were %d GPUs, limit and surge allowed %d",
					pool.Name, launch.ID, launch.Launched.Format(clock), boards, *maxGPUs))
			}
			if maxNodes != nil && nodes > *maxNodes {
				broken = append(broken, fmt.Sprintf("pool %s: with %s of %s there were %d nodes, limit and surge allowed %d",
					pool.Name, launch.ID, launch.Launched.Format(clock), nodes, *maxNodes))
			}
		}
	}
	return broken
}

const clock = "15:04:05.000"

// there counts the machines of a launch's pool that were not gone when it came, itself among them.
func there(books []region.Instance, launch region.Instance, gpus map[string]int64) (nodes, boards int64) {
	for _, each := range books {
		if PoolOf(each) != PoolOf(launch) || each.Launched.After(launch.Launched) ||
			each.Terminated != nil && !each.Terminated.After(launch.Launched) {
			continue
		}
		nodes++
		boards += gpus[each.Type]
	}
	return nodes, boards
}

// allowed is the most that a pool might have by any of the limits that were in force within the grace before a time.
func (p Pool) allowed(at time.Time, grace time.Duration) (gpus, nodes *int64) {
	var inForce []Limits
	for i, change := range p.Changes {
		replaced := i+1 < len(p.Changes) && !p.Changes[i+1].From.After(at.Add(-grace))
		if !change.From.After(at) && !replaced {
			inForce = append(inForce, change)
		}
	}
	return most(inForce, p.Surge*p.Largest, func(l Limits) *int64 { return l.GPUs }), most(inForce, p.Surge, func(l Limits) *int64 { return l.Nodes })
}

// most is the largest of some limits and the surge; nil where one of them does not limit, or there is none.
func most(limits []Limits, surge int64, of func(Limits) *int64) *int64 {
	var out *int64
	for _, each := range limits {
		value := of(each)
		if value == nil {
			return nil
		}
		if out == nil || *value+surge > *out {
			out = new(*value + surge)
		}
	}
	return out
}

// Twins wants no two machines alive at once for one NodeClaim. A machine that shuts down is not alive.
func Twins(books []region.Instance) []string {
	var broken []string
	for i, a := range books {
		for _, b := range books[i+1:] {
			if a.ClaimUID != "" && a.ClaimUID == b.ClaimUID && aliveAt(a, b.Launched) && aliveAt(b, b.Launched) {
				broken = append(broken, fmt.Sprintf("NodeClaim %s (%s): %s and %s were alive at %s", a.Claim, a.ClaimUID, a.ID, b.ID, b.Launched.Format(clock)))
			}
		}
	}
	return broken
}

// aliveAt is of books in the order of launches.
func aliveAt(i region.Instance, at time.Time) bool {
	return !i.Launched.After(at) && (i.ShuttingDown == nil || i.ShuttingDown.After(at))
}

// Strangers wants each machine to be of a pool and of a NodeClaim.
func Strangers(books []region.Instance, pools []Pool) []string {
	var broken []string
	for _, each := range books {
		known := slices.ContainsFunc(pools, func(p Pool) bool { return p.Name == PoolOf(each) })
		if !known || each.ClaimUID == "" {
			broken = append(broken, fmt.Sprintf("%s is of pool %q and NodeClaim %q", each.ID, PoolOf(each), each.ClaimUID))
		}
	}
	return broken
}

// Left wants every machine gone.
func Left(books []region.Instance) []string {
	var left []string
	for _, each := range books {
		if each.State != Terminated {
			left = append(left, fmt.Sprintf("%s of pool %s is %s", each.ID, PoolOf(each), each.State))
		}
	}
	return left
}

// EarlyBinding wants the first pod bound to a node after its startup taint went. Both are resource versions, 0 where it
// never was.
func EarlyBinding(node string, untainted, firstBinding uint64) []string {
	if firstBinding == 0 || untainted != 0 && untainted < firstBinding {
		return nil
	}
	return []string{fmt.Sprintf("node %s: a pod was bound to it at %d, its startup taint went at %d", node, firstBinding, untainted)}
}
