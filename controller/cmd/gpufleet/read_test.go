package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// refuse answers a request for a resource with an error.
func (w *world) refuse(verb, resource string, err error) {
	answer := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	w.core.PrependReactor(verb, resource, answer)
	w.dynamic.PrependReactor(verb, resource, answer)
}

func forbidden(resource schema.GroupResource) error {
	return apierrors.NewForbidden(resource, "", errors.New(`User "jane" cannot do that`))
}

// notServed is what an API server answers of a kind that it does not know.
func notServed(resource schema.GroupResource) error {
	return apierrors.NewGenericServerResponse(404, "list", resource, "", "404 page not found", 0, true)
}

func TestRead_SaysWhichRightIsMissing(t *testing.T) {
	for _, tc := range []struct {
		verb     string
		resource schema.GroupResource
		args     []string
		want     string
	}{
		{"list", v1alpha1.GPUNodePools.GroupResource(), []string{"status"}, "list gpunodepools.gpufleet.dev"},
		{"list", v1alpha1.GPUNodeClasses.GroupResource(), []string{"status"}, "list gpunodeclasses.gpufleet.dev"},
		{"list", v1alpha1.MIGLayouts.GroupResource(), []string{"explain", "pool", "inference"}, "list miglayouts.gpufleet.dev"},
		{"list", v1alpha1.GPUNodes.GroupResource(), []string{"explain", "node", "i-0a1"}, "list gpunodes.gpufleet.dev"},
		{"list", nodeClaims.GroupResource(), []string{"status"}, "list nodeclaims.karpenter.sh"},
		{"list", corev1.Resource("nodes"), []string{"status"}, "list nodes"},
		{"list", corev1.Resource("pods"), []string{"status"}, "list pods"},
		{"get", corev1.Resource("pods"), []string{"explain", "pod", "waits"}, "get pods default/waits"},
	} {
		w := newWorld(t, full()...)
		w.refuse(tc.verb, tc.resource.Resource, forbidden(tc.resource))
		a := w.run(t, tc.args...)
		want := "gpufleet: cannot " + tc.want + ": the API server forbids it: bind ClusterRole gpufleet-viewer to whoever runs this: "
		if a.code != exitError || a.stdout != "" || !strings.HasPrefix(a.stderr, want) || !strings.Contains(a.stderr, `User "jane"`) {
			t.Errorf("%v: exit code %d, printed %q, said %q; want %q", tc.args, a.code, a.stdout, a.stderr, want)
		}
	}
}

func TestRead_DoesWithoutWhatIsOnlyForClaimsEventsAndTheLease(t *testing.T) {
	const claims = "pods with resource claims may be held for another reason than is shown\n"
	for _, tc := range []struct {
		verb     string
		resource schema.GroupResource
		want     string
	}{
		{"list", corev1.Resource("resourcequotas"), "may not list resourcequotas: " + claims},
		{"list", schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, "may not list resourceclaims.resource.k8s.io: " + claims},
		{"list", schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}, "may not list resourceclaimtemplates.resource.k8s.io: " + claims},
		{"list", schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclasses"}, "may not list deviceclasses.resource.k8s.io: " + claims},
		{"list", schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}, "may not list resourceslices.resource.k8s.io: " + claims},
		{"list", corev1.Resource("persistentvolumeclaims"), "may not list persistentvolumeclaims of namespace default: pods whose volumes are not there are not held for it\n"},
		{"list", schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, "may not list storageclasses.storage.k8s.io: pods whose volumes are not there are not held for it\n"},
		{"list", corev1.Resource("events"), "may not list events of namespace default: what the controller said to the pod is not known\n"},
		{"get", schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
			"may not get leases.coordination.k8s.io gpufleet-system/gpufleet-controller: whether the controller is alive is not known\n"},
	} {
		w := newWorld(t, with(with(full(), claiming()...), mounting())...)
		w.refuse(tc.verb, tc.resource.Resource, forbidden(tc.resource))
		a := w.run(t, "explain", "pod", "waits")
		if a.code != exitHeld || a.stderr != tc.want || !strings.HasPrefix(a.stdout, "Pod default/waits is held: LimitReached") {
			t.Errorf("%s: exit code %d, printed %q, said %q; want %q", tc.resource, a.code, a.stdout, a.stderr, tc.want)
		}
		var r podReport
		if w.json(t, &r, "explain", "pod", "waits"); len(r.Notes) != 1 || r.Notes[0]+"\n" != tc.want {
			t.Errorf("%s: notes %q", tc.resource, r.Notes)
		}
	}
}

func TestRead_ALeaseThatMayNotBeReadLeavesTheControllerUnknown(t *testing.T) {
	w := newWorld(t, full()...)
	w.refuse("get", "leases", forbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}))
	var r statusReport
	if w.json(t, &r, "status"); r.Controller != (controllerReport{}) {
		t.Errorf("%+v, want nothing", r.Controller)
	}
}

