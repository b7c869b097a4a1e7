package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// What a pool and a node may have of our series at most, each exclusively.
const (
	seriesOfAPool = 200
	seriesOfANode = 20
)

// series is one line of the metrics endpoint: a histogram is as many as it has buckets, and two more.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	seriesLine = regexp.MustCompile(`^(gpufleet_\w+)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// ourSeries scrapes the series of ours.
func ourSeries(ctx context.Context, url string) ([]series, error) {
	text, err := request(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	var all []series
	for line := range strings.Lines(string(text)) {
		found := seriesLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		one := series{name: found[1], labels: map[string]string{}}
		for _, pair := range labelPair.FindAllStringSubmatch(found[2], -1) {
			one.labels[pair[1]] = pair[2]
		}
		if one.value, err = strconv.ParseFloat(found[3], 64); err != nil {
			return nil, fmt.Errorf("reading %q: %w", line, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// heldPods is how many pods the controller says that limits hold back.
func heldPods(ctx context.Context, running *stack.Stack) (int, error) {
	all, err := ourSeries(ctx, running.MetricsURL)
	if err != nil {
		return 0, err
	}
	held := 0.0
	for _, one := range all {
		if one.name == "gpufleet_pool_held_pods" && one.labels["reason"] == "LimitReached" {
			held += one.value
		}
	}
	return int(held), nil
}

// checkSeries wants few series of each pool, and few that name a node.
func (c crowd) checkSeries(ctx context.Context, running *stack.Stack, api client.Client) error {
	all, err := ourSeries(ctx, running.MetricsURL)
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := api.List(ctx, nodes); err != nil {
		return err
	}
	ofPools, ofNodes := map[string]int{}, map[string]int{}
	for i := range nodes.Items {
		ofNodes[nodes.Items[i].Name] = 0
	}
	for _, one := range all {
		for label, value := range one.labels {
			if label == "pool" {
				ofPools[value]++
			}
			if _, isNode := ofNodes[value]; isNode {
				ofNodes[value]++
			}
		}
	}
	ofPool, ofNode := slices.Max(slices.Collect(maps.Values(ofPools))), slices.Max(slices.Collect(maps.Values(ofNodes)))
	say("series gpufleet_*: %d in all, at most %d of a pool (of %d pools), at most %d of a node (of %d nodes)", len(all), ofPool, len(ofPools), ofNode, len(ofNodes))
	if len(ofPools) < c.pools || len(ofNodes) != c.nodes() {
		return fmt.Errorf("series of %d pools and %d nodes were looked at, want %d and %d", len(ofPools), len(ofNodes), c.pools, c.nodes())
	}
	if ofPool >= seriesOfAPool || ofNode >= seriesOfANode {
		return fmt.Errorf("a pool has %d series and a node %d; fewer than %d and %d are promised", ofPool, ofNode, seriesOfAPool, seriesOfANode)
	}
	return nil
}

// settling bounds how long what happened before may go on: each of the pods is told once why it waits, a hundred a second.
const settling = 5 * time.Minute

// repeated are events of Karpenter core, by reason, that it sends again and again while pods wait. They are counted and
// shown, and break no promise of ours.
var repeated = map[string]string{
	"NoCompatibleInstanceTypes": "on each NodePool that is full, once a minute",
	"FailedScheduling":          "on each pod that waits, every five minutes",
}

// checkSilence wants a minute in which the controller writes nothing, once it has said all there is to say. Counted is
// each request to the API server of the controller's ServiceAccount with verb create, update, patch or delete, whatever
// came of it, by the audit log; leases are left out.
func checkSilence(ctx context.Context, running *stack.Stack) error {
	log := running.AuditLog()
	if err := awaitCalm(ctx, log); err != nil {
		return err
	}
	began := time.Now()
	if err := stack.Pause(ctx, minute); err != nil {
		return err
	}
	ours, cores, err := writesSince(log, began)
	if err != nil {
		return err
	}
	say("writes of the controller in a quiet minute: %s; beside them core repeats %s", inWords(ours), inWords(cores))
	if len(ours) > 0 {
		return fmt.Errorf("nothing changed for a minute, and the controller wrote: %s", inWords(ours))
	}
	return nil
}

// awaitCalm waits until nothing was written for ten seconds.
func awaitCalm(ctx context.Context, log string) error {
	for began := time.Now(); time.Since(began) < settling; {
		lately := time.Now()
		if err := stack.Pause(ctx, 10*time.Second); err != nil {
			return err
		}
		ours, cores, err := writesSince(log, lately)
		if err != nil || len(ours) == 0 {
			return err
		}
		say("not calm yet, in ten seconds: %s; core repeats %s", inWords(ours), inWords(cores))
	}
	return fmt.Errorf("the controller went on writing for %s", settling)
}

// writesSince counts the writes that came since then, by what was written: those that are ours, and what core repeats.
func writesSince(log string, then time.Time) (ours, cores map[string]int, err error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ours, cores = map[string]int{}, map[string]int{}
	reasons := map[string]string{} // of events, by name: a patch, which counts an event once more, does not repeat it
	for lines := json.NewDecoder(file); lines.More(); {
		var entry auditEntry
		if err := lines.Decode(&entry); errors.Is(err, io.ErrUnexpectedEOF) {
			break // a line that is being written
		} else if err != nil {
			return nil, nil, fmt.Errorf("reading %s: %w", log, err)
		}
		event := entry.Object.Namespace + "/" + entry.Object.Name
		if entry.Request.Reason != "" {
			reasons[event] = entry.Request.Reason
		}
		if entry.Received.Before(then) || entry.Object.Resource == "leases" {
			continue
		}
		if _, is := repeated[reasons[event]]; is && entry.Object.Resource == "events" {
			cores[entry.words(reasons[event])]++
		} else {
			ours[entry.words(reasons[event])]++
		}
	}
	return ours, cores, nil
}

// auditEntry is what is read of an audit.k8s.io/v1 Event.
type auditEntry struct {
	Verb     string    `json:"verb"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Object   struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	// Request is there of events that are created.
	Request struct {
		Reason string `json:"reason"`
	} `json:"requestObject"`
}

// words say what was written; the reason is an event's.
func (e auditEntry) words(reason string) string {
	out := e.Verb + " " + e.Object.Resource
	if e.Object.Subresource != "" {
		out += "/" + e.Object.Subresource
	}
	if e.Object.Resource == "events" {
		out += " " + reason
	}
	return out
}

func inWords(counts map[string]int) string {
	if len(counts) == 0 {
		return "nothing"
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d x %s", counts[what], what))
	}
	return strings.Join(out, ", ")
}
