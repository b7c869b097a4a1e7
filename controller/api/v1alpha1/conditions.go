package v1alpha1

// Condition types. A type says a sentence about its object; True of a trouble means trouble.
const (
	// ConditionAccepted: the object is valid together with what it refers to.
	ConditionAccepted = "Accepted"
	// ConditionReady: the object does its work.
	ConditionReady = "Ready"
	// ConditionIdentified: the machine is the one that was ordered: boards, count, memory, driver, MIG placements.
	ConditionIdentified = "Identified"
	// ConditionVerified: the node is exactly its Blueprint, hardware and advertised resources both.
	ConditionVerified = "Verified"
)

// Reasons of Accepted.
const (
	ReasonValid         = "Valid"
	ReasonInvalidLayout = "InvalidLayout"
	ReasonSKUMismatch   = "SKUMismatch"
	ReasonClassNotFound = "ClassNotFound"
	ReasonClassNotReady = "ClassNotReady"
	ReasonInvalidClass  = "InvalidClass"
	ReasonInvalidPool   = "InvalidPool"
	ReasonConflict      = "Conflict"
)

// Reasons of Ready.
const (
	ReasonReady       = "Ready"
	ReasonNotAccepted = "NotAccepted"
	// ReasonNodePoolNotReady: Karpenter core does not take a NodePool of the pool.
	ReasonNodePoolNotReady = "NodePoolNotReady"
	// ReasonWriteFailed: the API server did not take what follows from the pool.
	ReasonWriteFailed = "WriteFailed"
	ReasonResolving   = "Resolving"
	ReasonCloudError  = "CloudError"
	ReasonDraining    = "Draining"
)

// ConditionLimitReached: pods wait because a limit of the pool leaves no room for a machine that could serve them. Its
// reasons are the limits.
const ConditionLimitReached = "LimitReached"

// Conditions of a pool that say what holds waiting pods back. Each is True only while it does: a pool in trouble that
// nobody waits for is quiet.
const (
	// ConditionPodsHeld: pods wait for the pool. Its reason is the one that holds the most.
	ConditionPodsHeld = "PodsHeld"
	// ConditionCapacityUnavailable: the cloud keeps the pool from launching. Its reason is NoCapacity, QuotaExceeded or
	// ReservationUnavailable.
	ConditionCapacityUnavailable = "CapacityUnavailable"
	// ConditionVerifyFailing: a node that could take the pods is not what was ordered. Its reason is NotVerified.
	ConditionVerifyFailing = "VerifyFailing"
)

// ReasonLaunchRejected: the cloud takes a launch for wrong or not allowed. Another try would be refused too.
const ReasonLaunchRejected = "LaunchRejected"

// ReasonNothingHeld is the reason of each of them while it is False.
const ReasonNothingHeld = "NothingHeld"

// Reasons of LimitReached.
const (
	ReasonGPUs        = "GPUs"
	ReasonNodes       = "Nodes"
	ReasonHourlyCost  = "HourlyCost"
	ReasonWithinLimit = "WithinLimits"
)

// Reasons of Identified and Verified beside the findings (findings.go).
const (
	ReasonMatches           = "MatchesBlueprint"
	ReasonAwaitingInventory = "AwaitingInventory"
	ReasonAwaitingResources = "AwaitingResources"
)
