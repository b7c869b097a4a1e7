package karpenter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// CloudProvider is what Karpenter core launches machines through.
type CloudProvider struct {
	client client.Client
	// live reads past the cache: a launch journal that is a second old could cost a machine.
	live    client.Reader
	cloud   cloud.Cloud
	cluster string
	clock   clock.PassiveClock
	refused *refusals
	ledger  *ledger.Ledger
	books   *Books
}

var _ cloudprovider.CloudProvider = (*CloudProvider)(nil)

// NewCloudProvider returns the provider of one cluster. live must read past every cache.
func NewCloudProvider(c client.Client, live client.Reader, provider cloud.Cloud, cluster string, clk clock.PassiveClock) *CloudProvider {
	l := ledger.New()
	return &CloudProvider{
		client: c, live: live, cloud: provider, cluster: cluster, clock: clk, refused: newRefusals(clk),
		ledger: l, books: NewBooks(c, live, provider, cluster, clk, l),
	}
}

// TeachCore tells core's package variables about our labels and our startup taint. Call it once, before core starts:
// without it core refuses pods that select our labels ("label does not have known values").
func TeachCore() {
	karpv1.WellKnownLabels.Insert(wellKnownLabels()...)
	scheduling.KnownEphemeralTaints = append(scheduling.KnownEphemeralTaints, v1alpha1.UnverifiedTaint())
}

func wellKnownLabels() []string {
	keys := make([]string, 0, len(v1alpha1.Labels))
	for _, label := range v1alpha1.Labels {
		keys = append(keys, label.Key)
	}
	return keys
}

// Name is the provider's name in core's metrics.
func (c *CloudProvider) Name() string { return "gpufleet" }

// GetSupportedNodeClasses returns a fresh object each time: core writes into it.
func (c *CloudProvider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{nodeclass.New()}
}

// repairAfter is how long a broken node may stay before core replaces it, drainFor how long its pods may take to go:
// without a bound one pod could hold a repair for ever.
const (
	repairAfter = 30 * time.Minute
	drainFor    = 30 * time.Minute
)

// RepairPolicies replaces nodes whose kubelet is gone for long. Core wants exactly one fallback without a reason.
func (c *CloudProvider) RepairPolicies() []cloudprovider.RepairPolicy { return repairPolicies() }

func repairPolicies() []cloudprovider.RepairPolicy {
	policy := cloudprovider.RepairPolicy{
		ConditionType:          corev1.NodeReady,
		TolerationDuration:     repairAfter,
		TerminationGracePeriod: ptr.To(drainFor),
		Action:                 cloudprovider.ReplaceNode,
	}
	notReady, unknown := policy, policy
	notReady.ConditionStatus = corev1.ConditionFalse
	unknown.ConditionStatus = corev1.ConditionUnknown
	unknown.ReasonRegex = ".+"
	return []cloudprovider.RepairPolicy{notReady, unknown}
}

// Reboot is never asked for: no repair policy of ours reboots.
func (c *CloudProvider) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

// Delete asks for the end of a claim's instance, and says NodeClaimNotFound when it is gone.
func (c *CloudProvider) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	id, err := instanceID(claim.Status.ProviderID)
	if err != nil {
		return err
	}
	instance, err := c.describe(ctx, id)
	if err != nil {
		return err
	}
	if instance.State.Ending() {
		return nil
	}
	return notFound(c.cloud.Terminate(ctx, id))
}

// Get returns the claim of one instance.
func (c *CloudProvider) Get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	id, err := instanceID(providerID)
	if err != nil {
		return nil, err
	}
	instance, err := c.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	return listed(instance), nil
}

// List returns a claim for each of our instances. It fails closed: core ends claims whose instance is absent from it.
func (c *CloudProvider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	instances, err := c.cloud.List(ctx, c.cluster)
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	claims := make([]*karpv1.NodeClaim, 0, len(instances))
	for _, instance := range instances {
		claims = append(claims, listed(instance))
	}
	return claims, nil
}

func (c *CloudProvider) describe(ctx context.Context, id string) (cloud.Instance, error) {
	instance, err := c.cloud.Describe(ctx, id)
	if err != nil {
		return cloud.Instance{}, notFound(err)
	}
	if instance.State.Gone() {
		return cloud.Instance{}, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("instance %s is terminated", id))
	}
	return instance, nil
}

// instanceID takes the last part of a provider id, e.g. aws:///us-east-1a/i-0abc.
func instanceID(providerID string) (string, error) {
	id := providerID[strings.LastIndex(providerID, "/")+1:]
	if id == "" {
		return "", fmt.Errorf("provider id %q names no instance", providerID)
	}
	return id, nil
}
