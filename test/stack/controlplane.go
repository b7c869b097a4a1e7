package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ControlPlane is a running Kubernetes control plane with KWOK in the kubelets' place. KWOK plays the nodes that carry
// the annotation kwok.x-k8s.io/node=fake; pods bound to them run at once.
type ControlPlane struct {
	// Dir holds everything: pki, etcd's data, kubeconfigs, logs.
	Dir string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Server is the API server's URL.
	Server string

	audit      bool
	root       string
	temporary  bool // Dir was made by us and goes with us
	pki        *pki
	config     *rest.Config
	ports      controlPlanePorts
	family     *family
	components []Component
	forget     func() bool // unties the stack from its context
	stopOnce   sync.Once
	stopErr    error
}

// Component is one running part of a stack, for people.
type Component struct {
	Name string `json:"name"`
	// PID is 0 for what runs inside the process that started the stack.
	PID int `json:"pid,omitempty"`
	// URL is where it listens, Health what answers 200 while it works.
	URL    string `json:"url"`
	Health string `json:"health,omitempty"`
	Log    string `json:"log"`
}

// Options says where and how a stack runs. The zero value is a stack in a temporary directory.
type Options struct {
	// Dir is the stack's directory. What an earlier stack left in it is removed first. Empty: a temporary directory,
	// removed on Stop.
	Dir string
	// BootDelay is how long an instance of the region takes to boot. Zero: at once.
	BootDelay time.Duration
	// LeaderElection lets the controller hold its lease, as in production. One that is started again after a kill then waits
	// until the lease of the first is over, about 15 s.
	LeaderElection bool
	// BareMachines join the cluster and run neither agent nor device plugin: a thousand of those are more than one machine
	// can run. Whoever starts the stack reports in their place.
	BareMachines bool
	// Audit lets the API server write a line for each write of the controller into the file that AuditLog names.
	Audit bool
}

// StartControlPlane starts the control plane alone, without the shipped manifests (see Install), the region and the
// controller. It ends on Stop or when the context ends. It needs what Build or BuildControlPlane builds.
func StartControlPlane(ctx context.Context, o Options) (*ControlPlane, error) {
	cp, err := startControlPlane(ctx, o)
	if err != nil {
		return nil, err
	}
	cp.forget = context.AfterFunc(ctx, func() { _ = cp.Stop() }) // whoever calls Stop gets the error
	return cp, nil
}

func startControlPlane(ctx context.Context, o Options) (*ControlPlane, error) {
	cp, err := newControlPlane(o)
	if err != nil {
		return nil, err
	}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

// newControlPlane lays out the directory and makes keys and kubeconfigs; nothing runs yet.
func newControlPlane(o Options) (*ControlPlane, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{Dir: o.Dir, audit: o.Audit, root: root, family: newFamily(), forget: func() bool { return false }}
	if cp.Dir == "" {
		cp.temporary = true
		if cp.Dir, err = os.MkdirTemp("", "gpufleet-stack-"); err != nil {
			return nil, fmt.Errorf("making the stack's directory: %w", err)
		}
	}
	if cp.Dir, err = filepath.Abs(cp.Dir); err != nil {
		return nil, fmt.Errorf("the stack's directory: %w", err)
	}
	if err := cp.prepare(); err != nil {
		return nil, errors.Join(err, cp.cleanUp())
	}
	return cp, nil
}

func (cp *ControlPlane) prepare() error {
	for _, dir := range []string{"pki", "etcd", "home", "logs", "region"} {
		path := filepath.Join(cp.Dir, dir)
		if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o755)); err != nil {
			return fmt.Errorf("laying out the stack's directory: %w", err)
		}
	}
	var err error
	if cp.ports, err = newControlPlanePorts(); err != nil {
		return err
	}
	if cp.pki, err = newPKI(filepath.Join(cp.Dir, "pki")); err != nil {
		return err
	}
	cp.Server = "https://" + loopback(cp.ports.apiserver)
	cp.Kubeconfig = cp.kubeconfig(idAdmin)
	for _, id := range []string{idAdmin, idControllerManager, idScheduler} {
		user := certificateUser(cp.pki.pairs[id])
		if err := writeKubeconfig(cp.kubeconfig(id), cp.Server, cp.pki.pairs[idCA].certPEM, id, user); err != nil {
			return err
		}
	}
	cp.config, err = clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		return err
	}
	cp.config.QPS, cp.config.Burst = 200, 400
	return nil
}

