package machine

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// vmOverhead is the share of an instance's memory that the hypervisor and kernel keep, as karpenter-provider-aws assumes by
	// default (VM_MEMORY_OVERHEAD_PERCENT = 0.075).
	vmOverhead = 0.075
	// MaxPods bounds pods a node below what any of the GPU instance types' images allow.
	MaxPods = 110
	// nodefsEviction is the share of the disk that the kubelet keeps free, and therefore does not offer: nodefs.available of its
	// evictionHard (kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction, "Hard eviction thresholds").
	nodefsEviction = 10
)

// NodeCapacity is the machine as a node has it, beside its GPUs: CPU, memory, a disk of so many GiB, and pods.
func (t Type) NodeCapacity(diskGiB int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(t.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           mebibytes(int64(math.Floor(float64(t.MemoryMiB) * (1 - vmOverhead)))),
		corev1.ResourceEphemeralStorage: gibibytes(diskGiB),
		corev1.ResourcePods:             *resource.NewQuantity(MaxPods, resource.DecimalSI),
	}
}

// KubeReserved is what nodeadm reserves for the kubelet on AL2023: 255 MiB and 11 MiB a pod, CPU in falling shares, and a
// GiB of the disk. Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet.
func (t Type) KubeReserved() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(reservedMilliCPU(t.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           mebibytes(255 + 11*MaxPods),
		corev1.ResourceEphemeralStorage: gibibytes(1),
	}
}

// EvictionThreshold is what the kubelet keeps free: 100 MiB of memory, and a tenth of the disk. No pod can have it: who
// leaves it out promises pods a room that no node has, and launches for them for ever.
func (t Type) EvictionThreshold(diskGiB int64) corev1.ResourceList {
	disk := gibibytes(diskGiB)
	return corev1.ResourceList{
		corev1.ResourceMemory:           mebibytes(100),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity((disk.Value()+nodefsEviction-1)/nodefsEviction, resource.BinarySI),
	}
}

// NodeAllocatable is what pods can have of a node, beside its GPUs.
func (t Type) NodeAllocatable(diskGiB int64) corev1.ResourceList {
	left := t.NodeCapacity(diskGiB)
	for _, taken := range []corev1.ResourceList{t.KubeReserved(), t.EvictionThreshold(diskGiB)} {
		for name, quantity := range taken {
			rest := left[name]
			rest.Sub(quantity)
			left[name] = rest
		}
	}
	return left
}

// reservedMilliCPU is 6% of the first core, 1% of the second, 0.5% of the next two, 0.25% of the rest.
func reservedMilliCPU(vcpu int) int64 {
	var milli float64
	for core := 1; core <= vcpu; core++ {
		switch {
		case core == 1:
			milli += 60
		case core == 2:
			milli += 10
		case core <= 4:
			milli += 5
		default:
			milli += 2.5
		}
	}
	return int64(milli)
}

func mebibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<20, resource.BinarySI) }
func gibibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }
