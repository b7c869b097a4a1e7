package region

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// devicePluginConfigMap holds the device plugins' configurations, a key each.
const devicePluginConfigMap = "gpufleet-device-plugin"

// syncDeadline bounds the first list of Nodes.
const syncDeadline = 30 * time.Second

// cluster is the Kubernetes cluster that machines join. The region is its administrator, where it plays somebody who is
// one: the cloud-controller-manager, and the service account of NVIDIA's device plugin.
type cluster struct {
	config     *rest.Config
	admin      kubernetes.Interface
	nodes      corelisters.NodeLister
	configMaps corelisters.ConfigMapNamespaceLister
	wakes      *wakes
}

// connect starts the watches; they end with life.
func connect(life, start context.Context, kubeconfig, namespace string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the certificates of kubeconfig %s: %w", kubeconfig, err)
	}
	// One process plays many kubelets: client-go's default of 5 a second is for one.
	config.QPS, config.Burst = 200, 400
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	c := &cluster{config: config, admin: admin, wakes: newWakes()}
	return c, c.watch(life, start, namespace)
}

func (c *cluster) watch(life, start context.Context, namespace string) error {
	all := informers.NewSharedInformerFactory(c.admin, 0)
	nodes := all.Core().V1().Nodes()
	named := informers.NewSharedInformerFactoryWithOptions(c.admin, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", devicePluginConfigMap).String()
		}))
	configMaps := named.Core().V1().ConfigMaps()
	if _, err := nodes.Informer().AddEventHandler(c.wakes.onNode()); err != nil {
		return fmt.Errorf("watch Nodes: %w", err)
	}
	synced := []cache.InformerSynced{nodes.Informer().HasSynced, configMaps.Informer().HasSynced}
	c.nodes, c.configMaps = nodes.Lister(), configMaps.Lister().ConfigMaps(namespace)
	all.Start(life.Done())
	named.Start(life.Done())
	start, cancel := context.WithTimeout(start, syncDeadline)
	defer cancel()
	if !cache.WaitForCacheSync(start.Done(), synced...) {
		return fmt.Errorf("%s did not list its Nodes within %s", c.config.Host, syncDeadline)
	}
	return nil
}

// as is a client with a kubelet's identity.
func (c *cluster) as(node string) (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:node:" + node,
		Groups:   []string{"system:nodes", "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of node %s: %w", node, err)
	}
	return client, nil
}

// admits says why a machine with this configuration cannot reach the cluster or would not be let in.
func (c *cluster) admits(config *nodeConfigSpec, profile string) error {
	if got, want := strings.TrimSuffix(config.Cluster.APIServerEndpoint, "/"), strings.TrimSuffix(c.config.Host, "/"); got != want {
		return fmt.Errorf("kubelet: dial %s: no API server answers there; the cluster's is %s", got, want)
	}
	if !bytes.Equal(bytes.TrimSpace(config.Cluster.CertificateAuthority), bytes.TrimSpace(c.config.CAData)) {
		return errors.New("kubelet: x509: certificate signed by unknown authority: spec.cluster.certificateAuthority is not the cluster's")
	}
	if profile == "" {
		return errors.New("kubelet: Unauthorized: the instance has no IAM instance profile, so it has no credentials for the cluster")
	}
	return nil
}

// patchResources sets extended resources in a Node's capacity and allocatable, with the kubelet's identity.
func (c *cluster) patchResources(ctx context.Context, name string, counts corev1.ResourceList) error {
	kubelet, err := c.as(name)
	if err != nil {
		return err
	}
	status := map[string]any{"status": map[string]any{"capacity": counts, "allocatable": counts}}
	patch, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("resources of node %s: %w", name, err)
	}
	_, err = kubelet.CoreV1().Nodes().PatchStatus(ctx, name, patch)
	return err
}

// wakes tells machines that their Node changed, so that nobody has to poll.
type wakes struct {
	// mu guards channels.
	mu       sync.Mutex
	channels map[string]map[chan struct{}]bool
}

func newWakes() *wakes { return &wakes{channels: map[string]map[chan struct{}]bool{}} }

// subscribe returns a channel that receives after each change of a Node; changes that nobody took yet are one.
func (w *wakes) subscribe(node string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan struct{}, 1)
	if w.channels[node] == nil {
		w.channels[node] = map[chan struct{}]bool{}
	}
	w.channels[node][ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.channels[node], ch)
		if len(w.channels[node]) == 0 {
			delete(w.channels, node)
		}
	}
}

func (w *wakes) wake(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.channels[node.Name] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (w *wakes) onNode() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    w.wake,
		UpdateFunc: func(_, obj any) { w.wake(obj) },
		DeleteFunc: w.wake,
	}
}
