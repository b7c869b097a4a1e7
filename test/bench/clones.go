package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// model is a machine that the controller launched and verified, with all that stands for it in the cluster. Its clones are
// the same to the letter, but for what tells one machine from another: a thousand launches keep a small machine busy for a
// quarter of an hour, and clones for a minute.
type model struct {
	instance             region.Instance
	claim, node, gpuNode *unstructured.Unstructured
}

// cloners are how many clones are made at once.
const cloners = 16

// clone makes as many more of each pool's one machine as the pool may have. The controller must not run meanwhile.
func (c crowd) clone(ctx context.Context, running *stack.Stack, api client.Client) error {
	models, err := readModels(ctx, running, api)
	if err != nil {
		return err
	}
	if len(models) != c.pools {
		return fmt.Errorf("%d machines run, want one of each of the %d pools", len(models), c.pools)
	}
	return inParallel(ctx, c.pools*(c.nodesEach-1), func(ctx context.Context, i int) error {
		return models[i%c.pools].clone(ctx, running, api, i/c.pools)
	})
}

// inParallel calls do with 0 to n-1, and ends at the first error.
func inParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var work sync.WaitGroup
	for range cloners {
		work.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	work.Wait()
	return context.Cause(ctx)
}

func readModels(ctx context.Context, running *stack.Stack, api client.Client) ([]model, error) {
	books, err := request(ctx, http.MethodGet, running.AdminURL+"/v1/instances", nil)
	if err != nil {
		return nil, err
	}
	var instances []region.Instance
	if err := json.Unmarshal(books, &instances); err != nil {
		return nil, fmt.Errorf("reading the region's books: %w", err)
	}
	var models []model
	for _, each := range instances {
		m := model{
			instance: each,
			claim:    object(schema.GroupVersion{Group: apis.Group, Version: "v1"}.WithKind("NodeClaim")),
			node:     object(corev1.SchemeGroupVersion.WithKind("Node")),
			gpuNode:  object(v1alpha1.GroupVersion.WithKind(v1alpha1.KindGPUNode)),
		}
		m.claim.SetName(each.Claim)
		m.node.SetName(each.Node)
		m.gpuNode.SetName(each.Node)
		for _, read := range []*unstructured.Unstructured{m.claim, m.node, m.gpuNode} {
			if err := api.Get(ctx, client.ObjectKeyFromObject(read), read); err != nil {
				return nil, fmt.Errorf("what stands for instance %s: %w", each.ID, err)
			}
		}
		models = append(models, m)
	}
	return models, nil
}

func object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(kind)
	return out
}

// clone makes the nth: first the claim, which gets its UID, then the instance, which gets its id, then what carries both.
func (m model) clone(ctx context.Context, running *stack.Stack, api client.Client, n int) error {
	// A token has 64 characters at most, and tells where the clone comes from.
	token := fmt.Sprintf("%.56s-%03d", m.instance.Token, n)
	other := map[string]string{m.instance.Claim: fmt.Sprintf("%s-%03d", m.instance.Claim, n), m.instance.Token: token}
	claim, err := as(m.claim, other)
	if err != nil {
		return err
	}
	if err := api.Create(ctx, claim); err != nil {
		return fmt.Errorf("cloning NodeClaim %s: %w", m.instance.Claim, err)
	}
	other[m.instance.ClaimUID] = string(claim.GetUID())
	if other[m.instance.ID], err = m.launch(ctx, running, token, other); err != nil {
		return fmt.Errorf("cloning instance %s: %w", m.instance.ID, err)
	}
	for _, original := range []*unstructured.Unstructured{m.claim, m.node, m.gpuNode} {
		copied, err := as(original, other)
		if err != nil {
			return err
		}
		if err := put(ctx, api, copied); err != nil {
			return fmt.Errorf("cloning %s %s: %w", original.GetKind(), original.GetName(), err)
		}
	}
	return nil
}

// as is an object with some texts replaced, wherever they stand, and without what the API server gives.
func as(original *unstructured.Unstructured, texts map[string]string) (*unstructured.Unstructured, error) {
	text, err := original.MarshalJSON()
	if err != nil {
		return nil, err
	}
	for from, to := range texts {
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "generateName", "managedFields"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	return out, nil
}

// put creates an object unless it is there, and gives it its status.
func put(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	status := object.DeepCopy()
	if err := api.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": status.Object["status"]})
	if err != nil {
		return err
	}
	return api.Status().Patch(ctx, status, client.RawPatch(types.MergePatchType, patch))
}

// launch starts an instance as the controller did for the model, but with no boot configuration: the clone's Node is made
// by us.
func (m model) launch(ctx context.Context, running *stack.Stack, token string, texts map[string]string) (string, error) {
	form := url.Values{
		"Action": {"RunInstances"}, "Version": {"2016-11-15"}, "MinCount": {"1"}, "MaxCount": {"1"}, "ClientToken": {token},
		"ImageId": {running.Cloud().AWS.AMI.ID}, "InstanceType": {m.instance.Type}, "Placement.AvailabilityZone": {m.instance.Zone},
		"TagSpecification.1.ResourceType": {"instance"},
	}
	for i, key := range slices.Sorted(maps.Keys(m.instance.Tags)) {
		value := m.instance.Tags[key]
		if another, is := texts[value]; is {
			value = another
		}
		tag := fmt.Sprintf("TagSpecification.1.Tag.%d.", i+1)
		form.Set(tag+"Key", key)
		form.Set(tag+"Value", value)
	}
	answer, err := request(ctx, http.MethodPost, running.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	var launched struct {
		IDs []string `xml:"instancesSet>item>instanceId"`
	}
	if err := xml.Unmarshal(answer, &launched); err != nil || len(launched.IDs) != 1 {
		return "", fmt.Errorf("RunInstances answered %q: %w", answer, err)
	}
	return launched.IDs[0], nil
}

func request(ctx context.Context, method, url string, body io.Reader) (answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, answer)
	}
	return answer, nil
}
