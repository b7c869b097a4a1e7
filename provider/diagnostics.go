package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// request is what was asked of the cluster when it failed.
type request struct {
	// verb is create, read, update or delete.
	verb string
	kind kind
	name string
	// schema is for finding the attribute of a field.
	schema attr.Type
}

func (r request) what() string {
	return fmt.Sprintf("%s %s %q", r.verb, r.kind.noun, r.name)
}

// diagnostics are the words for a failed request. This is the only place that has them.
func (r request) diagnostics(err error) diag.Diagnostics {
	var e *kube.Error
	if !errors.As(err, &e) {
		e = &kube.Error{Kind: err}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return one("Interrupted", fmt.Sprintf("Terraform was asked to stop while it was about to %s. Run it again to finish.", r.what()), nil)
	case errors.Is(err, kube.ErrInvalid):
		return r.invalid(e)
	case errors.Is(err, kube.ErrConflict):
		return r.conflict(e)
	}
	summary, happened, remedy := r.words(e)
	return one(summary, fmt.Sprintf("Cannot %s: %s.\n\n%s", r.what(), happened, remedy), err)
}

// words are the summary, what happened and what to do.
func (r request) words(e *kube.Error) (summary, happened, remedy string) {
	switch e.Kind {
	case kube.ErrNotConfigured:
		return "Kubernetes Connection Not Configured",
			"the provider was not told where the cluster is",
			"Set config_path (or the environment variable KUBE_CONFIG_PATH), or host with its credentials, in provider \"gpufleet\". " +
				"A kubeconfig is never taken from KUBECONFIG or ~/.kube/config by itself, and localhost is never tried."
	case kube.ErrConfig:
		return "Kubernetes Connection Configured Wrongly",
			"the connection in provider \"gpufleet\" cannot be used",
			"Correct the provider's configuration or the KUBE_* environment variables that stand in for it."
	case kube.ErrUnreachable:
		return "Cluster Unreachable",
			fmt.Sprintf("the API server at %s did not answer", e.Host),
			"Check that the address is right, that the network path from here is open, and that the cluster's certificate authority is the one in provider \"gpufleet\"."
	case kube.ErrUnauthorized:
		return "Cluster Credentials Not Accepted",
			fmt.Sprintf("the API server at %s does not know these credentials", e.Host),
			"Check the token, certificate or exec command in provider \"gpufleet\". A token that was valid at plan may have expired since."
	case kube.ErrForbidden:
		return "Not Allowed To " + titleVerb(r.verb) + " " + r.kind.title,
			fmt.Sprintf("the API server at %s forbids it", e.Host),
			fmt.Sprintf("Terraform's user needs get, list, watch, create, patch and delete on %s.%s: bind it to a ClusterRole that has them.", r.kind.resource.Resource, v1alpha1.Group)
	case kube.ErrCRDMissing:
		return "gpufleet Not Installed In The Cluster",
			fmt.Sprintf("the API server at %s does not serve %s.%s", e.Host, r.kind.resource.Resource, v1alpha1.GroupVersion),
			"Install gpufleet's CustomResourceDefinitions and its controller first; where the same run installs them, let this resource depend on that with depends_on. " +
				"If gpufleet is installed, the provider points at another cluster: check host, config_path and config_context. " +
				"If the cluster was made anew, take what it no longer has out of the state with terraform state rm."
	case kube.ErrNotFound:
		return r.kind.title + " Not Found",
			fmt.Sprintf("the API server at %s has no such object", e.Host),
			"It was deleted outside of Terraform. Run terraform plan to see what is left to do."
	default:
		return "Cannot " + titleVerb(r.verb) + " " + r.kind.title,
			"the request failed", "Run Terraform again; if it fails again, the error below says why."
	}
}

// invalid puts each field that the server refuses at its attribute.
func (r request) invalid(e *kube.Error) diag.Diagnostics {
	summary := r.kind.title + " Refused By The API Server"
	if len(e.Causes) == 0 {
		return one(summary, fmt.Sprintf("Cannot %s: the API server at %s refuses its content.", r.what(), e.Host), e)
	}
	var diags diag.Diagnostics
	for _, c := range e.Causes {
		detail := fmt.Sprintf("Cannot %s: %s: %s", r.what(), c.Field, c.Message)
		addError(&diags, attributePath(r.schema, c.Field), summary, detail)
	}
	return diags
}

