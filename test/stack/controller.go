package stack

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	systemNamespace = "gpufleet-system"
	controllerName  = "gpufleet-controller" // also its ServiceAccount
	regionName      = "region"
	// tokenLife outlives any stack: nobody renews the controller's token here, as a kubelet would.
	tokenLife = 30 * 24 * time.Hour
)

// StartController starts the controller and waits until it is ready. It runs as the ServiceAccount that the shipped
// manifests make, so a right that they forget is missed here too.
func (s *Stack) StartController(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller != nil && s.controller.alive() {
		return fmt.Errorf("starting the controller: it runs already (pid %d)", s.controller.pid)
	}
	kubeconfig, err := s.controllerKubeconfig(ctx)
	if err != nil {
		return fmt.Errorf("starting the controller: %w", err)
	}
	ch, err := s.family.start(command{
		name: controllerName, path: s.built(controllerName), log: s.logPath(controllerName),
		args: []string{
			"--kubeconfig", kubeconfig, "--cluster-name", clusterName, fmt.Sprintf("--leader-elect=%t", s.leaderElection),
			"--metrics-bind-address", s.metrics, "--health-probe-bind-address", s.health,
		},
		env: append(s.childEnv(), s.awsEnv()...),
	})
	if err != nil {
		return err
	}
	s.controller = ch
	return until(ctx, "the controller to be ready", s.family.died, func(ctx context.Context) error {
		return Healthy(ctx, s.healthURL())
	})
}

// ReviveController starts the controller again if it has ended by itself; false: it has not.
func (s *Stack) ReviveController(ctx context.Context) (bool, error) {
	s.mu.Lock()
	ended := s.controller != nil && !s.controller.alive()
	if ended {
		s.family.release(s.controller)
	}
	s.mu.Unlock()
	if !ended {
		return false, nil
	}
	return true, s.StartController(ctx)
}

// KillController ends the controller with SIGKILL, as a lost node or an out-of-memory kill would, and waits for it.
func (s *Stack) KillController() error {
	return s.endController((*child).kill)
}

// endController ends the controller if it runs.
func (s *Stack) endController(end func(*child) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller == nil {
		return nil
	}
	s.family.release(s.controller)
	ch := s.controller
	s.controller = nil
	return end(ch)
}

func (s *Stack) healthURL() string { return "http://" + s.health + "/readyz" }

// controllerKubeconfig writes a kubeconfig with a fresh token of the controller's ServiceAccount.
func (s *Stack) controllerKubeconfig(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return "", err
	}
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	response, err := client.CoreV1().ServiceAccounts(systemNamespace).
		CreateToken(ctx, controllerName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token of ServiceAccount %s/%s, which controller/config/rbac must define: %w",
			systemNamespace, controllerName, err)
	}
	if response.Status.Token == "" {
		return "", errors.New("the API server answered a token request with an empty token")
	}
	path := s.kubeconfig(controllerName)
	user := &clientcmdapi.AuthInfo{Token: response.Status.Token}
	return path, writeKubeconfig(path, s.Server, s.pki.pairs[idCA].certPEM, controllerName, user)
}
