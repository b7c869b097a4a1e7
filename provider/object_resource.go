package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// objectResource is the life of a resource that is one object in the cluster. Each resource embeds it and adds its
// schema and its plan-time rules.
type objectResource struct {
	kind kind
	// compute fills the attributes that no spec holds; nil where there are none.
	compute func(ctx context.Context, s *session, x expanded, state *tfsdk.State) diag.Diagnostics
	session *session
}

// Metadata names the resource type.
func (r *objectResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + r.kind.resourceType
}

// Configure takes over what the provider's Configure made. It is nil when Terraform only validates.
func (r *objectResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	if req.ProviderData == nil {
		return
	}
	s, ok := req.ProviderData.(*session)
	if !ok {
		resp.Diagnostics.AddError("Unexpected Provider Data", fmt.Sprintf("This is a bug in the provider: its resources were given a %T.", req.ProviderData))
		return
	}
	r.session = s
}

// Create applies the object and waits until the controller has looked at it.
//
// The state is saved before the wait: an object that is in the cluster must not be lost. Terraform marks a resource whose
// create fails as tainted and replaces it at the next apply. That is right where the controller said No, since nothing
// was launched; where the wait only took too long or was interrupted, the answer is a warning, and nothing is replaced.
func (r *objectResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	x, ask, ok := r.ask("create", tfsdk.State(req.Plan), &resp.Diagnostics)
	if !ok {
		return
	}
	wait, diags := settleTimeout(ctx, req.Plan, timeouts.Value.Create)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	if resp.Diagnostics.Append(r.create(ctx, ask, x)...); resp.Diagnostics.HasError() {
		return
	}
	resp.State.Raw = req.Plan.Raw
	if resp.Diagnostics.Append(r.computeInto(ctx, x, &resp.State)...); resp.Diagnostics.HasError() {
		return
	}
	_, err := r.session.client.WaitFor(ctx, r.kind.resource, x.name, settled(r.kind), wait)
	if err == nil {
		return
	}
	var no *notAcceptedError
	if errors.As(err, &no) {
		resp.Diagnostics.AddError(ask.unsettled(err, wait, "It is kept in the state as tainted: the next apply replaces it."))
		return
	}
	resp.Diagnostics.AddWarning(ask.unsettled(err, wait, "It is in the state, and nothing will be replaced."))
}

// create applies an object that is not there yet.
func (r *objectResource) create(ctx context.Context, ask request, x expanded) diag.Diagnostics {
	if !r.session.claim(r.kind, x.name) {
		return ask.alreadyExists([]string{"another resource of this configuration"})
	}
	diags := r.createClaimed(ctx, ask, x)
	if diags.HasError() {
		r.session.unclaim(r.kind, x.name)
	}
	return diags
}

func (r *objectResource) createClaimed(ctx context.Context, ask request, x expanded) diag.Diagnostics {
	existing, err := r.session.client.Get(ctx, r.kind.resource, x.name)
	switch {
	case errors.Is(err, kube.ErrNotFound):
	case err != nil:
		return ask.diagnostics(err)
	case existing.GetDeletionTimestamp() != nil:
		return ask.beingDeleted(lastSeen(existing))
	default:
		// Also one that Terraform applied: it may be another state's, whose machines this one would then rewrite and in the
		// end destroy.
		return ask.alreadyExists(managers(existing))
	}
	if _, err := r.session.client.Apply(ctx, r.kind.resource, r.kind.object(x)); err != nil {
		return ask.diagnostics(err)
	}
	return nil
}

