package kube

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// relistAfter is how long a wait rests before it reads again after a watch that ended or could not be had.
const relistAfter = time.Second

// Condition looks at an object, nil where it does not exist, and says whether the wait is over. An error ends the wait.
type Condition func(obj *unstructured.Unstructured) (done bool, err error)

// WaitFor reads and watches one object until the condition is met, its error, the deadline, or the end of ctx. A server
// that does not answer for a while, or a role that may not watch, does not end the wait: it reads again. Past the
// deadline the error is an ErrTimeout with the object as last seen; a cancelled ctx is returned as it is.
func (c *Client) WaitFor(ctx context.Context, gvr schema.GroupVersionResource, name string, condition Condition, deadline time.Duration) (*unstructured.Unstructured, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	w := &waiter{client: c, gvr: gvr, name: name, condition: condition}
	for {
		done, err := w.look(bounded)
		if done || (err != nil && !passing(err)) {
			return w.last, err
		}
		if bounded.Err() == nil {
			w.trouble = err
		}
		select {
		case <-bounded.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return w.last, ctx.Err()
			}
			return w.last, &Error{Kind: ErrTimeout, Host: c.host, Last: w.last, Err: w.trouble}
		case <-time.After(relistAfter):
		}
	}
}

// passing reports whether an error may go away by itself, or is the end of the wait's own context, which the loop sees.
func passing(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrServer) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// waiter is one wait.
type waiter struct {
	client    *Client
	gvr       schema.GroupVersionResource
	name      string
	condition Condition
	// last is the object as last seen, nil where it did not exist; trouble the last failure to see it.
	last    *unstructured.Unstructured
	trouble error
}

// look reads the object once and follows it until the watch ends.
func (w *waiter) look(ctx context.Context) (bool, error) {
	version, err := w.read(ctx)
	if err != nil {
		return false, err
	}
	if done, err := w.condition(w.last); done || err != nil {
		return done, err
	}
	events, err := w.client.dynamic.Resource(w.gvr).Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(),
		ResourceVersion: version,
	})
	if err != nil {
		// Not fatal whatever it is: reading again does the same, only later.
		return false, nil
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		obj, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error || e.Type == watch.Bookmark {
			return false, nil
		}
		if w.last = obj; e.Type == watch.Deleted {
			w.last = nil
		}
		if done, err := w.condition(w.last); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// read leaves the object in last and returns the version to watch from.
func (w *waiter) read(ctx context.Context) (string, error) {
	obj, err := w.client.Get(ctx, w.gvr, w.name)
	switch {
	case errors.Is(err, ErrNotFound):
		w.last = nil
		return "", nil
	case err != nil:
		return "", err
	}
	w.last = obj
	return obj.GetResourceVersion(), nil
}
