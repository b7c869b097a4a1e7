package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
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
	reports := []holdReport{}
	for _, hold := range diagnose.Holds(held) {
		report := holdReport{
			Pool: pool, Reason: hold.Reason, Pods: len(hold.Pods), GPUs: hold.GPUs, Since: metav1.NewTime(hold.Since),
			Message: hold.Words, Remedy: hold.Remedy,
		}
		for _, v := range hold.Pods[:min(len(hold.Pods), firstPods)] {
			report.FirstPods = append(report.FirstPods, podReference{Namespace: v.Pod.Namespace, Name: v.Pod.Name, Since: metav1.NewTime(v.Since)})
		}
		reports = append(reports, report)
	}
	return reports
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
