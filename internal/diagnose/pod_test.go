package diagnose

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Of the terms of a required node affinity one is enough: a pod is for some pools only where every term names some.
func TestNamedPools(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	const pool = "gpufleet.dev/pool"
	for name, tc := range map[string]struct {
		selector string
		terms    []corev1.NodeSelectorTerm
		want     []string
	}{
		"nothing":                              {},
		"a selector":                           {"a", nil, []string{"a"}},
		"a term":                               {"", []corev1.NodeSelectorTerm{in(pool, "b", "a")}, []string{"a", "b"}},
		"two terms":                            {"", []corev1.NodeSelectorTerm{in(pool, "b"), in(pool, "a", "b")}, []string{"a", "b"}},
		"a term of a pool, or any g5":          {"", []corev1.NodeSelectorTerm{in(pool, "a"), in(corev1.LabelInstanceTypeStable, "g5.xlarge")}, nil},
		"a selector, whatever the affinity is": {"a", []corev1.NodeSelectorTerm{in(pool, "b"), in(corev1.LabelInstanceTypeStable, "g5.xlarge")}, []string{"a"}},
	} {
		pod := &corev1.Pod{}
		if tc.selector != "" {
			pod.Spec.NodeSelector = map[string]string{pool: tc.selector}
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tc.terms}}}
		if got := NamedPools(pod); !slices.Equal(got, tc.want) {
			t.Errorf("%s: names %v, want %v", name, got, tc.want)
		}
	}
}
