package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNode is one node, named after it and owned by its NodeClaim. Its spec is the Blueprint, written by the controller;
// status.inventory is what NVML sees, written by the agent on that node and nobody else; everything else in status is
// the controller's verdict, always computed and never read back as truth.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpunodes,scope=Cluster,categories={gpufleet}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.pool"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".spec.instanceType"
// +kubebuilder:printcolumn:name="GPU Model",type=string,JSONPath=".spec.gpu.model"
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=".spec.gpu.count"
// +kubebuilder:printcolumn:name="Layout",type=string,JSONPath=".spec.layout.name"
// +kubebuilder:printcolumn:name="Verified",type=string,JSONPath=".status.conditions[?(@.type=='Verified')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Verified')].reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec Blueprint `json:"spec"`
	// +optional
	Status GPUNodeStatus `json:"status,omitempty"`
}

// Blueprint is what one node of a pool, on one instance type, must look like. It is computed before the node exists.
type Blueprint struct {
	Pool         string   `json:"pool"`
	Workload     Workload `json:"workload"`
	InstanceType string   `json:"instanceType"`
	// GPU is what the machine must hold.
	GPU GPUBlueprint `json:"gpu"`
	// Sharing and Allocation say how pods get at it.
	Sharing    SharingStrategy `json:"sharing"`
	Allocation Allocation      `json:"allocation"`
	// Replicas are how many pods share one GPU by time; absent where it is not sliced so.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// RenameByDefault and FailRequestsGreaterThanOne are the device plugin's settings of time slicing.
	// +optional
	RenameByDefault bool `json:"renameByDefault,omitempty"`
	// +optional
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
	// MIGStrategy is the device plugin's; absent where GPUs are whole.
	// +optional
	MIGStrategy MIGStrategy `json:"migStrategy,omitempty"`
	// Layout is how GPUs are cut; absent where they are whole.
	// +optional
	Layout *LayoutBlueprint `json:"layout,omitempty"`
	// Resources are the extended resources of the node's allocatable, exactly.
	Resources corev1.ResourceList `json:"resources"`
	// DriverMinVersion is the lowest driver version; absent where any does.
	// +optional
	DriverMinVersion string `json:"driverMinVersion,omitempty"`
	// Labels and taints that the node boots with. StartupTaints go when the node is verified.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// PricePerHour is the on-demand list price in US dollars as of PriceAsOf; absent where it is not known.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// +optional
	PriceAsOf string `json:"priceAsOf,omitempty"`
	// Hash covers only what cannot change on a running node; HashVersion says by which rule it was made.
	Hash        string `json:"hash"`
	HashVersion string `json:"hashVersion"`
}

// GPUBlueprint is the GPUs of one machine.
type GPUBlueprint struct {
	// Model is the GPU model, e.g. H100-80GB-SXM.
	Model string `json:"model"`
	// ProductNames are the names that NVML may report for it.
	// +listType=set
	ProductNames []string `json:"productNames"`
	// Count is the number of physical GPUs.
	Count int32 `json:"count"`
	// MemoryMiB is the memory of each GPU as NVML reports it.
	MemoryMiB int64 `json:"memoryMiB"`
}

// LayoutBlueprint is a MIGLayout, solved for one machine.
type LayoutBlueprint struct {
	// Name is the MIGLayout's.
	Name string `json:"name"`
	// Devices together name every GPU of the machine once. Those without instances stay whole.
	// +listType=atomic
	Devices []DeviceLayout `json:"devices"`
}

// DeviceLayout is the MIG instances that each of some GPUs must have.
type DeviceLayout struct {
	// +listType=set
	GPUs []int32 `json:"gpus"`
	// +listType=atomic
	// +optional
	Instances []MIGInstance `json:"instances,omitempty"`
}

// GPUNodeStatus is what was seen and what follows from it.
type GPUNodeStatus struct {
	// Inventory is the agent's report.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`
	// Findings are where the node differs from its Blueprint.
	// +listType=atomic
	// +optional
	Findings []Finding `json:"findings,omitempty"`
	// VerifiedAt is when the node was first proved to be its Blueprint. A node that never was is replaced after the class's
	// verification timeout; one that was, and is not any more, is only tainted: pods run on it.
	// +optional
	VerifiedAt *metav1.Time `json:"verifiedAt,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Inventory is what NVML sees on one node.
type Inventory struct {
	// ObservedAt is when the agent last saw a change.
	ObservedAt metav1.Time `json:"observedAt"`
	// BlueprintHash is the Blueprint that the agent applied before it looked.
	// +optional
	BlueprintHash string `json:"blueprintHash,omitempty"`
	// DriverVersion, NVMLVersion and CUDAVersion are as NVML reports them.
	// +optional
	DriverVersion string `json:"driverVersion,omitempty"`
	// +optional
	NVMLVersion string `json:"nvmlVersion,omitempty"`
	// +optional
	CUDAVersion string `json:"cudaVersion,omitempty"`
	// GPUs are the boards, by index.
	// +listType=map
	// +listMapKey=index
	// +optional
	GPUs []GPUInventory `json:"gpus,omitempty"`
	// Failure says why the agent could not look or could not apply the layout; absent where it could.
	// +optional
	Failure *AgentFailure `json:"failure,omitempty"`
}

// GPUInventory is one board.
type GPUInventory struct {
	Index       int32  `json:"index"`
	UUID        string `json:"uuid"`
	ProductName string `json:"productName"`
	// MemoryMiB is the board's memory as NVML reports it.
	MemoryMiB int64 `json:"memoryMiB"`
	// +optional
	PCIBusID string `json:"pciBusID,omitempty"`
	// MIG is absent on boards that cannot do it.
	// +optional
	MIG *MIGInventory `json:"mig,omitempty"`
}

// MIGInventory is the MIG state of one board.
type MIGInventory struct {
	// Enabled is the current mode, PendingEnabled the mode after the next reset. Where they differ, a reboot is due.
	Enabled        bool `json:"enabled"`
	PendingEnabled bool `json:"pendingEnabled"`
	// Instances are the GPU instances, by start.
	// +listType=atomic
	// +optional
	Instances []MIGInstance `json:"instances,omitempty"`
}

// AgentFailure is a step of the agent that failed.
type AgentFailure struct {
	// Step is load-nvml, read, set-mode, destroy, create or read-back.
	Step    string `json:"step"`
	Message string `json:"message"`
}

// Finding is one difference between a Blueprint and a node.
type Finding struct {
	// Reason is the kind of difference, from a closed list.
	Reason string `json:"reason"`
	// GPU is the index of the board that differs; absent where it is the node.
	// +optional
	GPU      *int32 `json:"gpu,omitempty"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	// Message says it in a sentence.
	Message string `json:"message"`
}

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNode `json:"items"`
}
