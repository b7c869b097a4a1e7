package v1alpha1

// HoldReason is why a pod waits. Each pod has exactly one.
type HoldReason struct {
	Name string
	// Summary says what holds the pod, Remedy what would free it. Messages carry the numbers.
	Summary, Remedy string
	// Condition is the type of the pool's condition that is True while pods are held for the reason, beside PodsHeld; empty
	// where there is none of its own.
	Condition string
}

// Names of reasons for a hold.
const (
	HoldGated                  = "Gated"
	HoldNotAllowed             = "NotAllowed"
	HoldNameMismatch           = "NameMismatch"
	HoldProfileNotOffered      = "ProfileNotOffered"
	HoldDRAUnsupported         = "DRAUnsupported"
	HoldSelectorMismatch       = "SelectorMismatch"
	HoldNotTolerated           = "NotTolerated"
	HoldPoolNotReady           = "PoolNotReady"
	HoldNotVerified            = "NotVerified"
	HoldFragmented             = "Fragmented"
	HoldBudgetReached          = "BudgetReached"
	HoldLimitReached           = "LimitReached"
	HoldReservationUnavailable = "ReservationUnavailable"
	HoldQuotaExceeded          = "QuotaExceeded"
	HoldNoCapacity             = "NoCapacity"
	HoldOther                  = "Other"
)

// HoldReasons is the closed list, in order of precedence: the mistakes of whoever wrote the pod first, the cloud last. Of
// several that apply the first is the pod's reason.
var HoldReasons = []HoldReason{
	{
		HoldGated, "a scheduling gate, a scheduler that has not looked at it yet, or a volume that is not there holds the pod back before any node is sought",
		"admit the pod where it queues, or make its volume: look at the object of whoever set the gate, or at the PersistentVolumeClaim", "",
	},
	{
		HoldNotAllowed, "a ResourceQuota of the pod's namespace leaves no room for what the pod needs made for it",
		"raise the ResourceQuota, or free what its namespace holds", "",
	},
	{
		HoldNameMismatch, "the pod asks for GPUs by another name than the pool's nodes offer them by",
		"ask for a resource that the pool offers: they stand in status.blueprints of the GPUNodePool", "",
	},
	{
		HoldProfileNotOffered, "no node of the pool has that MIG profile, or as much of something, as the pod asks for",
		"ask for what one node of the pool offers, or declare a layout or machine that offers it", "",
	},
	{
		HoldDRAUnsupported, "the pod asks for GPUs by resource claims that no device of the pool can satisfy",
		"ask for the pool's extended resources instead of claims, or name a device class and attributes that its nodes publish", "",
	},
	{
		HoldSelectorMismatch, "no node of any pool has, or will have, the labels that the pod selects",
		"select the pool by gpufleet.dev/pool, and only labels that its nodes have", "",
	},
	{
		HoldNotTolerated, "the pod does not tolerate the taints of the pool's nodes",
		"add the pool's tolerations to the pod: Terraform shows them as tolerations of the gpufleet_node_pool", "",
	},
	{
		HoldPoolNotReady, "the pool launches nothing at all",
		"look at the conditions of the GPUNodePool and of its GPUNodeClass, and correct what they name", "",
	},
	{
		HoldNotVerified, "a node could take the pod, but is not what was ordered, or its machine has not joined in time",
		"look at the findings of the GPUNode, or at how the machine boots: it is replaced after the class's verification timeout, or 15 minutes after its launch", ConditionVerifyFailing,
	},
	{
		HoldFragmented, "the pool has enough free GPUs in total, but not on one node, or not on the one that the pod is for",
		"move pods together, or raise the limit that keeps the pool from launching a node", "",
	},
	{
		HoldBudgetReached, "a budget leaves no room for a machine that could serve the pod",
		"raise the budget, or wait until its period ends", "",
	},
	{
		HoldLimitReached, "a limit of the pool leaves no room for a machine that could serve the pod",
		"raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone", ConditionLimitReached,
	},
	{
		HoldReservationUnavailable, "the reserved capacity that the pool buys from has nothing left",
		"extend the reservation, or let the pool buy on demand or spot too", ConditionCapacityUnavailable,
	},
	{
		HoldQuotaExceeded, "the account's quota leaves no room for a machine that could serve the pod",
		"raise the quota with the cloud, or let the pool use another purchase option or instance type", ConditionCapacityUnavailable,
	},
	{
		HoldNoCapacity, "the cloud has no machine that could serve the pod",
		"wait, or let the pool use more zones, purchase options or instance types", ConditionCapacityUnavailable,
	},
	{
		HoldOther, "nothing that gpufleet knows of holds the pod",
		"look at what the scheduler says in the pod's PodScheduled condition and at its events", "",
	},
}

// PrecedenceOf is a reason's place in the list, from 0. One that is not in it comes after all.
func PrecedenceOf(reason string) int {
	for i := range HoldReasons {
		if HoldReasons[i].Name == reason {
			return i
		}
	}
	return len(HoldReasons)
}
