// Package agent is the node agent: it cuts the GPUs of its node as the node's Blueprint says, reads back what NVML then
// sees, and reports that in status.inventory of its GPUNode. It judges nothing (internal/verify does) and holds no tables
// about boards: it asks the device.
//
// NVML is behind the small interfaces of device.go, and nvml.go is all that knows go-nvml. Every pass opens a session and
// closes it: a client that keeps handles blocks the very changes that it waits for. Only status.inventory of its own
// GPUNode is ever written, so no controller-runtime and no Karpenter come in here.
package agent
