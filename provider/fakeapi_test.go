package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// fakeAPI answers as an API server with gpufleet's CRDs does, as far as the provider sees. What a real one does with the
// same requests is tested with test/controlplane.
type fakeAPI struct {
	*httptest.Server

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	version int
	changed chan struct{}
	// refuse answers a request in the server's place; nil lets it through.
	refuse func(r *http.Request) *apierrors.StatusError
	// notFoundPage answers everything as a server without the CRDs does.
	notFoundPage bool
	// controller looks at an object after each change, as gpufleet-controller would.
	controller func(obj *unstructured.Unstructured)
	requests   []string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{objects: map[string]*unstructured.Unstructured{}, changed: make(chan struct{}), controller: accept}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// accept is a controller that likes everything.
func accept(obj *unstructured.Unstructured) {
	setCondition(obj, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonValid, "valid")
	setCondition(obj, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "ready")
}

// reject is a controller that says No.
func reject(message string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) {
		setCondition(obj, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonSKUMismatch, message)
	}
}

// ignore is a controller that is not there.
func ignore(*unstructured.Unstructured) {}

func setCondition(obj *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason, message string) {
	var kept []any
	old, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range old {
		if m, ok := c.(map[string]any); ok && m["type"] != kind {
			kept = append(kept, c)
		}
	}
	kept = append(kept, map[string]any{
		"type": kind, "status": string(status), "reason": reason, "message": message,
		"observedGeneration": obj.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z",
	})
	_ = unstructured.SetNestedSlice(obj.Object, kept, "status", "conditions")
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" {
		f.watch(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	if f.notFoundPage {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if f.refuse != nil {
		if err := f.refuse(r); err != nil {
			fail(w, err)
			return
		}
	}
	key := strings.TrimPrefix(r.URL.Path, "/apis/gpufleet.dev/v1alpha1/")
	switch r.Method {
	case http.MethodGet:
		f.get(w, key)
	case http.MethodPatch:
		f.apply(w, r, key)
	case http.MethodDelete:
		f.remove(w, key)
	default:
		http.Error(w, r.Method, http.StatusMethodNotAllowed)
	}
}

func (f *fakeAPI) get(w http.ResponseWriter, key string) {
	if obj, ok := f.objects[key]; ok {
		answer(w, http.StatusOK, obj.Object)
		return
	}
	f.missing(w, key)
}

func (f *fakeAPI) missing(w http.ResponseWriter, key string) {
	resource, name, _ := strings.Cut(key, "/")
	fail(w, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.Group, Resource: resource}, name))
}

func (f *fakeAPI) apply(w http.ResponseWriter, r *http.Request, key string) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	obj, status := f.objects[key], http.StatusOK
	if obj == nil {
		obj, status = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}, http.StatusCreated
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", f.version)))
	}
	next := obj.DeepCopy()
	next.Object["apiVersion"], next.Object["kind"], next.Object["spec"] = body["apiVersion"], body["kind"], body["spec"]
	next.SetName(key[strings.Index(key, "/")+1:])
	next.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: r.URL.Query().Get("fieldManager"), Operation: metav1.ManagedFieldsOperationApply}})
	f.put(key, next, true)
	answer(w, status, next.Object)
}

func (f *fakeAPI) remove(w http.ResponseWriter, key string) {
	obj, ok := f.objects[key]
	if !ok {
		f.missing(w, key)
		return
	}
	if len(obj.GetFinalizers()) > 0 {
		now := metav1.Now()
		obj = obj.DeepCopy()
		obj.SetDeletionTimestamp(&now)
		f.put(key, obj, false)
	} else {
		delete(f.objects, key)
		f.wake()
	}
	answer(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

// put stores an object and lets the controller look at it. The lock is held.
func (f *fakeAPI) put(key string, obj *unstructured.Unstructured, specChanged bool) {
	f.version++
	obj.SetResourceVersion(fmt.Sprint(f.version))
	if specChanged {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	f.objects[key] = obj
	if f.controller != nil {
		f.controller(obj)
	}
	f.wake()
}

func (f *fakeAPI) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// edit changes an object behind Terraform's back.
func (f *fakeAPI) edit(t *testing.T, key string, change func(obj *unstructured.Unstructured)) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	obj, ok := f.objects[key]
	if !ok {
		t.Fatalf("no %s in the fake API server", key)
	}
	obj = obj.DeepCopy()
	change(obj)
	f.put(key, obj, true)
}

func (f *fakeAPI) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeAPI) spec(t *testing.T, key string) map[string]any {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[key] == nil {
		t.Fatalf("no %s in the fake API server", key)
	}
	return specOf(f.objects[key].DeepCopy())
}

// watch sends the object at each change until it is gone or the client leaves.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	key := strings.TrimPrefix(r.URL.Path, "/apis/gpufleet.dev/v1alpha1/") + "/" + name
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for {
		f.mu.Lock()
		obj, ok := f.objects[key]
		event := map[string]any{"type": "MODIFIED"}
		if ok {
			event["object"] = obj.DeepCopy().Object
		} else {
			event["type"] = "DELETED"
			event["object"] = map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Any", "metadata": map[string]any{"name": name}}
		}
		changed := f.changed
		f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(event)
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-time.After(30 * time.Second):
			return
		}
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	answer(w, int(status.Code), status)
}

// fieldConflict is the API server's answer to an apply that would take a field from another manager. Text and causes as
// kube-apiserver 1.36 has them (apimachinery/pkg/util/managedfields/internal/conflict.go).
func fieldConflict(field, manager string) *apierrors.StatusError {
	message := fmt.Sprintf("conflict with %q using gpufleet.dev/v1alpha1 at 2026-01-02T03:04:05Z", manager)
	return apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: message}},
		"Apply failed with 1 conflict: "+message+": "+field)
}

func forbidden() *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "miglayouts"}, "small",
		fmt.Errorf("User \"plan-only\" cannot patch resource"))
}
