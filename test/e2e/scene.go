package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// Names of examples/quickstart.
const (
	poolName       = "inference"
	className      = "h100-mig"
	layoutName     = "h100-7x1g10gb"
	deploymentName = "inference"
	slice          = "nvidia.com/mig-1g.10gb"
	replicas       = 20
)

// Step is one thing that happens, and what was observed.
type Step struct {
	Title string
	Do    func(ctx context.Context, s *Scene) (observed string, err error)
}

// Scene is a stack with a client and a working copy of the quickstart.
type Scene struct {
	Stack  *stack.Stack
	Client client.Client
	// Terraform runs in a copy of examples/quickstart.
	Terraform Terraform
	// Witness records the order of writes.
	Witness *Witness
}

// NewScene prepares a scene in dir.
func NewScene(ctx context.Context, s *stack.Stack, dir string) (*Scene, error) {
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1alpha1.AddToScheme(kinds), v1alpha1.AddGPUNodeClassToScheme(kinds)); err != nil {
		return nil, err
	}
	if err := addKarpenter(kinds); err != nil {
		return nil, err
	}
	config := s.Config()
	config.QPS = -1 // polls are frequent, and a client that holds itself back would hide what it saw
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	tf, err := newTerraform(s, filepath.Join(dir, "quickstart"))
	if err != nil {
		return nil, err
	}
	witness, err := startWitness(ctx, s.Config())
	if err != nil {
		return nil, err
	}
	return &Scene{Stack: s, Client: c, Terraform: tf, Witness: witness}, nil
}

// pollEvery is how often a condition is looked at.
const pollEvery = 100 * time.Millisecond

// await looks until done, and fails with what it saw last.
func await(ctx context.Context, limit time.Duration, what string, look func(ctx context.Context) (seen string, done bool, err error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var seen string
	for {
		last, done, err := look(ctx)
		if err == nil && done {
			return last, nil
		}
		if err != nil {
			last = err.Error()
		}
		if last != "" && ctx.Err() == nil { // a look that time has cut short has seen nothing
			seen = last
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("waited %s for %s; seen last: %s", limit, what, seen)
		case <-ticker.C:
		}
	}
}

// BookEntry is an instance in the region's books.
type BookEntry struct {
	ID           string  `json:"id"`
	Claim        string  `json:"claim"`
	ClaimUID     string  `json:"claimUID"`
	Token        string  `json:"token"`
	Type         string  `json:"type"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	State        string  `json:"state"`
	Node         string  `json:"node"`
	Console      string  `json:"console"`
	PricePerHour float64 `json:"pricePerHour"`
	Dollars      float64 `json:"dollars"`
}

// Books returns every instance that the region ever started.
func (s *Scene) Books(ctx context.Context) ([]BookEntry, error) {
	body, err := get(ctx, s.Stack.AdminURL+"/v1/instances")
	if err != nil {
		return nil, err
	}
	var entries []BookEntry
	if err := json.Unmarshal(body, &entries); err != nil {
		return nil, fmt.Errorf("reading the region's books: %w", err)
	}
	return entries, nil
}

// alive are the instances that are not terminated.
func alive(entries []BookEntry) []BookEntry {
	var out []BookEntry
	for _, entry := range entries {
		if entry.State != "terminated" {
			out = append(out, entry)
		}
	}
	return out
}

// SetFault switches a fault of the region on.
func (s *Scene) SetFault(ctx context.Context, name string, parameters map[string]any) error {
	body, err := json.Marshal(parameters)
	if err != nil {
		return err
	}
	_, err = send(ctx, http.MethodPut, s.Stack.AdminURL+"/v1/faults/"+name, string(body))
	return err
}

// ClearFault switches it off.
func (s *Scene) ClearFault(ctx context.Context, name string) error {
	_, err := send(ctx, http.MethodDelete, s.Stack.AdminURL+"/v1/faults/"+name, "")
	return err
}

// Metric returns the value of one series of the controller's metrics endpoint, as it stands in the text.
func (s *Scene) Metric(ctx context.Context, series string) (string, error) {
	body, err := get(ctx, s.Stack.MetricsURL)
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s has no series %s", s.Stack.MetricsURL, series)
}

// Sum adds up the series of a metric whose labels contain a text.
func (s *Scene) Sum(ctx context.Context, metric, labels string) (float64, error) {
	body, err := get(ctx, s.Stack.MetricsURL)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.SplitSeq(string(body), "\n") {
		at := strings.LastIndex(line, " ")
		if !strings.HasPrefix(line, metric+"{") || !strings.Contains(line, labels) || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("reading %q: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	return send(ctx, http.MethodGet, url, "")
}

func send(ctx context.Context, method, url, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return text, nil
}

// copyDir copies the files of one directory, not its subdirectories.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, entry.Name()), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// addKarpenter registers karpenter.sh/v1, which its API package registers in client-go's own scheme only.
func addKarpenter(kinds *runtime.Scheme) error {
	group := schema.GroupVersion{Group: apis.Group, Version: "v1"}
	metav1.AddToGroupVersion(kinds, group)
	kinds.AddKnownTypes(group, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	return nil
}
