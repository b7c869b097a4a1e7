// Command gpufleet says what is in a fleet of GPU nodes and why pods wait for it. It only reads, and it asks nothing of the
// controller: what it shows it computes from the cluster's objects by the same functions (internal/diagnose).
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// version is set at link time.
var version = "dev"

func main() {
	// client-go logs what it also returns as an error.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := program{name: nameOf(os.Args[0]), now: time.Now, getenv: os.Getenv, connect: connect, screen: screenOf}
	code := p.run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// nameOf is what people type to run the program: kubectl runs kubectl-gpufleet for "kubectl gpufleet".
func nameOf(path string) string {
	if plugin, found := strings.CutPrefix(strings.TrimSuffix(filepath.Base(path), ".exe"), "kubectl-"); found {
		return "kubectl " + plugin
	}
	return "gpufleet"
}
