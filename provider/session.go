package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// lookupTimeout bounds one look into the cluster at plan. It is short because a plan does without.
const lookupTimeout = 5 * time.Second

// session is what the resources of one configured provider share: the way to the cluster, and what this run plans.
type session struct {
	// client is nil while the provider's configuration is not known.
	client *kube.Client
	// unknown are the provider's attributes that are not known yet.
	unknown []string

	// mu guards everything below.
	mu sync.Mutex
	// planned are the objects of this run. A plan of a pool and of the class that it refers to needs no cluster: the
	// reference makes Terraform plan the class first.
	planned map[objectKey]expanded
	// created are the objects that this run created, so that a second resource of the same name is told apart from an
	// earlier run that was interrupted.
	created map[objectKey]bool
	// warned: the warning about an unknown configuration has been given.
	warned bool
	// unanswered: the cluster did not answer a look, and need not be asked again by every pool.
	unanswered bool
}

type objectKey struct {
	kind, name string
}

func newSession(client *kube.Client, unknown []string) *session {
	return &session{client: client, unknown: unknown, planned: map[objectKey]expanded{}, created: map[objectKey]bool{}}
}

// plan records an object of this run.
func (s *session) plan(k kind, x expanded) {
	if x.name == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned[objectKey{k.name, x.name}] = x
}

// claim records that this run creates an object; false where it already did.
func (s *session) claim(k kind, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := objectKey{k.name, name}
	if s.created[key] {
		return false
	}
	s.created[key] = true
	return true
}

// unclaim forgets a creation that did not happen.
func (s *session) unclaim(k kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, objectKey{k.name, name})
}

// firstWarning reports whether the warning about an unknown configuration is still to be given.
func (s *session) firstWarning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.warned
	s.warned = true
	return first
}

// presence is what is known of an object that another one refers to.
type presence int

const (
	// undecided: nobody can say now.
	undecided presence = iota
	// absent: it is neither planned in this run nor in the cluster.
	absent
	// present: here it is.
	present
)

// find looks for an object in this run and then in the cluster. A cluster that does not answer, forbids the look, or
// does not have gpufleet installed yet says nothing about the object.
func (s *session) find(ctx context.Context, k kind, name string) (expanded, presence) {
	s.mu.Lock()
	x, ok := s.planned[objectKey{k.name, name}]
	skip := s.unanswered || s.client == nil
	s.mu.Unlock()
	if ok {
		return x, present
	}
	if skip {
		return expanded{}, undecided
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	obj, err := s.client.Get(ctx, k.resource, name)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return expanded{}, absent
	case err != nil:
		if errors.Is(err, kube.ErrUnreachable) {
			s.mu.Lock()
			s.unanswered = true
			s.mu.Unlock()
		}
		return expanded{}, undecided
	}
	return expanded{name: name, spec: specOf(obj)}, present
}

func specOf(obj *unstructured.Unstructured) map[string]any {
	spec, _, err := unstructured.NestedMap(obj.Object, "spec")
	if err != nil || spec == nil {
		return map[string]any{}
	}
	return spec
}
