package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// request is one thing that the API server was asked for.
type request struct {
	// verb is get or list; name is of a get.
	verb     string
	resource schema.GroupResource
	name     string
	// namespace is empty for the whole cluster.
	namespace string
}

func (r request) String() string {
	switch {
	case r.name != "" && r.namespace != "":
		return fmt.Sprintf("%s %s %s/%s", r.verb, r.resource, r.namespace, r.name)
	case r.name != "":
		return fmt.Sprintf("%s %s %s", r.verb, r.resource, r.name)
	case r.namespace != "":
		return fmt.Sprintf("%s %s of namespace %s", r.verb, r.resource, r.namespace)
	}
	return fmt.Sprintf("%s %s", r.verb, r.resource)
}

// karpenterGroup is Karpenter's (sigs.k8s.io/karpenter/pkg/apis).
const karpenterGroup = "karpenter.sh"

// refused says of a request that failed what was asked, what was answered and what to do.
func (c *cluster) refused(ctx context.Context, asked request, timeout time.Duration, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot %s: %s did not answer all within %s: look whether it is well, or give a longer --request-timeout: %w", asked, c.server, timeout, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot %s: the API server forbids it: bind ClusterRole gpufleet-viewer to whoever runs this: %w", asked, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("cannot %s: %s does not accept the credentials: log in again, or choose another --context: %w", asked, c.server, err)
	case apierrors.IsNotFound(err) && asked.verb == "list" && asked.resource.Group == v1alpha1.Group:
		return fmt.Errorf("gpufleet is not installed in this cluster: %s does not serve %s: choose another --context, or install gpufleet: %w", c.server, asked.resource, err)
	case apierrors.IsNotFound(err) && asked.verb == "list" && asked.resource.Group == karpenterGroup:
		return fmt.Errorf("gpufleet is not installed whole in this cluster: %s does not serve %s, Karpenter's CRDs, which come with it: %w", c.server, asked.resource, err)
	case errors.As(err, &status):
		return fmt.Errorf("cannot %s: %w", asked, err)
	}
	return fmt.Errorf("cannot %s: %s cannot be reached: look at --kubeconfig and --context: %w", asked, c.server, err)
}
