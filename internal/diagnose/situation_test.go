package diagnose

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

const (
	wholeGPU = corev1.ResourceName("nvidia.com/gpu")
	slice    = corev1.ResourceName("nvidia.com/mig-1g.10gb")
	shared   = corev1.ResourceName("nvidia.com/gpu.shared")
)

// noon is when everything happens; pods wait since a minute before.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// situation is one pod that waits for one pool.
type situation struct {
	t       testing.TB
	cluster Cluster
	pool    Pool
	pod     *corev1.Pod
}

type change = func(*situation)

// a situation is that of a pod with one GPU, and of a pool with p5.48xlarge machines that may launch one, on demand in
// us-east-1a or us-east-1b.
func newSituation(t testing.TB, changes ...change) *situation {
	t.Helper()
	s := &situation{t: t, cluster: Cluster{Now: noon}, pod: waiter("pod", "gpu 1")}
	s.pool = Pool{Name: "inf", Workload: v1alpha1.WorkloadInference, Usage: ledger.Usage{Pool: "inf", Ready: true}}
	s.pool.Offers = []Offer{offerOf(t, exclusive(), "p5.48xlarge")}
	for _, each := range changes {
		each(s)
	}
	return s
}

func (s *situation) verdict(t testing.TB) Verdict {
	t.Helper()
	verdicts := Decide(s.cluster, s.pool, []*corev1.Pod{s.pod})
	if len(verdicts) != 1 {
		t.Fatalf("%d verdicts, want one", len(verdicts))
	}
	return verdicts[0]
}

// waiter is a pod that carries what pool inf asks of its pods, and that no node was found for since 11:59.
func waiter(name, asks string, changes ...func(*corev1.Pod)) *corev1.Pod {
	requests := listed(asks)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"gpufleet.dev/pool": "inf"},
			Tolerations: []corev1.Toleration{
				{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpEqual, Value: "present", Effect: corev1.TaintEffectNoSchedule},
				{Key: "gpufleet.dev/workload", Operator: corev1.TolerationOpEqual, Value: "Inference", Effect: corev1.TaintEffectNoSchedule},
			},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available", LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute)),
		}}},
	}
	for _, each := range changes {
		each(pod)
	}
	return pod
}

// Sharings of a class.
func exclusive() v1alpha1.SharingSpec {
	return v1alpha1.SharingSpec{Strategy: v1alpha1.SharingExclusive}
}

func cut(strategy v1alpha1.MIGStrategy) v1alpha1.SharingSpec {
	return v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, MIGStrategy: strategy, Layouts: []string{"h100-7x1g10gb"}}
}

func sliced(replicas int32, rename bool) v1alpha1.SharingSpec {
	return v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: &replicas, RenameByDefault: rename}
}

func offerOf(t testing.TB, sharing v1alpha1.SharingSpec, instanceType string) Offer {
	t.Helper()
	pool := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: "inf"}, Spec: v1alpha1.GPUNodePoolSpec{
		Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: "class"},
		Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{instanceType}}},
	}}
	class := &v1alpha1.GPUNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Spec: v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{}}, Sharing: sharing,
	}}
	layout := &v1alpha1.MIGLayout{ObjectMeta: metav1.ObjectMeta{Name: "h100-7x1g10gb"}, Spec: v1alpha1.MIGLayoutSpec{
		GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}}},
	}}
	bp, err := blueprint.Compile(pool, class, map[string]*v1alpha1.MIGLayout{layout.Name: layout}, instanceType)
	if err != nil {
		t.Fatal(err)
	}
	return NewOffer(bp, 100, []string{"us-east-1a", "us-east-1b"}, []v1alpha1.CapacityType{v1alpha1.CapacityTypeOnDemand})
}

// Changes of a situation.

func withOffers(sharing v1alpha1.SharingSpec, instanceTypes ...string) change {
	return func(s *situation) {
		s.pool.Offers = nil
		for _, each := range instanceTypes {
			s.pool.Offers = append(s.pool.Offers, offerOf(s.t, sharing, each))
		}
	}
}

func asking(asks string) change {
	return func(s *situation) {
		s.pod.Spec.Containers[0].Resources.Requests = listed(asks)
	}
}

func ofPod(f func(*corev1.Pod)) change { return func(s *situation) { f(s.pod) } }

func selectsToo(key, value string) change {
	return func(s *situation) { s.pod.Spec.NodeSelector[key] = value }
}

// used is a pool of so many machines of so many GPUs at so many dollars each, under limits.
func used(limits ledger.Limits, machines, gpus int64) change {
	return func(s *situation) {
		totals := ledger.Totals{Amounts: ledger.Amounts{GPUs: machines * gpus, Nodes: machines, HourlyCost: ledger.Money(machines*gpus) * ledger.Dollar}}
		s.pool.Usage = ledger.Usage{Pool: "inf", Ready: true, Limits: limits, Steady: totals, Outstanding: totals}
	}
}

func gpuLimit(n, surge int64) ledger.Limits {
	return ledger.Limits{GPUs: &n, Surge: ledger.Amounts{GPUs: surge, Nodes: 1}}
}

