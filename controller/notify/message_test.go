package notify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// examples are the notices of the guide: a hold, and its end.
func examples() (held, ended message) {
	t := newTopic(full("inference", 60), began.Add(20*time.Second))
	t.latest.GPUs = 9
	t.hear(t.latest, began.Add(12*time.Minute))
	held = t.message(beginning, "prod")
	t.tell(beginning, began.Add(12*time.Minute))
	t.hear(free("inference"), began.Add(3*time.Hour+12*time.Minute))
	return held, t.message(ending, "prod")
}

func slackText(t *testing.T, m message) string {
	t.Helper()
	body, err := writers[FormatSlack](m)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(body, &got); err != nil || len(got) != 1 {
		t.Fatalf("%v: %s; want one field text", err, body)
	}
	return got["text"]
}

func TestGeneric_HasAllFieldsAlways(t *testing.T) {
	held, ended := examples()
	for _, tc := range []struct {
		m    message
		want string
	}{
		{held, `{"id":"` + held.ID + `","status":"held","reminder":0,"cluster":"prod","pool":"inference","workload":"Inference",` +
			`"reason":"LimitReached","pods":60,"gpus":9,"since":"2026-11-29T12:00:00Z","time":"2026-11-29T12:12:00Z",` +
			`"message":"limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods",` +
			`"remedy":"raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone",` +
			`"command":"kubectl gpufleet explain pool inference"}`},
		{ended, `{"id":"` + ended.ID + `","status":"ended","reminder":0,"cluster":"prod","pool":"inference","workload":"Inference",` +
			`"reason":"LimitReached","pods":0,"gpus":0,"since":"2026-11-29T12:00:00Z","time":"2026-11-29T15:12:00Z",` +
			`"message":"no limit of the pool holds a waiting pod back any more","remedy":"","command":"kubectl gpufleet explain pool inference"}`},
	} {
		body, err := writers[FormatGeneric](tc.m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, string(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.m.Status, diff)
		}
	}
	if len(held.ID) != 32 || held.ID == ended.ID {
		t.Errorf("ids %q and %q, want two of 32 characters", held.ID, ended.ID)
	}
}

func TestTimes_AreInUTC(t *testing.T) {
	abroad := full("inference", 1)
	abroad.Since = began.In(time.FixedZone("abroad", 2*3600))
	body, err := writers[FormatGeneric](newTopic(abroad, began).message(beginning, "prod"))
	if err != nil || !strings.Contains(string(body), `"since":"2026-11-29T12:00:00Z"`) {
		t.Errorf("%v: %s", err, body)
	}
}

