package provider

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Default timeouts. Accepting an object is a matter of a reconcile; whatever takes longer (nodes coming up) is not waited
// for by create and update.
const (
	defaultSettleTimeout = 2 * time.Minute
	defaultDeleteTimeout = 5 * time.Minute
	// A node pool is gone when every one of its machines is confirmed terminated: pods drain first.
	defaultPoolDeleteTimeout = 20 * time.Minute
)

// kind is one kind of object and what Terraform calls it.
type kind struct {
	// name is the API's kind, e.g. MIGLayout.
	name     string
	resource schema.GroupVersionResource
	// resourceType is Terraform's, without the provider's prefix, e.g. mig_layout.
	resourceType string
	// noun is for the middle of a sentence, title for the head of a diagnostic.
	noun, title string
	// settled is the condition that create and update wait for.
	settled       string
	deleteTimeout time.Duration
	// computed are the attributes that no spec holds because the provider computes them.
	computed []string
}

var (
	migLayoutKind = kind{
		name: v1alpha1.KindMIGLayout, resource: v1alpha1.MIGLayouts, resourceType: "mig_layout",
		noun: "MIG layout", title: "MIG Layout",
		settled: v1alpha1.ConditionAccepted, deleteTimeout: defaultDeleteTimeout,
	}
	nodeClassKind = kind{
		name: v1alpha1.KindGPUNodeClass, resource: v1alpha1.GPUNodeClasses, resourceType: "node_class",
		noun: "node class", title: "Node Class",
		settled: v1alpha1.ConditionReady, deleteTimeout: defaultDeleteTimeout,
	}
	nodePoolKind = kind{
		name: v1alpha1.KindGPUNodePool, resource: v1alpha1.GPUNodePools, resourceType: "node_pool",
		noun: "node pool", title: "Node Pool",
		settled: v1alpha1.ConditionAccepted, deleteTimeout: defaultPoolDeleteTimeout,
		computed: []string{"effective_limits", "node_selector", "resources", "tolerations"},
	}
)

// terraformType is the resource type in a configuration, e.g. gpufleet_mig_layout.
func (k kind) terraformType() string {
	return providerName + "_" + k.resourceType
}

// outsideSpec are the attributes that no spec holds.
func (k kind) outsideSpec() []string {
	return append([]string{"timeouts"}, k.computed...)
}

// object is what is applied: nothing but what the user set.
func (k kind) object(x expanded) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": x.spec}}
	obj.SetAPIVersion(v1alpha1.GroupVersion.String())
	obj.SetKind(k.name)
	obj.SetName(x.name)
	return obj
}
