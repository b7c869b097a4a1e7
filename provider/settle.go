package provider

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// notAcceptedError is the controller's No.
type notAcceptedError struct {
	condition metav1.Condition
}

func (e *notAcceptedError) Error() string {
	return fmt.Sprintf("%s: %s", e.condition.Reason, e.condition.Message)
}

// passingReasons of Accepted=False speak of another object, which may follow: they do not end a wait.
var passingReasons = []string{v1alpha1.ReasonClassNotFound, v1alpha1.ReasonClassNotReady}

// settled waits until the controller has looked at this generation of the object and the kind's condition is true. A
// definite No ends the wait with a *notAcceptedError.
func settled(k kind) kube.Condition {
	return func(obj *unstructured.Unstructured) (bool, error) {
		if obj == nil {
			return false, fmt.Errorf("the %s was deleted while Terraform waited for it", k.noun)
		}
		if c := rejection(obj); c != nil && !slices.Contains(passingReasons, c.Reason) {
			return false, &notAcceptedError{*c}
		}
		c := current(obj, k.settled)
		return c != nil && c.Status == metav1.ConditionTrue, nil
	}
}

// gone waits until the object is gone.
func gone(obj *unstructured.Unstructured) (bool, error) {
	return obj == nil, nil
}

// rejection is the condition Accepted where it is false of this generation.
func rejection(obj *unstructured.Unstructured) *metav1.Condition {
	if c := current(obj, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionFalse {
		return c
	}
	return nil
}

// current is a condition that the controller wrote for this generation, nil where it has not.
func current(obj *unstructured.Unstructured, conditionType string) *metav1.Condition {
	c := meta.FindStatusCondition(conditions(obj), conditionType)
	if c == nil || c.ObservedGeneration < obj.GetGeneration() {
		return nil
	}
	return c
}

func conditions(obj *unstructured.Unstructured) []metav1.Condition {
	var typed struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &typed); err != nil {
		return nil
	}
	return typed.Status.Conditions
}

// lastSeen says in sentences how an object stood when a wait for it ended.
func lastSeen(obj *unstructured.Unstructured) string {
	if obj == nil {
		return "The object was never seen."
	}
	var b strings.Builder
	if t := obj.GetDeletionTimestamp(); t != nil {
		fmt.Fprintf(&b, "It has been marked for deletion since %s.", t.UTC().Format(time.RFC3339))
		fmt.Fprintf(&b, "\nRemaining finalizers: %s.", strings.Join(obj.GetFinalizers(), ", "))
	}
	found := conditions(obj)
	if len(found) == 0 {
		b.WriteString("\nIt has no conditions: the controller has not looked at it. Is gpufleet-controller running?")
	}
	for _, c := range found {
		fmt.Fprintf(&b, "\n%s is %s", c.Type, c.Status)
		if c.ObservedGeneration < obj.GetGeneration() {
			b.WriteString(" (of an earlier generation)")
		}
		fmt.Fprintf(&b, ": %s: %s", c.Reason, c.Message)
	}
	return strings.TrimSpace(b.String())
}
