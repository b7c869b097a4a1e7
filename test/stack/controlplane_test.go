package stack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const deadline = 30 * time.Second

// TestControlPlane is one stage for all its cases: starting one takes seconds.
func TestControlPlane(t *testing.T) {
	if err := stack.BuildControlPlane(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	cp, err := stack.StartControlPlane(t.Context(), stack.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("serves the version that it was built from", func(t *testing.T) {
		version, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36" {
			t.Errorf("the server says %s (%s.%s), want v1.36.3 (1.36)", version.GitVersion, version.Major, version.Minor)
		}
	})
	t.Run("a fake node becomes Ready and a pod that asks for its slices runs there", func(t *testing.T) {
		createNode(t, client, "gpu-node")
		eventually(t, "the node to be Ready and untainted", func(ctx context.Context) error { return nodeReady(ctx, client, "gpu-node") })
		createPod(t, client, "fits", 56)
		eventually(t, "the pod to run", func(ctx context.Context) error {
			return podPhase(ctx, client, "fits", corev1.PodRunning)
		})
	})
	t.Run("the real scheduler refuses a pod that does not fit and says why", func(t *testing.T) {
		createPod(t, client, "one-too-many", 1)
		eventually(t, "the scheduler's refusal", func(ctx context.Context) error { return unschedulable(ctx, client, "one-too-many") })
	})
	t.Run("installs what the product ships", func(t *testing.T) {
		if err := cp.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cp.Install(t.Context()); err != nil {
			t.Errorf("a second installation is an error: %v", err)
		}
		resources, err := client.Discovery().ServerResourcesForGroupVersion("gpufleet.dev/v1alpha1")
		if err != nil {
			t.Fatal(err)
		}
		if len(resources.APIResources) == 0 {
			t.Error("no resources in gpufleet.dev/v1alpha1")
		}
	})
	t.Run("every component listens on loopback and says where its log is", func(t *testing.T) { checkComponents(t, cp) })
	t.Run("Stop leaves no process", func(t *testing.T) {
		pids := pidsOf(cp.Components())
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
		for name, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%s (pid %d) is still there: %v", name, pid, err)
			}
		}
	})
}

func TestControlPlane_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cp, err := stack.StartControlPlane(ctx, stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cp.Stop(); err != nil { // waits for the stop that the context began
		t.Fatal(err)
	}
	for name, pid := range pidsOf(cp.Components()) {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (pid %d) is still there: %v", name, pid, err)
		}
	}
	if _, err := os.Stat(cp.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory %s is still there: %v", cp.Dir, err)
	}
}

func TestControlPlane_SaysWhichProcessDied(t *testing.T) {
	cp, err := stack.StartControlPlane(t.Context(), stack.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pidsOf(cp.Components())["kwok"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cp.Died():
		if !strings.Contains(err.Error(), "kwok") || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("the death of kwok is told as %q", err)
		}
	case <-time.After(deadline):
		t.Errorf("nobody told of kwok's death within %s", deadline)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
}

func checkComponents(t *testing.T, cp *stack.ControlPlane) {
	t.Helper()
	want := map[string]bool{"etcd": true, "kube-apiserver": true, "kube-controller-manager": true, "kube-scheduler": true, "kwok": true}
	for _, c := range cp.Components() {
		delete(want, c.Name)
		if !strings.Contains(c.URL, "://127.0.0.1:") {
			t.Errorf("%s listens on %s, want 127.0.0.1", c.Name, c.URL)
		}
		if err := stack.Healthy(t.Context(), c.Health); err != nil {
			t.Errorf("%s is not healthy: %v", c.Name, err)
		}
		if _, err := os.Stat(c.Log); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("components not listed: %v", want)
	}
}

func pidsOf(components []stack.Component) map[string]int {
	pids := map[string]int{}
	for _, c := range components {
		pids[c.Name] = c.PID
	}
	return pids
}

// gpuResources are what the node of these tests offers.
func gpuResources() corev1.ResourceList {
	return corev1.ResourceList{
		"cpu": resource.MustParse("192"), "memory": resource.MustParse("2Ti"), "pods": resource.MustParse("110"),
		"nvidia.com/mig-1g.10gb": resource.MustParse("56"),
	}
}

func createNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Status:     corev1.NodeStatus{Capacity: gpuResources(), Allocatable: gpuResources()},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, client kubernetes.Interface, name string, slices int64) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.com/inference",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				"nvidia.com/mig-1g.10gb": *resource.NewQuantity(slices, resource.DecimalSI)}},
		}}},
	}
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func nodeReady(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("conditions %v, taints %v", node.Status.Conditions, node.Spec.Taints)
}

func podPhase(ctx context.Context, client kubernetes.Interface, name string, want corev1.PodPhase) error {
	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.Status.Phase != want {
		return fmt.Errorf("the pod is %s, want %s", pod.Status.Phase, want)
	}
	return nil
}

func unschedulable(ctx context.Context, client kubernetes.Interface, name string) error {
	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable &&
			strings.Contains(c.Message, "Insufficient nvidia.com/mig-1g.10gb") {
			return nil
		}
	}
	return fmt.Errorf("conditions %v", pod.Status.Conditions)
}

// eventually waits for a condition with a deadline.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v; the last answer: %v", what, err, last)
	}
}
