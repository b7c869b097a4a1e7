package v1alpha1

// HoldReason is why a pod waits. Each pod has exactly one.
type HoldReason struct {
	Name string
	// Summary says what holds the pod, Remedy what would free it.
	Summary, Remedy string
}

// Names of reasons for a hold.
const (
	HoldLimitReached = "LimitReached"
)

// HoldReasons is the list of those that are told apart today.
var HoldReasons = []HoldReason{
	{HoldLimitReached, "a limit of the pool leaves no room for a machine that could serve the pod", "raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone"},
}
