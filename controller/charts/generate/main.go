// Command generate writes what follows from the lists in the code: the chart's alerts, and the guides' tables of reasons
// and metrics. A reason or metric that is added is in them by that. It is run at the root of the repository.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// outputs is where each template's text goes.
var outputs = map[string]string{
	"alerts.yaml.tmpl": "controller/charts/gpufleet/files/alerts.yaml",
	"reasons.md.tmpl":  "templates/guides/reasons.md",
	"metrics.md.tmpl":  "templates/guides/metrics.md",
}

//go:embed *.tmpl
var templates embed.FS

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	for name, path := range outputs {
		text, err := render(name)
		if err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// hold is a reason with its alert.
type hold struct {
	v1alpha1.HoldReason
	Alert, Severity string
	// After is how long the first pod waits before it is worth an alert.
	After time.Duration
}

// Seconds is After as Prometheus compares it.
func (h hold) Seconds() int { return int(h.After / time.Second) }

// severities are those that are not a warning. Of a pool that launches nothing, and of pods that nobody can say anything
// about, somebody should know at night; that a queue is long is good to know.
var severities = map[string]string{
	v1alpha1.HoldGated:        "info",
	v1alpha1.HoldPoolNotReady: "critical",
	v1alpha1.HoldOther:        "critical",
}

// patience is how long is not long yet, where that is not five minutes. Pods are gated to queue.
var patience = map[string]time.Duration{v1alpha1.HoldGated: time.Hour}

func holds() []hold {
	var all []hold
	for _, reason := range v1alpha1.HoldReasons {
		each := hold{HoldReason: reason, Alert: "GPUFleet" + reason.Name, Severity: "warning", After: 5 * time.Minute}
		if severity, found := severities[reason.Name]; found {
			each.Severity = severity
		}
		if after, found := patience[reason.Name]; found {
			each.After = after
		}
		all = append(all, each)
	}
	return all
}

// refusals are outcomes of a launch that are reasons for a hold too, and have their alerts as such.
var refusals = []string{
	v1alpha1.HoldBudgetReached, v1alpha1.HoldLimitReached, v1alpha1.HoldReservationUnavailable,
	v1alpha1.HoldQuotaExceeded, v1alpha1.HoldNoCapacity,
}

// render fills in a template. Its actions stand in [[ ]], since {{ }} are those of Prometheus.
func render(name string) ([]byte, error) {
	parsed, err := template.New(name).Delims("[[", "]]").Funcs(template.FuncMap{
		"code":     func(texts []string) string { return "`" + strings.Join(texts, "`, `") + "`" },
		"duration": duration,
		"sentence": func(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." },
	}).ParseFS(templates, name)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]any{
		"Holds":     holds(),
		"Handled":   strings.Join(append([]string{metrics.ReasonLaunched}, refusals...), "|"),
		"Launched":  metrics.ReasonLaunched,
		"Metrics":   metrics.All,
		"Lease":     v1alpha1.ControllerName,
		"Namespace": v1alpha1.Namespace,
	})
	return text.Bytes(), err
}

// duration is a whole number of minutes or hours in words.
func duration(d time.Duration) string {
	if d%time.Hour == 0 && d >= time.Hour {
		return plural(int(d/time.Hour), "hour")
	}
	return plural(int(d/time.Minute), "minute")
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
