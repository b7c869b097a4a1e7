package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUNodeClass is the shape of a node and where it comes from. GPUNodePools refer to it by name, and so do Karpenter
// NodePools through nodeClassRef.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpunodeclasses,scope=Cluster,categories={gpufleet,karpenter},shortName={gpuclass}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Sharing",type=string,JSONPath=".spec.sharing.strategy"
// +kubebuilder:printcolumn:name="Layouts",type=string,JSONPath=".spec.sharing.layouts"
// +kubebuilder:printcolumn:name="AMI",type=string,JSONPath=".status.ami",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type GPUNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GPUNodeClassSpec `json:"spec"`
	// +optional
	Status GPUNodeClassStatus `json:"status,omitempty"`
}

// GPUNodeClassSpec is what the user declares.
type GPUNodeClassSpec struct {
	// Cloud is where machines of this class come from.
	// +required
	Cloud CloudSpec `json:"cloud"`
	// Sharing says how pods share the GPUs of a node.
	// +kubebuilder:default={strategy: Exclusive}
	// +optional
	Sharing SharingSpec `json:"sharing,omitempty"`
	// Driver is what the node's NVIDIA driver must be.
	// +optional
	Driver *DriverSpec `json:"driver,omitempty"`
	// Verification bounds the proof that a node is what was ordered.
	// +kubebuilder:default={timeout: "10m"}
	// +optional
	Verification VerificationSpec `json:"verification,omitempty"`
}

// CloudSpec names exactly one cloud.
//
// +kubebuilder:validation:XValidation:rule="has(self.aws)",message="exactly one cloud must be given: aws"
type CloudSpec struct {
	// AWS launches EC2 instances. Every id is resolved: Terraform has them.
	// +optional
	AWS *AWSCloud `json:"aws,omitempty"`
}

// AWSCloud is what an EC2 launch needs beyond the instance type.
type AWSCloud struct {
	// Subnets are the ids of the subnets to launch into, at most one a zone.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^subnet-[0-9a-z]+$`
	// +listType=set
	// +required
	Subnets []string `json:"subnets"`
	// SecurityGroups are the ids of the instances' security groups.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^sg-[0-9a-z]+$`
	// +listType=set
	// +required
	SecurityGroups []string `json:"securityGroups"`
	// InstanceProfile is the name of the IAM instance profile whose role may join the cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	InstanceProfile string `json:"instanceProfile"`
	// AMI is the machine image.
	// +required
	AMI AMISpec `json:"ami"`
	// RootVolume is the encrypted gp3 root disk.
	// +kubebuilder:default={sizeGiB: 100}
	// +optional
	RootVolume RootVolumeSpec `json:"rootVolume,omitempty"`
	// Cluster is what a node needs to join.
	// +required
	Cluster ClusterSpec `json:"cluster"`
}

// AMIFamily says how an image is configured at boot.
//
// +kubebuilder:validation:Enum=AL2023
type AMIFamily string

// AMIFamilyAL2023 boots through nodeadm: user data is a NodeConfig.
const AMIFamilyAL2023 AMIFamily = "AL2023"

// AMISpec is one image, by id or by the SSM parameter that names it.
//
// +kubebuilder:validation:XValidation:rule="has(self.id) != has(self.ssmParameter)",message="exactly one of id and ssmParameter must be given"
type AMISpec struct {
	// Family says how the image is configured at boot.
	// +kubebuilder:default=AL2023
	// +optional
	Family AMIFamily `json:"family,omitempty"`
	// ID is the image's id.
	// +kubebuilder:validation:Pattern=`^ami-[0-9a-z]+$`
	// +optional
	ID string `json:"id,omitempty"`
	// SSMParameter is the path of a public parameter that holds the image's id. It is resolved once for each change of
	// the class, and the id is kept in status.ami: a new image in the parameter alone does not roll nodes.
	// +kubebuilder:validation:Pattern=`^/.+$`
	// +kubebuilder:validation:MaxLength=512
	// +optional
	SSMParameter string `json:"ssmParameter,omitempty"`
}

// RootVolumeSpec is the root disk.
type RootVolumeSpec struct {
	// SizeGiB is the disk's size in GiB. GPU images are large: the EC2 default of 20 does not do.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=20
	// +kubebuilder:validation:Maximum=16384
	// +optional
	SizeGiB int32 `json:"sizeGiB,omitempty"`
}

// ClusterSpec is what nodeadm needs to join a cluster.
type ClusterSpec struct {
	// Name is the cluster's name.
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`
	// +required
	Name string `json:"name"`
	// Endpoint is the URL of the API server.
	// +kubebuilder:validation:Pattern=`^https://.+$`
	// +required
	Endpoint string `json:"endpoint"`
	// CertificateAuthority is the cluster's CA bundle: base64 of PEM.
	// +kubebuilder:validation:MinLength=1
	// +required
	CertificateAuthority string `json:"certificateAuthority"`
	// ServiceCIDR is the range of the cluster's Service addresses.
	// +kubebuilder:validation:MinLength=1
	// +required
	ServiceCIDR string `json:"serviceCIDR"`
}

// SharingStrategy says how pods share a GPU.
//
// +kubebuilder:validation:Enum=Exclusive;MIG;TimeSlicing
type SharingStrategy string

