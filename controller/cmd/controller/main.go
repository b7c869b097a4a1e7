// Command gpufleet-controller runs in the cluster: Karpenter core, our CloudProvider and our reconcilers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud/aws"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/karpenter"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/notify"
)

// version is set at link time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gpufleet-controller: %v\n", err)
		os.Exit(1)
	}
}

type flags struct {
	kubeconfig    string
	notifications string
	options       karpenter.Options
}

func command() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "gpufleet-controller",
		Short: "Launch GPU nodes and let no workload on one that is not what was ordered",
		Long: `gpufleet-controller runs Karpenter core with gpufleet's own cloud provider. It launches the machines that
GPUNodePools ask for and lets no workload on a node that is not what was ordered.

AWS credentials, region and endpoint come from the AWS SDK's chain: environment, IRSA or pod identity.`,
		Example: `  # in a cluster
  gpufleet-controller --cluster-name prod

  # from a workstation, against a test cluster
  gpufleet-controller --cluster-name dev --kubeconfig ~/.kube/config --leader-elect=false`,
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's own service account)")
	cmd.Flags().StringVar(&f.options.Cluster, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the cluster, in the tags of its instances (required, or CLUSTER_NAME)")
	cmd.Flags().StringVar(&f.options.MetricsBindAddress, "metrics-bind-address", ":8080", "host:port that serves /metrics")
	cmd.Flags().StringVar(&f.options.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "host:port that serves /healthz and /readyz")
	cmd.Flags().StringVar(&f.options.PprofBindAddress, "pprof-bind-address", "", "host:port that serves /debug/pprof, Go's profiles (default: none)")
	cmd.Flags().BoolVar(&f.options.LeaderElection, "leader-elect", true, "let one of several replicas work, by the lease "+v1alpha1.ControllerName)
	cmd.Flags().StringVar(&f.options.LeaderElectionNamespace, "leader-election-namespace", v1alpha1.Namespace, "namespace of the lease")
	cmd.Flags().StringVar(&f.notifications, "notifications-config", os.Getenv("NOTIFICATIONS_CONFIG"), "YAML file that says which webhooks hear of pods that are held back (default: none, or NOTIFICATIONS_CONFIG)")
	cmd.Flags().StringVar(&f.options.LogLevel, "log-level", "info", "debug, info or error")
	return cmd
}

func run(ctx context.Context, f *flags) error {
	if f.options.Cluster == "" {
		return errors.New("no cluster name: give --cluster-name or CLUSTER_NAME; it marks the instances that belong to this cluster")
	}
	logger, err := newLogger(f.options.LogLevel)
	if err != nil {
		return err
	}
	f.options.Logger = logger
	ctrllog.SetLogger(logger)
	klog.SetLogger(logger)
	if f.options.Notifications, err = notify.Load(f.notifications); err != nil {
		return err
	}
	if f.options.Config, err = restConfig(f.kubeconfig); err != nil {
		return err
	}
	provider, err := aws.New(ctx, aws.Options{Cluster: f.options.Cluster})
	if err != nil {
		return fmt.Errorf("reaching AWS: %w", err)
	}
	if err := metrics.Register(); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	operator, err := karpenter.New(ctx, f.options, provider)
	if err != nil {
		return err
	}
	logger.Info("starting", "version", version, "cluster", f.options.Cluster)
	return operator.Start(ctx)
}

func newLogger(level string) (logr.Logger, error) {
	parsed, err := zap.ParseAtomicLevel(level)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q: want debug, info or error", level)
	}
	config := zap.NewProductionConfig()
	config.Level = parsed
	config.DisableStacktrace = true
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	built, err := config.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making a logger: %w", err)
	}
	return zapr.NewLogger(built), nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig, and this is no pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}
