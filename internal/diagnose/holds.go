package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// Hold is one reason with the pods that it holds back from a pool.
type Hold struct {
	Reason string
	// Pods are their verdicts, that of the one that has waited longest first.
	Pods []Verdict
	// GPUs are the physical GPUs that the pods would need.
	GPUs int64
	// Since is when the first of them began to wait.
	Since time.Time
	// Message says what holds them, with the numbers, and how many: it stands on the pool, so it does not name it.
	Message string
	// Words are the message for whoever shows the number of pods beside it: only where several limits hold pods does each say
	// how many.
	Words string
	// Remedy is one sentence that says what would free the first of them.
	Remedy string
	// Limits are those that hold pods where the reason is LimitReached, the one that holds the most first.
	Limits []ledger.Limit
}

// Holds are the reasons of some verdicts, the one that holds the most pods first, of equals the one that comes first in the
// order of precedence.
func Holds(verdicts []Verdict) []Hold {
	byReason := map[string][]Verdict{}
	for _, v := range verdicts {
		if v.Held() {
			byReason[v.Reason()] = append(byReason[v.Reason()], v)
		}
	}
	holds := make([]Hold, 0, len(byReason))
	for reason, pods := range byReason {
		holds = append(holds, newHold(reason, pods))
	}
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(len(b.Pods), len(a.Pods)), cmp.Compare(v1alpha1.PrecedenceOf(a.Reason), v1alpha1.PrecedenceOf(b.Reason)))
	})
	return holds
}

func newHold(reason string, pods []Verdict) Hold {
	slices.SortStableFunc(pods, func(a, b Verdict) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	voices := speaking(pods)
	hold := Hold{Reason: reason, Pods: pods, GPUs: physical(pods), Since: pods[0].Since, Remedy: voices[0].Remedy}
	var message, words []string
	for _, v := range voices {
		message, words = append(message, v.words()), append(words, v.said())
		if v.others {
			words[len(words)-1] += " (the first pod; each has its own words)"
		}
		if len(voices) > 1 {
			words[len(words)-1] += fmt.Sprintf(" (%s)", count(v.pods, "pod"))
		}
		if v.Limit != nil {
			hold.Limits = append(hold.Limits, v.Limit.Limit)
		}
	}
	hold.Message, hold.Words = strings.Join(message, "; "), strings.Join(words, "; ")
	return hold
}

// voice is one cause that speaks for so many pods.
type voice struct {
	Cause
	pool string
	pods int
	// others says that some of the pods are held for the same reason by something else.
	others bool
}

// words are those of the cause: "limit gpus 8 is reached: 8 in use, 8 asked for 60 waiting pods".
func (v voice) words() string {
	if v.Limit != nil && !v.Limit.UnknownPrice {
		return v.said() + " for " + count(v.pods, "waiting pod")
	}
	if v.others {
		return v.said() + fmt.Sprintf(" (the first of %d waiting pods; each has its own words)", v.pods)
	}
	return v.said() + " (" + count(v.pods, "waiting pod") + ")"
}

// said is the cause's message without the pool, which it names for whoever reads it elsewhere.
func (v voice) said() string {
	return strings.TrimPrefix(strings.TrimPrefix(v.Message, prefix(v.pool)), noPool)
}

// count writes a number of things: 1 pod, 2 pods.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// speaking are the causes that speak for all pods of one reason: one for each limit, else that of the first pod. Of a limit
// the smallest machine that a pod waits for speaks: raised by so much, the limit frees a pod.
func speaking(pods []Verdict) []voice {
	var voices []voice
	for _, v := range pods {
		cause := v.Causes[0]
		at := slices.IndexFunc(voices, func(s voice) bool { return limitOf(s.Cause) == limitOf(cause) })
		if at < 0 {
			voices = append(voices, voice{Cause: cause, pool: v.Pool})
			at = len(voices) - 1
		}
		voices[at].pods++
		voices[at].others = voices[at].others || (cause.Limit == nil && cause.Message != voices[at].Message)
		if cause.Limit != nil && cause.Limit.Asked < voices[at].Limit.Asked {
			voices[at].Cause = cause
		}
	}
	slices.SortStableFunc(voices, func(a, b voice) int {
		return cmp.Or(cmp.Compare(b.pods, a.pods), cmp.Compare(ledger.Order(limitOf(a.Cause)), ledger.Order(limitOf(b.Cause))))
	})
	return voices
}

func limitOf(cause Cause) ledger.Limit {
	if cause.Limit == nil {
		return ""
	}
	return cause.Limit.Limit
}

// physical are the GPUs that pods would need: what those ask that wait for the same machine is added up first, since seven
// slices are one GPU.
func physical(pods []Verdict) int64 {
	asked := map[*Offer]corev1.ResourceList{}
	for _, v := range pods {
		if v.Offer == nil {
			continue
		}
		if asked[v.Offer] == nil {
			asked[v.Offer] = corev1.ResourceList{}
		}
		for name := range v.Offer.Blueprint.Resources {
			sum := asked[v.Offer][name]
			sum.Add(v.Requests[name])
			asked[v.Offer][name] = sum
		}
	}
	var gpus int64
	for offer, sums := range asked {
		gpus += offer.Share(sums)
	}
	return gpus
}
