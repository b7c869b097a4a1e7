package diagnose

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mounting makes the pod need PersistentVolumeClaim data.
func mounting() change {
	return ofPod(func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}})
	})
}

// ephemerally makes the pod need a volume of its own, of claim pod-scratch.
func ephemerally() change {
	return ofPod(func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	})
}

// stored are the claims that exist, in a cluster whose StorageClass slow binds at once and wait for the first consumer.
func stored(claims ...*corev1.PersistentVolumeClaim) change {
	return func(s *situation) {
		atOnce, first := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
		s.cluster.Volumes = NewVolumes(claims, []*storagev1.StorageClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "at-once"}, VolumeBindingMode: &atOnce}, {ObjectMeta: metav1.ObjectMeta{Name: "unsaid"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "first-consumer"}, VolumeBindingMode: &first},
		})
	}
}

func volumeClaim(name, class string, phase corev1.PersistentVolumeClaimPhase, volume string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func TestDecide_AVolumeThatIsNotThere(t *testing.T) {
	const look = "look at the events of PersistentVolumeClaim data: kubectl describe pvc -n default data"
	const missing = "pool inf: the pod needs PersistentVolumeClaim default/data, which does not exist; no node is sought until it is bound"
	const create = "create PersistentVolumeClaim data in namespace default, or name one that exists in the pod's volumes"
	pending := func(class, volume string) change {
		return stored(volumeClaim("data", class, corev1.ClaimPending, volume))
	}
	decideRows(t, []row{
		{name: "nobody has read what there is", changes: []change{mounting()}, want: "expected"},
		{name: "it is bound", changes: []change{mounting(), stored(volumeClaim("data", "at-once", corev1.ClaimBound, "pv-1"))}, want: "expected"},
		{name: "it waits for its first consumer", changes: []change{mounting(), pending("first-consumer", "")}, want: "expected"},
		{name: "the claim does not exist", changes: []change{mounting(), stored()}, want: "Gated", message: missing, remedy: create},
		{name: "the claim is in another namespace", changes: []change{mounting(), stored(func() *corev1.PersistentVolumeClaim {
			c := volumeClaim("data", "at-once", corev1.ClaimBound, "pv-1")
			c.Namespace = "others"
			return c
		}())}, want: "Gated", message: missing, remedy: create},
		{name: "its class binds at once, and has not", changes: []change{mounting(), pending("at-once", "")},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Pending: StorageClass at-once binds volumes before there is a pod, and has bound none; no node is sought until it is bound", remedy: look},
		{name: "its class does not say, which is at once", changes: []change{mounting(), pending("unsaid", "")},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Pending: StorageClass unsaid binds volumes before there is a pod, and has bound none; no node is sought until it is bound", remedy: look},
		{name: "its class does not exist", changes: []change{mounting(), pending("gone", "")},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Pending: there is no StorageClass gone; no node is sought until it is bound",
			remedy: "create the StorageClass, or create the claim anew with one that exists"},
		{name: "it has no class", changes: []change{mounting(), pending("", "")},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Pending: it names no StorageClass, and no PersistentVolume is bound to it; no node is sought until it is bound", remedy: look},
		{name: "it names a volume and is not bound to it", changes: []change{mounting(), pending("first-consumer", "pv-1")},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Pending: it is not bound to PersistentVolume pv-1 yet; no node is sought until it is bound", remedy: look},
		{name: "its volume is lost", changes: []change{mounting(), stored(volumeClaim("data", "at-once", corev1.ClaimLost, "pv-1"))},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is Lost: its PersistentVolume pv-1 does not exist; no node is sought until it is bound",
			remedy: "restore the PersistentVolume, or create the claim anew"},
		{name: "it is being deleted", changes: []change{mounting(), stored(func() *corev1.PersistentVolumeClaim {
			c := volumeClaim("data", "at-once", corev1.ClaimBound, "pv-1")
			c.DeletionTimestamp = &metav1.Time{Time: noon}
			return c
		}())}, want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/data, which is being deleted; no node is sought until it is bound",
			remedy: "create it anew once it is gone, or name another in the pod's volumes"},
		{name: "one of the pod's own is about to be made", changes: []change{ephemerally(), stored()}, want: "expected"},
		{name: "one of the pod's own is not bound", changes: []change{ephemerally(), stored(volumeClaim("pod-scratch", "at-once", corev1.ClaimPending, ""))},
			want: "Gated", message: "pool inf: the pod needs PersistentVolumeClaim default/pod-scratch, which is Pending: StorageClass at-once binds volumes before there is a pod, and has bound none; no node is sought until it is bound"},
		{name: "no claim, and a node has room in a full pool", changes: []change{mounting(), stored(), fullPool(), node("n1", fullNode, "gpu 7", 0)}, want: "Gated", message: missing},
		{name: "no claim, and the pool is full", changes: []change{mounting(), stored(), fullPool()},
			want: "Gated", message: missing, also: "LimitReached"},
		{name: "no claim, and the pod is wrong too", changes: []change{mounting(), stored(), tolerationsLeft(0)},
			want: "Gated", message: missing, also: "NotTolerated"},
		{name: "no claim, and the pod is of a DaemonSet", changes: []change{mounting(), stored(), daemonOn("n1"), node("n1", fullNode, "gpu 7", 0)}, want: "Gated", message: missing},
		{name: "no claim, and a machine does not join", changes: []change{mounting(), stored(), fullPool(), asked("c1", "i-0abc", 11*time.Minute)},
			want: "Gated", message: missing, also: "NotVerified LimitReached"},
	})
}

// A pod that waits for its volume takes no room of a node from a pod that could be placed.
func TestDecide_APodWithoutItsVolumeTakesNoRoom(t *testing.T) {
	s := newSituation(t, mounting(), stored(), fullPool(), node("n1", fullNode, "gpu 7", 0))
	verdicts := Decide(s.cluster, s.pool, []*corev1.Pod{s.pod, waiter("z-other", "gpu 1")})
	if verdicts[0].Expected || !verdicts[1].Expected {
		t.Errorf("verdicts are %v and %v, want the second expected", reasons(verdicts[0]), reasons(verdicts[1]))
	}
}
