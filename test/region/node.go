package region

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const (
	// kwokAnnotation hands a Node's heartbeat to KWOK (its flag --manage-nodes-with-annotation-selector).
	kwokAnnotation      = "kwok.x-k8s.io/node"
	kwokAnnotationValue = "fake"
	// taintUninitialized is what a kubelet with an external cloud provider registers with, until the cloud-controller-manager
	// has been there (k8s.io/cloud-provider/api).
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	kubeletVersion     = "v1.36.3"
)

func (i *instance) providerID() string { return "aws:///" + i.subnet.Zone + "/" + i.id }

func (i *instance) nodeName(config *nodeConfigSpec) string {
	if config.FeatureGates[featureInstanceIDNodeName] {
		return i.id
	}
	return i.privateDNS()
}

// newNode is the Node that the machine's kubelet registers. What NodeRestriction lets a kubelet say of itself is all here;
// the cloud's labels come from the cloud-controller-manager (initializeNode). The addresses are left to KWOK, which puts
// its own on loopback: 10.0.0.0/16 is nowhere, and the API server must not look for a kubelet there.
func newNode(row *instance, config *nodeConfigSpec) (*corev1.Node, error) {
	labels, err := config.labels()
	if err != nil {
		return nil, err
	}
	taints, err := config.taints()
	if err != nil {
		return nil, err
	}
	pods, err := config.maxPods(row.kind.MaxPods)
	if err != nil {
		return nil, err
	}
	name := row.nodeName(config)
	maps.Copy(labels, map[string]string{corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"})
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{kwokAnnotation: kwokAnnotationValue}},
		Spec: corev1.NodeSpec{
			ProviderID: row.providerID(),
			Taints:     []corev1.Taint{{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Capacity: row.kind.capacity(pods, row.rootGiB), Allocatable: row.kind.allocatable(pods, row.rootGiB),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: row.id, SystemUUID: row.id, BootID: row.reservation, Architecture: "amd64", OperatingSystem: "linux",
				KernelVersion: "6.12.40-64.114.amzn2023.x86_64", OSImage: "Amazon Linux 2023.8.20260915",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: kubeletVersion,
			},
		},
	}
	for _, t := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return node, nil
}

// capacity is what the kubelet finds: the kernel and the firmware keep about a fortieth of the memory that EC2 sells.
// GPUs are not in it: their device plugin has not spoken.
func (t instanceType) capacity(pods int, rootGiB int64) corev1.ResourceList {
	return resources(int64(t.VCPUs)*1000, t.MemoryMiB*39/40, pods, rootGiB*1024)
}

// allocatable is capacity less what nodeadm reserves: CPU by cores, 255 MiB and 11 MiB a pod, 100 MiB for eviction, and a
// tenth of the disk (awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go).
func (t instanceType) allocatable(pods int, rootGiB int64) corev1.ResourceList {
	return resources(int64(t.VCPUs)*1000-reservedMilliCPU(t.VCPUs), t.MemoryMiB*39/40-255-11*int64(pods)-100, pods, rootGiB*1024*9/10)
}

func reservedMilliCPU(cores int) int64 {
	// Tenths of a millicore: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
	reserved := int64(600)
	for core := 2; core <= cores; core++ {
		switch {
		case core == 2:
			reserved += 100
		case core <= 4:
			reserved += 50
		default:
			reserved += 25
		}
	}
	return reserved / 10
}

func resources(milliCPU, memoryMiB int64, pods int, diskMiB int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memoryMiB<<20, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(pods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskMiB<<20, resource.BinarySI),
	}
}

// registerNode creates the Node as the kubelet does, with the kubelet's identity: the Node authorizer and NodeRestriction
// see what they would see from a real one.
func (c *cluster) registerNode(ctx context.Context, node *corev1.Node) error {
	kubelet, err := c.as(node.Name)
	if err != nil {
		return err
	}
	_, err = kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	before, err := kubelet.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err == nil && before.Spec.ProviderID != node.Spec.ProviderID {
		return fmt.Errorf("node %s exists and is %s, not %s", node.Name, before.Spec.ProviderID, node.Spec.ProviderID)
	}
	return err
}

// initializeNode does the cloud-controller-manager's part, as an administrator: topology labels, and the taint goes.
func (c *cluster) initializeNode(ctx context.Context, name string, row *instance) (*corev1.Node, error) {
	var done *corev1.Node
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		maps.Copy(node.Labels, map[string]string{
			corev1.LabelInstanceTypeStable: row.typeName, corev1.LabelTopologyZone: row.subnet.Zone, corev1.LabelTopologyRegion: regionName,
		})
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUninitialized })
		done, err = c.admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	return done, err
}
