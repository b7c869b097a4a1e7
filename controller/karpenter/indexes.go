package karpenter

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// index is one field that the cache can be asked by.
type index struct {
	object client.Object
	field  string
	value  func(client.Object) string
}

// indexes are those that core sets up in its own constructor (pkg/operator/operator.go, setupIndexers), which we replace.
var indexes = []index{
	{&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
	{&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
	{&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }},
	{&karpv1.NodeClaim{}, "status.providerID", func(o client.Object) string { return o.(*karpv1.NodeClaim).Status.ProviderID }},
	{&karpv1.NodeClaim{}, "spec.nodeClassRef.group", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Group }},
	{&karpv1.NodeClaim{}, "spec.nodeClassRef.kind", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Kind }},
	{&karpv1.NodeClaim{}, "spec.nodeClassRef.name", func(o client.Object) string { return o.(*karpv1.NodeClaim).Spec.NodeClassRef.Name }},
	{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(o client.Object) string { return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Group }},
	{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(o client.Object) string { return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Kind }},
	{&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.name", func(o client.Object) string { return o.(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Name }},
}

func addIndexes(ctx context.Context, mgr ctrl.Manager) error {
	var errs []error
	for _, each := range indexes {
		errs = append(errs, mgr.GetFieldIndexer().IndexField(ctx, each.object, each.field, func(o client.Object) []string {
			return []string{each.value(o)}
		}))
	}
	return errors.Join(errs...)
}