func TestRead_AClusterNeedNotServeResourceClaims(t *testing.T) {
	w := newWorld(t, with(full(), claiming()[0])...)
	for _, resource := range []string{"resourceclaims", "resourceclaimtemplates", "deviceclasses", "resourceslices"} {
		w.refuse("list", resource, notServed(schema.GroupResource{Group: "resource.k8s.io", Resource: resource}))
	}
	if a := w.run(t, "explain", "pod", "waits"); a.code != exitHeld || a.stderr != "" {
		t.Errorf("exit code %d, said %q", a.code, a.stderr)
	}
}

// Most clusters have no pod with a claim or a volume that waits for GPUs: then nothing of that is asked for.
func TestRead_AsksForClaimsAndVolumesOnlyWhereAWaitingPodHasOne(t *testing.T) {
	asked := func(w *world) string {
		var resources []string
		for _, action := range w.core.Actions() {
			resources = append(resources, action.GetResource().Resource)
		}
		return strings.Join(resources, " ")
	}
	w := newWorld(t, full()...)
	w.run(t, "status")
	if got := asked(w); got != "nodes pods leases" {
		t.Errorf("asked for %s", got)
	}
	w = newWorld(t, with(full(), mounting())...)
	w.run(t, "status")
	if got := asked(w); got != "nodes pods persistentvolumeclaims storageclasses leases" {
		t.Errorf("asked for %s", got)
	}
	w = newWorld(t, with(full(), claiming()...)...)
	w.run(t, "status")
	if got := asked(w); got != "nodes pods resourcequotas resourceclaims resourceclaimtemplates deviceclasses resourceslices leases" {
		t.Errorf("asked for %s", got)
	}
}

func TestRead_SaysThatGpufleetIsNotInstalled(t *testing.T) {
	for _, tc := range []struct {
		resource schema.GroupVersionResource
		want     string
	}{
		{v1alpha1.GPUNodePools, "gpufleet: gpufleet is not installed in this cluster: https://cluster.test does not serve gpunodepools.gpufleet.dev: choose another --context, or install gpufleet: "},
		{v1alpha1.GPUNodes, "gpufleet: gpufleet is not installed in this cluster: https://cluster.test does not serve gpunodes.gpufleet.dev: choose another --context, or install gpufleet: "},
		{nodeClaims, "gpufleet: gpufleet is not installed whole in this cluster: https://cluster.test does not serve nodeclaims.karpenter.sh, Karpenter's CRDs, which come with it: "},
	} {
		w := newWorld(t, full()...)
		w.refuse("list", tc.resource.Resource, notServed(tc.resource.GroupResource()))
		if a := w.run(t, "status"); a.code != exitError || !strings.HasPrefix(a.stderr, tc.want) {
			t.Errorf("exit code %d, said %q, want %q", a.code, a.stderr, tc.want)
		}
	}
}

func TestRead_SaysWhatKeepsTheServerFromAnswering(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		err        error
		args       []string
	}{
		{"credentials", "gpufleet: cannot list gpunodepools.gpufleet.dev: https://cluster.test does not accept the credentials: log in again, or choose another --context: ",
			apierrors.NewUnauthorized("expired"), nil},
		{"unreachable", "gpufleet: cannot list gpunodepools.gpufleet.dev: https://cluster.test cannot be reached: look at --kubeconfig and --context: dial tcp: refused",
			errors.New("dial tcp: refused"), nil},
		{"ill", "gpufleet: cannot list gpunodepools.gpufleet.dev: Internal error occurred: etcd is ill", apierrors.NewInternalError(errors.New("etcd is ill")), nil},
		{"slow", "gpufleet: cannot list gpunodepools.gpufleet.dev: https://cluster.test did not answer all within 1ns: look whether it is well, or give a longer --request-timeout: ",
			context.DeadlineExceeded, []string{"--request-timeout", "1ns"}},
	} {
		w := newWorld(t, full()...)
		w.refuse("list", "gpunodepools", tc.err)
		if a := w.run(t, append([]string{"status"}, tc.args...)...); a.code != exitError || !strings.HasPrefix(a.stderr, tc.want) {
			t.Errorf("%s: exit code %d, said %q, want %q", tc.name, a.code, a.stderr, tc.want)
		}
	}
}

func TestRead_EndsInTime(t *testing.T) {
	const want = "gpufleet: cannot list gpunodepools.gpufleet.dev: https://cluster.test did not answer all within 1ns: "
	if a := newWorld(t, full()...).run(t, "status", "--request-timeout", "1ns"); a.code != exitError || !strings.HasPrefix(a.stderr, want) {
		t.Errorf("exit code %d, said %q, want %q", a.code, a.stderr, want)
	}
}

func TestRead_ObjectsOfAnotherVersionAreNamed(t *testing.T) {
	strange := untyped(t, poolNamed("strange", "whole", v1alpha1.WorkloadBatch))
	strange.Object["spec"] = map[string]any{"machines": "many"}
	a := newWorld(t, strange).run(t, "status")
	if a.code != exitError || !strings.HasPrefix(a.stderr, "gpufleet: gpunodepools strange is not as this version of gpufleet knows it: ") {
		t.Errorf("exit code %d, said %q", a.code, a.stderr)
	}
}

