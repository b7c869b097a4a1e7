package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// snapshot is the cluster at one moment, as far as GPUs go.
type snapshot struct {
	at       time.Time
	pools    []*v1alpha1.GPUNodePool
	classes  []*v1alpha1.GPUNodeClass
	layouts  []*v1alpha1.MIGLayout
	gpuNodes []*v1alpha1.GPUNode
	claims   []*nodeClaim
	// nodes are those of pools, bound the pods that hold something of each, by its name, leaving those that are about to give
	// it back.
	nodes          []*corev1.Node
	bound, leaving map[string][]*corev1.Pod
	// unbound are the pods that have no node.
	unbound []*corev1.Pod
	// What resource claims of waiting pods are decided from; read only where a waiting pod has one.
	quotas         []*corev1.ResourceQuota
	resourceClaims []*resourcev1.ResourceClaim
	templates      []*resourcev1.ResourceClaimTemplate
	deviceClasses  []*resourcev1.DeviceClass
	slices         []*resourcev1.ResourceSlice
	// volumes are what PersistentVolumeClaims of waiting pods are decided from; nil where no waiting pod has one, or where they
	// may not be read.
	volumes *diagnose.Volumes
	// lease is the controller's sign of life; nil where there is none, or where it may not be read.
	lease       *coordinationv1.Lease
	leaseHidden bool
	// notes are what could not be read and what that means.
	notes []string
}

