package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kinds of errors. Every error of this package but a cancelled context is one of them, by errors.Is.
var (
	// ErrNotConfigured: nobody said where the API server is.
	ErrNotConfigured = errors.New("no connection to a cluster is configured")
	// ErrConfig: what was said cannot be used.
	ErrConfig = errors.New("the connection to the cluster is configured wrongly")
	// ErrUnreachable: there was no answer.
	ErrUnreachable = errors.New("the API server cannot be reached")
	// ErrUnauthorized: the server does not know the caller.
	ErrUnauthorized = errors.New("the API server does not accept the credentials")
	// ErrForbidden: the server knows the caller and says no.
	ErrForbidden = errors.New("the API server forbids it")
	// ErrCRDMissing: the server does not serve the kind of object.
	ErrCRDMissing = errors.New("the cluster does not serve this kind of object")
	// ErrNotFound: the server serves the kind, and there is no such object.
	ErrNotFound = errors.New("the object does not exist")
	// ErrConflict: somebody else owns a field, or the object changed meanwhile.
	ErrConflict = errors.New("the object is managed by somebody else")
	// ErrInvalid: the server refuses the object's content.
	ErrInvalid = errors.New("the API server refuses the object")
	// ErrTimeout: a wait ended before its condition came.
	ErrTimeout = errors.New("timed out")
	// ErrServer: the server answered with a failure of its own.
	ErrServer = errors.New("the API server failed")
)

// Error is what went wrong with one request or one wait.
type Error struct {
	// Kind is one of the errors above.
	Kind error
	// Host is the server that was asked; empty where none was.
	Host string
	// Conflicts are the fields that others own, for ErrConflict.
	Conflicts []FieldConflict
	// Causes are the fields that the server refuses, for ErrInvalid.
	Causes []FieldCause
	// Last is the object as it was last seen, for ErrTimeout; nil where it was never seen.
	Last *unstructured.Unstructured
	// Err is the original error.
	Err error
}

// FieldConflict is a field that another field manager owns.
type FieldConflict struct {
	// Field is a path such as .spec.workload.
	Field string
	// Manager is the owner, e.g. kubectl-edit.
	Manager string
}

// FieldCause is a field that the server refuses.
type FieldCause struct {
	// Field is a path such as spec.machines[0].instanceTypes.
	Field   string
	Message string
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.Error()
	}
	return fmt.Sprintf("%v: %v", e.Kind, e.Err)
}

// Unwrap makes errors.Is and errors.As see both the kind and the original error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// classify makes an *Error of what client-go returned. A cancelled context stays as it is: nothing went wrong.
func classify(ctx context.Context, host string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	e := &Error{Host: host, Err: err}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		e.Kind = ErrUnreachable
		return e
	}
	e.Kind = kindOf(status.Status())
	switch e.Kind {
	case ErrConflict:
		e.Conflicts = conflicts(status.Status())
	case ErrInvalid:
		e.Causes = causes(status.Status())
	}
	return e
}

func kindOf(s metav1.Status) error {
	switch s.Reason {
	case metav1.StatusReasonNotFound:
		if unexpected(s) {
			return ErrCRDMissing
		}
		return ErrNotFound
	case metav1.StatusReasonUnauthorized:
		return ErrUnauthorized
	case metav1.StatusReasonForbidden:
		return ErrForbidden
	case metav1.StatusReasonConflict:
		return ErrConflict
	case metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest:
		return ErrInvalid
	}
	return ErrServer
}

// unexpected reports whether the answer was not an API object but plain text: "404 page not found", which is what the
// API server says of a kind that it does not serve. client-go words it "the server could not find the requested
// resource" and marks it with this cause.
func unexpected(s metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}

func conflicts(s metav1.Status) []FieldConflict {
	var all []FieldConflict
	if s.Details == nil {
		return nil
	}
	for _, c := range s.Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			all = append(all, FieldConflict{Field: c.Field, Manager: manager(c.Message)})
		}
	}
	return all
}

// manager takes the name out of `conflict with "kubectl-edit" using gpufleet.dev/v1alpha1 at 2026-...`. The API has no
// field for it; a message in another form is given whole.
func manager(message string) string {
	if _, rest, ok := strings.Cut(message, "conflict with "); ok {
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			if name, err := strconv.Unquote(quoted); err == nil {
				return name
			}
		}
	}
	return message
}

func causes(s metav1.Status) []FieldCause {
	var all []FieldCause
	if s.Details == nil {
		return nil
	}
	for _, c := range s.Details.Causes {
		all = append(all, FieldCause{Field: c.Field, Message: c.Message})
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
