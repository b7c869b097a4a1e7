package v1alpha1

// FindingReason is a kind of difference between a Blueprint and a node.
type FindingReason struct {
	Name string
	// Summary says what is wrong, Remedy what to do about it.
	Summary, Remedy string
}

// Names of findings. They are reasons of the conditions Identified and Verified too.
const (
	FindingNVMLUnavailable   = "NVMLUnavailable"
	FindingGPUCountMismatch  = "GPUCountMismatch"
	FindingWrongGPU          = "WrongGPU"
	FindingDriverTooOld      = "DriverTooOld"
	FindingRebootRequired    = "RebootRequired"
	FindingMIGApplyFailed    = "MIGApplyFailed"
	FindingPartialLayout     = "PartialLayout"
	FindingLayoutMismatch    = "LayoutMismatch"
	FindingAdvertiseMismatch = "AdvertiseMismatch"
)

// FindingReasons is the closed list, in order of precedence: the first that a node has is the reason of its verdict.
var FindingReasons = []FindingReason{
	{FindingNVMLUnavailable, "the agent cannot load or read NVML", "check that the image's driver knows the board and that its kernel module loads"},
	{FindingGPUCountMismatch, "the machine does not have as many GPUs as its instance type", "replace the machine; if it comes back, report the instance to the cloud provider"},
	{FindingWrongGPU, "a board is not the model that was ordered", "replace the machine; check the instance type against the table of GPU models"},
	{FindingDriverTooOld, "the driver is older than the class asks for", "choose a newer image or lower driver.minVersion"},
	{FindingRebootRequired, "MIG mode is set but takes effect only after a reboot", "reboot or replace the node"},
	{FindingMIGApplyFailed, "the agent could not cut the GPUs as the layout says", "read the agent's failure in status.inventory; a process that holds the GPU is the usual cause"},
	{FindingPartialLayout, "a board has only some of the layout's MIG instances", "replace the node"},
	{FindingLayoutMismatch, "a board's MIG instances are not those of the layout", "replace the node"},
	{FindingAdvertiseMismatch, "the node's allocatable resources are not those of its Blueprint", "check the device plugin's configuration: node label nvidia.com/device-plugin.config and ConfigMap gpufleet-device-plugin"},
}
