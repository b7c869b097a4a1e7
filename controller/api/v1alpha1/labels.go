package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Label is a node label of ours, with the sentence that the documentation prints for it.
type Label struct {
	Key     string
	Summary string
}

// Node labels. Pool and workload are constants of a pool's template; the others are single-valued requirements of each
// instance type, so that a change of layout is our drift and not Karpenter's.
const (
	LabelPool       = Group + "/pool"
	LabelWorkload   = Group + "/workload"
	LabelGPUModel   = Group + "/gpu-model"
	LabelSharing    = Group + "/sharing"
	LabelLayout     = Group + "/layout"
	LabelAllocation = Group + "/allocation"
)

// Labels lists every node label of ours.
var Labels = []Label{
	{LabelPool, "the GPUNodePool that the node belongs to"},
	{LabelWorkload, "the workload class of the pool: Inference, Batch or Research"},
	{LabelGPUModel, "the GPU model of the node, as MIGLayout.spec.gpuModel spells it"},
	{LabelSharing, "how the node's GPUs are shared: Exclusive, MIG or TimeSlicing"},
	{LabelLayout, "the MIGLayout that the node's GPUs are cut by; absent where they are whole"},
	{LabelAllocation, "how pods are given GPUs: DevicePlugin"},
}

// Labels of NVIDIA's device plugin and GPU Operator that a Blueprint sets.
const (
	// LabelDevicePluginConfig chooses the key of the device plugin's ConfigMap. Source: NVIDIA/k8s-device-plugin, README,
	// "Multiple Config File Example".
	LabelDevicePluginConfig = "nvidia.com/device-plugin.config"
	// LabelDeployMIGManager keeps the GPU Operator's MIG manager off nodes whose layout the agent owns. Source:
	// NVIDIA/gpu-operator, DaemonSet nvidia-mig-manager nodeSelector.
	LabelDeployMIGManager = "nvidia.com/gpu.deploy.mig-manager"
)

// Taints.
const (
	// TaintGPU keeps pods that do not ask for GPUs away: nvidia.com/gpu=present:NoSchedule.
	TaintGPU      = "nvidia.com/gpu"
	TaintGPUValue = "present"
	// TaintWorkload keeps workload classes apart: gpufleet.dev/workload=<class>:NoSchedule.
	TaintWorkload = Group + "/workload"
	// TaintUnverified is the startup taint: it goes when the node is proved to be what its Blueprint says.
	TaintUnverified = Group + "/unverified"
)

// UnverifiedTaint is the startup taint of every node of ours.
func UnverifiedTaint() corev1.Taint {
	return corev1.Taint{Key: TaintUnverified, Effect: corev1.TaintEffectNoSchedule}
}

// Annotations and finalizers.
const (
	// AnnotationLaunch is the launch journal on a NodeClaim: what was asked of the cloud, written before it is asked.
	AnnotationLaunch = Group + "/launch"
	// AnnotationBlueprintHash and AnnotationBlueprintHashVersion say which Blueprint a NodeClaim was launched with.
	AnnotationBlueprintHash        = Group + "/blueprint-hash"
	AnnotationBlueprintHashVersion = Group + "/blueprint-hash-version"
	// AnnotationAdmission names the room that the ledger held for a NodeClaim before the claim was made.
	AnnotationAdmission = Group + "/admission"
	// AnnotationReplaces is the UID of the NodeClaim that a NodeClaim was made to replace.
	AnnotationReplaces = Group + "/replaces"
	// FinalizerInstance stays on a NodeClaim until its instance is confirmed gone.
	FinalizerInstance = Group + "/instance"
	// FinalizerPool stays on a GPUNodePool until every instance of it is confirmed gone.
	FinalizerPool = Group + "/pool"
)

// Names of things that the controller makes or expects.
const (
	// Namespace is where gpufleet itself runs.
	Namespace = "gpufleet-system"
	// DevicePluginConfigMap holds one device plugin configuration a pool, in Namespace.
	DevicePluginConfigMap = "gpufleet-device-plugin"
	// ControllerName and AgentName are service accounts, field managers and event sources.
	ControllerName = "gpufleet-controller"
	AgentName      = "gpufleet-agent"
)

// Extended resource names of NVIDIA's device plugin.
const (
	ResourcePrefix = "nvidia.com/"
	ResourceGPU    = ResourcePrefix + "gpu"
	// SharedSuffix is what the device plugin appends to a resource that is shared and renamed.
	SharedSuffix = ".shared"
)

// Pseudo-resources keep Karpenter core's simulation inside a pool's limits. Each instance type has them in its capacity,
// each NodePool in its limits, and the controller publishes them in the Node's status before pods may come: what a node
// does not publish is no longer counted by core once the node is initialized.
const (
	// ResourcePhysicalGPU counts physical GPUs, whatever the resources that pods ask for are called.
	ResourcePhysicalGPU = Group + "/gpu"
	// ResourceNode is 1 on each node.
	ResourceNode = Group + "/node"
	// ResourceHourlyCost is a node's list price in millionths of a US dollar an hour; 0 where it is not known.
	ResourceHourlyCost = Group + "/microdollars-per-hour"
)
