package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/kube"
)

// cluster is the API server that is read.
type cluster struct {
	core    kubernetes.Interface
	dynamic dynamic.Interface
	// namespace is the kubeconfig's; server is for people.
	namespace, server string
}

// protobuf is smaller and faster to read than JSON: a large cluster has tens of thousands of pods.
const protobuf = "application/vnd.kubernetes.protobuf"

// connect makes the clients. It sends nothing: client-go connects at the first request.
func connect(o options, getenv func(string) string) (*cluster, error) {
	paths := kubeconfigs(o.kubeconfig, getenv)
	config, err := kube.Config{ConfigPaths: paths, ConfigContext: o.context, UserAgent: "gpufleet/" + version}.REST(getenv)
	if errors.Is(err, kube.ErrNotConfigured) {
		return nil, errors.New("no cluster: give --kubeconfig, or set KUBECONFIG; there is no ~/.kube/config, and this is no pod of a cluster")
	}
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType, typed.AcceptContentTypes = protobuf, protobuf+",application/json"
	core, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	namespace, _, err := clientConfig(paths, o.context).Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the kubeconfig's context: %w", err)
	}
	return &cluster{core: core, dynamic: dynamicClient, namespace: namespace, server: config.Host}, nil
}

// kubeconfigs are the files that kubectl would read: what is shown must be of the cluster that kubectl shows. (Terraform's
// provider looks at none that is not named, since it writes.) Of several in KUBECONFIG those that do not exist are left out.
func kubeconfigs(flag string, getenv func(string) string) []string {
	if flag != "" {
		return []string{flag}
	}
	if list := filepath.SplitList(getenv(clientcmd.RecommendedConfigPathEnvVar)); len(list) > 0 {
		var existing []string
		for _, path := range list {
			if _, err := os.Stat(path); err == nil {
				existing = append(existing, path)
			}
		}
		if len(existing) > 0 {
			return existing
		}
		return list
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	path := filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []string{path}
}

func clientConfig(paths []string, context string) clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{Precedence: paths}, &clientcmd.ConfigOverrides{CurrentContext: context})
}
