package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/notify"
)

// decode reads an object as its Go type, and fails on a field that the type does not have.
func decode[T runtime.Object](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	decoded, _, err := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	typed, ok := decoded.(T)
	if !ok {
		t.Fatalf("%s %s is a %T", object.GetKind(), object.GetName(), decoded)
	}
	return typed
}

// key names an object.
func key(object *unstructured.Unstructured) string {
	return strings.Trim(object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName(), "/")
}

func keys(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, each := range objects {
		all = append(all, key(each))
	}
	slices.Sort(all)
	return all
}

func TestRender_MakesWhatItSaysAndDecodesStrictly(t *testing.T) {
	rights := append(shipped(t, "rbac/*.yaml"), shipped(t, "admission/*.yaml")...)
	always := append(keys(rights),
		"Deployment gpufleet-system/gpufleet-controller", "DaemonSet gpufleet-system/gpufleet-agent",
		"PodDisruptionBudget gpufleet-system/gpufleet-controller", "Service gpufleet-system/gpufleet-controller-metrics",
	)
	for _, tc := range []struct {
		name string
		args []string
		more []string
	}{
		{"defaults", required, nil},
		{"everything", everything, []string{
			"ConfigMap gpufleet-system/gpufleet-dashboard", "ConfigMap gpufleet-system/gpufleet-notifications",
			"PodMonitor gpufleet-system/gpufleet-controller", "PrometheusRule gpufleet-system/gpufleet",
		}},
		{"where the Prometheus operator is", append(required, "--api-versions", "monitoring.coreos.com/v1"), []string{
			"PodMonitor gpufleet-system/gpufleet-controller", "PrometheusRule gpufleet-system/gpufleet",
		}},
		{"where it is and is not wanted", append(required, "--api-versions", "monitoring.coreos.com/v1",
			"--set", "podMonitor.enabled=false,prometheusRule.enabled=false"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := render(t, tc.args...)
			want := append(slices.Clone(always), tc.more...)
			slices.Sort(want)
			if diff := cmp.Diff(want, keys(objects)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			for _, each := range objects {
				if each.GroupVersionKind().Group != "monitoring.coreos.com" {
					decode[runtime.Object](t, each)
				}
				if got := each.GetLabels()["app.kubernetes.io/managed-by"]; got != "Helm" {
					t.Errorf("%s: app.kubernetes.io/managed-by is %q", key(each), got)
				}
			}
		})
	}
}

// The rights are written in one place, controller/config, where the tests of the whole apply them from.
func TestRights_AreThoseOfConfig(t *testing.T) {
	for _, args := range [][]string{required, everything} {
		rendered := render(t, args...)
		for _, want := range append(shipped(t, "rbac/*.yaml"), shipped(t, "admission/*.yaml")...) {
			got := one(t, rendered, want.GetKind(), want.GetName())
			got.SetLabels(nil)
			if got.GetKind() == "ServiceAccount" {
				got.SetAnnotations(nil)
			}
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("%s (-controller/config +chart):\n%s", key(want), diff)
			}
		}
	}
}

func TestServiceAccount_OfTheControllerAloneHasTheAnnotations(t *testing.T) {
	objects := render(t, everything...)
	want := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/gpufleet"}
	if got := one(t, objects, "ServiceAccount", v1alpha1.ControllerName).GetAnnotations(); !cmp.Equal(got, want) {
		t.Errorf("the controller's annotations: %v, want %v", got, want)
	}
	if got := one(t, objects, "ServiceAccount", v1alpha1.AgentName).GetAnnotations(); got != nil {
		t.Errorf("the agent's annotations: %v, want none: it never meets the cloud", got)
	}
}

func TestCRDs_AreThoseOfConfig(t *testing.T) {
	want := append(shipped(t, "crd/*.yaml"), shipped(t, "crd/karpenter/*.yaml")...)
	var got []*unstructured.Unstructured
	for _, each := range render(t, append(required, "--include-crds")...) {
		if each.GetKind() == "CustomResourceDefinition" {
			got = append(got, each)
		}
	}
	if diff := cmp.Diff(keys(want), keys(got)); diff != "" {
		t.Fatalf("CRDs (-controller/config +chart):\n%s", diff)
	}
	for _, each := range want {
		if diff := cmp.Diff(each.Object, one(t, got, each.GetKind(), each.GetName()).Object); diff != "" {
			t.Errorf("%s (-controller/config +chart):\n%s", each.GetName(), diff)
		}
	}
}

// podMonitor is what of a PodMonitor we write; its Go types are not among our modules.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

