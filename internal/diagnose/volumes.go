package diagnose

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Volumes are what PersistentVolumeClaims of pods are decided from, by name.
type Volumes struct {
	Claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	Classes map[string]*storagev1.StorageClass
}

// NewVolumes are those of some claims and of the cluster's storage classes.
func NewVolumes(claims []*corev1.PersistentVolumeClaim, classes []*storagev1.StorageClass) *Volumes {
	v := &Volumes{Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Classes: map[string]*storagev1.StorageClass{}}
	for _, claim := range claims {
		v.Claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
	}
	for _, class := range classes {
		v.Classes[class.Name] = class
	}
	return v
}

// Mounts says whether a pod needs PersistentVolumeClaims.
func Mounts(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return claimOf(pod, volume) != "" })
}

// claimOf is the name of a volume's PersistentVolumeClaim; empty for a volume of another kind.
func claimOf(pod *corev1.Pod, volume corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	}
	return ""
}

// volumes is the first PersistentVolumeClaim that keeps the scheduler from looking for a node, whatever nodes there are.
func (d *decision) volumes(pod *corev1.Pod) []Cause {
	if d.cluster.Volumes == nil {
		return nil
	}
	for _, volume := range pod.Spec.Volumes {
		name := types.NamespacedName{Namespace: pod.Namespace, Name: claimOf(pod, volume)}
		if name.Name == "" || (volume.Ephemeral != nil && d.cluster.Volumes.Claims[name] == nil) {
			continue // that of an ephemeral volume is about to be made
		}
		state, remedy := d.cluster.Volumes.trouble(name)
		if state == "" {
			continue
		}
		c := d.cause(v1alpha1.HoldGated, "the pod needs PersistentVolumeClaim %s, which %s; no node is sought until it is bound", name, state)
		c.Remedy, c.Evidence = remedy, []Fact{{"volumeClaim", name.String()}, {"state", state}}
		return []Cause{c}
	}
	return nil
}

// trouble is what is wrong with a claim, and what to do; nothing where the scheduler may look for a node. It says so of a
// claim that is bound, or that is to be bound once the pod has a node (k8s.io/kubernetes, plugins/volumebinding).
func (v *Volumes) trouble(name types.NamespacedName) (state, remedy string) {
	claim, look := v.Claims[name], fmt.Sprintf("look at the events of PersistentVolumeClaim %s: kubectl describe pvc -n %s %s", name.Name, name.Namespace, name.Name)
	switch {
	case claim == nil:
		return "does not exist", fmt.Sprintf("create PersistentVolumeClaim %s in namespace %s, or name one that exists in the pod's volumes", name.Name, name.Namespace)
	case claim.DeletionTimestamp != nil:
		return "is being deleted", "create it anew once it is gone, or name another in the pod's volumes"
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("is Lost: its PersistentVolume %s does not exist", claim.Spec.VolumeName), "restore the PersistentVolume, or create the claim anew"
	case claim.Status.Phase == corev1.ClaimBound:
		return "", ""
	case claim.Spec.VolumeName != "":
		return fmt.Sprintf("is Pending: it is not bound to PersistentVolume %s yet", claim.Spec.VolumeName), look
	case claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "":
		return "is Pending: it names no StorageClass, and no PersistentVolume is bound to it", look
	}
	class := v.Classes[*claim.Spec.StorageClassName]
	switch {
	case class == nil:
		return fmt.Sprintf("is Pending: there is no StorageClass %s", *claim.Spec.StorageClassName), "create the StorageClass, or create the claim anew with one that exists"
	case class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer:
		return "", ""
	}
	return fmt.Sprintf("is Pending: StorageClass %s binds volumes before there is a pod, and has bound none", class.Name), look
}
