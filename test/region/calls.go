package region

import (
	"cmp"
	"slices"
	"sync"
)

// Call is how often an operation was answered with a code, as GET /v1/calls returns it. Code is OK or the error's.
type Call struct {
	Operation string `json:"operation"`
	Code      string `json:"code"`
	Count     int    `json:"count"`
}

const codeOK = "OK"

// calls counts what the region answered.
type calls struct {
	// mu guards counts.
	mu     sync.Mutex
	counts map[Call]int
}

func newCalls() *calls { return &calls{counts: map[Call]int{}} }

func (c *calls) count(operation, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[Call{Operation: operation, Code: code}]++
}

func (c *calls) all() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Call{}
	for call, n := range c.counts {
		call.Count = n
		out = append(out, call)
	}
	slices.SortFunc(out, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Code, b.Code))
	})
	return out
}
