package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

// Stack is a running local stage: the control plane with the product's manifests installed, the region, the controller.
type Stack struct {
	*ControlPlane
	// Endpoint is the region's URL, for AWS_ENDPOINT_URL; AdminURL is that of its admin port.
	Endpoint string
	AdminURL string
	// MetricsURL is where the controller's metrics are.
	MetricsURL string

	leaderElection bool

	region     *region.Region
	regionLog  *os.File
	endRegion  context.CancelFunc
	metrics    string     // host:port of the metrics
	health     string     // host:port of the health probes
	mu         sync.Mutex // guards controller
	controller *child     // nil while it does not run
	stopOnce   sync.Once
	stopErr    error
	forget     func() bool // unties the stack from its context
}

// Start starts everything. It needs what Build builds. The stack ends on Stop or when the context ends.
func Start(ctx context.Context, o Options) (*Stack, error) {
	cp, err := startControlPlane(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Stack{ControlPlane: cp, leaderElection: o.LeaderElection, endRegion: func() {}, forget: func() bool { return false }}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.forget = context.AfterFunc(ctx, func() { _ = s.Stop() }) // whoever calls Stop gets the error
	return s, nil
}

func (s *Stack) start(ctx context.Context, o Options) error {
	if err := s.Install(ctx); err != nil {
		return err
	}
	if err := s.startRegion(ctx, o); err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	s.metrics, s.health = loopback(ports[0]), loopback(ports[1])
	s.MetricsURL = "http://" + s.metrics + "/metrics"
	if err := s.StartController(ctx); err != nil {
		return err
	}
	return s.writeEnv()
}

// startRegion starts the region in this process, under a context of its own: it must outlive the controller.
func (s *Stack) startRegion(ctx context.Context, o Options) error {
	log, err := os.Create(s.logPath(regionName))
	if err != nil {
		return fmt.Errorf("starting the region: its log: %w", err)
	}
	s.regionLog = log
	ctx, s.endRegion = context.WithCancel(context.WithoutCancel(ctx))
	config := region.Config{
		Kubeconfig:     s.Kubeconfig,
		Dir:            filepath.Join(s.Dir, "region"),
		NVMLLibrary:    filepath.Join(s.root, libDir, "libnvidia-ml.so.1"),
		AgentNamespace: systemNamespace,
		BootDelay:      o.BootDelay,
		Log:            log,
	}
	if !o.BareMachines {
		config.AgentBinary, config.DevicePluginBinary = s.built("gpufleet-agent"), s.built("deviceplugin")
	}
	s.region, err = region.Start(ctx, config)
	if err != nil {
		return fmt.Errorf("starting the region: %w", err)
	}
	s.Endpoint, s.AdminURL = s.region.Endpoint(), s.region.AdminURL()
	return nil
}

// Components lists what runs at this moment.
func (s *Stack) Components() []Component {
	list := append(s.ControlPlane.Components(), Component{
		Name: regionName, URL: s.Endpoint, Health: s.AdminURL + "/v1/instances", Log: s.logPath(regionName),
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil {
		list = append(list, Component{
			Name: controllerName, PID: s.controller.pid, URL: s.MetricsURL, Health: s.healthURL(), Log: s.controller.log,
		})
	}
	return list
}

// Stop ends the controller, the region and the control plane, in this order, and waits for all of them. It may be
// called twice.
func (s *Stack) Stop() error {
	s.stopOnce.Do(func() {
		s.forget()
		s.stopErr = errors.Join(s.endController((*child).stop), s.stopRegion(), s.ControlPlane.Stop())
	})
	return s.stopErr
}

func (s *Stack) stopRegion() error {
	if s.region != nil {
		s.region.Stop()
	}
	s.endRegion()
	if s.regionLog == nil {
		return nil
	}
	return s.regionLog.Close()
}