// fullPool is one machine of 8 GPUs under a limit of 8.
func fullPool() change { return used(gpuLimit(8, 8), 1, 8) }

func trouble(words string) change { return func(s *situation) { s.pool.Trouble = words } }

// refusedNode is a node with everything free that is not what was ordered.
func refusedNode(name, finding string) change {
	return func(s *situation) {
		place := verifiedNode(name, "gpu 8, nvidia.com/mig-1g.10gb 56, cpu 192, memory 2048Gi, pods 110")
		place.State, place.Finding = Refused, finding
		place.Node.Labels["gpufleet.dev/pool"] = "inf"
		s.pool.Places = append(s.pool.Places, place)
	}
}

// node is a verified node of the pool with so much, of which so much is held by pods of a priority.
func node(name, has, held string, priority int32) change {
	return func(s *situation) {
		place := verifiedNode(name, has, replica("on-"+name, held, func(p *corev1.Pod) { p.Spec.Priority = &priority }))
		place.Node.Labels["gpufleet.dev/pool"] = "inf"
		s.pool.Places = append(s.pool.Places, place)
	}
}

// coming is a machine on its way.
func coming(name, has string) change {
	return func(s *situation) {
		s.pool.Places = append(s.pool.Places, &Place{Name: name, Free: listed(has), Has: listed(has)})
	}
}

// claimed is a machine that was asked for and is not launched: its zone is open.
func claimed(name string) change {
	return func(s *situation) {
		s.pool.Places = append(s.pool.Places, OnItsWay(Claim{Name: name, Types: []string{"p5.48xlarge"}}, s.pool.Offers, noon))
	}
}

// refusing is the cloud's word on every way to buy in a zone, until 12:03.
func refusing(reason, zone, message string) change {
	return func(s *situation) {
		for _, offer := range s.pool.Offers {
			for _, way := range offer.Ways {
				if way.Zone == zone {
					s.pool.Blocked = append(s.pool.Blocked, Blocked{
						InstanceType: offer.Blueprint.InstanceType, Zone: zone, CapacityType: way.CapacityType,
						Reason: reason, Message: message, Until: noon.Add(3 * time.Minute),
					})
				}
			}
		}
	}
}

// refusingBoth is the same word in both zones.
func refusingBoth(reason, message string) change {
	return func(s *situation) {
		refusing(reason, "us-east-1a", message)(s)
		refusing(reason, "us-east-1b", message)(s)
	}
}

// onSpotToo lets the pool buy spot machines first.
func onSpotToo() change {
	return func(s *situation) {
		s.pool.Offers = []Offer{NewOffer(s.pool.Offers[0].Blueprint, 100, []string{"us-east-1a", "us-east-1b"}, []v1alpha1.CapacityType{v1alpha1.CapacityTypeSpot, v1alpha1.CapacityTypeOnDemand})}
	}
}

func budget(b Budget) change {
	return func(s *situation) { s.pool.Budgets = append(s.pool.Budgets, b) }
}

// claiming makes the pod ask by a claim: so many devices of a class, of which the claim is made.
func claiming(class string, count int64, selectors ...string) change {
	return func(s *situation) {
		name := "claim"
		s.pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		s.cluster.Claims = append(s.cluster.Claims, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: devicesOf(class, count, selectors...),
		})
	}
}

// templated makes the pod ask by a claim that is made from a template, and is not made yet.
func templated(class string, count int64) change {
	return func(s *situation) {
		name := "template"
		s.pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &name}}
		s.cluster.Templates = append(s.cluster.Templates, &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: devicesOf(class, count)},
		})
	}
}

func devicesOf(class string, count int64, selectors ...string) resourcev1.ResourceClaimSpec {
	exact := &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count, AllocationMode: resourcev1.DeviceAllocationModeExactCount}
	for _, each := range selectors {
		exact.Selectors = append(exact.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: each}})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exact}}}}
}

// deviceClass is NVIDIA's.
func deviceClass(name string) change {
	return func(s *situation) {
		s.cluster.Classes = append(s.cluster.Classes, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == 'gpu.nvidia.com'`}}},
		}})
	}
}

// publishing makes a node publish so many whole H100 boards, of which some are allocated to others.
func publishing(node string, devices, taken int) change {
	return func(s *situation) {
		product := "NVIDIA H100 80GB HBM3"
		slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node}}}
		for i := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
				Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": {StringValue: &product}},
			})
		}
		s.cluster.Slices = append(s.cluster.Slices, slice)
		for i := range taken {
			s.cluster.Claims = append(s.cluster.Claims, &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: fmt.Sprint(node, i)},
				Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "gpu.nvidia.com", Pool: node, Device: fmt.Sprintf("gpu-%d", i)}},
				}}},
			})
		}
	}
}

func quota(namespace, name, resource, hard, used string) change {
	return func(s *situation) {
		s.cluster.Quotas = append(s.cluster.Quotas, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status:     corev1.ResourceQuotaStatus{Hard: listed(resource + " " + hard), Used: listed(resource + " " + used)},
		})
	}
}

// waitingFor sets how long the pod has waited.
func waitingFor(d time.Duration) change {
	return func(s *situation) {
		s.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-d))
	}
}

func quantityOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }
