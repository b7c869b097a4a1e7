package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Requests a second and their burst. Terraform works on ten resources at a time, and client-go's default of 5 with a
// burst of 10 would throttle that; the API server's priority and fairness is the real limit.
const (
	clientQPS   = 100
	clientBurst = 200
)

// Config is where the API server is and how to log in. Its fields are those of the Kubernetes, Helm and kubectl
// providers, so that their blocks can be copied. An empty field is not given.
type Config struct {
	Host     string
	Username string
	Password string
	Token    string
	// Insecure switches off the check of the server's certificate.
	Insecure      bool
	TLSServerName string
	// ClientCertificate, ClientKey and ClusterCACertificate are PEM.
	ClientCertificate    string
	ClientKey            string
	ClusterCACertificate string
	// ConfigPaths are kubeconfig files, merged in order.
	ConfigPaths           []string
	ConfigContext         string
	ConfigContextAuthInfo string
	ConfigContextCluster  string
	ProxyURL              string
	Exec                  *Exec
	UserAgent             string
}

// Exec is a command that prints credentials.
type Exec struct {
	APIVersion string
	Command    string
	Args       []string
	Env        map[string]string
}

// Names of the environment variables that stand in for fields that are not given. They are those of the Kubernetes
// provider (hashicorp/terraform-provider-kubernetes, docs/index.md). KUBECONFIG is not among them: what kubectl happens
// to point at must never be what Terraform changes.
const (
	EnvHost                  = "KUBE_HOST"
	EnvUser                  = "KUBE_USER"
	EnvPassword              = "KUBE_PASSWORD"
	EnvToken                 = "KUBE_TOKEN"
	EnvInsecure              = "KUBE_INSECURE"
	EnvTLSServerName         = "KUBE_TLS_SERVER_NAME"
	EnvClientCertificate     = "KUBE_CLIENT_CERT_DATA"
	EnvClientKey             = "KUBE_CLIENT_KEY_DATA"
	EnvClusterCACertificate  = "KUBE_CLUSTER_CA_CERT_DATA"
	EnvConfigPath            = "KUBE_CONFIG_PATH"
	EnvConfigPaths           = "KUBE_CONFIG_PATHS"
	EnvConfigContext         = "KUBE_CTX"
	EnvConfigContextAuthInfo = "KUBE_CTX_AUTH_INFO"
	EnvConfigContextCluster  = "KUBE_CTX_CLUSTER"
	EnvProxyURL              = "KUBE_PROXY_URL"

	// envInCluster is set in every pod.
	envInCluster = "KUBERNETES_SERVICE_HOST"
)

// FromEnvironment fills the fields that are not given from the environment.
func (c Config) FromEnvironment(getenv func(string) string) (Config, error) {
	for env, field := range map[string]*string{
		EnvHost: &c.Host, EnvUser: &c.Username, EnvPassword: &c.Password, EnvToken: &c.Token,
		EnvTLSServerName: &c.TLSServerName, EnvClientCertificate: &c.ClientCertificate, EnvClientKey: &c.ClientKey,
		EnvClusterCACertificate: &c.ClusterCACertificate, EnvConfigContext: &c.ConfigContext,
		EnvConfigContextAuthInfo: &c.ConfigContextAuthInfo, EnvConfigContextCluster: &c.ConfigContextCluster,
		EnvProxyURL: &c.ProxyURL,
	} {
		if *field == "" {
			*field = getenv(env)
		}
	}
	if v := getenv(EnvInsecure); v != "" && !c.Insecure {
		insecure, err := strconv.ParseBool(v)
		if err != nil {
			return c, fmt.Errorf("environment variable %s is %q: it must be true or false", EnvInsecure, v)
		}
		c.Insecure = insecure
	}
	if len(c.ConfigPaths) == 0 {
		if v := getenv(EnvConfigPath); v != "" {
			c.ConfigPaths = []string{v}
		} else if v := getenv(EnvConfigPaths); v != "" {
			c.ConfigPaths = filepath.SplitList(v)
		}
	}
	return c, nil
}

// REST is the client-go configuration. It reads files and the environment of a pod, and connects to nothing. Every
// error of it wraps ErrNotConfigured or ErrConfig.
func (c Config) REST(getenv func(string) string) (*rest.Config, error) {
	cfg, err := c.load(getenv)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst, cfg.UserAgent = clientQPS, clientBurst, c.UserAgent
	return cfg, nil
}