func TestRead_AnInterruptedReadIsNoFailureOfTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, full()...)
	w.dynamic.PrependReactor("list", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		// In client-go's words, which do not wrap the context's error.
		return true, nil, errors.New("client rate limiter Wait returned an error: context canceled")
	})
	if a := w.runUntil(ctx, nil, "status"); a.code != exitError || a.stderr != "gpufleet: interrupted\n" {
		t.Errorf("exit code %d, said %q", a.code, a.stderr)
	}
}

// The controller is down: what it shows is still shown, with how old the controller's last word is.
func TestRead_SaysHowOldTheControllersWordIs(t *testing.T) {
	const word = "; limits in use and unavailable offerings are what it said last; reasons are computed here, from the cluster's objects, and still hold"
	for _, tc := range []struct {
		name  string
		lease runtime.Object
		alive bool
		want  string
		wrote time.Duration
	}{
		{"alive", lease(29 * time.Second), true, "", 0},
		{"silent", lease(31 * time.Second), false, "the controller has not been heard of for 31s" + word, 0},
		{"silent, and wrote before that", lease(31 * time.Second), false, "the controller has not been heard of for 31s" + word, time.Minute},
		{"silent for long", lease(50 * time.Hour), false, "the controller has not been heard of for 2d2h" + word, 0},
		{"ended in good order", func() runtime.Object {
			l := lease(3 * time.Second)
			l.Spec.HolderIdentity = new("")
			return l
		}(), false, "the controller ended 3s ago" + word, time.Minute},
		{"never there", nil, false, "the controller has never been heard of: there is no Lease gpufleet-system/gpufleet-controller, so it does not run, or without leader election" + word, 0},
		{"without a lease, and it writes", nil, true, "", 20 * time.Second},
		{"without a lease, and it wrote", nil, false, "the controller has not been heard of for 4m: there is no Lease gpufleet-system/gpufleet-controller, so it does not run, or without leader election" + word, 4 * time.Minute},
	} {
		objects := full()[:0:0]
		for _, o := range full() {
			if l, is := o.(interface{ GetName() string }); is && l.GetName() == v1alpha1.ControllerName {
				continue
			}
			objects = append(objects, o)
		}
		if tc.lease != nil {
			objects = append(objects, tc.lease)
		}
		if tc.wrote > 0 {
			wrote, somebody := ago(tc.wrote), ago(time.Second)
			for _, o := range objects {
				if p, is := o.(*v1alpha1.GPUNodePool); is {
					p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: v1alpha1.ControllerName, Time: &wrote}, {Manager: "kubectl-edit", Time: &somebody}}
				}
			}
		}
		w := newWorld(t, objects...)
		for _, args := range [][]string{{"status"}, {"explain", "pod", "waits"}, {"explain", "pool", "inference"}, {"explain", "node", "i-0a1"}} {
			a := w.run(t, args...)
			if got := strings.TrimSuffix(a.stderr, "\n"); got != tc.want || a.stdout == "" || a.code == exitError {
				t.Errorf("%s: %v: exit code %d, said %q, want %q", tc.name, args, a.code, got, tc.want)
			}
			var r struct {
				Controller controllerReport `json:"controller"`
			}
			w.json(t, &r, args...)
			if r.Controller.Alive == nil || *r.Controller.Alive != tc.alive || r.Controller.Message != tc.want || (r.Controller.LastSeen == nil) != (tc.lease == nil && tc.wrote == 0) {
				t.Errorf("%s: %v: controller %+v", tc.name, args, r.Controller)
			}
		}
	}
}

func TestRead_WhatMayBeLaunchedIsNotWhileTheControllerIsAway(t *testing.T) {
	a := newWorld(t, exclusive(), lease(time.Hour), poolNamed("research", "whole", v1alpha1.WorkloadResearch, "p5.4xlarge"),
		waiting(pod("notebook", whole, 1, "research"), time.Minute)).run(t, "explain", "pod", "notebook")
	if want := "\nNothing is launched while the controller does not run.\n"; a.code != exitNothingHeld || !strings.HasSuffix(a.stdout, want) {
		t.Errorf("exit code %d, printed\n%s", a.code, a.stdout)
	}
}

// Lists come in pages, and each page is asked for.
func TestRead_ReadsEveryPage(t *testing.T) {
	w := newWorld(t, with(mig(), lease(time.Second), poolNamed("inference", "h100-mig", v1alpha1.WorkloadInference, "p5.48xlarge"))...)
	pages := 0
	w.core.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		// What comes first has finished, and is nobody's.
		list.Items = []corev1.Pod{*waiting(pod(fmt.Sprintf("p-%d", pages), slice, 60, "inference"), time.Minute)}
		if pages++; pages < 3 {
			list.Continue = "more"
		}
		if options := action.(clienttesting.ListActionImpl).ListOptions; options.Limit == 0 || (options.Continue == "") != (pages == 1) {
			t.Errorf("page %d asked with limit %d and continue %q", pages, options.Limit, options.Continue)
		}
		return true, list, nil
	})
	var r statusReport
	if w.json(t, &r, "status"); pages != 3 || len(r.Holds) != 1 || r.Holds[0].Pods != 3 {
		t.Errorf("%d pages, %+v", pages, r.Holds)
	}
}
