package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

func (p program) statusCommand(o *options) *cobra.Command {
	watch, interval := false, 2*time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every pool: nodes, GPUs, limits, cost, and what is held",
		Long: `status shows every pool with its nodes and GPUs, what its limits still admit, what it costs, and what is held
back from it and why.

Counts and reasons are computed from the cluster's objects. What limits have in use is the controller's last word.

` + exitCodes + ` With -w it is that of what was shown last.`,
		Example: p.examples(
			"# Once", "gpufleet status",
			"", "# Again every five seconds, in place on a terminal", "gpufleet status -w --interval 5s",
			"", "# For a script: the pools that hold pods back", "gpufleet status -o json | jq -r '.pools[] | select(.held.pods > 0) | .name'",
		),
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask := func(ctx context.Context, c *cluster) (report, error) {
				s, err := c.read(ctx, p.now, o.timeout)
				if err != nil {
					return nil, err
				}
				return statusOf(understand(s)), nil
			}
			if watch {
				return p.watch(cmd, o, interval, ask)
			}
			return p.answer(cmd, o, ask)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", interval, "how long to wait before it is shown again")
	complete(cmd, "interval", cobra.NoFileCompletions)
	return cmd
}

// statusReport is the whole fleet in short.
type statusReport struct {
	about
	Pools []poolSummary `json:"pools"`
	// Holds are the reasons for which pods wait, by pool; those of pods that name no pool that exists come last.
	Holds []holdReport `json:"holds"`
}

// poolSummary is one pool in short.
type poolSummary struct {
	Name     string            `json:"name"`
	Workload v1alpha1.Workload `json:"workload"`
	Created  metav1.Time       `json:"created"`
	// Trouble is why the pool launches nothing at all; absent where it may.
	Trouble string     `json:"trouble,omitempty"`
	Nodes   nodeCounts `json:"nodes"`
	GPUs    gpuCounts  `json:"gpus"`
	// Limits are as the controller said last.
	Limits []v1alpha1.LimitStatus `json:"limits,omitempty"`
	// HourlyCost is of all machines whose price is known; Unpriced counts the others.
	HourlyCost string `json:"hourlyCost"`
	Unpriced   int    `json:"unpriced,omitempty"`
	// Held are the pods that wait for the pool and that something holds.
	Held heldCounts `json:"held"`
}

// nodeCounts counts launched machines, until they are gone.
type nodeCounts struct {
	Total    int `json:"total"`
	Verified int `json:"verified"`
}

// gpuCounts counts physical GPUs of all machines, and by how far their machine is.
type gpuCounts struct {
	Total   int64           `json:"total"`
	ByState map[State]int64 `json:"byState"`
}

// heldCounts counts pods; Reason is the one that holds the most, ReasonPods how many that is.
type heldCounts struct {
	Pods       int    `json:"pods"`
	GPUs       int64  `json:"gpus"`
	Reason     string `json:"reason,omitempty"`
	ReasonPods int    `json:"reasonPods,omitempty"`
}

func statusOf(f *fleet) *statusReport {
	r := &statusReport{about: f.about(), Pools: []poolSummary{}, Holds: []holdReport{}}
	for _, p := range f.pools {
		held := holds(p.object.Name, p.held)
		r.Pools = append(r.Pools, p.summary(held))
		r.Holds = append(r.Holds, held...)
	}
	r.Holds = append(r.Holds, holds("", f.strays)...)
	return r
}

func (p *pool) summary(held []holdReport) poolSummary {
	s := poolSummary{
		Name: p.object.Name, Workload: p.object.Spec.Workload, Created: p.object.CreationTimestamp, Trouble: p.is.Trouble,
		Limits: p.object.Status.Limits, GPUs: gpuCounts{ByState: map[State]int64{}},
	}
	var cost ledger.Money
	for _, m := range p.machines {
		s.GPUs.Total += m.counts.GPUs
		s.GPUs.ByState[m.state] += m.counts.GPUs
		if !m.launched() {
			continue
		}
		s.Nodes.Total++
		if m.verified() {
			s.Nodes.Verified++
		}
		if m.counts.HasPrice {
			cost += m.counts.Price
		} else {
			s.Unpriced++
		}
	}
	s.HourlyCost = cost.String()
	for _, h := range held {
		s.Held.Pods, s.Held.GPUs = s.Held.Pods+h.Pods, s.Held.GPUs+h.GPUs
	}
	if len(held) > 0 {
		s.Held.Reason, s.Held.ReasonPods = held[0].Reason, held[0].Pods
	}
	return s
}