func TestSlack_IsReadable(t *testing.T) {
	held, ended := examples()
	reminded := held
	reminded.Reminder, reminded.Pods, reminded.GPUs, reminded.Time = 1, 1, 1, began.Add(4*time.Hour)
	bare := message{Status: statusEnded, Cluster: "prod", Pool: "inference", Workload: "Inference", Reason: "Other", Since: began, Time: began.Add(time.Hour)}
	for _, tc := range []struct {
		name string
		m    message
		want []string
	}{
		{"held", held, []string{
			"*Pods are held:* pool inference (Inference), cluster prod",
			"LimitReached: 60 pods, 9 GPUs, waiting for 12m",
			"limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods",
			"What would free them: raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone",
			"Run next: `kubectl gpufleet explain pool inference`",
		}},
		{"reminded", reminded, []string{
			"*Pods are still held:* pool inference (Inference), cluster prod",
			"LimitReached: 1 pod, 1 GPU, waiting for 4h",
			"limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods",
			"What would free them: raise the limit in limits of the GPUNodePool, or wait until a machine of the pool is gone",
			"Run next: `kubectl gpufleet explain pool inference`",
		}},
		{"ended", ended, []string{
			"*Pods are no longer held:* pool inference (Inference), cluster prod",
			"LimitReached, after 3h12m",
			"no limit of the pool holds a waiting pod back any more",
		}},
		{"ended, with nothing more to say", bare, []string{
			"*Pods are no longer held:* pool inference (Inference), cluster prod",
			"Other, after 60m",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Join(tc.want, "\n"), slackText(t, tc.m)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// What others wrote can neither mention a channel, nor pretend to be a link, nor look like a line of ours.
func TestSlack_EscapesWhatOthersWrote(t *testing.T) {
	hostile := "<!channel> & <https://evil.example|log in here>\n*Pods are no longer held:* a\r\nRun next: `rm -rf`"
	held, _ := examples()
	clean := strings.Count(slackText(t, held), "\n")
	for name, field := range map[string]*string{
		"message": &held.Message, "remedy": &held.Remedy, "command": &held.Command, "pool": &held.Pool, "workload": &held.Workload,
		"cluster": &held.Cluster, "reason": &held.Reason,
	} {
		t.Run(name, func(t *testing.T) {
			before := *field
			*field = hostile
			defer func() { *field = before }()
			text := slackText(t, held)
			if strings.ContainsAny(text, "<>\r") || !strings.Contains(text, "&lt;!channel&gt; &amp; &lt;https://evil.example|log in here&gt;") {
				t.Errorf("not escaped: %s", text)
			}
			if n := strings.Count(text, "\n"); n != clean {
				t.Errorf("%d lines, want %d: %s", n+1, clean+1, text)
			}
		})
	}
	held.Command = "a`b"
	if text := slackText(t, held); !strings.HasSuffix(text, "Run next: `a'b`") {
		t.Errorf("a command ends its own markup: %s", text)
	}
}

func TestCut_LeavesWholeCharacters(t *testing.T) {
	for _, text := range []string{"", strings.Repeat("a", longestText), strings.Repeat("a", longestText+1), strings.Repeat("é", longestText), strings.Repeat("a", longestText-4) + "éééé"} {
		got := cut(text)
		if len(got) > longestText || !utf8.ValidString(got) || len(text) <= longestText && got != text {
			t.Errorf("a text of %d bytes is cut to %d, valid %t", len(text), len(got), utf8.ValidString(got))
		}
	}
}

func readRoot(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The guide is what people build on: it shows what is sent, and the example that can be loaded.
func TestGuide_ShowsWhatIs(t *testing.T) {
	guide := readRoot(t, "templates", "guides", "notifications.md")
	held, ended := examples()
	body, err := json.MarshalIndent(held, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"the JSON of a hold":       string(body),
		"Slack's text of a hold":   slackText(t, held),
		"Slack's text of its end":  slackText(t, ended),
		"the example file":         readRoot(t, "examples", "notifications", "config.yaml"),
		"the metric":               metrics.Notifications.Name,
		"the default of minHeld":   "`1m`",
		"the default of repeat":    "`4h`",
		"the controller's own pod": v1alpha1.Namespace,
	} {
		if !strings.Contains(guide, want) {
			t.Errorf("the guide lacks %s:\n%s", what, want)
		}
	}
	doc := readRoot(t, "controller", "notify", "doc.go")
	for field := range reflect.TypeFor[message]().Fields() {
		name := field.Tag.Get("json")
		if !strings.Contains(guide, "| `"+name+"` |") || !strings.Contains(doc, "\n//\t"+name+" ") {
			t.Errorf("the guide or doc.go does not say what %s is", name)
		}
	}
	for field := range reflect.TypeFor[entry]().Fields() {
		if name := field.Tag.Get("json"); !strings.Contains(guide, "| `"+name+"` |") {
			t.Errorf("the guide does not say what %s is", name)
		}
	}
	for _, reason := range v1alpha1.HoldReasons {
		if !strings.Contains(guide, "`"+reason.Name+"`") {
			t.Errorf("the guide does not name %s", reason.Name)
		}
	}
	if _, err := Load(filepath.Join("..", "..", "examples", "notifications", "config.yaml")); err != nil {
		t.Errorf("the example: %v", err)
	}
}
