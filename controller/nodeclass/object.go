// Package nodeclass keeps GPUNodeClasses: it resolves what a class refers to in the cloud and says whether it is Ready.
//
// Object is the GPUNodeClass as Karpenter core wants a node class (operatorpkg's status.Object). The API package stays a
// leaf, so the wrapper lives here, and the controller's scheme knows the kind by it.
package nodeclass

import (
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Object is a GPUNodeClass with the methods that Karpenter core calls.
type Object struct {
	v1alpha1.GPUNodeClass `json:",inline"`
}

// ObjectList is a list of them.
type ObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Object `json:"items"`
}

var (
	_ status.Object  = (*Object)(nil)
	_ runtime.Object = (*ObjectList)(nil)
)

// New returns an empty class that knows its kind: core asks supported classes for it.
func New() *Object {
	class := &Object{}
	class.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindGPUNodeClass))
	return class
}

// AddToScheme registers the kind GPUNodeClass as Object.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(v1alpha1.KindGPUNodeClass), &Object{})
	s.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(v1alpha1.KindGPUNodeClass+"List"), &ObjectList{})
	return nil
}

// DeepCopyObject hides the embedded method, which would lose the wrapper.
func (o *Object) DeepCopyObject() runtime.Object { return o.DeepCopy() }

// DeepCopy returns a copy that shares nothing.
func (o *Object) DeepCopy() *Object {
	if o == nil {
		return nil
	}
	return &Object{GPUNodeClass: *o.GPUNodeClass.DeepCopy()}
}

// DeepCopyObject returns a copy that shares nothing.
func (l *ObjectList) DeepCopyObject() runtime.Object {
	out := &ObjectList{TypeMeta: l.TypeMeta, Items: make([]Object, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return out
}

// GetConditions returns the class's conditions as operatorpkg spells them.
func (o *Object) GetConditions() []status.Condition {
	return lo.Map(o.Status.Conditions, func(c metav1.Condition, _ int) status.Condition { return status.Condition(c) })
}

// SetConditions replaces the class's conditions.
func (o *Object) SetConditions(conditions []status.Condition) {
	o.Status.Conditions = lo.Map(conditions, func(c status.Condition, _ int) metav1.Condition { return metav1.Condition(c) })
}

// StatusConditions returns the set that core reads Ready from.
func (o *Object) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions(v1alpha1.ConditionAccepted).For(o, opts...)
}