// Read takes over what the cluster has. An object that is gone leaves the state; a kind that is not served does not, since
// a wrong context looks the same, and the machines of the right one would run on without a state. While the provider's configuration is
// unknown (a cluster that the same run makes), the state stays as it is, and nothing is connected to.
func (r *objectResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	x, ask, ok := r.ask("read", req.State, &resp.Diagnostics)
	if !ok {
		return
	}
	obj, err := r.session.client.Get(ctx, r.kind.resource, x.name)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		resp.Diagnostics.Append(ask.diagnostics(err)...)
		return
	}
	r.warn(obj, ask, &resp.Diagnostics)
	raw, err := flattenObject(req.State.Raw, specOf(obj), r.kind.outsideSpec()...)
	if err != nil {
		resp.Diagnostics.AddError("Unexpected "+r.kind.title, fmt.Sprintf("The %s %q in the cluster is not of the shape that this version of the provider knows. "+
			"Bring the provider and gpufleet's CustomResourceDefinitions to the same version.%s", r.kind.noun, x.name, original(err)))
		return
	}
	resp.State.Raw = raw
	x.spec = specOf(obj)
	resp.Diagnostics.Append(r.computeInto(ctx, x, &resp.State)...)
}

// warn says what a refresh should not keep to itself. A rejection that came after the last apply would else show nowhere:
// the plan compares only what the user wrote.
func (r *objectResource) warn(obj *unstructured.Unstructured, ask request, diags *diag.Diagnostics) {
	if obj.GetDeletionTimestamp() != nil {
		diags.AddWarning(r.kind.title+" Being Deleted", fmt.Sprintf("Somebody has deleted %s %q; it is still there.\n\n%s", r.kind.noun, ask.name, lastSeen(obj)))
	} else if c := rejection(obj); c != nil {
		diags.AddWarning(ask.unsettled(&notAcceptedError{*c}, 0, "Nothing is launched for it until it is corrected."))
	}
}

// Update applies the new spec and waits for the controller's answer. Only a success reaches the state: after a failure
// the state still says what it said, and the next refresh takes what the cluster has.
func (r *objectResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	x, ask, ok := r.ask("update", tfsdk.State(req.Plan), &resp.Diagnostics)
	if !ok {
		return
	}
	wait, diags := settleTimeout(ctx, req.Plan, timeouts.Value.Update)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	if _, err := r.session.client.Apply(ctx, r.kind.resource, r.kind.object(x)); err != nil {
		resp.Diagnostics.Append(ask.diagnostics(err)...)
		return
	}
	if _, err := r.session.client.WaitFor(ctx, r.kind.resource, x.name, settled(r.kind), wait); err != nil {
		resp.Diagnostics.AddError(ask.unsettled(err, wait, "The state keeps the last values that were accepted."))
		return
	}
	updated := tfsdk.State{Raw: req.Plan.Raw, Schema: req.Plan.Schema}
	if resp.Diagnostics.Append(r.computeInto(ctx, x, &updated)...); !resp.Diagnostics.HasError() {
		resp.State.Raw = updated.Raw
	}
}

// Delete deletes the object and waits until it is gone: for a node pool, until its last machine is confirmed terminated.
func (r *objectResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	x, ask, ok := r.ask("delete", req.State, &resp.Diagnostics)
	if !ok {
		return
	}
	wait, diags := timeout(ctx, req.State.GetAttribute, timeouts.Value.Delete, r.kind.deleteTimeout)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	obj, err := r.session.client.Get(ctx, r.kind.resource, x.name)
	if err == nil {
		err = r.session.client.Delete(ctx, r.kind.resource, x.name, obj.GetUID())
	}
	if absentObject(err) {
		return
	}
	if err != nil {
		resp.Diagnostics.Append(ask.diagnostics(err)...)
		return
	}
	if _, err := r.session.client.WaitFor(ctx, r.kind.resource, x.name, gone, wait); err != nil && !absentObject(err) {
		resp.Diagnostics.Append(ask.stillThere(err, wait)...)
	}
}

// absentObject: there is no such object, or no such kind any more, which deletes its objects.
func absentObject(err error) bool {
	return errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrCRDMissing)
}

// ImportState takes an object by its name; Read does the rest.
func (r *objectResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("name"), req, resp)
}

// ask expands what a request is about. It is false where the cluster cannot be asked: the diagnostics say why.
func (r *objectResource) ask(verb string, what tfsdk.State, diags *diag.Diagnostics) (expanded, request, bool) {
	ask := request{verb: verb, kind: r.kind, schema: what.Schema.Type()}
	x, err := expandObject(what.Raw, r.kind.outsideSpec()...)
	if err != nil {
		diags.AddError("Unexpected "+r.kind.title, "This is a bug in the provider: it cannot read its own values."+original(err))
		return x, ask, false
	}
	ask.name = x.name
	if r.session == nil || r.session.client == nil {
		r.notYetKnown(ask, diags)
		return x, ask, false
	}
	return x, ask, true
}

