// Package stack starts and stops gpufleet's local stage: a real Kubernetes control plane (test/controlplane), KWOK in
// the kubelets' place, the emulated AWS region (test/region) and the controller, which holds no more rights than the
// shipped RBAC gives its ServiceAccount.
//
// make up, make demo, the end-to-end tests and the provider's acceptance tests all use it; nothing of the product
// imports it. Everything listens on loopback, on free ports, and keeps its files in one directory. Whatever a stack
// starts it also ends: on Stop, when the context ends, and, on Linux, when the process that started it dies.
package stack
