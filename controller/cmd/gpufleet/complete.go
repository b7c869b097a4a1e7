package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// completionTimeout bounds how long a person waits for the names after pressing tab.
const completionTimeout = 3 * time.Second

// completeNames proposes the names of pods, pools or nodes. What goes wrong proposes nothing: nobody reads errors there.
func (p program) completeNames(o *options, kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := p.open(o)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return c.names(ctx, kind, o.namespace), cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cluster) names(ctx context.Context, kind, namespace string) []string {
	switch kind {
	case "pool":
		return c.namesOf(ctx, v1alpha1.GPUNodePools)
	case "node":
		return c.namesOf(ctx, v1alpha1.GPUNodes)
	}
	if namespace == "" {
		namespace = c.namespace
	}
	pods, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: manyNames})
	if err != nil {
		return nil
	}
	names := make([]string, len(pods.Items))
	for i := range pods.Items {
		names[i] = pods.Items[i].Name
	}
	return names
}

func (c *cluster) namesOf(ctx context.Context, kind schema.GroupVersionResource) []string {
	list, err := c.dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].GetName()
	}
	return names
}

// completeContexts proposes the contexts of the kubeconfig.
func (p program) completeContexts(o *options) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := clientConfig(kubeconfigs(o.kubeconfig, p.getenv), "").RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
}