// notYetKnown is one warning for a refresh, and an error for everything else.
func (r *objectResource) notYetKnown(ask request, diags *diag.Diagnostics) {
	var unknown []string
	if r.session != nil {
		unknown = r.session.unknown
	}
	summary := "Kubernetes Connection Not Known Yet"
	detail := fmt.Sprintf("These attributes of provider \"gpufleet\" are known only after apply: %q. ", unknown)
	if ask.verb != "read" {
		diags.AddError(summary, detail+fmt.Sprintf("Cannot %s without them. Apply what they come from first.", ask.what()))
		return
	}
	if r.session != nil && r.session.firstWarning() {
		diags.AddWarning(summary, detail+"Until then nothing is read from the cluster: the state is taken as it is.")
	}
}

func (r *objectResource) computeInto(ctx context.Context, x expanded, state *tfsdk.State) diag.Diagnostics {
	if r.compute == nil {
		return nil
	}
	return r.compute(ctx, r.session, x, state)
}

// planned expands a plan and records it for the other resources of this run; false where there is nothing to check.
func (r *objectResource) planned(plan tfsdk.Plan, diags *diag.Diagnostics) (expanded, bool) {
	if plan.Raw.IsNull() {
		return expanded{}, false
	}
	x, err := expandObject(plan.Raw, r.kind.outsideSpec()...)
	if err != nil {
		diags.AddError("Unexpected "+r.kind.title, "This is a bug in the provider: it cannot read the plan."+original(err))
		return x, false
	}
	if r.session == nil {
		return x, false
	}
	r.session.plan(r.kind, x)
	return x, true
}

// check expands a configuration and adds an error for each rule that it breaks by itself.
func (r *objectResource) check(config tfsdk.Config, rules func(*expanded) ([]v1alpha1.Violation, error)) diag.Diagnostics {
	var diags diag.Diagnostics
	if config.Raw.IsNull() || !config.Raw.IsKnown() {
		return diags
	}
	x, err := expandObject(config.Raw, r.kind.outsideSpec()...)
	if err != nil {
		diags.AddError("Unexpected "+r.kind.title, "This is a bug in the provider: it cannot read the configuration."+original(err))
		return diags
	}
	found, err := rules(&x)
	if err != nil {
		diags.AddError("Invalid "+r.kind.title, fmt.Sprintf("The %s cannot be read as the API's.%s", r.kind.noun, original(err)))
	}
	schema := config.Schema.Type()
	for _, v := range x.violations(found) {
		addError(&diags, attributePath(schema, v.Path), "Invalid "+r.kind.title, sentence(v.Message))
	}
	return diags
}

// settleTimeout is the user's timeout for create or update.
func settleTimeout(ctx context.Context, plan tfsdk.Plan, which timeoutOf) (time.Duration, diag.Diagnostics) {
	return timeout(ctx, plan.GetAttribute, which, defaultSettleTimeout)
}

// timeoutOf is one of the methods of timeouts.Value.
type timeoutOf func(timeouts.Value, context.Context, time.Duration) (time.Duration, diag.Diagnostics)

func timeout(ctx context.Context, get func(context.Context, path.Path, any) diag.Diagnostics, which timeoutOf, otherwise time.Duration) (time.Duration, diag.Diagnostics) {
	var t timeouts.Value
	if diags := get(ctx, path.Root("timeouts"), &t); diags.HasError() {
		return 0, diags
	}
	return which(t, ctx, otherwise)
}

// managers are the names of who set fields of an object.
func managers(obj *unstructured.Unstructured) []string {
	names := sets.New[string]()
	for _, f := range obj.GetManagedFields() {
		names.Insert(f.Manager)
	}
	if names.Len() == 0 {
		return []string{"an unnamed client"}
	}
	return sets.List(names)
}
