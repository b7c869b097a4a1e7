package notify

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Format is how a notice is written.
type Format string

// Formats.
const (
	FormatGeneric Format = "generic"
	FormatSlack   Format = "slack"
)

// Defaults of a webhook.
const (
	DefaultMinHeld = time.Minute
	DefaultRepeat  = 4 * time.Hour
)

// shortestRepeat keeps a typing error from becoming a storm.
const shortestRepeat = time.Minute

// Config is who is told of what. With no webhook nobody is.
type Config struct {
	Webhooks []Webhook
}

// Webhook is one receiver.
type Webhook struct {
	// Name stands in logs and metrics: lower-case letters, digits and dashes.
	Name   string
	Format Format
	// URLFile names the file that holds the URL, and nothing else.
	URLFile string
	// Reasons and Pools are those that it hears of; empty is all.
	Reasons, Pools []string
	// MinHeld is how long a hold lasts before it is told of, and how long it is over before that is.
	MinHeld time.Duration
	// Repeat is how often it is told of a hold that lasts; 0 is once.
	Repeat time.Duration
}

// file is the configuration as it is written.
type file struct {
	Webhooks []entry `json:"webhooks"`
}

// entry is a webhook as it is written. Durations are read by hand, so that an error can name the webhook.
type entry struct {
	Name    string   `json:"name"`
	Format  Format   `json:"format"`
	URLFile string   `json:"urlFile"`
	Reasons []string `json:"reasons"`
	Pools   []string `json:"pools"`
	MinHeld *string  `json:"minHeld"`
	Repeat  *string  `json:"repeat"`
}

// shape says what can be written.
const shape = "want webhooks, a list of name, format, urlFile, reasons, pools, minHeld and repeat"

// Load reads a configuration: YAML, with nothing in it that is not known. An empty path is none.
func Load(path string) (Config, error) {
	if path == "" {
		return Config{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration of notifications: %w", err)
	}
	config, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("configuration of notifications %s: %w", path, err)
	}
	return config, nil
}

func parse(data []byte) (Config, error) {
	var written file
	if err := yaml.UnmarshalStrict(data, &written); err != nil {
		return Config{}, fmt.Errorf("%w: %s", err, shape)
	}
	if len(written.Webhooks) == 0 {
		return Config{}, errors.New("it names no webhook: list them under webhooks, or give no configuration to have no notifications")
	}
	var config Config
	for i, each := range written.Webhooks {
		minHeld, errMinHeld := readDuration("minHeld", each.MinHeld, DefaultMinHeld)
		repeat, errRepeat := readDuration("repeat", each.Repeat, DefaultRepeat)
		if err := errors.Join(errMinHeld, errRepeat); err != nil {
			return Config{}, fmt.Errorf("%s: %w", place(i, each.Name), err)
		}
		config.Webhooks = append(config.Webhooks, Webhook{
			Name: each.Name, Format: each.Format, URLFile: each.URLFile, Reasons: each.Reasons, Pools: each.Pools,
			MinHeld: minHeld, Repeat: repeat,
		})
	}
	return config, config.validate()
}

func readDuration(field string, written *string, otherwise time.Duration) (time.Duration, error) {
	if written == nil {
		return otherwise, nil
	}
	read, err := time.ParseDuration(*written)
	if err != nil {
		return 0, fmt.Errorf("%s %q: want a duration such as 90s, 5m or 4h", field, *written)
	}
	return read, nil
}

// nameable is what a webhook may be called: a URL is not, so that none gets into logs and metrics as a name.
var nameable = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// place says which webhook is meant, by its name only where that is one.
func place(i int, name string) string {
	if !nameable.MatchString(name) {
		return fmt.Sprintf("webhooks[%d]", i)
	}
	return fmt.Sprintf("webhooks[%d] (%s)", i, name)
}

// validate returns all that is wrong.
func (c Config) validate() error {
	var all []error
	seen := map[string]int{}
	for i, each := range c.Webhooks {
		for _, err := range each.faults() {
			all = append(all, fmt.Errorf("%s: %w", place(i, each.Name), err))
		}
		if first, twice := seen[each.Name]; twice && each.Name != "" {
			all = append(all, fmt.Errorf("%s: webhooks[%d] has the same name: each needs its own", place(i, each.Name), first))
		} else {
			seen[each.Name] = i
		}
	}
	return errors.Join(all...)
}

func (w Webhook) faults() []error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !nameable.MatchString(w.Name) {
		add("name: want 1 to 63 lower-case letters, digits and dashes, such as gpu-oncall")
	}
	if _, known := writers[w.Format]; !known {
		add("format %q: want %s or %s", w.Format, FormatGeneric, FormatSlack)
	}
	switch {
	case w.URLFile == "":
		add("urlFile is missing: name the file that holds the URL, mounted from a Secret")
	case strings.Contains(w.URLFile, "://"):
		add("urlFile is itself a URL: a URL is a secret, put it into a file and name that (and make a new one, if others have seen this)")
	}
	for _, reason := range w.Reasons {
		if v1alpha1.PrecedenceOf(reason) == len(v1alpha1.HoldReasons) {
			add("reason %q: want one of %s", reason, strings.Join(reasonNames(), ", "))
		}
	}
	if slices.Contains(w.Pools, "") {
		add("pools: one is empty: name GPUNodePools, or leave pools out to hear of all")
	}
	if w.MinHeld < 0 {
		add("minHeld %s: want 0s or more", w.MinHeld)
	}
	if w.Repeat != 0 && w.Repeat < shortestRepeat {
		add("repeat %s: want at least %s, or 0s for no reminders", w.Repeat, shortestRepeat)
	}
	return faults
}

func reasonNames() []string {
	names := make([]string, len(v1alpha1.HoldReasons))
	for i, each := range v1alpha1.HoldReasons {
		names[i] = each.Name
	}
	return names
}

// wants says whether a webhook hears of a reason of a pool.
func (w Webhook) wants(pool, reason string) bool {
	return (len(w.Pools) == 0 || slices.Contains(w.Pools, pool)) &&
		(len(w.Reasons) == 0 || slices.Contains(w.Reasons, reason))
}
