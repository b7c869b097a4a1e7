package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns the installed fields, as an installation with kubectl or Helm would.
const fieldManager = "gpufleet-install"

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Install applies the manifests that the product ships in controller/config: the CRDs, Karpenter's among them, and, once
// the API server serves those, the namespace, the rights and the admission policies.
func (cp *ControlPlane) Install(ctx context.Context) error {
	a, err := newApplier(cp)
	if err != nil {
		return err
	}
	config := filepath.Join(cp.root, "controller", "config")
	crds, err := readManifests(filepath.Join(config, "crd"), filepath.Join(config, "crd", "karpenter"))
	if err != nil {
		return err
	}
	if err := a.apply(ctx, crds); err != nil {
		return err
	}
	if err := a.established(ctx, crds); err != nil {
		return err
	}
	others, err := readManifests(filepath.Join(config, "namespace"), filepath.Join(config, "rbac"), filepath.Join(config, "admission"))
	if err != nil {
		return err
	}
	return a.apply(ctx, others)
}

// Apply applies the manifests in the given files or directories by server-side apply, in the order of their names.
func (cp *ControlPlane) Apply(ctx context.Context, paths ...string) error {
	a, err := newApplier(cp)
	if err != nil {
		return err
	}
	objects, err := readManifests(paths...)
	if err != nil {
		return err
	}
	return a.apply(ctx, objects)
}

type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	died   <-chan error
}

func newApplier(cp *ControlPlane) (*applier, error) {
	client, err := dynamic.NewForConfig(cp.config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cp.config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	return &applier{client: client, mapper: mapper, died: cp.family.died}, nil
}

func (a *applier) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := a.applyOne(ctx, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func (a *applier) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = a.client.Resource(mapping.Resource).Namespace(namespaceOf(object))
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

func namespaceOf(object *unstructured.Unstructured) string {
	if ns := object.GetNamespace(); ns != "" {
		return ns
	}
	return metav1.NamespaceDefault
}

// established waits until the API server serves the CRDs. A policy that is created before the kinds it names works only
// seconds later.
func (a *applier) established(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		err := until(ctx, "the CRD "+crd.GetName()+" to be established", a.died, func(ctx context.Context) error {
			current, err := a.client.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return establishedNow(current)
		})
		if err != nil {
			return err
		}
	}
	a.mapper.Reset()
	return nil
}

func establishedNow(crd *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %v", conditions)
}

// readManifests reads each file as named and every *.yaml of a directory, in the order of their names.
func readManifests(paths ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("looking for manifests: %w", err)
		}
		files := []string{path}
		if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			read, err := readManifest(file)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			objects = append(objects, read...)
		}
	}
	return objects, nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4<<10)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // not a document of comments only
			objects = append(objects, object)
		}
	}
}
