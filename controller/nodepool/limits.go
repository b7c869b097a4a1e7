package nodepool

import (
	"strconv"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

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
