package main

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// ofDaemonSet makes a pod one of a DaemonSet, for a node.
func ofDaemonSet(p *corev1.Pod, node string) *corev1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", UID: "ds", Controller: new(true)}}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
	return p
}

// mounting is a pod whose PersistentVolumeClaim does not exist; it would be expected otherwise.
func mounting() *corev1.Pod {
	p := waiting(pod("mounts", slice, 1, "inference"), 2*time.Minute)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	return p
}

// served is the pod that has all of the node of a full fleet, with a change.
func served(objects []runtime.Object, change func(*corev1.Pod)) []runtime.Object {
	for _, o := range objects {
		if p, is := o.(*corev1.Pod); is && p.Name == "served" {
			change(p)
		}
	}
	return objects
}

func TestExplainPod_OthersAreEvictedForIt(t *testing.T) {
	urgent := func() *corev1.Pod {
		p := waiting(pod("urgent", slice, 8, "inference"), time.Hour)
		p.Status.NominatedNodeName = "i-0a1"
		return p
	}
	ending := func(left time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon.Add(left)}, []string{"example.com/wait"}
		}
	}
	newWorld(t, with(served(full(), ending(time.Hour)), urgent())...).run(t, "explain", "pod", "urgent").want(t, exitNothingHeld,
		`Pod default/urgent waits for node i-0a1, where the scheduler makes room for it.

  Asks       nvidia.com/mig-1g.10gb: 8
  Where      node i-0a1 of pool inference: verified, asked for 2h ago, p5.48xlarge, 8 GPUs, $55.04/h
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.
`, "")
	// Without the controller all is computed here: a grace period that is long is waited for all the same.
	alone := served(full(), ending(time.Hour))
	for _, o := range alone {
		if l, is := o.(*coordinationv1.Lease); is {
			l.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Hour)}
		}
	}
	var r podReport
	if newWorld(t, with(alone, urgent())...).json(t, &r, "explain", "pod", "urgent"); r.State != PodNominated {
		t.Errorf("without the controller it is %s, %+v", r.State, r.Cause)
	}
	newWorld(t, with(served(full(), ending(-time.Second)), urgent())...).run(t, "explain", "pod", "urgent").want(t, exitHeld,
		`Pod default/urgent is held: LimitReached, for 1h.

  pool inference: limit gpus 8 is reached: 8 in use, 8 asked

  Remedy     look at the finalizers of default/served and at the kubelet of node i-0a1: what was deleted there is not gone, and until it is the scheduler keeps the node, and no machine is launched
  Asks       nvidia.com/mig-1g.10gb: 8
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  limit          gpus
  value          8
  used           8
  asked          8
  nominatedNode  i-0a1
  stillThere     default/served: deleted, and there after their grace period
  preemption     none is evicted: what it needs is held by 1 pod of its own priority, 0
`, "")
}

func TestExplainPod_AMachineThatDoesNotJoin(t *testing.T) {
	newWorld(t, exclusive(), lease(time.Second), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		claim("research-1", "research", "p5.4xlarge", "i-0c1", 12*time.Minute), waiting(pod("notebook", whole, 1, "research"), 12*time.Minute)).
		run(t, "explain", "pod", "notebook").want(t, exitHeld, `Pod default/notebook is held: NotVerified, for 12m.

  pool research: NodeClaim research-1 (instance i-0c1) has no node since 11:48:00 UTC, when it was asked for

  Remedy     look at the console output of instance i-0c1 and at what its kubelet says as it boots; Karpenter replaces it 15 minutes after its launch
  Asks       nvidia.com/gpu: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  machine research-1  NodeClaim research-1 (instance i-0c1) has no node since 11:48:00 UTC, when it was asked for

The controller says otherwise
  status.holds of GPUNodePool research has no NotVerified
`, "")
}

func TestExplainPod_OfADaemonSet(t *testing.T) {
	exporter := ofDaemonSet(waiting(pod("exporter", slice, 1), time.Minute), "i-0a1")
	exporter.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	newWorld(t, with(full(), exporter)...).run(t, "explain", "pod", "exporter").want(t, exitHeld,
		`Pod default/exporter is held: Fragmented, for 1m.

  pool inference: the pod of a DaemonSet needs nvidia.com/mig-1g.10gb: 1 on node i-0a1, which has 0 of 56 free

  Remedy     lower what the DaemonSet asks for, or free node i-0a1: no machine is launched for a pod of a DaemonSet
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  node    i-0a1
  needed  nvidia.com/mig-1g.10gb: 1
  free    0
  has     56

The controller says otherwise
  status.holds of GPUNodePool inference has no Fragmented, but LimitReached for 1 pod
`, "")
	var r statusReport
	if newWorld(t, with(full(), exporter)...).json(t, &r, "status"); len(r.Holds) != 2 {
		t.Errorf("status leaves it out: %+v", r.Holds)
	}
	elsewhere := ofDaemonSet(waiting(pod("exporter", slice, 1, "inference"), time.Minute), "worker-1")
	if newWorld(t, with(full(), elsewhere)...).json(t, &r, "status"); len(r.Holds) != 1 || r.Holds[0].Pods != 1 {
		t.Errorf("status counts a pod that is for a node of others: %+v", r.Holds)
	}
}

func TestExplainPod_AVolumeThatIsNotThere(t *testing.T) {
	objects := full()
	for _, o := range objects {
		if n, is := o.(*corev1.Node); is {
			n.Status.Allocatable = amounts(slice, 60)
		}
	}
	newWorld(t, with(objects, mounting())...).run(t, "explain", "pod", "mounts").want(t, exitHeld, `Pod default/mounts is held: Gated, for 2m.

  pool inference: the pod needs PersistentVolumeClaim default/data, which does not exist; no node is sought until it is bound

  Remedy     create PersistentVolumeClaim data in namespace default, or name one that exists in the pod's volumes
  Asks       nvidia.com/mig-1g.10gb: 1
  Scheduler  0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb.

Evidence
  volumeClaim  default/data
  state        does not exist

The controller says otherwise
  status.holds of GPUNodePool inference has no Gated, but LimitReached for 1 pod
`, "")
}

// What may not be read is not said to be missing.
func TestExplainPod_VolumesThatMayNotBeRead(t *testing.T) {
	for _, resource := range []string{"persistentvolumeclaims", "storageclasses"} {
		w := newWorld(t, exclusive(), lease(time.Second), poolNamed("inference", "whole", v1alpha1.WorkloadInference, "p5.48xlarge"), mounting())
		w.refuse("list", resource, forbidden(corev1.Resource(resource)))
		var r podReport
		if w.json(t, &r, "explain", "pod", "mounts"); r.Cause == nil || r.Reason != v1alpha1.HoldNameMismatch || len(r.Also) != 0 {
			t.Errorf("without %s the pod is %s, %+v, also %+v; want what is wrong with its GPUs only", resource, r.State, r.Cause, r.Also)
		}
	}
}
