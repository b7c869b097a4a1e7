package kube

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// FieldManager owns the fields that Terraform sets.
const FieldManager = "gpufleet-terraform"

// Client reads and writes cluster-scoped objects. It is built at the first request and not before: a plan of new
// objects needs no cluster, and a kubeconfig may be written by the same run. The zero value is not configured.
type Client struct {
	config Config
	getenv func(string) string

	build sync.Once
	// What build made.
	dynamic dynamic.Interface
	host    string
	err     error
}

// NewClient is a client for c. It reads no file and connects to nothing.
func NewClient(c Config, getenv func(string) string) *Client {
	return &Client{config: c, getenv: getenv}
}

// connect makes the client-go client. It does not send anything either: client-go connects at the first request.
func (c *Client) connect() error {
	c.build.Do(func() {
		if c.getenv == nil {
			c.err = &Error{Kind: ErrNotConfigured}
			return
		}
		cfg, err := c.config.REST(c.getenv)
		if err != nil {
			c.err = err
			return
		}
		c.host = cfg.Host
		if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
			c.err = &Error{Kind: ErrConfig, Host: cfg.Host, Err: err}
		}
	})
	return c.err
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, gvr schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	obj, err := c.dynamic.Resource(gvr).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, classify(ctx, c.host, err)
	}
	return obj, nil
}

// Apply makes the object what obj says, by server-side apply, and returns it as the server then has it. It never takes
// a field from another manager: that is an ErrConflict which names both.
func (c *Client) Apply(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	opts := metav1.ApplyOptions{FieldManager: FieldManager, Force: false}
	applied, err := c.dynamic.Resource(gvr).Apply(ctx, obj.GetName(), obj, opts)
	if err != nil {
		return nil, classify(ctx, c.host, err)
	}
	return applied, nil
}

// Delete asks for the object of this UID to be deleted, after everything that it owns. It returns when the server has
// taken note; finalizers may keep the object for long (Wait). An object of the same name but another UID is left alone:
// that is an ErrConflict.
func (c *Client) Delete(ctx context.Context, gvr schema.GroupVersionResource, name string, uid types.UID) error {
	if uid == "" {
		return fmt.Errorf("delete %s %q: no UID", gvr.Resource, name)
	}
	if err := c.connect(); err != nil {
		return err
	}
	foreground := metav1.DeletePropagationForeground
	err := c.dynamic.Resource(gvr).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &foreground,
	})
	return classify(ctx, c.host, err)
}