// nodeClaim is what matters of a Karpenter NodeClaim (sigs.k8s.io/karpenter/pkg/apis/v1): a machine that was asked for.
// Karpenter itself does not come into this binary.
type nodeClaim struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Requirements []corev1.NodeSelectorRequirement `json:"requirements"`
		Taints       []corev1.Taint                   `json:"taints"`
		Resources    struct {
			Requests corev1.ResourceList `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
	Status struct {
		ProviderID  string              `json:"providerID"`
		Allocatable corev1.ResourceList `json:"allocatable"`
	} `json:"status"`
}

// nodeClaims are Karpenter's NodeClaims, for dynamic clients.
var nodeClaims = schema.GroupVersionResource{Group: karpenterGroup, Version: "v1", Resource: "nodeclaims"}

// reading is one snapshot in the making.
type reading struct {
	*cluster
	timeout time.Duration
	into    *snapshot
}

// read looks at the whole fleet once, within timeout.
func (c *cluster) read(ctx context.Context, now func() time.Time, timeout time.Duration) (*snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := reading{cluster: c, timeout: timeout, into: &snapshot{at: now(), bound: map[string][]*corev1.Pod{}, leaving: map[string][]*corev1.Pod{}}}
	for _, step := range []func(context.Context) error{r.declared, r.machines, r.pods, r.claimed, r.mounted, r.heartbeat} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r.into, nil
}

// declared reads gpufleet's own objects.
func (r reading) declared(ctx context.Context) (err error) {
	if r.into.pools, err = objects[v1alpha1.GPUNodePool](ctx, r, v1alpha1.GPUNodePools, ""); err != nil {
		return err
	}
	if r.into.classes, err = objects[v1alpha1.GPUNodeClass](ctx, r, v1alpha1.GPUNodeClasses, ""); err != nil {
		return err
	}
	if r.into.layouts, err = objects[v1alpha1.MIGLayout](ctx, r, v1alpha1.MIGLayouts, ""); err != nil {
		return err
	}
	r.into.gpuNodes, err = objects[v1alpha1.GPUNode](ctx, r, v1alpha1.GPUNodes, "")
	return err
}

// machines reads what pools have, or have asked for.
func (r reading) machines(ctx context.Context) (err error) {
	if r.into.claims, err = objects[nodeClaim](ctx, r, nodeClaims, v1alpha1.LabelPool); err != nil {
		return err
	}
	r.into.nodes, err = listed(ctx, r, request{verb: "list", resource: corev1.Resource("nodes")}, metav1.ListOptions{LabelSelector: v1alpha1.LabelPool},
		func(opts metav1.ListOptions) (runtime.Object, error) { return r.core.CoreV1().Nodes().List(ctx, opts) },
		func(*corev1.Node) bool { return true })
	return err
}

// pods reads those that have no node, and those that hold something of a pool's node. Others are forgotten page by page.
func (r reading) pods(ctx context.Context) error {
	ours := map[string]bool{}
	for _, node := range r.into.nodes {
		ours[node.Name] = true
	}
	unfinished := fmt.Sprintf("status.phase!=%s,status.phase!=%s", corev1.PodSucceeded, corev1.PodFailed)
	pods, err := listed(ctx, r, request{verb: "list", resource: corev1.Resource("pods")}, metav1.ListOptions{FieldSelector: unfinished},
		func(opts metav1.ListOptions) (runtime.Object, error) { return r.core.CoreV1().Pods("").List(ctx, opts) },
		func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" || ours[pod.Spec.NodeName] })
	for _, pod := range pods {
		switch {
		case pod.Spec.NodeName == "":
			r.into.unbound = append(r.into.unbound, pod)
		case diagnose.Occupies(pod, r.into.at):
			r.into.bound[pod.Spec.NodeName] = append(r.into.bound[pod.Spec.NodeName], pod)
		case diagnose.Leaves(pod, r.into.at):
			r.into.leaving[pod.Spec.NodeName] = append(r.into.leaving[pod.Spec.NodeName], pod)
		}
	}
	return err
}

// claimed reads what resource claims are decided from. Few pods have any, and a cluster need not serve them.
func (r reading) claimed(ctx context.Context) (err error) {
	if !slices.ContainsFunc(r.into.unbound, func(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }) {
		return nil
	}
	dra := r.core.ResourceV1()
	if r.into.quotas, err = ofClaims[corev1.ResourceQuota](ctx, r, corev1.Resource("resourcequotas"),
		func(opts metav1.ListOptions) (runtime.Object, error) {
			return r.core.CoreV1().ResourceQuotas("").List(ctx, opts)
		}); err != nil {
		return err
	}
	if r.into.resourceClaims, err = ofClaims[resourcev1.ResourceClaim](ctx, r, resourcev1.Resource("resourceclaims"),
		func(opts metav1.ListOptions) (runtime.Object, error) { return dra.ResourceClaims("").List(ctx, opts) }); err != nil {
		return err
	}
	if r.into.templates, err = ofClaims[resourcev1.ResourceClaimTemplate](ctx, r, resourcev1.Resource("resourceclaimtemplates"),
		func(opts metav1.ListOptions) (runtime.Object, error) {
			return dra.ResourceClaimTemplates("").List(ctx, opts)
		}); err != nil {
		return err
	}
	if r.into.deviceClasses, err = ofClaims[resourcev1.DeviceClass](ctx, r, resourcev1.Resource("deviceclasses"),
		func(opts metav1.ListOptions) (runtime.Object, error) { return dra.DeviceClasses().List(ctx, opts) }); err != nil {
		return err
	}
	r.into.slices, err = ofClaims[resourcev1.ResourceSlice](ctx, r, resourcev1.Resource("resourceslices"),
		func(opts metav1.ListOptions) (runtime.Object, error) { return dra.ResourceSlices().List(ctx, opts) })
	return err
}

// mounted reads the PersistentVolumeClaims of the namespaces of pods that wait for GPUs and need any, and the storage classes.
// Without all of it nothing is said of volumes.
func (r reading) mounted(ctx context.Context) error {
	var namespaces []string
	for _, pod := range r.into.unbound {
		if diagnose.Waits(pod) && diagnose.Mounts(pod) && (len(pod.Spec.ResourceClaims) > 0 || diagnose.AsksGPUs(diagnose.Cluster{}, pod)) {
			namespaces = append(namespaces, pod.Namespace)
		}
	}
	slices.Sort(namespaces)
	if len(namespaces) == 0 {
		return nil
	}
	const unread = "pods whose volumes are not there are not held for it"
	var claims []*corev1.PersistentVolumeClaim
	for _, namespace := range slices.Compact(namespaces) {
		asked := request{verb: "list", resource: corev1.Resource("persistentvolumeclaims"), namespace: namespace}
		some, read, err := optional[corev1.PersistentVolumeClaim](ctx, r, asked, unread, func(opts metav1.ListOptions) (runtime.Object, error) {
			return r.core.CoreV1().PersistentVolumeClaims(namespace).List(ctx, opts)
		})
		if err != nil || !read {
			return err
		}
		claims = append(claims, some...)
	}
	classes, read, err := optional[storagev1.StorageClass](ctx, r, request{verb: "list", resource: storagev1.Resource("storageclasses")}, unread,
		func(opts metav1.ListOptions) (runtime.Object, error) {
			return r.core.StorageV1().StorageClasses().List(ctx, opts)
		})
	if err == nil && read {
		r.into.volumes = diagnose.NewVolumes(claims, classes)
	}
	return err
}

// heartbeat reads the controller's lease.
func (r reading) heartbeat(ctx context.Context) error {
	lease, err := r.core.CoordinationV1().Leases(v1alpha1.Namespace).Get(ctx, v1alpha1.ControllerName, metav1.GetOptions{})
	asked := request{verb: "get", resource: coordinationv1.Resource("leases"), namespace: v1alpha1.Namespace, name: v1alpha1.ControllerName}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		r.into.leaseHidden = true
		r.into.notes = append(r.into.notes, fmt.Sprintf("may not %s: whether the controller is alive is not known", asked))
		return nil
	case err != nil:
		return r.refused(ctx, asked, r.timeout, err)
	}
	r.into.lease = lease
	return nil
}

// objects lists a kind that only dynamic clients know. selector is of labels; empty for all.
func objects[T any](ctx context.Context, r reading, gvr schema.GroupVersionResource, selector string) ([]*T, error) {
	asked := request{verb: "list", resource: gvr.GroupResource()}
	items, err := listed(ctx, r, asked, metav1.ListOptions{LabelSelector: selector},
		func(opts metav1.ListOptions) (runtime.Object, error) { return r.dynamic.Resource(gvr).List(ctx, opts) },
		func(*unstructured.Unstructured) bool { return true })
	if err != nil {
		return nil, err
	}
	all := make([]*T, len(items))
	for i, item := range items {
		all[i] = new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, all[i]); err != nil {
			return nil, fmt.Errorf("%s %s is not as this version of gpufleet knows it: %w", gvr.Resource, item.GetName(), err)
		}
	}
	return all, nil
}

// ofClaims lists a kind that resource claims are decided from.
func ofClaims[T any](ctx context.Context, r reading, resource schema.GroupResource, list func(metav1.ListOptions) (runtime.Object, error)) ([]*T, error) {
	const unread = "pods with resource claims may be held for another reason than is shown"
	all, _, err := optional[T](ctx, r, request{verb: "list", resource: resource}, unread, list)
	return all, err
}

// optional lists a kind that can be done without: one that is not served has no object, and one that may not be read is
// noted, with what that means. read says that it is known which there are.
func optional[T any](ctx context.Context, r reading, asked request, unread string, list func(metav1.ListOptions) (runtime.Object, error)) (all []*T, read bool, err error) {
	all, err = listed(ctx, r, asked, metav1.ListOptions{}, list, func(*T) bool { return true })
	switch {
	case apierrors.IsForbidden(err):
		r.into.notes = append(r.into.notes, fmt.Sprintf("may not %s: %s", asked, unread))
		return nil, false, nil
	case apierrors.IsNotFound(err):
		return nil, true, nil
	}
	return all, err == nil, err
}

// listed lists page by page and keeps what is wanted.
func listed[T any](ctx context.Context, r reading, asked request, opts metav1.ListOptions, list func(metav1.ListOptions) (runtime.Object, error), wanted func(*T) bool) ([]*T, error) {
	var all []*T
	pages := pager.New(pager.SimplePageFunc(list))
	// The items are copied: one that is kept must not keep its whole page.
	err := pages.EachListItemWithAlloc(ctx, opts, func(o runtime.Object) error {
		if item, ok := any(o).(*T); ok && wanted(item) {
			all = append(all, item)
		}
		return nil
	})
	return all, r.refused(ctx, asked, r.timeout, err)
}
