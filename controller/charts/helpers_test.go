package charts_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = "gpufleet"
)

// required are the values without which there is nothing to render.
var required = []string{"--set", "clusterName=test,image.repository=registry.example.com/gpufleet"}

// everything turns every value on.
var everything = []string{"--values", "testdata/everything.yaml"}

// helmPath is where the go command keeps the helm that it built.
var helmPath = sync.OnceValues(func() (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "tool", "-modfile="+root+"/internal/tools/go.mod", "-n", "helm")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.New(stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// template runs helm template and returns what it printed.
func template(t *testing.T, args ...string) (string, error) {
	t.Helper()
	helm, err := helmPath()
	if err != nil {
		t.Fatalf("building helm: %v", err)
	}
	namespaced := append([]string{"template", "gpufleet", chart, "--namespace", "gpufleet-system"}, args...)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), helm, namespaced...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", errors.New(stderr.String())
	}
	return stdout.String(), nil
}

// render returns the objects that a cluster would be given.
func render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := template(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return manifests(t, text)
}

// manifests are the objects of a text.
func manifests(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		object := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) > 0 { // not comments only
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
	return all
}

// shipped are the objects of the files of a directory of controller/config.
func shipped(t *testing.T, pattern string) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "controller", "config", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		all = append(all, manifests(t, read(t, file))...)
	}
	return all
}

// one returns the object of a kind and name.
func one(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, each := range objects {
		if each.GetKind() == kind && each.GetName() == name {
			return each
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
