package region

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Quota is how many vCPUs of machines that one bucket counts may be there at once, as GET and PUT /v1/quotas tell it. A
// bucket that is not listed is not limited.
type Quota struct {
	// Bucket is P or G: the families that EC2 counts together (P; G and VT).
	Bucket       string `json:"bucket"`
	CapacityType string `json:"capacityType"`
	VCPUs        int    `json:"vcpus"`
	// Used is what the machines take that are not terminated; PUT ignores it.
	Used int `json:"used"`
}

type bucket struct{ name, capacityType string }

// quotas are the account's.
type quotas struct {
	mu    sync.Mutex // guards vcpus
	vcpus map[bucket]int
}

func newQuotas() *quotas { return &quotas{vcpus: map[bucket]int{}} }

// put replaces the whole list.
func (q *quotas) put(list []Quota) error {
	vcpus := map[bucket]int{}
	for _, entry := range list {
		if (entry.Bucket != "P" && entry.Bucket != "G") || (entry.CapacityType != onDemand && entry.CapacityType != spot) || entry.VCPUs < 0 {
			return fmt.Errorf(`quota %+v: want {"bucket": P or G, "capacityType": on-demand or spot, "vcpus": from 0}`, entry)
		}
		vcpus[bucket{entry.Bucket, entry.CapacityType}] = entry.VCPUs
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.vcpus = vcpus
	return nil
}

func (q *quotas) limit(b bucket) (int, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	vcpus, limited := q.vcpus[b]
	return vcpus, limited
}

// bucketOf is what an instance type counts against; empty for a family that is counted otherwise.
func bucketOf(typeName, capacityType string) bucket {
	switch {
	case strings.HasPrefix(typeName, "p"):
		return bucket{"P", capacityType}
	case strings.HasPrefix(typeName, "g"), strings.HasPrefix(typeName, "vt"):
		return bucket{"G", capacityType}
	}
	return bucket{}
}

// used are the vCPUs of a bucket's machines. The caller holds mu.
func (b *books) used(of bucket) int {
	sum := 0
	for _, row := range b.rows {
		if row.state != stateTerminated && bucketOf(row.typeName, row.capacityType) == of {
			sum += row.kind.VCPUs
		}
	}
	return sum
}

// overQuota refuses a launch that would pass its quota, with the words that EC2 has for each capacity type. The caller
// holds the books' mu.
func (r *Region) overQuota(l launch, kind instanceType) *apiError {
	of := bucketOf(l.typeName, l.capacityType)
	limit, limited := r.quotas.limit(of)
	switch {
	case !limited || r.books.used(of)+kind.VCPUs <= limit:
		return nil
	case l.capacityType == spot:
		return refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return refuse("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.", limit)
}

func (r *Region) allQuotas() []Quota {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	r.quotas.mu.Lock()
	defer r.quotas.mu.Unlock()
	out := []Quota{}
	for of, vcpus := range r.quotas.vcpus {
		out = append(out, Quota{Bucket: of.name, CapacityType: of.capacityType, VCPUs: vcpus, Used: r.books.used(of)})
	}
	slices.SortFunc(out, func(a, b Quota) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	return out
}

func (r *Region) putQuotas(w http.ResponseWriter, req *http.Request) {
	var list []Quota
	if err := readJSON(w, req, &list); err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	if err := r.quotas.put(list); err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	writeJSON(w, http.StatusOK, r.allQuotas())
}
