package region

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tags by which the books know what an instance was launched for. Plain strings: the region knows nothing of who sets them.
const (
	tagClaim    = "gpufleet.dev/nodeclaim"
	tagClaimUID = "gpufleet.dev/nodeclaim-uid"
)

// Instance states of EC2.
const (
	statePending      = "pending"
	stateRunning      = "running"
	stateShuttingDown = "shutting-down"
	stateTerminated   = "terminated"
)

// consoleLines is how much of a console is kept: its end.
const consoleLines = 200

// Instance is one row of the books, as GET /v1/instances returns it. Rows are never removed.
type Instance struct {
	ID           string `json:"id"`
	Claim        string `json:"claim"`
	ClaimUID     string `json:"claimUID"`
	Token        string `json:"token"`
	Type         string `json:"type"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// State is pending, running, shutting-down or terminated; StateReason says why it ended.
	State       string `json:"state"`
	StateReason string `json:"stateReason,omitempty"`
	// Node is the name of the Node that the machine registered; empty while it has not.
	Node         string            `json:"node"`
	PrivateDNS   string            `json:"privateDNSName"`
	Tags         map[string]string `json:"tags"`
	Launched     time.Time         `json:"launched"`
	Running      *time.Time        `json:"running"`
	ShuttingDown *time.Time        `json:"shuttingDown"`
	Terminated   *time.Time        `json:"terminated"`
	// PricePerHour and Dollars are the region's own bill: seconds in state running, at least 60.
	PricePerHour float64 `json:"pricePerHour"`
	Dollars      float64 `json:"dollars"`
	// Console is what the machine said, a line each, the last 200.
	Console string `json:"console"`
}

// stateReason is why an instance ended. EC2 begins the message with the code.
type stateReason struct{ Code, Message string }

// instance is one machine: what was asked, which never changes, and where it stands, which books.mu guards.
type instance struct {
	launch
	id, reservation, address string
	seq                      int
	kind                     instanceType
	launched                 time.Time

	state                             string
	reason                            *stateReason
	node                              string
	running, shuttingDown, terminated *time.Time
	console                           []string

	// end is closed when the machine is to end.
	end chan struct{}
}

func (i *instance) privateDNS() string {
	return "ip-" + strings.ReplaceAll(i.address, ".", "-") + ".ec2.internal"
}

// books is everything that the region ever sold.
type books struct {
	// mu guards the rows' changing half and that a token names one instance in a zone.
	mu     sync.Mutex
	rows   []*instance
	byID   map[string]*instance
	tokens map[string]*instance
}

func newBooks() *books {
	return &books{byID: map[string]*instance{}, tokens: map[string]*instance{}}
}

// find returns a copy of one row.
func (b *books) find(id string) (instance, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row, ok := b.byID[id]
	if !ok {
		return instance{}, false
	}
	return *row, true
}

// all returns a copy of every row, oldest first.
func (b *books) all() []instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]instance, len(b.rows))
	for i, row := range b.rows {
		out[i] = *row
	}
	return out
}

// start moves a pending instance to running; false: it was ended before.
func (b *books) start(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.byID[id]
	if row.state != statePending {
		return false
	}
	row.state, row.running = stateRunning, now()
	return true
}

// shutDown begins the end of an instance, and does nothing to one that is ending. It returns the states before and after.
func (b *books) shutDown(id string, why stateReason) (before, after string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row, found := b.byID[id]
	if !found {
		return "", "", false
	}
	before = row.state
	if before == statePending || before == stateRunning {
		row.state, row.reason, row.shuttingDown = stateShuttingDown, &why, now()
		close(row.end)
	}
	return before, row.state, true
}

func (b *books) terminate(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.byID[id]
	row.state, row.terminated = stateTerminated, now()
}

func (b *books) joined(id, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byID[id].node = node
}

// say adds a line to a machine's console, unless it was the last one: what is tried for ever is said once.
func (b *books) say(id, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.byID[id]
	if n := len(row.console); n == 0 || row.console[n-1] != line {
		// A copy: whoever read the row before keeps what it read.
		row.console = append(slices.Clone(row.console[max(0, n+1-consoleLines):]), line)
	}
}

func now() *time.Time {
	t := time.Now().UTC()
	return &t
}

// row tells an instance as the admin port does.
func (i *instance) row(at time.Time) Instance {
	out := Instance{
		ID: i.id, Claim: i.tags[tagClaim], ClaimUID: i.tags[tagClaimUID], Token: i.token,
		Type: i.typeName, Zone: i.subnet.Zone, CapacityType: i.capacityType,
		State: i.state, Node: i.node, PrivateDNS: i.privateDNS(), Tags: i.tags,
		Launched: i.launched, Running: i.running, ShuttingDown: i.shuttingDown, Terminated: i.terminated,
		PricePerHour: i.kind.price(i.capacityType), Dollars: i.dollars(at),
		Console: strings.Join(i.console, "\n"),
	}
	if i.reason != nil {
		out.StateReason = i.reason.Message
	}
	return out
}

// dollars is what the instance has cost so far. EC2 bills Linux by the second in state running, at least 60 seconds
// (https://aws.amazon.com/ec2/pricing/on-demand/).
func (i *instance) dollars(at time.Time) float64 {
	if i.running == nil {
		return 0
	}
	if i.shuttingDown != nil {
		at = *i.shuttingDown
	}
	seconds := math.Max(60, math.Ceil(at.Sub(*i.running).Seconds()))
	return seconds / 3600 * i.kind.price(i.capacityType)
}
