package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// kinds are what can be explained, each with the names that people use for it.
var kinds = []struct {
	name    string
	aliases []string
}{
	{"pod", []string{"pods", "po"}},
	{"pool", []string{"pools", "gpunodepool", "gpunodepools", "gpupool"}},
	{"node", []string{"nodes", "no", "gpunode", "gpunodes"}},
}

// kindOf is the kind of a name that people use for it.
func kindOf(name string) (string, bool) {
	for _, kind := range kinds {
		if name == kind.name || slices.Contains(kind.aliases, name) {
			return kind.name, true
		}
	}
	return "", false
}

// explainers ask about one object by name.
type explainer func(p program, ctx context.Context, o *options, c *cluster, name string) (report, error)

var explainers = map[string]explainer{"pod": explainPod, "pool": explainPool, "node": explainNode}

func (p program) explainCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain pod|pool|node NAME",
		Short: "Say why a pod waits, what a pool does, whether a node is what was ordered",
		Long: `explain says why a pod waits, what a pool does, or whether a node is what was ordered.

` + exitCodes,
		Example: p.examples(
			"gpufleet explain pod inference-6d9f7c-x2x1z -n default",
			"gpufleet explain pod/inference-6d9f7c-x2x1z",
			"gpufleet explain pool inference",
			"gpufleet explain node i-0a1b2c3d4e5f60001",
		),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if kind, name, found := strings.Cut(args[0], "/"); found {
					if known, ok := kindOf(kind); ok {
						return p.explain(cmd, o, known, name)
					}
				}
			}
			return errors.New("say what to explain: pod, pool or node, and its name; --help shows examples")
		},
	}
	cmd.AddCommand(
		p.explainOne(o, "pod", "Say why a pod waits, or where it runs", `explain pod says what holds a pod back: the one reason, with the numbers, what would free it, and what else stands in its
way. Of a pod that may use several pools, each pool's verdict is shown; the reason is that of the pool nearest to serving it.`,
			"# In the context's namespace", "gpufleet explain pod notebook",
			"", "# In another one, for a script", "gpufleet explain pod notebook -n research -o json",
			"", "# The name as status prints it", "gpufleet explain pod research/notebook",
		),
		p.explainOne(o, "pool", "Say what a pool has, may launch, and holds back", `explain pool shows a pool's conditions and limits, what it may launch and where the cloud refuses, its machines with what
they have left, and each reason for which pods wait.`,
			"gpufleet explain pool inference",
			"", "# What the cloud refuses now, and until when", "gpufleet explain pool inference -o json | jq .unavailable",
		),
		p.explainOne(o, "node", "Say whether a node is what was ordered, and what is on it", `explain node compares a node with its Blueprint: the verdict, what differs, the GPUs that NVML sees with their MIG
instances, the pods on it and what is free. The name is the node's, the GPUNode's, the NodeClaim's or the instance's id.

A node that is not what was ordered, while pods wait for it, counts as held.`,
			"gpufleet explain node i-0a1b2c3d4e5f60001",
			"", "# Only what differs from what was ordered", "gpufleet explain node i-0a1b2c3d4e5f60001 -o json | jq .findings",
		),
	)
	return cmd
}

// explainOne is the command for one kind.
func (p program) explainOne(o *options, kind, short, long string, examples ...string) *cobra.Command {
	cmd := &cobra.Command{
		Use: kind + " NAME", Short: short, Long: long + "\n\n" + exitCodes, Example: p.examples(examples...),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("give the name of one %s; there are %d", kind, len(args))
			}
			return nil
		},
		ValidArgsFunction: p.completeNames(o, kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if before, after, found := strings.Cut(name, "/"); found {
				if known, ok := kindOf(before); ok && known == kind {
					name = after
				}
			}
			return p.explain(cmd, o, kind, name)
		},
	}
	for _, each := range kinds {
		if each.name == kind {
			cmd.Aliases = each.aliases
		}
	}
	return cmd
}

func (p program) explain(cmd *cobra.Command, o *options, kind, name string) error {
	return p.answer(cmd, o, func(ctx context.Context, c *cluster) (report, error) {
		return explainers[kind](p, ctx, o, c, name)
	})
}

// missing is of something that is not there, with what may have been meant.
func missing(what string, near []string) error {
	if len(near) == 0 {
		return errors.New(what)
	}
	return fmt.Errorf("%s; there is %s", what, strings.Join(near, ", "))
}

// mostNear is how many names are proposed.
const mostNear = 3

// near are the names that may have been meant: those with few letters that differ, and those with the same beginning, as
// the pods of one Deployment have.
func near(name string, all []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var candidates []candidate
	for _, other := range all {
		d := distance(name, other)
		if d <= max(2, len(name)/4) || commonPrefix(name, other) > len(name)/2 || strings.Contains(other, name) {
			candidates = append(candidates, candidate{other, d})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, c := range candidates[:min(len(candidates), mostNear)] {
		names = append(names, c.name)
	}
	return names
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is Levenshtein's: how many letters to change, insert or leave out.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
