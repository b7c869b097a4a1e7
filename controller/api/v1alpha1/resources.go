package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// PseudoResources are the pseudo-resources of one node with so many physical GPUs.
func PseudoResources(gpus int32) corev1.ResourceList {
	return corev1.ResourceList{
		ResourcePhysicalGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
		ResourceNode:        *resource.NewQuantity(1, resource.DecimalSI),
	}
}