func (c Config) load(getenv func(string) string) (*rest.Config, error) {
	if c.Host == "" && len(c.ConfigPaths) == 0 {
		if getenv(envInCluster) == "" || c.givesCredentials() {
			return nil, &Error{Kind: ErrNotConfigured, Err: errors.New("neither host nor config_path is given")}
		}
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, &Error{Kind: ErrConfig, Err: fmt.Errorf("the environment looks like a pod of a cluster, but its service account cannot be used: %w", err)}
		}
		return cfg, nil
	}
	kubeconfig, err := c.kubeconfig()
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Err: err}
	}
	overrides, err := c.overrides()
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Err: err}
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, c.ConfigContext, overrides, nil).ClientConfig()
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Err: err}
	}
	return cfg, nil
}

// givesCredentials reports whether the user said anything: then a service account that happens to lie around is not
// what was meant.
func (c Config) givesCredentials() bool {
	return c.Token != "" || c.Username != "" || c.Password != "" || c.ClientCertificate != "" || c.ClientKey != "" ||
		c.ClusterCACertificate != "" || c.ConfigContext != "" || c.ConfigContextAuthInfo != "" ||
		c.ConfigContextCluster != "" || c.Exec != nil
}

// kubeconfig is the merged kubeconfig files, empty where none is given. clientcmd would leave out a file that does not
// exist, and then complain about something else.
func (c Config) kubeconfig() (*clientcmdapi.Config, error) {
	if len(c.ConfigPaths) == 0 {
		return clientcmdapi.NewConfig(), nil
	}
	paths := make([]string, 0, len(c.ConfigPaths))
	for _, p := range c.ConfigPaths {
		expanded, err := expandHome(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(expanded); err != nil {
			return nil, fmt.Errorf("kubeconfig %q cannot be read: %w", p, err)
		}
		paths = append(paths, expanded)
	}
	merged, err := (&clientcmd.ClientConfigLoadingRules{Precedence: paths}).Load()
	if err != nil {
		return nil, err
	}
	if name := c.ConfigContext; name != "" && merged.Contexts[name] == nil {
		return nil, fmt.Errorf("context %q is not in kubeconfig %s, which has: %s", name, strings.Join(c.ConfigPaths, ", "), contextNames(merged))
	}
	return merged, nil
}

// overrides are the fields that are given, laid over the kubeconfig.
func (c Config) overrides() (*clientcmd.ConfigOverrides, error) {
	o := &clientcmd.ConfigOverrides{CurrentContext: c.ConfigContext}
	o.Context.AuthInfo, o.Context.Cluster = c.ConfigContextAuthInfo, c.ConfigContextCluster
	o.ClusterInfo.Server = c.Host
	if c.Host != "" && !strings.Contains(c.Host, "://") {
		o.ClusterInfo.Server = "https://" + c.Host
	}
	o.ClusterInfo.TLSServerName, o.ClusterInfo.ProxyURL = c.TLSServerName, c.ProxyURL
	o.ClusterInfo.InsecureSkipTLSVerify = c.Insecure
	o.ClusterInfo.CertificateAuthorityData = []byte(c.ClusterCACertificate)
	if c.Insecure && c.ClusterCACertificate != "" {
		return nil, errors.New("insecure and cluster_ca_certificate are both given: a certificate that is not checked needs no authority; leave one out")
	}
	if c.Exec != nil && (c.Token != "" || c.Username != "" || c.ClientCertificate != "") {
		return nil, errors.New("exec is given together with token, username or client_certificate: give exactly one way to log in")
	}
	if c.Token != "" && c.Username != "" {
		return nil, errors.New("token and username are both given: give exactly one way to log in")
	}
	o.AuthInfo.Token, o.AuthInfo.Username, o.AuthInfo.Password = c.Token, c.Username, c.Password
	o.AuthInfo.ClientCertificateData, o.AuthInfo.ClientKeyData = []byte(c.ClientCertificate), []byte(c.ClientKey)
	if c.Exec != nil {
		o.AuthInfo.Exec = c.Exec.config()
	}
	return o, nil
}

// config leaves the command no terminal: Terraform's own standard input is not for it. client-go refuses an exec
// configuration that does not say so.
func (e *Exec) config() *clientcmdapi.ExecConfig {
	x := &clientcmdapi.ExecConfig{
		APIVersion:      e.APIVersion,
		Command:         e.Command,
		Args:            e.Args,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	for _, name := range sortedKeys(e.Env) {
		x.Env = append(x.Env, clientcmdapi.ExecEnvVar{Name: name, Value: e.Env[name]})
	}
	return x
}

func expandHome(path string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("kubeconfig %q: %w", path, err)
	}
	return filepath.Join(home, strings.TrimPrefix(path, "~")), nil
}

func contextNames(c *clientcmdapi.Config) string {
	if len(c.Contexts) == 0 {
		return "no context"
	}
	return strings.Join(sortedKeys(c.Contexts), ", ")
}
