package region

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

const (
	// agentServiceAccount is who the node agent is to the cluster.
	agentServiceAccount = "gpufleet-agent"
	agentTokenSeconds   = 24 * 60 * 60
)

// runAgent plays the kubelet for the agent's DaemonSet pod: it starts the real binary with the token that such a pod gets,
// and again when it ends, until the power goes.
func (m *machine) runAgent(ctx context.Context) {
	if m.region.cfg.AgentBinary == "" {
		m.say("agent: this region was given no agent binary")
		return
	}
	kubeconfig := filepath.Join(m.dir, "agent.kubeconfig")
	m.untilDone(ctx, "agent: get a token", func() error {
		return m.region.cluster.writeAgentKubeconfig(ctx, m.region.cfg.AgentNamespace, m.node, kubeconfig)
	})
	m.untilDone(ctx, "agent", func() error {
		err := m.startAgent(ctx, kubeconfig)
		if err == nil {
			err = errors.New("ended by itself with status 0")
		}
		return fmt.Errorf("%w: see %s", err, filepath.Join(m.dir, "agent.log"))
	})
}

// startAgent runs the agent and returns when it has ended and been waited for.
func (m *machine) startAgent(ctx context.Context, kubeconfig string) error {
	log, err := os.OpenFile(filepath.Join(m.dir, "agent.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	cmd := m.program(ctx, log, m.region.cfg.AgentBinary,
		"--node-name", m.node, "--kubeconfig", kubeconfig, "--nvml-library", m.region.cfg.NVMLLibrary)
	cmd.Stdout = log
	return errors.Join(cmd.Run(), log.Close())
}

// program is a process of this machine: it sees the machine's NVML and nothing of the region's own environment, and is
// killed when the context ends.
func (m *machine) program(ctx context.Context, stderr io.Writer, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.SysProcAttr = m.dir, programAttributes()
	cmd.Env = []string{nvml.EnvState + "=" + m.statePath(), "PATH=" + os.Getenv("PATH"), "HOME=" + m.dir}
	cmd.Stderr = stderr
	return cmd
}

// writeAgentKubeconfig asks for a token of the agent's service account, bound to the Node object. A DaemonSet pod's token
// is bound to its pod and names the pod's node; without pods the Node itself is the binding, and the API server reads the
// node's name from either (authentication.kubernetes.io/node-name). NodeRestriction gives a kubelet tokens for pods only,
// so it is the administrator who asks.
func (c *cluster) writeAgentKubeconfig(ctx context.Context, namespace, node, path string) error {
	object, err := c.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	seconds := int64(agentTokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: object.UID},
	}}
	answer, err := c.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, agentServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["cluster"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	file.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	file.Contexts["agent"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "agent"}
	file.CurrentContext = "agent"
	return clientcmd.WriteToFile(*file, path)
}
