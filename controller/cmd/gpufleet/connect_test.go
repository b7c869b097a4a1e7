package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubeconfig has two contexts; production has a namespace of its own.
const kubeconfig = `apiVersion: v1
kind: Config
clusters:
  - {name: one, cluster: {server: "https://one.test"}}
  - {name: two, cluster: {server: "https://two.test"}}
users: [{name: u, user: {token: t}}]
contexts:
  - {name: staging, context: {cluster: one, user: u}}
  - {name: production, context: {cluster: two, user: u, namespace: serving}}
current-context: staging
`

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestConnect_FindsTheKubeconfigAsKubectlDoes(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	flag := write(t, "flag", strings.ReplaceAll(kubeconfig, "one.test", "flag.test"))
	env := write(t, "env", strings.ReplaceAll(kubeconfig, "one.test", "env.test"))
	absent := filepath.Join(t.TempDir(), "absent")
	atHome := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(filepath.Join(atHome, ".kube"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(atHome, ".kube", "config"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, flag, env, home string
		want                  string
	}{
		{"the flag before all", flag, env, atHome, "https://flag.test"},
		{"KUBECONFIG before home", "", env, atHome, "https://env.test"},
		{"a file of KUBECONFIG that is not there is left out", "", absent + string(os.PathListSeparator) + env, atHome, "https://env.test"},
		{"home", "", "", atHome, "https://one.test"},
	} {
		t.Setenv("HOME", tc.home)
		c, err := connect(options{kubeconfig: tc.flag}, environment(map[string]string{"KUBECONFIG": tc.env}))
		if err != nil || c.server != tc.want || c.namespace != "default" {
			t.Errorf("%s: %+v, %v; want %s", tc.name, c, err, tc.want)
		}
	}
}

func TestConnect_TakesServerAndNamespaceOfTheContext(t *testing.T) {
	c, err := connect(options{kubeconfig: write(t, "k", kubeconfig), context: "production"}, environment(nil))
	if err != nil || c.server != "https://two.test" || c.namespace != "serving" {
		t.Errorf("%+v, %v", c, err)
	}
}

// What Terraform is told does not turn this program to another cluster than kubectl's.
func TestConnect_LeavesTerraformsVariablesAlone(t *testing.T) {
	c, err := connect(options{kubeconfig: write(t, "k", kubeconfig)}, environment(map[string]string{"KUBE_HOST": "https://other.test", "KUBE_CTX": "production", "KUBE_TOKEN": "x"}))
	if err != nil || c.server != "https://one.test" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConnect_SaysWhatIsWrong(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	good := write(t, "k", kubeconfig)
	for _, tc := range []struct {
		name    string
		options options
		env     map[string]string
		want    string
	}{
		{"nothing is there", options{}, nil, "no cluster: give --kubeconfig, or set KUBECONFIG; there is no ~/.kube/config, and this is no pod of a cluster"},
		{"only a context is given", options{context: "production"}, nil, "no cluster: give --kubeconfig, or set KUBECONFIG"},
		{"no such file", options{kubeconfig: "/nowhere/kubeconfig"}, nil, `kubeconfig "/nowhere/kubeconfig" cannot be read`},
		{"no such file in KUBECONFIG", options{}, map[string]string{"KUBECONFIG": "/nowhere/kubeconfig"}, `kubeconfig "/nowhere/kubeconfig" cannot be read`},
		{"no such context", options{kubeconfig: good, context: "prod"}, nil, `context "prod" is not in kubeconfig ` + good + ", which has: production, staging"},
		{"no YAML", options{kubeconfig: write(t, "bad", "{")}, nil, "the connection to the cluster is configured wrongly"},
	} {
		_, err := connect(tc.options, environment(tc.env))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestComplete_ProposesContexts(t *testing.T) {
	w := newWorld(t)
	if got := proposals(w.run(t, "__complete", "--kubeconfig", write(t, "k", kubeconfig), "--context", "")); got != "production staging" {
		t.Errorf("%q", got)
	}
	if got := proposals(w.run(t, "__complete", "--kubeconfig", write(t, "bad", "{"), "--context", "")); got != "" {
		t.Errorf("%q", got)
	}
}
