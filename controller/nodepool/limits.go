package nodepool

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// nodePoolLimits keep one simulation of core inside the pool's limits, in pseudo-resources that stand in the capacity of
// every instance type: what pods ask for may be called otherwise on each node, or be shares of a GPU. Limits that cannot be
// read admit nothing.
func nodePoolLimits(pool *v1alpha1.GPUNodePool) karpv1.Limits {
	limits, err := blueprint.PseudoLimits(pool)
	if err != nil {
		limits[v1alpha1.ResourceNode] = resource.Quantity{}
	}
	return karpv1.Limits(limits)
}

// limits shows each limit of a pool with what is used of it.
func limits(usage ledger.Usage) []v1alpha1.LimitStatus {
	headroom := usage.Headroom()
	var out []v1alpha1.LimitStatus
	if limit := usage.Limits.GPUs; limit != nil {
		out = append(out, v1alpha1.LimitStatus{
			Name: v1alpha1.ReasonGPUs, Limit: count(*limit), WithSurge: count(*limit + usage.Limits.Surge.GPUs),
			Used: count(usage.Steady.GPUs), Outstanding: count(usage.Outstanding.GPUs), Headroom: count(*headroom.GPUs),
		})
	}
	if limit := usage.Limits.Nodes; limit != nil {
		out = append(out, v1alpha1.LimitStatus{
			Name: v1alpha1.ReasonNodes, Limit: count(*limit), WithSurge: count(*limit + usage.Limits.Surge.Nodes),
			Used: count(usage.Steady.Nodes), Outstanding: count(usage.Outstanding.Nodes), Headroom: count(*headroom.Nodes),
		})
	}
	if limit := usage.Limits.HourlyCost; limit != nil {
		out = append(out, v1alpha1.LimitStatus{
			Name: v1alpha1.ReasonHourlyCost, Limit: limit.String(), WithSurge: (*limit + usage.Limits.Surge.HourlyCost).String(),
			Used: usage.Steady.HourlyCost.String(), Outstanding: usage.Outstanding.HourlyCost.String(), Headroom: headroom.HourlyCost.String(),
		})
	}
	return out
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
