package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every gpufleet object.
const Group = "gpufleet.dev"

// Kinds and plural resource names, as the API server serves them. All are cluster-scoped.
const (
	KindGPUNodeClass = "GPUNodeClass"
	KindMIGLayout    = "MIGLayout"
	KindGPUNodePool  = "GPUNodePool"
	KindGPUNode      = "GPUNode"
)

// GroupVersion is gpufleet.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// Resources, for dynamic clients.
var (
	GPUNodeClasses = GroupVersion.WithResource("gpunodeclasses")
	MIGLayouts     = GroupVersion.WithResource("miglayouts")
	GPUNodePools   = GroupVersion.WithResource("gpunodepools")
	GPUNodes       = GroupVersion.WithResource("gpunodes")
)

// AddToScheme registers every kind but GPUNodeClass, which the controller registers as the wrapper that Karpenter needs
// (controller/nodeclass), and everybody else with AddGPUNodeClassToScheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&MIGLayout{}, &MIGLayoutList{},
		&GPUNodePool{}, &GPUNodePoolList{},
		&GPUNode{}, &GPUNodeList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// AddGPUNodeClassToScheme registers the plain GPUNodeClass.
func AddGPUNodeClassToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &GPUNodeClass{}, &GPUNodeClassList{})
	return nil
}
