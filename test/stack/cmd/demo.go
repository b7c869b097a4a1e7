package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpufleet/test/e2e"
)

// demo tells the whole story on a stage of its own, beside whatever up has started.
func demo() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "tell the whole story, from terraform apply to running pods, on a stage of its own",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return e2e.Demo(cmd.Context(), os.Stdout, keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the stage's directory with every log")
	return cmd
}
