package stack

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is the name of the local cluster in kubeconfigs, in instance tags and in the controller's flags.
const clusterName = "gpufleet-local"

// writeKubeconfig writes a self-contained kubeconfig, readable by its owner only.
func writeKubeconfig(path, server string, ca []byte, userName string, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[clusterName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[userName] = user
	config.Contexts[clusterName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: userName}
	config.CurrentContext = clusterName
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", userName, err)
	}
	return nil
}

// certificateUser is a kubeconfig user that shows a client certificate.
func certificateUser(p *pair) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificateData: p.certPEM, ClientKeyData: p.keyPEM}
}