// Sharing strategies.
const (
	// SharingExclusive gives a pod whole GPUs.
	SharingExclusive SharingStrategy = "Exclusive"
	// SharingMIG cuts GPUs into MIG instances by a layout.
	SharingMIG SharingStrategy = "MIG"
	// SharingTimeSlicing lets pods take turns on whole GPUs. Memory and faults are not kept apart.
	SharingTimeSlicing SharingStrategy = "TimeSlicing"
)

// SharingStrategies lists them, the default first.
var SharingStrategies = []SharingStrategy{SharingExclusive, SharingMIG, SharingTimeSlicing}

// Allocation says how pods are given GPUs.
type Allocation string

// AllocationDevicePlugin advertises extended resources through NVIDIA's device plugin.
const AllocationDevicePlugin Allocation = "DevicePlugin"

// MIGStrategy says by which names the device plugin advertises MIG instances.
//
// +kubebuilder:validation:Enum=Mixed;Single
type MIGStrategy string

// MIG strategies.
const (
	// MIGMixed advertises each profile by its own name, e.g. nvidia.com/mig-1g.10gb; whole GPUs stay nvidia.com/gpu.
	MIGMixed MIGStrategy = "Mixed"
	// MIGSingle advertises every MIG instance as nvidia.com/gpu. Every GPU of the node must be cut alike, by one profile.
	MIGSingle MIGStrategy = "Single"
)

// MIGStrategies lists them, the default first.
var MIGStrategies = []MIGStrategy{MIGMixed, MIGSingle}

// SharingSpec chooses one strategy and what belongs to it.
//
// +kubebuilder:validation:XValidation:rule="self.strategy == 'MIG' || !has(self.layouts) || size(self.layouts) == 0",message="two sharing strategies: layouts cut GPUs with MIG, but strategy is not MIG; set strategy to MIG or leave layouts out"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'MIG' || (has(self.layouts) && size(self.layouts) > 0)",message="strategy MIG needs at least one layout in layouts, one for each GPU model"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'TimeSlicing' || !has(self.replicas)",message="two sharing strategies: replicas slice the time of GPUs, but strategy is not TimeSlicing; set strategy to TimeSlicing or leave replicas out"
// +kubebuilder:validation:XValidation:rule="self.strategy != 'TimeSlicing' || has(self.replicas)",message="strategy TimeSlicing needs replicas, 2 or more: how many pods may share one GPU"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'TimeSlicing' || ((!has(self.renameByDefault) || !self.renameByDefault) && (!has(self.failRequestsGreaterThanOne) || !self.failRequestsGreaterThanOne))",message="renameByDefault and failRequestsGreaterThanOne belong to strategy TimeSlicing"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'MIG' || !has(self.migStrategy)",message="migStrategy belongs to strategy MIG"
type SharingSpec struct {
	// Strategy is Exclusive, MIG or TimeSlicing.
	// +kubebuilder:default=Exclusive
	// +optional
	Strategy SharingStrategy `json:"strategy,omitempty"`
	// Layouts are names of MIGLayouts, one for each GPU model of the class's pools. Only with strategy MIG.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Layouts []string `json:"layouts,omitempty"`
	// MIGStrategy is Mixed, or Single for one name for all. Only with strategy MIG; left out, Mixed.
	// +optional
	MIGStrategy MIGStrategy `json:"migStrategy,omitempty"`
	// Replicas are how many pods may share one GPU. Only with strategy TimeSlicing.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=128
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// RenameByDefault advertises shared GPUs as nvidia.com/gpu.shared, so that a pod that wants a whole GPU does not get
	// a share by chance. Only with strategy TimeSlicing.
	// +optional
	RenameByDefault bool `json:"renameByDefault,omitempty"`
	// FailRequestsGreaterThanOne makes the device plugin refuse a pod that asks for more than one share: two shares may
	// be of one GPU. Only with strategy TimeSlicing.
	// +optional
	FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne,omitempty"`
}

// DriverSpec is a floor under the node's driver.
type DriverSpec struct {
	// MinVersion is the lowest NVIDIA driver version that a node may have, e.g. 550 or 550.90.07.
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+){0,2}$`
	// +required
	MinVersion string `json:"minVersion"`
}

// DefaultVerificationTimeout is how long a registered node may take to become its Blueprint.
const DefaultVerificationTimeout = "10m"

// VerificationSpec bounds the proof that a node is what was ordered.
type VerificationSpec struct {
	// Timeout is how long a registered node may stay unverified before it is replaced.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('2h')",message="timeout must be from 1m to 2h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// GPUNodeClassStatus is what the controller resolved.
type GPUNodeClassStatus struct {
	// AMI is the id of the image that nodes are launched with.
	// +optional
	AMI string `json:"ami,omitempty"`
	// Subnets are the resolved subnets with their zones.
	// +listType=map
	// +listMapKey=id
	// +optional
	Subnets []SubnetStatus `json:"subnets,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SubnetStatus is one resolved subnet.
type SubnetStatus struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
}

// GPUNodeClassList is a list of GPUNodeClasses.
//
// +kubebuilder:object:root=true
type GPUNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNodeClass `json:"items"`
}
