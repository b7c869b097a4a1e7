// Package kube is how the Terraform provider talks to a Kubernetes API server: where the server is, server-side apply,
// read, delete, wait, and errors that a caller can tell apart.
//
// It knows nothing of Terraform and nothing of gpufleet's objects. Kinds are given by the caller, so that no discovery
// is needed and no request is made before an object is read or written. controller-runtime stays out: it would double
// the provider's binary.
package kube
