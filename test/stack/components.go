package stack

import (
	"path/filepath"
	"strconv"
)

// serviceCIDR is the cluster's service range. Machines need it in their boot configuration.
const serviceCIDR = "10.96.0.0/16"

// part is one program of the control plane's binary: what it is started with and where it answers.
type part struct {
	name   string
	args   []string
	url    string
	health string
}

type controlPlanePorts struct {
	etcd, etcdPeer, apiserver, controllerManager, scheduler, kwok int
}

func newControlPlanePorts() (controlPlanePorts, error) {
	p, err := freePorts(6)
	if err != nil {
		return controlPlanePorts{}, err
	}
	return controlPlanePorts{p[0], p[1], p[2], p[3], p[4], p[5]}, nil
}

// etcd keeps nothing that must outlive the stack, so it does not wait for the disk.
func (cp *ControlPlane) etcd() part {
	client, peer := "http://"+loopback(cp.ports.etcd), "http://"+loopback(cp.ports.etcdPeer)
	return part{name: "etcd", url: client, health: "/health", args: []string{
		"--name", "local", "--data-dir", filepath.Join(cp.Dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "local=" + peer,
	}}
}

// apiserver runs with every default admission plugin. Its endpoint reconciler is off because the kubernetes service may
// not point to a loopback address.
func (cp *ControlPlane) apiserver() part {
	return part{name: "kube-apiserver", url: cp.Server, health: "/readyz", args: append(cp.auditFlags(),
		"--etcd-servers", "http://"+loopback(cp.ports.etcd),
		"--bind-address", "127.0.0.1", "--secure-port", port(cp.ports.apiserver), "--advertise-address", "127.0.0.1",
		"--endpoint-reconciler-type", "none", "--service-cluster-ip-range", serviceCIDR,
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged=true",
		"--client-ca-file", cp.pki.cert(idCA),
		"--tls-cert-file", cp.pki.cert(idAPIServer), "--tls-private-key-file", cp.pki.key(idAPIServer),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", cp.pki.cert(idServiceAccounts),
		"--service-account-signing-key-file", cp.pki.key(idServiceAccounts),
		"--requestheader-client-ca-file", cp.pki.cert(idFrontProxyCA),
		"--requestheader-allowed-names", "front-proxy-client",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--proxy-client-cert-file", cp.pki.cert(idFrontProxy), "--proxy-client-key-file", cp.pki.key(idFrontProxy),
	)}
}

func (cp *ControlPlane) controllerManager() part {
	flags := append(cp.clientFlags(idControllerManager, cp.ports.controllerManager),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file", cp.pki.key(idServiceAccounts), "--root-ca-file", cp.pki.cert(idCA),
		"--cluster-signing-cert-file", cp.pki.cert(idCA), "--cluster-signing-key-file", cp.pki.key(idCA))
	return part{name: idControllerManager, url: "https://" + loopback(cp.ports.controllerManager), health: "/healthz", args: flags}
}

func (cp *ControlPlane) scheduler() part {
	return part{name: idScheduler, url: "https://" + loopback(cp.ports.scheduler), health: "/healthz",
		args: cp.clientFlags(idScheduler, cp.ports.scheduler)}
}

// clientFlags are what the controller manager and the scheduler have in common. There is one of each: nothing to elect.
func (cp *ControlPlane) clientFlags(id string, securePort int) []string {
	kubeconfig := cp.kubeconfig(id)
	return []string{
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", port(securePort),
		"--leader-elect=false", "--kube-api-qps", "200", "--kube-api-burst", "400",
	}
}

// kwok takes --server-address: with --node-port alone it would listen on every interface.
func (cp *ControlPlane) kwok(stages string) part {
	return part{name: "kwok", url: "http://" + loopback(cp.ports.kwok), health: "/healthz", args: []string{
		"--kubeconfig", cp.Kubeconfig, "--config", stages,
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake",
		"--node-lease-duration-seconds", "40", "--cidr", "10.244.0.0/16", "--node-ip", "127.0.0.1",
		"--server-address", loopback(cp.ports.kwok),
	}}
}

func port(n int) string { return strconv.Itoa(n) }
