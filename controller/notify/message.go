package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Statuses of a notice.
const (
	statusHeld  = "held"
	statusEnded = "ended"
)

// message is a notice as it is sent. Its JSON is a promise: doc.go and templates/guides/notifications.md describe it.
type message struct {
	ID       string    `json:"id"`
	Status   string    `json:"status"`
	Reminder int       `json:"reminder"`
	Cluster  string    `json:"cluster"`
	Pool     string    `json:"pool"`
	Workload string    `json:"workload"`
	Reason   string    `json:"reason"`
	Pods     int       `json:"pods"`
	GPUs     int       `json:"gpus"`
	Since    time.Time `json:"since"`
	Time     time.Time `json:"time"`
	Message  string    `json:"message"`
	Remedy   string    `json:"remedy"`
	Command  string    `json:"command"`
}

// writers write a message in each format.
var writers = map[Format]func(message) ([]byte, error){
	FormatGeneric: func(m message) ([]byte, error) { return json.Marshal(m) },
	FormatSlack: func(m message) ([]byte, error) {
		return json.Marshal(struct {
			Text string `json:"text"`
		}{m.text()})
	},
}

// text is a message for people, in Slack's markup.
func (m message) text() string {
	where := fmt.Sprintf("pool %s (%s), cluster %s", plain(m.Pool), plain(m.Workload), plain(m.Cluster))
	lasted := duration.HumanDuration(m.Time.Sub(m.Since))
	var lines []string
	if m.Status == statusEnded {
		lines = []string{
			"*Pods are no longer held:* " + where,
			plain(m.Reason) + ", after " + lasted,
			plain(m.Message),
		}
	} else {
		still := ""
		if m.Reminder > 0 {
			still = "still "
		}
		lines = []string{
			"*Pods are " + still + "held:* " + where,
			fmt.Sprintf("%s: %s, %s, waiting for %s", plain(m.Reason), count(m.Pods, "pod"), count(m.GPUs, "GPU"), lasted),
			plain(m.Message),
			labelled("What would free them: ", plain(m.Remedy)),
			labelled("Run next: ", code(m.Command)),
		}
	}
	var said []string
	for _, line := range lines {
		if line != "" {
			said = append(said, line)
		}
	}
	return strings.Join(said, "\n")
}

func labelled(label, text string) string {
	if text == "" {
		return ""
	}
	return label + text
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// slackEscapes are the three characters that Slack's markup is made of
// (https://docs.slack.dev/messaging/formatting-message-text#escaping): with them escaped, a text of somebody else's can
// neither mention anyone nor pretend to be a link.
var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// plain is somebody else's text on one line, so that none can look like a line of ours.
func plain(text string) string {
	return slackEscapes.Replace(strings.Join(strings.Fields(text), " "))
}

func code(text string) string {
	if text = strings.ReplaceAll(plain(text), "`", "'"); text == "" {
		return ""
	}
	return "`" + text + "`"
}

// cut is a text of at most longestText bytes.
func cut(text string) string {
	const more = "..."
	if len(text) <= longestText {
		return text
	}
	end := longestText - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
