package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNodePool is a segment of the fleet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpunodepools,scope=Cluster,categories={gpufleet},shortName={gpupool}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Workload",type=string,JSONPath=".spec.workload"
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=".spec.nodeClassRef.name"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=".status.nodes.total"
// +kubebuilder:printcolumn:name="Verified",type=integer,JSONPath=".status.nodes.verified"
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=".status.nodes.gpus"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=".status.conditions[?(@.type=='Accepted')].status"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 54",message="the name of a GPUNodePool has at most 54 characters: its NodePools and labels carry it"
type GPUNodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GPUNodePoolSpec `json:"spec"`
	// +optional
	Status GPUNodePoolStatus `json:"status,omitempty"`
}

// Workload is a class of work. It sets the defaults of a pool.
//
// +kubebuilder:validation:Enum=Inference;Batch;Research
type Workload string

// Workload classes.
const (
	WorkloadInference Workload = "Inference"
	WorkloadBatch     Workload = "Batch"
	WorkloadResearch  Workload = "Research"
)

// Workloads lists them, the highest priority first.
var Workloads = []Workload{WorkloadInference, WorkloadBatch, WorkloadResearch}

// CapacityType is how a machine is bought, in Karpenter's spelling.
//
// +kubebuilder:validation:Enum=on-demand;spot
type CapacityType string

// Capacity types.
const (
	CapacityTypeOnDemand CapacityType = "on-demand"
	CapacityTypeSpot     CapacityType = "spot"
)

// CapacityTypes lists them.
var CapacityTypes = []CapacityType{CapacityTypeOnDemand, CapacityTypeSpot}

// GPUNodePoolSpec is what the user declares.
type GPUNodePoolSpec struct {
	// Workload is the class of work that the pool is for. It sets the defaults of capacityTypes and disruption.
	// +required
	Workload Workload `json:"workload"`
	// NodeClassRef names the GPUNodeClass of the pool's nodes.
	// +required
	NodeClassRef NodeClassReference `json:"nodeClassRef"`
	// Machines are what the pool may launch, in order of preference. Instance types inside one entry are equals.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +required
	Machines []MachineSpec `json:"machines"`
	// Zones are the availability zones to launch in. Left out, every zone of the class's subnets.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Zones []string `json:"zones,omitempty"`
	// CapacityTypes are how machines may be bought, in order. Left out, Inference buys on-demand, Batch and Research
	// spot, then on-demand.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`
	// Labels are added to the pool's nodes.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('gpufleet.dev/') && !k.startsWith('karpenter.sh/') && !k.startsWith('nvidia.com/'))",message="labels under gpufleet.dev, karpenter.sh and nvidia.com are set by gpufleet"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are added to the pool's nodes beside nvidia.com/gpu and gpufleet.dev/workload.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.key != 'nvidia.com/gpu' && !t.key.startsWith('gpufleet.dev/') && !t.key.startsWith('karpenter.sh/'))",message="taints nvidia.com/gpu and those under gpufleet.dev and karpenter.sh are set by gpufleet"
	// +listType=atomic
	// +optional
	Taints []TaintSpec `json:"taints,omitempty"`
	// Disruption says when idle nodes go.
	// +optional
	Disruption *DisruptionSpec `json:"disruption,omitempty"`
	// Limits bound the pool in physical GPUs, nodes and dollars an hour. Left out, it is not bounded.
	// +optional
	Limits *LimitsSpec `json:"limits,omitempty"`
}

// DefaultSurge is how many machines a pool may have beyond its limits while it replaces nodes.
const DefaultSurge = 1

// LimitsSpec bounds a pool. A machine is launched only if the machines that stay and the new one are within the limits,
// and every machine that is not yet confirmed gone and the new one are within the limits and the surge. Lowering a limit
// ends nothing that runs.
//
// +kubebuilder:validation:XValidation:rule="has(self.gpus) || has(self.nodes) || has(self.hourlyCost)",message="limits must have at least one of gpus, nodes and hourlyCost"
type LimitsSpec struct {
	// GPUs bounds physical GPUs, whatever the resources that pods ask for are called.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	GPUs *int64 `json:"gpus,omitempty"`
	// Nodes bounds machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Nodes *int64 `json:"nodes,omitempty"`
	// HourlyCost bounds the list price of all machines in US dollars an hour, e.g. "110.08". A machine whose price is not
	// known is not launched under it.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,7}(\.[0-9]{1,6})?$`
	// +optional
	HourlyCost string `json:"hourlyCost,omitempty"`
	// Surge is how many machines, each as large as the pool's largest, may exist beyond the limits while nodes are
	// replaced: without one, a full pool could never replace a node. Left out, 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Surge *int32 `json:"surge,omitempty"`
}

