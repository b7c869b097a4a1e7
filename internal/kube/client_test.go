package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

const thingPath = "/apis/example.com/v1/things/a"

// server answers with handler, and the client speaks to it.
func server(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return NewClient(Config{Host: s.URL, UserAgent: "test/1"}, env())
}

func thing(version string, more map[string]any) map[string]any {
	obj := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "uid": "u", "resourceVersion": version}}
	for k, v := range more {
		obj[k] = v
	}
	return obj
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func replyError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	reply(w, int(status.Code), status)
}

func TestApply_IsServerSideWithOurManagerAndWithoutForce(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := fmt.Sprintf("%s %s %s force=%s manager=%s agent=%s", r.Method, r.URL.Path, r.Header.Get("Content-Type"),
			r.URL.Query().Get("force"), r.URL.Query().Get("fieldManager"), r.UserAgent())
		want := "PATCH " + thingPath + " application/apply-patch+yaml force=false manager=gpufleet-terraform agent=test/1"
		if got != want {
			t.Errorf("request\n got %s\nwant %s", got, want)
		}
		if diff := cmp.Diff(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"n":1}}`, string(body)); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		reply(w, http.StatusOK, thing("1", map[string]any{"spec": map[string]any{"n": 1}}))
	})
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"n": int64(1)},
	}}
	got, err := c.Apply(context.Background(), things, obj)
	if err != nil || got.GetUID() != "u" {
		t.Errorf("applied %v, error %v", got, err)
	}
}

func TestDelete_NamesTheObjectByUIDAndDeletesInTheForeground(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		var opts metav1.DeleteOptions
		if err := json.NewDecoder(r.Body).Decode(&opts); err != nil {
			t.Error(err)
		}
		if r.Method != http.MethodDelete || string(*opts.Preconditions.UID) != "u" || *opts.PropagationPolicy != metav1.DeletePropagationForeground {
			t.Errorf("%s %+v", r.Method, opts)
		}
		reply(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	})
	if err := c.Delete(context.Background(), things, "a", "u"); err != nil {
		t.Error(err)
	}
	if err := c.Delete(context.Background(), things, "a", ""); err == nil {
		t.Error("an object without a UID is deleted")
	}
}

func TestErrors_AreToldApart(t *testing.T) {
	resource := things.GroupResource()
	conflict := apierrors.NewApplyConflict([]metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.n", Message: `conflict with "kubectl-edit" using example.com/v1 at 2026-01-02T03:04:05Z`,
	}}, "Apply failed with 1 conflict")
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "example.com", Kind: "Thing"}, "a", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.n", Message: "too small"}}
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   error
		check  func(*Error) any
		is     any
	}{
		{"no such object", func(w http.ResponseWriter) { replyError(w, apierrors.NewNotFound(resource, "a")) }, ErrNotFound, nil, nil},
		{"no such kind", func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }, ErrCRDMissing, nil, nil},
		{"forbidden", func(w http.ResponseWriter) { replyError(w, apierrors.NewForbidden(resource, "a", errors.New("no"))) }, ErrForbidden, nil, nil},
		{"unauthorized", func(w http.ResponseWriter) { replyError(w, apierrors.NewUnauthorized("no")) }, ErrUnauthorized, nil, nil},
		{"unauthorized by a proxy", func(w http.ResponseWriter) { http.Error(w, "go away", http.StatusUnauthorized) }, ErrUnauthorized, nil, nil},
		{"conflict", func(w http.ResponseWriter) { replyError(w, conflict) }, ErrConflict,
			func(e *Error) any { return e.Conflicts }, []FieldConflict{{".spec.n", "kubectl-edit"}}},
		{"replaced meanwhile", func(w http.ResponseWriter) {
			replyError(w, apierrors.NewConflict(resource, "a", errors.New("Precondition failed: UID")))
		}, ErrConflict, func(e *Error) any { return len(e.Conflicts) }, 0},
		{"invalid", func(w http.ResponseWriter) { replyError(w, invalid) }, ErrInvalid,
			func(e *Error) any { return e.Causes }, []FieldCause{{"spec.n", "too small"}}},
		{"broken", func(w http.ResponseWriter) { replyError(w, apierrors.NewInternalError(errors.New("etcd"))) }, ErrServer, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := server(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) })
			_, err := client.Apply(context.Background(), things, &unstructured.Unstructured{Object: thing("", nil)})
			var e *Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Host == "" {
				t.Fatalf("error %v", err)
			}
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				t.Error("the original error is lost")
			}
			if c.check != nil {
				if diff := cmp.Diff(c.is, c.check(e)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestErrors_OfNoConnection(t *testing.T) {
	c := NewClient(Config{Host: "http://127.0.0.1:9"}, env()) // port 9 is "discard": nothing listens
	if _, err := c.Get(context.Background(), things, "a"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := (&Client{}).Get(context.Background(), things, "a"); !errors.Is(err, ErrNotConfigured) {
		t.Errorf("zero client: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Get(ctx, things, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestManager_OfAMessageInAnotherForm(t *testing.T) {
	if got := manager("somebody has it"); got != "somebody has it" {
		t.Errorf("got %q", got)
	}
}

// ready is met by an object whose field "ready" is true.
func ready(obj *unstructured.Unstructured) (bool, error) {
	if obj == nil {
		return false, nil
	}
	if obj.Object["bad"] == true {
		return false, errBad
	}
	return obj.Object["ready"] == true, nil
}

var errBad = errors.New("bad")

// watched answers a get with first and a watch with events.
func watched(t *testing.T, first map[string]any, events ...map[string]any) *Client {
	t.Helper()
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "true" {
			if first == nil {
				replyError(w, apierrors.NewNotFound(things.GroupResource(), "a"))
				return
			}
			reply(w, http.StatusOK, first)
			return
		}
		if got := r.URL.Query().Get("fieldSelector"); got != "metadata.name=a" {
			t.Errorf("watches %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
}

func event(kind string, obj map[string]any) map[string]any {
	return map[string]any{"type": kind, "object": obj}
}

func TestWaitFor_EndsAtTheConditionOrItsError(t *testing.T) {
	for _, c := range []struct {
		name   string
		client *Client
		want   error
	}{
		{"met at once", watched(t, thing("1", map[string]any{"ready": true})), nil},
		{"met by an event", watched(t, thing("1", nil), event("MODIFIED", thing("2", nil)), event("MODIFIED", thing("3", map[string]any{"ready": true}))), nil},
		{"not there yet", watched(t, nil, event("ADDED", thing("1", map[string]any{"ready": true}))), nil},
		{"a definite No", watched(t, thing("1", nil), event("MODIFIED", thing("2", map[string]any{"bad": true}))), errBad},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.client.WaitFor(context.Background(), things, "a", ready, 10*time.Second); !errors.Is(err, c.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestWaitFor_SeesADeletion(t *testing.T) {
	c := watched(t, thing("1", nil), event("DELETED", thing("2", nil)))
	gone := func(obj *unstructured.Unstructured) (bool, error) { return obj == nil, nil }
	if last, err := c.WaitFor(context.Background(), things, "a", gone, 10*time.Second); err != nil || last != nil {
		t.Errorf("last %v, error %v", last, err)
	}
}

func TestWaitFor_TimesOutWithTheObjectAsLastSeen(t *testing.T) {
	c := watched(t, thing("1", nil), event("MODIFIED", thing("2", nil)))
	_, err := c.WaitFor(context.Background(), things, "a", ready, 300*time.Millisecond)
	var e *Error
	if !errors.Is(err, ErrTimeout) || !errors.As(err, &e) || e.Last == nil || e.Last.GetResourceVersion() != "2" || e.Err != nil {
		t.Errorf("error %v", err)
	}
}

func TestWaitFor_IsInterruptedAtOnce(t *testing.T) {
	c := watched(t, thing("1", nil))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := c.WaitFor(ctx, things, "a", ready, time.Minute); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("error %v", err)
	}
}

// A role that may not watch, and a server that fails for a while, only make the wait slower.
func TestWaitFor_ReadsAgainWhereItCannotWatch(t *testing.T) {
	var gets atomic.Int32
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") == "true":
			replyError(w, apierrors.NewForbidden(things.GroupResource(), "a", errors.New("no watch")))
		case gets.Add(1) == 2:
			replyError(w, apierrors.NewInternalError(errors.New("for a while")))
		default:
			reply(w, http.StatusOK, thing("1", map[string]any{"ready": gets.Load() > 2}))
		}
	})
	if _, err := c.WaitFor(context.Background(), things, "a", ready, 20*time.Second); err != nil || gets.Load() != 3 {
		t.Errorf("%d reads, error %v", gets.Load(), err)
	}
}

func TestWaitFor_DoesNotWaitForWhatItMayNotRead(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, _ *http.Request) {
		replyError(w, apierrors.NewForbidden(things.GroupResource(), "a", errors.New("no")))
	})
	if _, err := c.WaitFor(context.Background(), things, "a", ready, time.Minute); !errors.Is(err, ErrForbidden) {
		t.Errorf("error %v", err)
	}
}