func (r *statusReport) held() bool { return len(r.Holds) > 0 }

func (r *statusReport) text(p *page) {
	if len(r.Pools) == 0 {
		p.prose(0, "There is no GPUNodePool.")
	} else {
		r.pools(p)
	}
	switch {
	case len(r.Holds) > 0:
		r.holds(p)
	case len(r.Pools) > 0:
		p.gap()
		p.line("%s", p.styled(green, "Nothing is held."))
	}
}

func (r *statusReport) pools(p *page) {
	heads := []column{
		{head: "POOL"}, {head: "WORKLOAD", spare: 5}, {head: "NODES", right: true}, {head: "GPUS", right: true}, {head: "GPUS BY STATE", spare: 3},
		{head: "HEADROOM", spare: 1}, {head: "COST", right: true, spare: 2}, {head: "AGE", right: true, spare: 4}, {head: "HELD"},
	}
	var rows [][]cell
	for _, pool := range r.Pools {
		row := cells(pool.Name, string(pool.Workload), fmt.Sprintf("%d/%d", pool.Nodes.Verified, pool.Nodes.Total), pool.gpus(), pool.byState(),
			pool.headroom(), pool.cost(), age(r.At.Sub(pool.Created.Time)), "")
		if pool.Nodes.Verified < pool.Nodes.Total {
			row[2].style = yellow
		}
		row[8] = pool.heldCell()
		rows = append(rows, row)
	}
	p.table(0, heads, rows)
	for _, pool := range r.Pools {
		if pool.Trouble != "" {
			p.gap()
			p.hanging(pool.Name+" launches nothing: ", yellow, pool.Trouble)
		}
	}
}

func (s poolSummary) limit(name string) (v1alpha1.LimitStatus, bool) {
	for _, limit := range s.Limits {
		if limit.Name == name {
			return limit, true
		}
	}
	return v1alpha1.LimitStatus{}, false
}

// gpus is used/limit, or what there is where nothing limits it.
func (s poolSummary) gpus() string {
	if limit, limited := s.limit(v1alpha1.ReasonGPUs); limited {
		return limit.Used + "/" + limit.Limit
	}
	return strconv.FormatInt(s.GPUs.Total, 10)
}

func (s poolSummary) byState() string {
	var parts []string
	for _, state := range states {
		if gpus := s.GPUs.ByState[state]; gpus > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", gpus, strings.ToLower(string(state))))
		}
	}
	return strings.Join(parts, ", ")
}

// headroom is what may still be launched, by each limit alone.
func (s poolSummary) headroom() string {
	var parts []string
	for _, limit := range s.Limits {
		switch limit.Name {
		case v1alpha1.ReasonGPUs:
			parts = append(parts, limit.Headroom+" GPUs")
		case v1alpha1.ReasonNodes:
			parts = append(parts, limit.Headroom+" nodes")
		default:
			parts = append(parts, limit.Headroom)
		}
	}
	if len(parts) == 0 {
		return "no limit"
	}
	return strings.Join(parts, ", ")
}

func (s poolSummary) cost() string {
	if s.Unpriced > 0 {
		return s.HourlyCost + "+?"
	}
	return s.HourlyCost
}

func (s poolSummary) heldCell() cell {
	if s.Held.Pods == 0 {
		return cell{text: "0", style: dim}
	}
	return cell{text: s.Held.String(), style: red}
}

// String says how many pods the first reason holds, and how many others do.
func (h heldCounts) String() string {
	text := fmt.Sprintf("%d %s", h.ReasonPods, h.Reason)
	if others := h.Pods - h.ReasonPods; others > 0 {
		text += fmt.Sprintf(", %s", count(others, "other"))
	}
	return text
}

func (r *statusReport) holds(p *page) {
	p.head("Held")
	heads := []column{
		{head: "POOL"}, {head: "REASON"}, {head: "PODS", right: true}, {head: "GPUS", right: true, spare: 1}, {head: "FOR", right: true, spare: 2}, {head: "WHY"},
	}
	var rows [][]cell
	for _, h := range r.Holds {
		row := cells(orNone(h.Pool), h.Reason, strconv.Itoa(h.Pods), strconv.FormatInt(h.GPUs, 10), age(r.At.Sub(h.Since.Time)), h.Message)
		row[1].style = red
		rows = append(rows, row)
	}
	p.table(0, heads, rows)
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return text
}