// conflict names each field with its owner and says the two ways out.
func (r request) conflict(e *kube.Error) diag.Diagnostics {
	if len(e.Conflicts) == 0 {
		return one(r.kind.title+" Changed Meanwhile",
			fmt.Sprintf("Cannot %s: it was changed or replaced by somebody else at the same time. Run Terraform again.", r.what()), e)
	}
	var lines []string
	for _, c := range e.Conflicts {
		lines = append(lines, fmt.Sprintf("  %s (set by %s)", c.Field, c.Manager))
	}
	detail := fmt.Sprintf("Cannot %s: Terraform would change fields that others manage:\n%s\n\n"+
		"Either take these attributes out of the configuration, or let the other manager give the fields up: "+
		"kubectl apply --server-side --force-conflicts --field-manager=%s -f FILE with the values of this configuration makes them Terraform's.",
		r.what(), strings.Join(lines, "\n"), kube.FieldManager)
	return one(r.kind.title+" Managed By Somebody Else", detail, e)
}

// alreadyExists is for an object that is there before Terraform creates it and is not Terraform's.
func (r request) alreadyExists(managers []string) diag.Diagnostics {
	detail := fmt.Sprintf("Cannot %s: the cluster has one of this name already, managed by %s. It is left as it is.\n\n"+
		"To manage it from here, for instance because an interrupted run of this configuration made it, import it:\n\n"+
		"  import {\n    to = %s.LABEL\n    id = %q\n  }\n\nElse choose another name.",
		r.what(), strings.Join(managers, ", "), r.kind.terraformType(), r.name)
	var diags diag.Diagnostics
	diags.AddAttributeError(path.Root("name"), r.kind.title+" Already Exists", detail)
	return diags
}

// beingDeleted is for an object whose predecessor of the same name is still there.
func (r request) beingDeleted(seen string) diag.Diagnostics {
	return one(r.kind.title+" Still Being Deleted",
		fmt.Sprintf("Cannot %s: one of the same name is still being deleted. Run Terraform again when it is gone.\n\n%s", r.what(), seen), nil)
}

// unsettled are the words for a wait that did not end well. keep says what became of the state.
func (r request) unsettled(err error, waited time.Duration, keep string) (summary, detail string) {
	var no *notAcceptedError
	var e *kube.Error
	switch {
	case errors.As(err, &no):
		return r.kind.title + " Not Accepted",
			fmt.Sprintf("The controller does not accept %s %q: %s\n\n%s", r.kind.noun, r.name, no, keep)
	case errors.Is(err, context.Canceled):
		return "Interrupted", fmt.Sprintf("Terraform was asked to stop while it waited for %s %q. %s", r.kind.noun, r.name, keep)
	case errors.Is(err, kube.ErrTimeout) && errors.As(err, &e):
		return r.kind.title + " Not " + r.kind.settled + " Yet",
			fmt.Sprintf("The %s %q is in the cluster, but its condition %s did not become true within %s. %s\n\nLast seen: %s%s",
				r.kind.noun, r.name, r.kind.settled, waited, keep, lastSeen(e.Last), original(e.Err))
	default:
		return "Cannot Wait For " + r.kind.title, fmt.Sprintf("The %s %q is in the cluster, but the wait for it failed. %s%s", r.kind.noun, r.name, keep, original(err))
	}
}

// stillThere is for a deletion that did not end in time.
func (r request) stillThere(err error, waited time.Duration) diag.Diagnostics {
	var e *kube.Error
	if !errors.Is(err, kube.ErrTimeout) || !errors.As(err, &e) {
		return r.diagnostics(err)
	}
	return one(r.kind.title+" Still Being Deleted",
		fmt.Sprintf("The %s %q was not gone within %s. It stays in the state; run Terraform again to go on waiting, or raise timeouts.delete.\n\n%s",
			r.kind.noun, r.name, waited, lastSeen(e.Last)), e.Err)
}

func one(summary, detail string, err error) diag.Diagnostics {
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, detail+original(err))}
}

func original(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("\n\nOriginal error: %v", err)
}

// addError puts an error at an attribute, or at the resource where the path names none. Terraform shows the line of an
// attribute only at the top level; further inside, the words must say where.
func addError(diags *diag.Diagnostics, at path.Path, summary, detail string) {
	if at.Equal(path.Empty()) {
		diags.AddError(summary, detail)
		return
	}
	diags.AddAttributeError(at, summary, located(at, detail))
}

// addWarning is addError for what may be meant.
func addWarning(diags *diag.Diagnostics, at path.Path, summary, detail string) {
	if at.Equal(path.Empty()) {
		diags.AddWarning(summary, detail)
		return
	}
	diags.AddAttributeWarning(at, summary, located(at, detail))
}

func located(at path.Path, detail string) string {
	if len(at.Steps()) > 1 {
		return fmt.Sprintf("%s: %s", at, detail)
	}
	return detail
}

func titleVerb(verb string) string {
	return strings.ToUpper(verb[:1]) + verb[1:]
}
