package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/agent"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

type options struct {
	nodeName, kubeconfig string
	nvmlLibrary          string
	logFormat            string
	resync               time.Duration
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "gpufleet-agent",
		Short: "Cut this node's GPUs as its Blueprint says and report what NVML then sees",
		Long: `gpufleet-agent runs on every GPU node. It follows the GPUNode that is named after the node, applies the MIG layout in
its spec, reads the GPUs back through NVML and writes what it finds to status.inventory, and to nothing else.`,
		Example: `  # on a node, as a pod of its own
  gpufleet-agent --node-name "$NODE_NAME"

  # What NVML sees on this machine, without a cluster
  gpufleet-agent inventory`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Flags().StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node that this is, and of its GPUNode (environment NODE_NAME)")
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path of a kubeconfig (environment KUBECONFIG); empty: the pod's service account")
	cmd.Flags().DurationVar(&o.resync, "resync", 30*time.Second, "how often NVML is read without being asked to")
	cmd.Flags().StringVar(&o.logFormat, "log-format", "json", "json or text")
	cmd.PersistentFlags().StringVar(&o.nvmlLibrary, "nvml-library", agent.DefaultLibrary, "NVML: a path, or a name that the dynamic linker finds")
	cmd.AddCommand(inventoryCommand(o))
	return cmd
}

func inventoryCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "inventory",
		Short:   "Print what NVML sees on this machine as JSON; changes nothing and needs no cluster",
		Example: `  gpufleet-agent inventory --nvml-library /usr/lib64/libnvidia-ml.so.1`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printInventory(cmd.OutOrStdout(), agent.Look(agent.NewLibrary(o.nvmlLibrary)))
		},
	}
}

// printInventory prints even an inventory that failed: half of it may be what somebody is looking for.
func printInventory(w io.Writer, inv v1alpha1.Inventory) error {
	inv.ObservedAt = metav1.Now()
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(inv); err != nil {
		return fmt.Errorf("printing the inventory: %w", err)
	}
	if inv.Failure != nil {
		return fmt.Errorf("step %s: %s", inv.Failure.Step, inv.Failure.Message)
	}
	return nil
}

func (o *options) run(ctx context.Context, stderr io.Writer) error {
	if o.nodeName == "" {
		return errors.New("the node's name is missing: give --node-name, or NODE_NAME from the pod's spec.nodeName")
	}
	log, err := o.log(stderr)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log) // client-go's own messages
	config, err := o.config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the API server: %w", err)
	}
	a, err := agent.New(agent.Options{
		NodeName: o.nodeName,
		Library:  agent.NewLibrary(o.nvmlLibrary),
		Client:   client,
		Resync:   o.resync,
		Log:      log,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

func (o *options) log(w io.Writer) (*slog.Logger, error) {
	switch o.logFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	}
	return nil, fmt.Errorf("log format %q is not known: give json or text", o.logFormat)
}

func (o *options) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: in a pod the service account says where it is, elsewhere give --kubeconfig: %w", err)
	}
	config.UserAgent = v1alpha1.AgentName
	return config, nil
}
