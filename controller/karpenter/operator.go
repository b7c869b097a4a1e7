package karpenter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/karpenter/pkg/apis"
	cpmetrics "sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	corecontrollers "sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/prediction"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/holds"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/miglayout"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodeclass"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/nodepool"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/notify"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/verification"
)

// featureGates are those of core that the design rests on.
const featureGates = "NodeRepair=true,StaticCapacity=true,CapacityBuffer=true,TerminateFirstDrift=true,TerminateFirstRepair=true"

// Options are the settings of the controller.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Cluster names the cluster in instance tags.
	Cluster string
	// MetricsBindAddress and HealthProbeBindAddress are host:port.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	// PprofBindAddress serves Go's profiles; empty serves none.
	PprofBindAddress string
	// LeaderElection makes replicas wait for the lease gpufleet-controller in namespace LeaderElectionNamespace.
	LeaderElection          bool
	LeaderElectionNamespace string
	// Notifications is who is told of pods that are held back; its zero value tells nobody.
	Notifications notify.Config
	LogLevel      string
	Logger        logr.Logger
}

// envObservability is core's own variable. Unless it is set, core's series of each pod, node and NodeClaim are off: their number
// and the memory that they take grow with the fleet, without a bound.
const envObservability = "DISABLE_CLUSTER_STATE_OBSERVABILITY"

// coreOptions returns core's own settings: its defaults and environment, with the gates that we need. Core's zero value
// means no batching and no client rate.
func coreOptions(logLevel string) (*options.Options, error) {
	core := &options.Options{}
	flags := &options.FlagSet{FlagSet: flag.NewFlagSet(v1alpha1.ControllerName, flag.ContinueOnError)}
	core.AddFlags(flags)
	args := []string{"--feature-gates=" + featureGates, "--log-level=" + logLevel}
	if _, set := os.LookupEnv(envObservability); !set {
		args = append(args, "--disable-cluster-state-observability")
	}
	if err := core.Parse(flags, args...); err != nil {
		return nil, fmt.Errorf("setting Karpenter core's options: %w", err)
	}
	return core, nil
}

// Operator is the manager with everything that runs in it.
type Operator struct {
	core *operator.Operator
	ctx  context.Context //nolint:containedctx // carries core's options, which it reads from contexts only
}

// New wires core, our CloudProvider and our reconcilers. It starts nothing.
func New(ctx context.Context, opts Options, provider cloud.Cloud) (*Operator, error) {
	coreOpts, err := coreOptions(opts.LogLevel)
	if err != nil {
		return nil, err
	}
	limitMemory(coreOpts.MemoryLimit)
	ctx = log.IntoContext(coreOpts.ToContext(ctx), opts.Logger)
	if err := errors.Join(v1alpha1.AddToScheme(scheme.Scheme), nodeclass.AddToScheme(scheme.Scheme)); err != nil {
		return nil, err
	}
	op, err := newOperator(ctx, opts, coreOpts)
	if err != nil {
		return nil, err
	}
	TeachCore()
	notifier, err := newNotifier(op, opts)
	if err != nil {
		return nil, err
	}

	c, clk := op.GetClient(), op.Clock
	raw := NewCloudProvider(c, op.GetAPIReader(), provider, opts.Cluster, clk)
	undecorated := cpmetrics.Decorate(raw)
	decorated := overlay.Decorate(undecorated, c, op.InstanceTypeStore)
	matcher, err := health.NewRepairPolicyMatcher(ctx, decorated)
	if err != nil {
		return nil, fmt.Errorf("reading our repair policies: %w", err)
	}
	cluster := state.NewCluster(clk, c, decorated, state.WithRepairPolicyMatcher(matcher))
	controllers := corecontrollers.NewControllers(ctx, op.Manager, clk, coreClient{c, raw}, op.EventRecorder, decorated, undecorated, cluster,
		op.InstanceTypeStore, op.PredictionStore, corecontrollers.WithRegistrationHook(NewIdentityGate(c, clk)))
	controllers = append(controllers, ours(op, provider, raw, notifier, opts.Cluster)...)
	for _, each := range controllers {
		if err := each.Register(ctx, op.Manager); err != nil {
			return nil, fmt.Errorf("registering a controller: %w", err)
		}
	}
	return &Operator{core: op, ctx: ctx}, nil
}

