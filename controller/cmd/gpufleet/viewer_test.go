package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// TestViewer_HasExactlyTheRightsThatAreUsed runs every command and holds what it asked for against the role: a right that
// is missing stops somebody, and one too many was given for nothing.
func TestViewer_HasExactlyTheRightsThatAreUsed(t *testing.T) {
	w := newWorld(t, with(with(full(), claiming()...), mounting())...)
	for _, args := range [][]string{
		{"status"}, {"explain", "pod", "waits"}, {"explain", "pod", "absent"}, {"explain", "pool", "inference"}, {"explain", "node", "i-0a1"},
		{"__complete", "explain", "pod", ""}, {"__complete", "explain", "pool", ""}, {"__complete", "explain", "node", ""},
	} {
		w.run(t, args...)
	}
	var used []string
	for _, action := range append(w.core.Actions(), w.dynamic.Actions()...) {
		line := action.GetVerb() + " " + action.GetResource().GroupResource().String()
		if get, named := action.(clienttesting.GetAction); named && action.GetResource().Resource == "leases" {
			line += " " + get.GetName()
		}
		used = append(used, line)
	}
	slices.Sort(used)
	if diff := cmp.Diff(slices.Compact(used), granted(t)); diff != "" {
		t.Errorf("used (-) and granted (+):\n%s", diff)
	}
}

// granted are the rights of ClusterRole gpufleet-viewer, a line each.
func granted(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "viewer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		t.Fatal(err)
	}
	if role.Kind != "ClusterRole" || role.Name != "gpufleet-viewer" || role.APIVersion != rbacv1.SchemeGroupVersion.String() {
		t.Errorf("it is %s %s %s", role.APIVersion, role.Kind, role.Name)
	}
	var lines []string
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					line := verb + " " + resource
					if group != "" {
						line += "." + group
					}
					for _, name := range rule.ResourceNames {
						line += " " + name
					}
					lines = append(lines, line)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}
