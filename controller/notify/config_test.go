package notify

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

func TestLoad_ReadsWebhooksAndDefaults(t *testing.T) {
	got, err := load(t, `
webhooks:
  - name: oncall
    format: slack
    urlFile: /etc/gpufleet/notifications/oncall
    reasons: [LimitReached, QuotaExceeded]
    pools: [inference]
    minHeld: 90s
    repeat: 0s
  - name: audit
    format: generic
    urlFile: /etc/gpufleet/notifications/audit
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Webhooks: []Webhook{
		{Name: "oncall", Format: FormatSlack, URLFile: "/etc/gpufleet/notifications/oncall",
			Reasons: []string{"LimitReached", "QuotaExceeded"}, Pools: []string{"inference"}, MinHeld: 90 * time.Second},
		{Name: "audit", Format: FormatGeneric, URLFile: "/etc/gpufleet/notifications/audit", MinHeld: time.Minute, Repeat: 4 * time.Hour},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestLoad_OfNoFileIsNone(t *testing.T) {
	got, err := Load("")
	if diff := cmp.Diff(Config{}, got); err != nil || diff != "" {
		t.Errorf("error %v, read (-want +got):\n%s", err, diff)
	}
}

func TestLoad_SaysWhatIsWrong(t *testing.T) {
	const fine = "webhooks:\n  - {name: oncall, format: slack, urlFile: /u}\n"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{"names no webhook"}},
		{"an empty list", "webhooks: []", []string{"names no webhook"}},
		{"no YAML", "webhooks: [", []string{"yaml"}},
		{"not a list", "webhooks: 5", []string{"webhooks"}},
		{"an unknown field at the top", fine + "secrets: []\n", []string{`unknown field "secrets"`}},
		{"a URL in place", "webhooks:\n  - {name: oncall, format: slack, url: 'https://hooks.example.com/s3cr3t'}\n", []string{`unknown field "url"`, "urlFile"}},
		{"a URL for a file", "webhooks:\n  - {name: oncall, format: slack, urlFile: 'https://hooks.example.com/s3cr3t'}\n", []string{"webhooks[0] (oncall): urlFile is itself a URL"}},
		{"a URL for a name", "webhooks:\n  - {name: 'https://hooks.example.com/s3cr3t', format: slack, urlFile: /u}\n", []string{"webhooks[0]: name: want 1 to 63 lower-case letters"}},
		{"a field twice", "webhooks:\n  - {name: oncall, name: b, format: slack, urlFile: /u}\n", []string{"name"}},
		{"no name", "webhooks:\n  - {format: slack, urlFile: /u}\n", []string{"webhooks[0]: name: want"}},
		{"no format", "webhooks:\n  - {name: oncall, urlFile: /u}\n", []string{`webhooks[0] (oncall): format "": want generic or slack`}},
		{"an unknown format", "webhooks:\n  - {name: oncall, format: Slack, urlFile: /u}\n", []string{`format "Slack": want generic or slack`}},
		{"no file", "webhooks:\n  - {name: oncall, format: slack}\n", []string{"urlFile is missing: name the file that holds the URL"}},
		{"an unknown reason", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, reasons: [LimitReached, Limit]}\n",
			[]string{`reason "Limit": want one of Gated, `, v1alpha1.HoldLimitReached + ", ", v1alpha1.HoldOther}},
		{"an empty pool", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, pools: ['']}\n", []string{"pools: one is empty"}},
		{"no duration", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, minHeld: soon}\n", []string{`webhooks[0] (oncall): minHeld "soon": want a duration such as 90s`}},
		{"a negative duration", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, minHeld: -1s}\n", []string{"minHeld -1s: want 0s or more"}},
		{"a storm", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, repeat: 4s}\n", []string{"repeat 4s: want at least 1m0s, or 0s for no reminders"}},
		{"a negative repeat", "webhooks:\n  - {name: oncall, format: slack, urlFile: /u, repeat: -4h}\n", []string{"repeat -4h0m0s: want at least 1m0s"}},
		{"one name twice", fine + "  - {name: oncall, format: generic, urlFile: /v}\n", []string{"webhooks[1] (oncall): webhooks[0] has the same name"}},
		{"all that is wrong", "webhooks:\n  - {name: a, format: x}\n  - {name: b, format: z, urlFile: /u}\n", []string{`webhooks[0] (a): format "x"`, "webhooks[0] (a): urlFile is missing", `webhooks[1] (b): format "z"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.text)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(tc.want, "config.yaml") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("the error holds the URL: %v", err)
			}
		})
	}
	if _, err := load(t, fine); err != nil {
		t.Errorf("what the cases above begin with is refused: %v", err)
	}
	if _, err := Load("/nowhere/config.yaml"); err == nil || !strings.Contains(err.Error(), "/nowhere/config.yaml") {
		t.Errorf("error %v of a file that is not there", err)
	}
}

func TestLoad_NamesEveryFieldThatThereIs(t *testing.T) {
	for field := range reflect.TypeFor[entry]().Fields() {
		if name := field.Tag.Get("json"); !strings.Contains(shape, name) {
			t.Errorf("%q does not name %s", shape, name)
		}
	}
}