// start runs the components: etcd and the API server together, since the latter retries; the rest once it is ready.
func (cp *ControlPlane) start(ctx context.Context) error {
	stages := filepath.Join(cp.Dir, "kwok-stages.yaml")
	if err := cp.writeStages(ctx, stages); err != nil {
		return err
	}
	if cp.audit {
		if err := cp.writeAuditPolicy(); err != nil {
			return err
		}
	}
	if err := cp.run(cp.etcd(), cp.apiserver()); err != nil {
		return err
	}
	if err := cp.ready(ctx, "kube-apiserver"); err != nil {
		return err
	}
	if err := cp.run(cp.controllerManager(), cp.scheduler(), cp.kwok(stages)); err != nil {
		return err
	}
	if err := cp.ready(ctx, "kube-controller-manager", "kube-scheduler", "kwok"); err != nil {
		return err
	}
	return cp.defaultServiceAccount(ctx)
}

// run starts parts of the control plane's binary.
func (cp *ControlPlane) run(parts ...part) error {
	for _, p := range parts {
		log := cp.logPath(p.name)
		ch, err := cp.family.start(command{
			name: p.name, path: cp.built("controlplane"), args: append([]string{p.name}, p.args...), env: cp.childEnv(), log: log,
		})
		if err != nil {
			return err
		}
		cp.components = append(cp.components, Component{Name: p.name, PID: ch.pid, URL: p.url, Health: p.url + p.health, Log: log})
	}
	return nil
}

// ready waits until the named components say that they are.
func (cp *ControlPlane) ready(ctx context.Context, names ...string) error {
	for _, name := range names {
		for _, c := range cp.components {
			if c.Name != name {
				continue
			}
			check := func(ctx context.Context) error { return Healthy(ctx, c.Health) }
			if err := until(ctx, name+" to be ready", cp.family.died, check); err != nil {
				return err
			}
		}
	}
	return nil
}

// defaultServiceAccount waits for the last thing that a pod needs; the controller manager makes it.
func (cp *ControlPlane) defaultServiceAccount(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.config)
	if err != nil {
		return err
	}
	return until(ctx, "the default service account", cp.family.died, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// writeStages asks the control plane's binary for the stages that KWOK ships: the product's module does not know KWOK.
func (cp *ControlPlane) writeStages(ctx context.Context, path string) error {
	if _, err := os.Stat(cp.built("controlplane")); err != nil {
		return fmt.Errorf("the control plane is not built: %w; run make build, or call stack.Build", err)
	}
	stages, err := exec.CommandContext(ctx, cp.built("controlplane"), "kwok-stages").Output()
	if err != nil {
		return fmt.Errorf("asking for KWOK's stages: %w", err)
	}
	if err := os.WriteFile(path, stages, 0o644); err != nil {
		return fmt.Errorf("writing KWOK's stages: %w", err)
	}
	return nil
}

// Config is a client configuration with the administrator's rights.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.config) }

// Components lists what runs.
func (cp *ControlPlane) Components() []Component { return append([]Component(nil), cp.components...) }

// Died receives the first process that ended although nobody stopped it, with the end of its log.
func (cp *ControlPlane) Died() <-chan error { return cp.family.died }

// Stop ends everything in the reverse order, waits for it, and removes the directory if it was a temporary one. It may
// be called twice.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() {
		cp.forget()
		cp.stopErr = errors.Join(cp.family.stop(), cp.cleanUp())
	})
	return cp.stopErr
}

func (cp *ControlPlane) cleanUp() error {
	if !cp.temporary {
		return nil
	}
	return os.RemoveAll(cp.Dir)
}

// built is the path of a binary that Build makes.
func (cp *ControlPlane) built(name string) string { return filepath.Join(cp.root, binDir, name) }

func (cp *ControlPlane) logPath(name string) string {
	return filepath.Join(LogDir(cp.Dir), name+".log")
}

func (cp *ControlPlane) kubeconfig(name string) string {
	return filepath.Join(cp.Dir, name+".kubeconfig")
}

// childEnv is all the environment that a child gets.
func (cp *ControlPlane) childEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(cp.Dir, "home")}
}