func TestSelectors_FindThePodsThatTheyMean(t *testing.T) {
	for _, args := range [][]string{append(required, "--set", "podMonitor.enabled=true"), everything} {
		objects := render(t, args...)
		deployment := decode[*appsv1.Deployment](t, one(t, objects, "Deployment", "gpufleet-controller"))
		daemonSet := decode[*appsv1.DaemonSet](t, one(t, objects, "DaemonSet", "gpufleet-agent"))
		service := decode[*corev1.Service](t, one(t, objects, "Service", "gpufleet-controller-metrics"))
		budget := decode[*policyv1.PodDisruptionBudget](t, one(t, objects, "PodDisruptionBudget", "gpufleet-controller"))
		var monitor podMonitor
		if err := yaml.UnmarshalStrict([]byte(text(t, one(t, objects, "PodMonitor", "gpufleet-controller"))), &monitor); err != nil {
			t.Fatal(err)
		}
		controller, agent := labels.Set(deployment.Spec.Template.Labels), labels.Set(daemonSet.Spec.Template.Labels)
		selectors := map[string]*metav1.LabelSelector{
			"Deployment": deployment.Spec.Selector, "PodDisruptionBudget": budget.Spec.Selector, "PodMonitor": &monitor.Spec.Selector,
			"Service": {MatchLabels: service.Spec.Selector},
		}
		for i, spread := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			selectors[fmt.Sprintf("topologySpreadConstraints[%d]", i)] = spread.LabelSelector
		}
		for name, each := range selectors {
			selector, err := metav1.LabelSelectorAsSelector(each)
			if err != nil || selector.Empty() || !selector.Matches(controller) || selector.Matches(agent) {
				t.Errorf("%s selects %s (%v): want pods with %s and not those with %s", name, selector, err, controller, agent)
			}
		}
		if selector, err := metav1.LabelSelectorAsSelector(daemonSet.Spec.Selector); err != nil || !selector.Matches(agent) || selector.Matches(controller) {
			t.Errorf("DaemonSet selects %s (%v): want pods with %s and not those with %s", selector, err, agent, controller)
		}
		ports := map[string]bool{}
		for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
			ports[port.Name] = true
		}
		if port := monitor.Spec.PodMetricsEndpoints[0].Port; !ports[port] {
			t.Errorf("the PodMonitor scrapes port %q, the pod has %v", port, ports)
		}
		if port := service.Spec.Ports[0].TargetPort.StrVal; !ports[port] {
			t.Errorf("the Service leads to port %q, the pod has %v", port, ports)
		}
	}
}

func text(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	out, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// C40: a taint that keeps away what must clear it is waited for without end.
func TestC40_TheAgentToleratesEveryTaintAndNothingCanTakeThatAway(t *testing.T) {
	for _, args := range [][]string{required, everything} {
		pod := decode[*appsv1.DaemonSet](t, one(t, render(t, args...), "DaemonSet", "gpufleet-agent")).Spec.Template.Spec
		if want := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}; !cmp.Equal(pod.Tolerations, want) {
			t.Errorf("tolerations %v, want %v", pod.Tolerations, want)
		}
	}
	if _, err := template(t, append(required, "--set", "agent.tolerations[0].key=a")...); err == nil || !strings.Contains(err.Error(), "tolerations") {
		t.Errorf("agent.tolerations: error %v, want that there is no such value", err)
	}
}

func TestAgent_IsOnTheNodesOfPoolsAndReachesTheirNVML(t *testing.T) {
	pod := decode[*appsv1.DaemonSet](t, one(t, render(t, everything...), "DaemonSet", "gpufleet-agent")).Spec.Template.Spec
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	want := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelPool, Operator: corev1.NodeSelectorOpExists}}}}
	if diff := cmp.Diff(want, terms); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	container := pod.Containers[0]
	if env := container.Env[0]; env.Name != "NODE_NAME" || env.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("environment %v: the agent would not know its node", container.Env)
	}
	library := argument(t, container.Args, "nvml-library")
	if got := onNode(t, pod, library); got != "/run/nvidia/driver/usr/lib64/libnvidia-ml.so" {
		t.Errorf("--nvml-library=%s is %s on the node", library, got)
	}
	if got := onNode(t, pod, "/dev/nvidia0"); got != "/dev/nvidia0" {
		t.Errorf("/dev/nvidia0 is %s on the node", got)
	}
}

// onNode is where a path of the first container is on the node.
func onNode(t *testing.T, pod corev1.PodSpec, path string) string {
	t.Helper()
	for _, mount := range pod.Containers[0].VolumeMounts {
		rest, below := strings.CutPrefix(path, mount.MountPath+"/")
		if !below {
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name == mount.Name && volume.HostPath != nil {
				return filepath.Join(volume.HostPath.Path, rest)
			}
		}
	}
	t.Fatalf("%s is not on the node", path)
	return ""
}

