package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// status says what runs where, and asks each part whether it works.
func status(ctx context.Context, s stage) error {
	owner, ok, err := s.owner()
	if err != nil {
		return err
	}
	if !ok {
		fmt.Println("no local stage is up: make up starts one")
		return nil
	}
	st, err := s.readState()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("the local stage (pid %d) is starting or stopping; its log is %s\n", owner.PID, s.log())
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the stage's state: %w", err)
	}
	fmt.Printf("gpufleet's local stage is up (pid %d).\n", owner.PID)
	report(os.Stdout, s, st)
	return unhealthy(ctx, st)
}

// unhealthy is an error that names every part that does not answer.
func unhealthy(ctx context.Context, st state) error {
	var errs []error
	for _, c := range st.Components {
		if err := stack.Healthy(ctx, c.Health); err != nil {
			errs = append(errs, fmt.Errorf("%s does not work: %w; its log is %s", c.Name, err, c.Log))
		}
	}
	return errors.Join(errs...)
}

// what says to a newcomer what a part is.
var what = map[string]string{
	"etcd":                    "Kubernetes' store",
	"kube-apiserver":          "the Kubernetes API",
	"kube-controller-manager": "Kubernetes' controllers",
	"kube-scheduler":          "Kubernetes' scheduler",
	"kwok":                    "plays the kubelets of the region's machines",
	"region":                  "an emulated AWS region: EC2 and SSM over HTTP",
	"gpufleet-controller":     "the product",
}

func report(w io.Writer, s stage, st state) {
	table := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(table, format, args...) } // a closed terminal is no fault
	line("\n")
	for _, c := range st.Components {
		pid := "(in the supervisor)"
		if c.PID != 0 {
			pid = "pid " + strconv.Itoa(c.PID)
		}
		line("  %s\t%s\t%s\t%s\n", c.Name, what[c.Name], c.URL, pid)
	}
	line("\n  region's admin port\t%s\n", st.AdminURL)
	line("  logs\t%s\n", short(stack.LogDir(s.dir)))
	line("  environment\t%s\n", short(st.EnvFile))
	_ = table.Flush()
}

func nextSteps(w io.Writer, st state) {
	_, _ = fmt.Fprintf(w, `
Next, in a shell at the repository's root:

  . %s                              # again after each make up: ports and certificates are new
  terraform -chdir=examples/quickstart apply     # or tofu; no init: the built provider is used as it is
  kubectl apply -f examples/quickstart/pods.yaml
  kubectl get gpunodepools,gpunodes,nodes
  make status
  make down
`, short(st.EnvFile))
}

// short is a path as seen from the working directory, if it lies below.
func short(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if relative, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return path
}
