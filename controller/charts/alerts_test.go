package charts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// rules are a file of Prometheus rules.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert         string            `json:"alert,omitempty"`
	Record        string            `json:"record,omitempty"`
	Expr          string            `json:"expr"`
	For           string            `json:"for,omitempty"`
	KeepFiringFor string            `json:"keep_firing_for,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file rules
	if err := yaml.UnmarshalStrict([]byte(read(t, chart+"/files/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func TestAlerts_OneForEachReasonThatSaysItAndWhatToDo(t *testing.T) {
	all := alerts(t)
	for _, reason := range v1alpha1.HoldReasons {
		at := slices.IndexFunc(all, func(r rule) bool { return r.Alert == "GPUFleet"+reason.Name })
		if at < 0 {
			t.Errorf("no alert GPUFleet%s", reason.Name)
			continue
		}
		said := all[at].Annotations["summary"] + all[at].Annotations["description"]
		for _, want := range []string{reason.Name, reason.Summary, reason.Remedy, "kubectl gpufleet explain pool {{ . }}"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s does not say %q: %s", all[at].Alert, want, said)
			}
		}
		if want := fmt.Sprintf("reason=%q", reason.Name); strings.Count(all[at].Expr, want) != 2 {
			t.Errorf("%s looks at something else than %s: %s", all[at].Alert, want, all[at].Expr)
		}
	}
}

func TestAlerts_EachHasASeverityANameOfItsOwnAndACommand(t *testing.T) {
	names := map[string]bool{}
	for _, each := range alerts(t) {
		if names[each.Alert] || !strings.HasPrefix(each.Alert, "GPUFleet") {
			t.Errorf("alert %q: want a name of its own that begins with GPUFleet", each.Alert)
		}
		names[each.Alert] = true
		if severity := each.Labels["severity"]; !slices.Contains([]string{"info", "warning", "critical"}, severity) {
			t.Errorf("%s: severity %q", each.Alert, severity)
		}
		if each.For == "" || each.Annotations["summary"] == "" || !strings.Contains(each.Annotations["description"], "\nNext: ") {
			t.Errorf("%s: for %q, annotations %v", each.Alert, each.For, each.Annotations)
		}
	}
}

func TestPrometheusRule_IsTheFile(t *testing.T) {
	var file any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/files/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	rendered := one(t, render(t, everything...), "PrometheusRule", "gpufleet")
	if diff := cmp.Diff(file, rendered.Object["spec"]); diff != "" {
		t.Errorf("spec (-file +chart):\n%s", diff)
	}
}

func TestDashboard_IsTheFile(t *testing.T) {
	rendered := one(t, render(t, everything...), "ConfigMap", "gpufleet-dashboard")
	var file, got any
	if err := json.Unmarshal([]byte(read(t, chart+"/files/dashboard.json")), &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(rendered.Object["data"].(map[string]any)["gpufleet.json"].(string)), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, got); diff != "" {
		t.Errorf("dashboard (-file +chart):\n%s", diff)
	}
	if label := rendered.GetLabels()["grafana_dashboard"]; label != "1" {
		t.Errorf("label grafana_dashboard is %q: the sidecar would not find it", label)
	}
}

// expressions are all that the chart and the example ask Prometheus, by where it stands.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, each := range alerts(t) {
		all["alert "+each.Alert] = each.Expr
		for name, text := range each.Annotations {
			for i, query := range asked(text) {
				all[fmt.Sprintf("alert %s, %s, query %d", each.Alert, name, i)] = query
			}
		}
	}
	var dashboard any
	if err := json.Unmarshal([]byte(read(t, chart+"/files/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for path, expr := range find(dashboard, "dashboard", "expr") {
		all[path] = filled.Replace(expr)
	}
	for path, variable := range find(dashboard, "dashboard", "definition") {
		all[path] = labelValues.ReplaceAllString(variable, "sum by ($2) ($1)")
	}
	examples := map[string]string{"scaledobject.yaml": read(t, root+"/examples/keda/scaledobject.yaml")}
	for i, block := range yamlBlock.FindAllStringSubmatch(read(t, root+"/templates/guides/alerts.md.tmpl"), -1) {
		examples[fmt.Sprintf("alerts.md, block %d", i)] = block[1]
	}
	for name, text := range examples {
		var example any
		if err := yaml.Unmarshal([]byte(text), &example); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, field := range []string{"query", "metricsQuery", "seriesQuery"} {
			for path, expr := range find(example, name, field) {
				all[path+"."+field] = expr
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d expressions were found: the test would prove nothing", len(all))
	}
	return all
}

// yamlBlock is one of a guide.
var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// labelValues is how a variable of Grafana asks for the values of a label.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// filled replaces Grafana's variables.
var filled = strings.NewReplacer("$__rate_interval", "5m", "$pool", ".*")

// asked are the queries in a template of Prometheus, with something for each place that printf fills.
func asked(text string) []string {
	var all []string
	for _, pattern := range []string{`printf "((?:[^"\\]|\\.)*)" [^|]*\| query`, `query "((?:[^"\\]|\\.)*)"`} {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, strings.ReplaceAll(found[1], "%q", `"x"`))
		}
	}
	return all
}

// find returns every text that stands under a name, by its path.
func find(value any, path, name string) map[string]string {
	all := map[string]string{}
	switch value := value.(type) {
	case map[string]any:
		for key, each := range value {
			if text, ok := each.(string); ok && key == name {
				all[path] = text
			}
			for path, text := range find(each, path+"."+key, name) {
				all[path] = text
			}
		}
	case []any:
		for i, each := range value {
			for path, text := range find(each, fmt.Sprintf("%s[%d]", path, i), name) {
				all[path] = text
			}
		}
	}
	return all
}

// others are metrics that are not ours: controller-runtime's, and in the example kube-state-metrics' and the
// application's own.
var others = []string{"leader_election_master_status", "kube_deployment_status_replicas", "http_requests_total"}

// Of a metric's name that is wrong Prometheus only says that there is no data.
func TestExpressions_AskForMetricsAndLabelsThatThereAre(t *testing.T) {
	labels := map[string][]string{}
	for _, metric := range metrics.All {
		labels[metric.Name] = metric.Labels
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			labels[metric.Name+suffix] = append([]string{"le"}, metric.Labels...)
		}
	}
	metric := regexp.MustCompile(`\b([a-z]+(?:_[a-z0-9]+)+)\b(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	by := regexp.MustCompile(`\bby \(([^)]*)\)`)
	asked := map[string]bool{}
	for place, expr := range expressions(t) {
		known := []string{"name"}
		for _, found := range metric.FindAllStringSubmatch(functions.ReplaceAllString(expr, "("), -1) {
			name, selector := found[1], found[2]
			if slices.Contains(others, name) {
				continue
			}
			has, ours := labels[name]
			if !ours {
				t.Errorf("%s: there is no metric %s", place, name)
				continue
			}
			asked[name] = true
			known = append(known, has...)
			for _, label := range matcher.FindAllStringSubmatch(selector, -1) {
				if !slices.Contains(has, label[1]) {
					t.Errorf("%s: %s has no label %s, only %v", place, name, label[1], has)
				}
			}
		}
		for _, list := range by.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(list[1], ", ") {
				if !slices.Contains(known, label) {
					t.Errorf("%s: it groups by %s, which none of its metrics has", place, label)
				}
			}
		}
	}
	for _, each := range metrics.All {
		if !asked[each.Name] && !asked[each.Name+"_bucket"] {
			t.Errorf("%s is neither in an alert nor on the dashboard", each.Name)
		}
	}
}

// functions are PromQL's functions, which look like metrics, and lists of labels.
var functions = regexp.MustCompile(`\b[a-z_]+\(|\b(by|on|without|ignoring) \([^)]*\)`)

func TestExpressions_Parse(t *testing.T) {
	places := expressions(t)
	var file rules
	file.Groups = append(file.Groups, struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}{Name: "expressions"})
	var said []string
	for place := range places {
		said = append(said, place)
	}
	slices.Sort(said)
	for i, place := range said {
		file.Groups[0].Rules = append(file.Groups[0].Rules, rule{Record: fmt.Sprintf("expression:%d", i), Expr: places[place]})
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", path); err != nil {
		t.Errorf("%s\nin\n%s", out, text)
	}
}

// promtool is built without what discovers targets: the SDKs of ten clouds.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "-modfile=" + root + "/internal/tools/go.mod",
		"-tags=remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
