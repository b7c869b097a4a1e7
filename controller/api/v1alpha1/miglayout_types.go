package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MIGLayout is one GPU model, cut.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=miglayouts,scope=Cluster,categories={gpufleet}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="GPU Model",type=string,JSONPath=".spec.gpuModel"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=".status.conditions[?(@.type=='Accepted')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Accepted')].reason",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type MIGLayout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MIGLayoutSpec `json:"spec"`
	// +optional
	Status MIGLayoutStatus `json:"status,omitempty"`
}

// MIGLayoutSpec is valid only if every GPU's slices can be placed without overlap.
type MIGLayoutSpec struct {
	// GPUModel is the model that the layout is for, e.g. H100-80GB-SXM.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	GPUModel string `json:"gpuModel"`
	// Devices say which GPUs of a node are cut how. One entry without gpus cuts every GPU alike; several entries each
	// name their GPUs. A GPU that no entry names stays whole.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="size(self) == 1 || self.all(d, has(d.gpus) && size(d.gpus) > 0)",message="where devices has several entries, each must name its gpus"
	// +kubebuilder:validation:XValidation:rule="self.all(d, !has(d.gpus) || d.gpus.all(g, self.filter(e, has(e.gpus) && g in e.gpus).size() == 1))",message="a GPU is named in two entries of devices"
	// +listType=atomic
	// +required
	Devices []MIGDevices `json:"devices"`
}

// MIGDevices cuts some GPUs of a node.
type MIGDevices struct {
	// GPUs are the indexes that this entry is for, from 0. Left out, it is for every GPU of the node.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=15
	// +listType=set
	// +optional
	GPUs []int32 `json:"gpus,omitempty"`
	// Slices are the MIG instances of each of these GPUs.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=profile
	// +required
	Slices []MIGSlice `json:"slices"`
}

// MIGSlice is a number of equal MIG instances.
type MIGSlice struct {
	// Profile is the MIG profile as NVIDIA writes it, e.g. 1g.10gb or 1g.10gb+me.
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z.,]+)?$`
	// +kubebuilder:validation:MaxLength=32
	// +required
	Profile string `json:"profile"`
	// Count is how many instances of it each GPU gets.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	// +required
	Count int32 `json:"count"`
}

// MIGLayoutStatus is the solved layout.
type MIGLayoutStatus struct {
	// Devices are the entries of spec.devices, placed.
	// +listType=atomic
	// +optional
	Devices []MIGDevicesStatus `json:"devices,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MIGDevicesStatus is one entry of spec.devices, placed.
type MIGDevicesStatus struct {
	// Instances are the MIG instances of each GPU, with their places in memory slices.
	// +listType=atomic
	Instances []MIGInstance `json:"instances"`
	// Resources are what each GPU advertises.
	Resources corev1.ResourceList `json:"resources"`
	// UnusedComputeSlices and UnusedMemorySlices are what the layout leaves of each GPU.
	UnusedComputeSlices int32 `json:"unusedComputeSlices"`
	UnusedMemorySlices  int32 `json:"unusedMemorySlices"`
}

// MIGInstance is one MIG instance in its place.
type MIGInstance struct {
	// Profile is the profile's name.
	Profile string `json:"profile"`
	// ComputeSlices is the profile's number of compute slices (the number before "g").
	ComputeSlices int32 `json:"computeSlices"`
	// Start and Size are the instance's place in memory slices.
	Start int32 `json:"start"`
	Size  int32 `json:"size"`
}

// MIGLayoutList is a list of MIGLayouts.
//
// +kubebuilder:object:root=true
type MIGLayoutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MIGLayout `json:"items"`
}
