// Package provider is everything that Terraform sees of gpufleet.
//
// One file per Terraform object holds its schema and its plan-time rules (<name>_resource.go), one holds what the object
// is in the cluster (<name>_model.go). What all of them do alike is written once: create, read, update and delete in
// object_resource.go, the way between Terraform's values and an object's spec in expand.go and flatten.go, the words for
// a failed request in diagnostics.go, and what the objects of one run know of each other in session.go.
//
// Decisions about GPUs, layouts and machines are made in internal; nothing of the controller comes in but its API.
package provider