// NodeClassReference names a GPUNodeClass.
type NodeClassReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// MachineSpec is one entry of the order of preference.
type MachineSpec struct {
	// InstanceTypes are exact instance types. Nothing else is ever launched for this entry.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=60
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9-]+\.[a-z0-9-]+$`
	// +listType=set
	// +required
	InstanceTypes []string `json:"instanceTypes"`
}

// TaintSpec is a taint of the pool's nodes.
type TaintSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +required
	Key string `json:"key"`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Value string `json:"value,omitempty"`
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	// +required
	Effect corev1.TaintEffect `json:"effect"`
}

// DisruptionSpec says when nodes go.
type DisruptionSpec struct {
	// ConsolidateAfter is how long a node is empty before it is removed. Left out: 30m for Inference, 2m for Batch, 5m
	// for Research.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="consolidateAfter must be from 0s to 168h"
	// +optional
	ConsolidateAfter *metav1.Duration `json:"consolidateAfter,omitempty"`
}

// GPUNodePoolStatus is what the controller made of it.
type GPUNodePoolStatus struct {
	// Blueprints say what a node of the pool is, for each instance type.
	// +listType=map
	// +listMapKey=instanceType
	// +optional
	Blueprints []BlueprintSummary `json:"blueprints,omitempty"`
	// Effective are the settings in force, defaults filled in.
	// +optional
	Effective *EffectiveSettings `json:"effective,omitempty"`
	// Limits are the pool's limits with what is used of them.
	// +listType=map
	// +listMapKey=name
	// +optional
	Limits []LimitStatus `json:"limits,omitempty"`
	// Holds are why pods wait for the pool, with how many.
	// +listType=map
	// +listMapKey=reason
	// +optional
	Holds []Hold `json:"holds,omitempty"`
	// Unavailable are the ways to buy a machine that the cloud has refused, and that are not tried until some time. Once that
	// is over an entry says nothing any more.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Unavailable []UnavailableOffering `json:"unavailable,omitempty"`
	// Nodes counts the pool's nodes. It is a pointer so that zeros are written the first time: a merge patch has only
	// what changed.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BlueprintSummary is a Blueprint in short.
type BlueprintSummary struct {
	InstanceType string `json:"instanceType"`
	GPUModel     string `json:"gpuModel"`
	// GPUs counts physical GPUs.
	GPUs int32 `json:"gpus"`
	// Resources are the extended resources that a node advertises.
	Resources corev1.ResourceList `json:"resources"`
	// PricePerHour is the on-demand list price in US dollars, absent where it is not known.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
	// +optional
	PriceAsOf string `json:"priceAsOf,omitempty"`
	Hash      string `json:"hash"`
}

// EffectiveSettings are defaults filled in.
type EffectiveSettings struct {
	// +listType=atomic
	CapacityTypes    []CapacityType  `json:"capacityTypes"`
	ConsolidateAfter metav1.Duration `json:"consolidateAfter"`
	PriorityClass    string          `json:"priorityClass"`
}

// LimitStatus is one limit of a pool with what is used of it. Quantities are GPUs, nodes or US dollars an hour, such as $55.04/h.
type LimitStatus struct {
	// Name is GPUs, Nodes or HourlyCost.
	Name string `json:"name"`
	// Limit is what the pool may have, WithSurge what it may have while nodes are replaced.
	Limit     string `json:"limit"`
	WithSurge string `json:"withSurge"`
	// Used is of machines that stay, Outstanding of every machine that is not yet confirmed gone.
	Used        string `json:"used"`
	Outstanding string `json:"outstanding"`
	// Headroom is what may still be launched.
	Headroom string `json:"headroom"`
}

// Hold is one reason for which pods wait.
type Hold struct {
	// Reason is from a closed list.
	Reason string `json:"reason"`
	// Pods and GPUs are how many wait: pods, and the physical GPUs that they would need.
	Pods int32 `json:"pods"`
	GPUs int32 `json:"gpus"`
	// Since is when the first of them began to wait.
	Since metav1.Time `json:"since"`
	// Message says it with the numbers.
	Message string `json:"message"`
}

// UnavailableOffering is a way to buy a machine that the cloud has refused.
type UnavailableOffering struct {
	InstanceType string       `json:"instanceType"`
	Zone         string       `json:"zone"`
	CapacityType CapacityType `json:"capacityType"`
	// Reason is NoCapacity, QuotaExceeded or ReservationUnavailable; LaunchRejected where the cloud takes the request for
	// wrong or not allowed.
	Reason string `json:"reason"`
	// Message is the cloud's code and words.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// Until is when it is tried again.
	Until metav1.Time `json:"until"`
}

// MaxUnavailable is how many of them a pool shows.
const MaxUnavailable = 100

// NodeCounts counts the pool's nodes.
type NodeCounts struct {
	// Total counts launched machines, until each is confirmed gone.
	Total int32 `json:"total"`
	// Verified counts nodes that are proved to be their Blueprint.
	Verified int32 `json:"verified"`
	// GPUs counts physical GPUs of all launched machines.
	GPUs int32 `json:"gpus"`
}

// GPUNodePoolList is a list of GPUNodePools.
//
// +kubebuilder:object:root=true
type GPUNodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNodePool `json:"items"`
}
