package nodepool

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/blueprint"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

// present are the machines that the pool has: one that it no longer launches may be larger than all that it does.
func present(claims []karpv1.NodeClaim) []ledger.Machine {
	var out []ledger.Machine
	for i := range claims {
		if kind, known := machine.Lookup(claims[i].Labels[corev1.LabelInstanceTypeStable]); known {
			out = append(out, blueprint.MachineOf(kind))
		}
	}
	return out
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