// newNotifier returns what tells people of pods that are held back. It runs with the manager, where it leads.
func newNotifier(op *operator.Operator, opts Options) (*notify.Notifier, error) {
	notifier, err := notify.New(opts.Notifications, opts.Cluster, opts.Logger, op.Clock)
	if err != nil {
		return nil, fmt.Errorf("configuration of notifications: %w", err)
	}
	return notifier, op.Manager.Add(notifier)
}

func ours(op *operator.Operator, provider cloud.Cloud, raw *CloudProvider, notifier *notify.Notifier, cluster string) []controller.Controller {
	c := op.GetClient()
	recorder := op.GetEventRecorderFor(v1alpha1.ControllerName) //nolint:staticcheck // core's recorder takes the same interface
	return []controller.Controller{
		nodeclass.NewController(c, provider),
		miglayout.NewController(c),
		nodepool.NewController(c, provider, raw.ledger, cluster),
		verification.NewController(c, recorder, op.Clock),
		holds.NewController(c, op.GetAPIReader(), raw.Supply(), recorder, notifier, op.Clock),
		NewInstanceFinalizer(c, provider, cluster, op.Clock, raw.ledger),
		raw.books,
	}
}

// Start runs until the context ends.
func (o *Operator) Start(ctx context.Context) error {
	core := options.FromContext(o.ctx)
	return o.core.Manager.Start(log.IntoContext(core.ToContext(ctx), log.FromContext(o.ctx)))
}

// newOperator fills in core's Operator by hand: its own constructor listens on all interfaces and parses os.Args.
func newOperator(ctx context.Context, opts Options, coreOpts *options.Options) (*operator.Operator, error) {
	config := rest.CopyConfig(opts.Config)
	config.QPS, config.Burst = float32(coreOpts.KubeClientQPS), coreOpts.KubeClientBurst
	config.UserAgent = v1alpha1.ControllerName
	kubernetesInterface, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Logger:                        opts.Logger,
		LeaderElection:                opts.LeaderElection,
		LeaderElectionID:              v1alpha1.ControllerName,
		LeaderElectionNamespace:       opts.LeaderElectionNamespace,
		LeaderElectionResourceLock:    resourcelock.LeasesResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaderElectionConfig:          opts.Config,
		Metrics:                       server.Options{BindAddress: opts.MetricsBindAddress},
		HealthProbeBindAddress:        opts.HealthProbeBindAddress,
		PprofBindAddress:              opts.PprofBindAddress,
		BaseContext:                   func() context.Context { return ctx },
		Cache:                         cacheOptions(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := errors.Join(addIndexes(ctx, mgr), addChecks(mgr)); err != nil {
		return nil, err
	}
	return &operator.Operator{
		Manager:             mgr,
		KubernetesInterface: kubernetesInterface,
		EventRecorder:       recorder{events.NewRecorder(mgr.GetEventRecorderFor(v1alpha1.ControllerName))}, //nolint:staticcheck // core's recorder wants the old interface
		Clock:               clock.RealClock{},
		InstanceTypeStore:   nodeoverlay.NewInstanceTypeStore(),
		PredictionStore:     prediction.NewStore(),
	}, nil
}

// cacheOptions leave out of the cache what nothing here reads: who wrote which field, and Leases and ConfigMaps of others.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Field: fields.SelectorFromSet(fields.Set{"metadata.namespace": corev1.NamespaceNodeLease})},
			&corev1.ConfigMap{}:     {Namespaces: map[string]cache.Config{v1alpha1.Namespace: {}}},
		},
	}
}

// started is closed when the manager runs what is added to it, which it does after its caches have synced. It needs no
// leadership: a replica that waits for the lease is ready too.
type started chan struct{}

func (s started) Start(ctx context.Context) error {
	close(s)
	<-ctx.Done()
	return nil
}

func (s started) NeedLeaderElection() bool { return false }

func addChecks(mgr ctrl.Manager) error {
	running := make(started)
	return errors.Join(
		mgr.Add(running),
		mgr.AddHealthzCheck("healthz", healthz.Ping),
		mgr.AddReadyzCheck("caches", func(*http.Request) error {
			select {
			case <-running:
				return nil
			default:
				return errors.New("the caches are not synced")
			}
		}),
		mgr.AddReadyzCheck("crd", func(*http.Request) error {
			for _, kind := range []string{"NodePool", "NodeClaim"} {
				gvk := schema.GroupVersionKind{Group: apis.Group, Version: "v1", Kind: kind}
				if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
					return err
				}
			}
			return nil
		}),
	)
}
