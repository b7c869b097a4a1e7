package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// env is an environment with the given variables.
func env(pairs ...string) func(string) string {
	vars := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return vars[name] }
}

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: a
clusters:
- {name: a, cluster: {server: "https://a.example:6443"}}
- {name: b, cluster: {server: "https://b.example:6443"}}
users:
- {name: u, user: {token: from-file}}
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b, user: u}}
`

func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestREST_NeverGuessesACluster(t *testing.T) {
	path := writeKubeconfig(t)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".kube", "config"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_MASTER", "http://localhost:8080")
	for name, c := range map[string]Config{
		"nothing given":      {},
		"only a token":       {Token: "t"},
		"only a context":     {ConfigContext: "a"},
		"only an authority":  {ClusterCACertificate: "pem"},
		"only an exec block": {Exec: &Exec{APIVersion: "v1", Command: "c"}},
	} {
		// Inside a pod too: what is given by half does not mean the pod's own cluster.
		vars := env()
		if name != "nothing given" {
			vars = env("KUBERNETES_SERVICE_HOST", "10.0.0.1")
		}
		if cfg, err := c.REST(vars); !errors.Is(err, ErrNotConfigured) {
			t.Errorf("%s: config %v, error %v", name, cfg, err)
		}
	}
}

func TestREST_InAPodWithoutItsServiceAccountSaysSo(t *testing.T) {
	if _, err := (Config{}).REST(env("KUBERNETES_SERVICE_HOST", "10.0.0.1")); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "service account") {
		t.Errorf("error %v", err)
	}
}

func TestREST_OfAKubeconfig(t *testing.T) {
	path := writeKubeconfig(t)
	for _, c := range []struct {
		name        string
		config      Config
		host, token string
	}{
		{"current context", Config{ConfigPaths: []string{path}}, "https://a.example:6443", "from-file"},
		{"another context", Config{ConfigPaths: []string{path}, ConfigContext: "b"}, "https://b.example:6443", "from-file"},
		{"another cluster", Config{ConfigPaths: []string{path}, ConfigContextCluster: "b"}, "https://b.example:6443", "from-file"},
		{"attributes over the file", Config{ConfigPaths: []string{path}, Host: "https://c.example", Token: "mine"}, "https://c.example", "mine"},
	} {
		cfg, err := c.config.REST(env())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if cfg.Host != c.host || cfg.BearerToken != c.token {
			t.Errorf("%s: host %s, token %s", c.name, cfg.Host, cfg.BearerToken)
		}
	}
}

func TestREST_OfAttributes(t *testing.T) {
	c := Config{
		Host: "api.example:6443", Token: "t", ClusterCACertificate: "pem", TLSServerName: "name", UserAgent: "agent/1",
	}
	cfg, err := c.REST(env())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{cfg.Host, cfg.BearerToken, string(cfg.CAData), cfg.ServerName, cfg.UserAgent}
	if diff := cmp.Diff([]string{"https://api.example:6443", "t", "pem", "name", "agent/1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cfg.QPS != clientQPS || cfg.Burst != clientBurst {
		t.Errorf("QPS %v, burst %v", cfg.QPS, cfg.Burst)
	}
}

func TestREST_OfExecLeavesTheCommandNoTerminal(t *testing.T) {
	c := Config{Host: "https://api.example", Exec: &Exec{
		APIVersion: "client.authentication.k8s.io/v1", Command: "aws", Args: []string{"eks", "get-token"}, Env: map[string]string{"B": "2", "A": "1"},
	}}
	cfg, err := c.REST(env())
	if err != nil {
		t.Fatal(err)
	}
	x := cfg.ExecProvider
	if x == nil || x.InteractiveMode != clientcmdapi.NeverExecInteractiveMode || x.Command != "aws" {
		t.Fatalf("exec: %v", x)
	}
	if diff := cmp.Diff([]clientcmdapi.ExecEnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, x.Env); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestREST_SaysWhatIsWrongWithTheConfiguration(t *testing.T) {
	path := writeKubeconfig(t)
	for _, c := range []struct {
		name, want string
		config     Config
	}{
		{"a file that is not there", `"/nonexistent" cannot be read`, Config{ConfigPaths: []string{"/nonexistent"}}},
		{"a context that is not there", `context "c" is not in kubeconfig ` + path + `, which has: a, b`, Config{ConfigPaths: []string{path}, ConfigContext: "c"}},
		{"two ways to log in", "give exactly one way to log in", Config{Host: "https://h", Token: "t", Exec: &Exec{Command: "c", APIVersion: "v"}}},
		{"token and user", "give exactly one way to log in", Config{Host: "https://h", Token: "t", Username: "u"}},
		{"an authority for nothing", "leave one out", Config{Host: "https://h", Insecure: true, ClusterCACertificate: "pem"}},
	} {
		if _, err := c.config.REST(env()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestFromEnvironment_FillsWhatIsNotGiven(t *testing.T) {
	all := env(
		EnvHost, "h", EnvUser, "u", EnvPassword, "p", EnvToken, "t", EnvInsecure, "true", EnvTLSServerName, "s", EnvClientCertificate, "c",
		EnvClientKey, "k", EnvClusterCACertificate, "ca", EnvConfigPath, "path", EnvConfigContext, "ctx", EnvConfigContextAuthInfo, "ai",
		EnvConfigContextCluster, "cl", EnvProxyURL, "px",
	)
	got, err := Config{Host: "given"}.FromEnvironment(all)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Host: "given", Username: "u", Password: "p", Token: "t", Insecure: true, TLSServerName: "s", ClientCertificate: "c", ClientKey: "k",
		ClusterCACertificate: "ca", ConfigPaths: []string{"path"}, ConfigContext: "ctx", ConfigContextAuthInfo: "ai", ConfigContextCluster: "cl", ProxyURL: "px",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err = (Config{}).FromEnvironment(env(EnvConfigPaths, "a:b")); err != nil || len(got.ConfigPaths) != 2 {
		t.Errorf("paths %v, error %v", got.ConfigPaths, err)
	}
	if _, err = (Config{}).FromEnvironment(env(EnvInsecure, "perhaps")); err == nil {
		t.Error("KUBE_INSECURE=perhaps is taken")
	}
}

func TestExpandHome(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for in, want := range map[string]string{"~": "/home/me", "~/.kube/config": "/home/me/.kube/config", "/etc/k": "/etc/k", "~other/k": "~other/k"} {
		if got, err := expandHome(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}
