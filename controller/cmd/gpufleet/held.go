package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// holdReport is one reason with what it holds back from one pool.
type holdReport struct {
	// Pool is empty for pods that name no pool that exists.
	Pool   string `json:"pool,omitempty"`
	Reason string `json:"reason"`
	Pods   int    `json:"pods"`
	// GPUs are the physical GPUs that the pods would need.
	GPUs int64 `json:"gpus"`
	// Since is when the first of them began to wait.
	Since   metav1.Time `json:"since"`
	Message string      `json:"message"`
	Remedy  string      `json:"remedy"`
	// FirstPods are those that have waited longest, at most five.
	FirstPods []podReference `json:"firstPods"`
}

// podReference names a pod that waits.
type podReference struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Since     metav1.Time `json:"since"`
}

const firstPods = 5

// holds are the reasons of some verdicts, the one that holds the most pods first.
func holds(pool string, held []diagnose.Verdict) []holdReport {
	byReason := map[string][]diagnose.Verdict{}
	for _, v := range held {
		byReason[v.Reason()] = append(byReason[v.Reason()], v)
	}
	reports := make([]holdReport, 0, len(byReason))
	for reason, verdicts := range byReason {
		reports = append(reports, holdOf(pool, reason, verdicts))
	}
	slices.SortFunc(reports, func(a, b holdReport) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(v1alpha1.PrecedenceOf(a.Reason), v1alpha1.PrecedenceOf(b.Reason)))
	})
	return reports
}

func holdOf(pool, reason string, verdicts []diagnose.Verdict) holdReport {
	slices.SortStableFunc(verdicts, func(a, b diagnose.Verdict) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	causes := speaking(verdicts)
	report := holdReport{
		Pool: pool, Reason: reason, Pods: len(verdicts), GPUs: physical(verdicts), Since: metav1.NewTime(verdicts[0].Since),
		Message: words(causes), Remedy: causes[0].Remedy,
	}
	for _, v := range verdicts[:min(len(verdicts), firstPods)] {
		report.FirstPods = append(report.FirstPods, podReference{Namespace: v.Pod.Namespace, Name: v.Pod.Name, Since: metav1.NewTime(v.Since)})
	}
	return report
}

// spoken is one cause that speaks for so many pods.
type spoken struct {
	diagnose.Cause
	pods int
}

// speaking are the causes that speak for all pods of one reason: one for each limit, else one. Of a limit the smallest
// machine that a pod waits for speaks: raised by so much, the limit frees a pod.
func speaking(verdicts []diagnose.Verdict) []spoken {
	var causes []spoken
	for _, v := range verdicts {
		cause := v.Causes[0]
		at := slices.IndexFunc(causes, func(s spoken) bool { return limitOf(s.Cause) == limitOf(cause) })
		if at < 0 {
			causes = append(causes, spoken{Cause: cause})
			at = len(causes) - 1
		}
		causes[at].pods++
		if cause.Limit != nil && cause.Limit.Asked < causes[at].Limit.Asked {
			causes[at].Cause = cause
		}
	}
	slices.SortStableFunc(causes, func(a, b spoken) int { return cmp.Compare(b.pods, a.pods) })
	return causes
}

func limitOf(cause diagnose.Cause) ledger.Limit {
	if cause.Limit == nil {
		return ""
	}
	return cause.Limit.Limit
}

func words(causes []spoken) string {
	parts := make([]string, len(causes))
	for i, cause := range causes {
		// The message names the pool for whoever reads it elsewhere; here it stands beside it.
		_, parts[i], _ = strings.Cut(cause.Message, ": ")
		if len(causes) > 1 {
			parts[i] += fmt.Sprintf(" (%s)", count(cause.pods, "pod"))
		}
	}
	return strings.Join(parts, "; ")
}

// physical are the GPUs that pods would need.
func physical(verdicts []diagnose.Verdict) int64 {
	asked := map[*diagnose.Offer]corev1.ResourceList{}
	for _, v := range verdicts {
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

// count writes a number of things: 1 pod, 2 pods.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// age is a time span as people write it: 42s, 4m12s, 3h5m, 2d4h. It has no more than two units.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return pair(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return pair(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	}
	return pair(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
}

func pair(large int, unit string, small int, smaller string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", large, unit)
	}
	return fmt.Sprintf("%d%s%d%s", large, unit, small, smaller)
}
