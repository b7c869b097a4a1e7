package region

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// pluginEvery is how often the device plugin looks at the machine again when nothing woke it.
	pluginEvery = 2 * time.Second
	// labelDevicePluginConfig chooses the configuration of a node (NVIDIA/k8s-device-plugin, README).
	labelDevicePluginConfig = "nvidia.com/device-plugin.config"
	// taintUnregistered is Karpenter core's: NVIDIA's DaemonSet does not tolerate it.
	taintUnregistered = "karpenter.sh/unregistered"
)

// devicePlugin stands in for NVIDIA's device plugin on one machine, and for the kubelet that passes on what it advertises.
type devicePlugin struct {
	m *machine
	// seen is the digest of what the last answer was computed from, and counts that answer.
	seen   [sha256.Size]byte
	counts map[string]int64
	// advertised are the resources ever advertised: one that is no longer there is set to 0, as the kubelet does.
	advertised map[string]bool
}

// runDevicePlugin keeps the Node's extended resources as this machine's NVML and the Node's configuration have them.
func (m *machine) runDevicePlugin(ctx context.Context) {
	if m.region.cfg.DevicePluginBinary == "" {
		m.say("device plugin: this region was given no device plugin binary")
		return
	}
	wake, unsubscribe := m.region.cluster.wakes.subscribe(m.node)
	defer unsubscribe()
	p := &devicePlugin{m: m, advertised: map[string]bool{}}
	for ctx.Err() == nil {
		if err := p.once(ctx); err != nil && ctx.Err() == nil {
			m.say("device plugin: %v", err)
		}
		wait(ctx, pluginEvery, wake)
	}
}

func (p *devicePlugin) once(ctx context.Context) error {
	node, err := p.m.region.cluster.nodes.Get(p.m.node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if hasTaint(node, taintUnregistered, corev1.TaintEffectNoExecute) {
		return nil
	}
	config, err := p.config(node)
	if err != nil {
		return err
	}
	if err := p.ask(ctx, config); err != nil {
		return err
	}
	return p.advertise(ctx, node)
}

// config is the configuration that the Node's label chooses.
func (p *devicePlugin) config(node *corev1.Node) (string, error) {
	key := node.Labels[labelDevicePluginConfig]
	if key == "" {
		return "", fmt.Errorf("node %s has no label %s: no configuration to run with", node.Name, labelDevicePluginConfig)
	}
	configMap, err := p.m.region.cluster.configMaps.Get(devicePluginConfigMap)
	if err != nil {
		return "", fmt.Errorf("read ConfigMap %s: %w", devicePluginConfigMap, err)
	}
	config, ok := configMap.Data[key]
	if !ok {
		return "", fmt.Errorf("ConfigMap %s has no key %q, which node %s asks for", devicePluginConfigMap, key, node.Name)
	}
	return config, nil
}

// ask runs the plugin, unless configuration and machine are as they were when it last answered.
func (p *devicePlugin) ask(ctx context.Context, config string) error {
	state, err := os.ReadFile(p.m.statePath())
	if err != nil {
		return fmt.Errorf("read the machine's NVML state: %w", err)
	}
	seen := sha256.Sum256(append(append([]byte(config), 0), state...))
	if p.counts != nil && seen == p.seen {
		return nil
	}
	path := filepath.Join(p.m.dir, "device-plugin.yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return fmt.Errorf("write its configuration: %w", err)
	}
	var stdout, stderr bytes.Buffer
	cmd := p.m.program(ctx, &stderr, p.m.region.cfg.DevicePluginBinary, "--nvml-library", p.m.region.cfg.NVMLLibrary, "--config", path)
	cmd.Stdout = &stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if warning := strings.TrimSpace(stderr.String()); warning != "" {
		p.m.say("device plugin: %s", warning)
	}
	var counts map[string]int64
	if err := json.Unmarshal(stdout.Bytes(), &counts); err != nil {
		return fmt.Errorf("read its answer %q: %w", stdout.String(), err)
	}
	p.seen, p.counts = seen, counts
	return nil
}

// advertise patches the Node where it differs from the plugin's answer.
func (p *devicePlugin) advertise(ctx context.Context, node *corev1.Node) error {
	want := p.resources()
	if holds(node.Status.Capacity, want) && holds(node.Status.Allocatable, want) {
		return nil
	}
	if err := p.m.region.cluster.patchResources(ctx, node.Name, want); err != nil {
		return fmt.Errorf("advertise: %w", err)
	}
	p.m.say("device plugin: advertises %s", describe(want))
	return nil
}

// resources is the answer under the names that a fault may give, with 0 for what was advertised before and is not now.
func (p *devicePlugin) resources() corev1.ResourceList {
	renamed, isRenamed := fault[renameResource](p.m.region.faults, faultRenameResource)
	out := corev1.ResourceList{}
	for name := range p.advertised {
		out[corev1.ResourceName(name)] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	for name, n := range p.counts {
		if isRenamed && name == renamed.From {
			name = renamed.To
		}
		p.advertised[name] = true
		out[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return out
}

func holds(have, want corev1.ResourceList) bool {
	for name, quantity := range want {
		if found, ok := have[name]; !ok || found.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

func describe(list corev1.ResourceList) string {
	counts := map[string]int64{}
	for name, quantity := range list {
		counts[string(name)] = quantity.Value()
	}
	// A map of strings to numbers always marshals, and with sorted keys.
	text, _ := json.Marshal(counts)
	return string(text)
}
