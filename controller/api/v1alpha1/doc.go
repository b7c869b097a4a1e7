// Package v1alpha1 holds the objects of gpufleet.dev/v1alpha1 and every name that gpufleet puts on the wire: labels,
// taints, annotations, condition types and reasons.
//
// It is a leaf: only k8s.io/api and apimachinery come in, so that the Terraform provider, the node agent and the command
// line can use it without Karpenter or controller-runtime. A rule that one object decides is written once here, as CEL
// for the API server and as a Go function for everybody else (validation.go).
//
// +kubebuilder:object:generate=true
// +groupName=gpufleet.dev
package v1alpha1
