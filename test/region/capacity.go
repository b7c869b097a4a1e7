package region

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Capacity is how many machines of a type are left in a zone, bought one way, as GET and PUT /v1/capacity tell it.
// What is not listed is never short.
type Capacity struct {
	Type         string `json:"type"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	Free         int    `json:"free"`
}

// capacity counts what is left. A machine that ends gives its place back.
type capacity struct {
	// mu guards free, whose keys have no Free.
	mu   sync.Mutex
	free map[Capacity]int
}

func newCapacity() *capacity { return &capacity{free: map[Capacity]int{}} }

// put replaces the whole list.
func (c *capacity) put(list []Capacity) error {
	free := map[Capacity]int{}
	for _, entry := range list {
		if entry.Type == "" || entry.Zone == "" || entry.CapacityType == "" || entry.Free < 0 {
			return fmt.Errorf(`capacity %+v: want {"type", "zone", "capacityType", "free": from 0}`, entry)
		}
		key := entry
		key.Free = 0
		free[key] = entry.Free
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = free
	return nil
}

func (c *capacity) all() []Capacity {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Capacity{}
	for entry, n := range c.free {
		entry.Free = n
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b Capacity) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	return out
}

// take takes one machine; false: there is none.
func (c *capacity) take(typeName, zone, capacityType string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := Capacity{Type: typeName, Zone: zone, CapacityType: capacityType}
	left, limited := c.free[key]
	if limited && left == 0 {
		return false
	}
	if limited {
		c.free[key]--
	}
	return true
}

// give gives one machine back.
func (c *capacity) give(typeName, zone, capacityType string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := Capacity{Type: typeName, Zone: zone, CapacityType: capacityType}
	if _, limited := c.free[key]; limited {
		c.free[key]++
	}
}
