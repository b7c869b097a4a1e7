// Package region is an AWS region that exists only on loopback: EC2's Query API and SSM's JSON on the wire, machines that
// boot into Nodes of a real Kubernetes cluster and run the real agent on a fake NVML, and books of all that ever happened.
// The product meets it through AWS_ENDPOINT_URL and knows nothing of it.
//
// Nothing of the product may come in here: no package of internal, controller or provider. What the region holds to be
// true is its own data, so that a mistake in the product's tables shows as a difference.
package region

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config is what a region is started with.
type Config struct {
	// Kubeconfig is a cluster administrator's. Empty: instances exist in the books only, and no machine boots.
	Kubeconfig string
	// Dir is where machines keep their files, a directory each, named by the instance's id.
	Dir string
	// AgentBinary and DevicePluginBinary run on each machine that joined; NVMLLibrary is the libnvidia-ml.so.1 they load.
	AgentBinary, DevicePluginBinary, NVMLLibrary string
	// AgentNamespace holds the agent's ServiceAccount and the device plugin's ConfigMap; default gpufleet-system.
	AgentNamespace string
	// BootDelay is how long an instance stays pending.
	BootDelay time.Duration
	// Log receives a line for each thing that happens; nil: nothing is said.
	Log io.Writer
}

// Region is a running region.
type Region struct {
	cfg     Config
	log     *log.Logger
	catalog *catalog

	books    *books
	calls    *calls
	faults   *faults
	capacity *capacity
	quotas   *quotas
	// cluster is nil where no machine boots.
	cluster *cluster

	aws, admin *port
	// ctx is the region's life, which is longer than any call that launches an instance; work is everything that lives in it.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	stop sync.Once
}

// Start opens both ports. ctx bounds the start only: the region lives until Stop.
func Start(ctx context.Context, cfg Config) (*Region, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("start the region: %w", err)
	}
	catalog, err := loadCatalog()
	if err != nil {
		return nil, err
	}
	r := &Region{
		cfg: cfg, catalog: catalog, log: log.New(io.Discard, "", 0),
		books: newBooks(), calls: newCalls(), faults: newFaults(), capacity: newCapacity(), quotas: newQuotas(),
	}
	if cfg.Log != nil {
		r.log = log.New(cfg.Log, "region ", log.Ltime|log.Lmicroseconds)
	}
	r.ctx, r.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.open(ctx); err != nil {
		r.Stop()
		return nil, fmt.Errorf("start the region: %w", err)
	}
	return r, nil
}

// complete fills in defaults and makes paths absolute, since programs run in their machine's directory.
func (c Config) complete() (Config, error) {
	c.AgentNamespace = cmp.Or(c.AgentNamespace, "gpufleet-system")
	for _, path := range []*string{&c.Dir, &c.AgentBinary, &c.DevicePluginBinary, &c.NVMLLibrary} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return c, err
		}
		*path = absolute
	}
	return c, nil
}

func (r *Region) open(ctx context.Context) (err error) {
	if r.cfg.Kubeconfig != "" {
		if err := os.MkdirAll(r.cfg.Dir, 0o755); err != nil {
			return err
		}
		if r.cluster, err = connect(r.ctx, ctx, r.cfg.Kubeconfig, r.cfg.AgentNamespace); err != nil {
			return err
		}
	}
	if r.aws, err = r.listen(http.HandlerFunc(r.serveAWS)); err != nil {
		return err
	}
	r.admin, err = r.listen(r.adminHandler())
	return err
}

// Endpoint is the URL for AWS_ENDPOINT_URL.
func (r *Region) Endpoint() string { return r.aws.url }

// AdminURL is the URL of the admin port.
func (r *Region) AdminURL() string { return r.admin.url }

// Stop kills what runs on machines, waits for it and closes both ports. It may be called again.
func (r *Region) Stop() {
	r.stop.Do(func() {
		// Held answers end first, then no call comes in, then nothing new can begin to live.
		r.end()
		for _, p := range []*port{r.aws, r.admin} {
			if p != nil {
				p.close()
			}
		}
		r.work.Wait()
	})
}

func (r *Region) logf(format string, args ...any) { r.log.Printf(format, args...) }

// port is one listening server on loopback.
type port struct {
	url    string
	server *http.Server
}

func (r *Region) listen(handler http.Handler) (*port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return r.ctx },
		ErrorLog:          r.log,
	}
	r.work.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.logf("serve %s: %v", listener.Addr(), err)
		}
	})
	return &port{url: "http://" + listener.Addr().String(), server: server}, nil
}

// close waits a moment for the calls that are being answered.
func (p *port) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		// The listener is closed by now; what is left is a connection that nobody uses.
		_ = p.server.Close()
	}
}