func argument(t *testing.T, args []string, flag string) string {
	t.Helper()
	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, "--"+flag+"="); found {
			return value
		}
	}
	t.Fatalf("no --%s in %v", flag, args)
	return ""
}

// The mains are read as text: a test cannot import them.
func TestFlags_AreThoseOfTheBinaries(t *testing.T) {
	objects := render(t, everything...)
	deployment := decode[*appsv1.Deployment](t, one(t, objects, "Deployment", "gpufleet-controller"))
	daemonSet := decode[*appsv1.DaemonSet](t, one(t, objects, "DaemonSet", "gpufleet-agent"))
	for _, tc := range []struct {
		main string
		args []string
	}{
		{"controller", deployment.Spec.Template.Spec.Containers[0].Args},
		{"agent", daemonSet.Spec.Template.Spec.Containers[0].Args},
	} {
		var source strings.Builder
		files, err := filepath.Glob(filepath.Join(root, "controller", "cmd", tc.main, "*.go"))
		if err != nil || len(tc.args) == 0 {
			t.Fatalf("%s: args %v, %v", tc.main, tc.args, err)
		}
		for _, file := range files {
			source.WriteString(read(t, file))
		}
		for _, arg := range tc.args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !regexp.MustCompile(`Var\([^,]+, "` + name + `",`).MatchString(source.String()) {
				t.Errorf("%s has no flag --%s", tc.main, name)
			}
		}
	}
}

func TestNotifications_AreReadByTheController(t *testing.T) {
	objects := render(t, everything...)
	pod := decode[*appsv1.Deployment](t, one(t, objects, "Deployment", "gpufleet-controller")).Spec.Template.Spec
	config := decode[*corev1.ConfigMap](t, one(t, objects, "ConfigMap", "gpufleet-notifications"))
	path := argument(t, pod.Containers[0].Args, "notifications-config")
	if mount := mountOf(t, pod, path); mount.ConfigMap == nil || mount.ConfigMap.Name != config.Name {
		t.Fatalf("%s is mounted from %+v", path, mount)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(file, []byte(config.Data[filepath.Base(path)]), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := notify.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := notify.Config{Webhooks: []notify.Webhook{
		{
			Name: "gpu-oncall", Format: notify.FormatSlack, URLFile: "/etc/gpufleet/notifications/secrets/gpu-oncall/url",
			Reasons: []string{"LimitReached", "Other"}, Pools: []string{"inference"}, MinHeld: 300e9, Repeat: 0,
		},
		{
			Name: "audit", Format: notify.FormatGeneric, URLFile: "/etc/gpufleet/notifications/secrets/audit/url",
			MinHeld: notify.DefaultMinHeld, Repeat: notify.DefaultRepeat,
		},
	}}
	if diff := cmp.Diff(want, loaded); diff != "" {
		t.Errorf("what the controller reads (-want +got):\n%s", diff)
	}
	secrets := map[string]string{}
	for _, webhook := range loaded.Webhooks {
		projected := mountOf(t, pod, webhook.URLFile).Projected
		for _, source := range projected.Sources {
			for _, item := range source.Secret.Items {
				if strings.HasSuffix(webhook.URLFile, "/"+item.Path) {
					secrets[webhook.Name] = source.Secret.Name + ", " + item.Key
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"gpu-oncall": "gpu-oncall-webhook, slack-url", "audit": "audit, url"}, secrets); diff != "" {
		t.Errorf("Secret and key of each URL (-want +got):\n%s", diff)
	}
}

// mountOf is the volume that a path of the first container lies in.
func mountOf(t *testing.T, pod corev1.PodSpec, path string) corev1.VolumeSource {
	t.Helper()
	for _, mount := range pod.Containers[0].VolumeMounts {
		if !strings.HasPrefix(path, mount.MountPath+"/") {
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name == mount.Name {
				return volume.VolumeSource
			}
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return corev1.VolumeSource{}
}

func TestRender_RefusesWhatCannotBe(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no cluster", []string{"--set", "image.repository=r"}, "clusterName is missing"},
		{"no images", []string{"--set", "clusterName=c"}, "image.repository is missing"},
		{"another namespace", append(required, "--namespace", "default"), "gpufleet-system"},
		{"a value that there is not", append(required, "--set", "controler.replicas=3"), "controler"},
		{"a value of another type", append(required, "--set", "controller.replicas=many"), "controller/replicas"},
		{"a reason that there is not", append(everything, "--set", "notifications[0].reasons[0]=LimitReachd"), "notifications/0/reasons/0"},
		{"a webhook's URL", append(everything, "--set", "notifications[0].url=https://hooks.example.com/secret"), "url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := template(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that names %s", err, tc.want)
			}
		})
	}
}
