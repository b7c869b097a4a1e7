package karpenter

import (
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// notFound turns the port's ErrNotFound into the error that core ends a claim on.
func notFound(err error) error {
	if errors.Is(err, cloud.ErrNotFound) {
		return cloudprovider.NewNodeClaimNotFoundError(err)
	}
	return err
}

// listed is an instance as core compares it with its NodeClaims: by provider id and age.
func listed(instance cloud.Instance) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              instance.Claim.Name,
			CreationTimestamp: metav1.NewTime(instance.LaunchedAt),
			Labels:            map[string]string{karpv1.NodePoolLabelKey: instance.Claim.NodePool},
		},
		Status: karpv1.NodeClaimStatus{ProviderID: instance.ProviderID, ImageID: instance.Image},
	}
	if instance.State.Ending() {
		claim.DeletionTimestamp = &claim.CreationTimestamp
	}
	return claim
}

// launched is what Create tells core: only what core merges into its claim.
func launched(instance cloud.Instance, instanceType *cloudprovider.InstanceType, bp v1alpha1.Blueprint) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Labels: nodeLabels(instanceType, bp, instance.Zone, instance.CapacityType),
			Annotations: map[string]string{
				v1alpha1.AnnotationBlueprintHash:        bp.Hash,
				v1alpha1.AnnotationBlueprintHashVersion: bp.HashVersion,
			},
		},
		Status: karpv1.NodeClaimStatus{
			ProviderID:  instance.ProviderID,
			ImageID:     instance.Image,
			Capacity:    nonZero(instanceType.Capacity),
			Allocatable: nonZero(instanceType.Allocatable()),
		},
	}
}

// nodeLabels are the labels that the choice of an offering decides.
func nodeLabels(instanceType *cloudprovider.InstanceType, bp v1alpha1.Blueprint, zone string, capacityType v1alpha1.CapacityType) map[string]string {
	labels := maps.Clone(bp.Labels)
	for key, requirement := range instanceType.Requirements {
		if requirement.Operator() == corev1.NodeSelectorOpIn && requirement.Len() == 1 {
			labels[key] = requirement.Any()
		}
	}
	labels[corev1.LabelTopologyZone] = zone
	labels[karpv1.CapacityTypeLabelKey] = string(capacityType)
	return labels
}

func nonZero(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, quantity := range list {
		if !quantity.IsZero() {
			out[name] = quantity
		}
	}
	return out
}
