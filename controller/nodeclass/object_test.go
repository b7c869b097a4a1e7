package nodeclass

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

var changedAt = metav1.NewTime(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))

// fullClass has every field of a class.
func fullClass() *Object {
	class := testClass()
	class.UID, class.ResourceVersion, class.Generation = "uid", "7", 3
	class.Labels, class.Annotations, class.Finalizers = map[string]string{"a": "b"}, map[string]string{"c": "d"}, []string{"example.com/other"}
	class.Status = v1alpha1.GPUNodeClassStatus{
		AMI: "ami-1", Subnets: []v1alpha1.SubnetStatus{{ID: "subnet-a", Zone: "us-east-1a"}},
		Conditions: []metav1.Condition{
			{Type: "Accepted", Status: isTrue, ObservedGeneration: 3, LastTransitionTime: changedAt, Reason: "Valid", Message: "the class is valid"},
			{Type: "Ready", Status: isFalse, ObservedGeneration: 3, LastTransitionTime: changedAt, Reason: "CloudError", Message: "no subnet"},
		},
	}
	return class
}

func TestObject_IsWrittenAsAPlainGPUNodeClassAndReadBackWhole(t *testing.T) {
	class := fullClass()
	wrapped, err := json.Marshal(class)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(class.GPUNodeClass)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(plain), string(wrapped)); diff != "" {
		t.Error(diff)
	}
	read := &Object{}
	if err := json.Unmarshal(wrapped, read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(class, read); diff != "" {
		t.Error(diff)
	}
	if read.Kind != "GPUNodeClass" || read.APIVersion != "gpufleet.dev/v1alpha1" {
		t.Errorf("read back as %s %s", read.APIVersion, read.Kind)
	}
}

func TestAddToScheme_KnowsTheKindByTheWrapper(t *testing.T) {
	made, err := scheme.Scheme.New(v1alpha1.GroupVersion.WithKind("GPUNodeClass"))
	if err != nil {
		t.Fatal(err)
	}
	if _, wrapped := made.(*Object); !wrapped {
		t.Errorf("the scheme makes a %T", made)
	}
	class := fullClass()
	class.ResourceVersion = ""
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(class).Build()
	list := &ObjectList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != className {
		t.Fatalf("listed %v", list.Items)
	}
	if diff := cmp.Diff(class.Spec, list.Items[0].Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(class.Status, list.Items[0].Status); diff != "" {
		t.Error(diff)
	}
}

func TestDeepCopy_KeepsTheWrapperAndSharesNothing(t *testing.T) {
	for name, copied := range map[string]func(*Object) *Object{
		"DeepCopy":       func(o *Object) *Object { return o.DeepCopy() },
		"DeepCopyObject": func(o *Object) *Object { return o.DeepCopyObject().(*Object) },
		"in a list": func(o *Object) *Object {
			return &(&ObjectList{Items: []Object{*o}}).DeepCopyObject().(*ObjectList).Items[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			class := fullClass()
			got := copied(class)
			if diff := cmp.Diff(class, got); diff != "" {
				t.Error(diff)
			}
			got.Labels["a"], got.Spec.Cloud.AWS.Subnets[0], got.Status.Conditions[0].Reason = "changed", "changed", "changed"
			if diff := cmp.Diff(fullClass(), class); diff != "" {
				t.Errorf("a change of the copy changed the original: %s", diff)
			}
		})
	}
	if (*Object)(nil).DeepCopy() != nil {
		t.Error("a copy of nothing is something")
	}
}

func TestListDeepCopy_KeepsItsOwnMetadata(t *testing.T) {
	list := &ObjectList{
		TypeMeta: metav1.TypeMeta{Kind: "GPUNodeClassList", APIVersion: "gpufleet.dev/v1alpha1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "next"},
		Items:    []Object{*fullClass(), *testClass()},
	}
	if diff := cmp.Diff(client.ObjectList(list), list.DeepCopyObject()); diff != "" {
		t.Error(diff)
	}
}

func TestConditions_AreTheClassesOwnInCoresSpelling(t *testing.T) {
	class := fullClass()
	want := []status.Condition{
		{Type: "Accepted", Status: isTrue, ObservedGeneration: 3, LastTransitionTime: changedAt, Reason: "Valid", Message: "the class is valid"},
		{Type: "Ready", Status: isFalse, ObservedGeneration: 3, LastTransitionTime: changedAt, Reason: "CloudError", Message: "no subnet"},
	}
	if diff := cmp.Diff(want, class.GetConditions()); diff != "" {
		t.Error(diff)
	}
	other := New()
	other.SetConditions(want)
	if diff := cmp.Diff(class.Status.Conditions, other.Status.Conditions); diff != "" {
		t.Error(diff)
	}
}

// Core reads Ready through this set. It must not compute its own from Accepted.
func TestStatusConditions_ShowReadyAsItIsWritten(t *testing.T) {
	class := fullClass()
	ready := class.StatusConditions().Root()
	if ready.Type != "Ready" || ready.Status != isFalse || ready.Message != "no subnet" {
		t.Errorf("core reads %+v", ready)
	}
	if diff := cmp.Diff(fullClass().Status.Conditions, class.Status.Conditions); diff != "" {
		t.Errorf("reading changed the conditions: %s", diff)
	}
	if New().StatusConditions().IsTrue("Ready") {
		t.Error("a class that nobody has looked at is Ready")
	}
	if got := len(New().StatusConditions(status.WithObservedOnly()).List()); got != 0 {
		t.Errorf("options are not passed on: %d conditions made up", got)
	}
}
