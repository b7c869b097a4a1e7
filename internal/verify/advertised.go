package verify

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// advertised compares the kubelet's allocatable with the Blueprint, exactly: one GPU too few is a failure, and so is a
// resource under another name. A resource that is not in the Blueprint may stand at 0: the kubelet keeps the names of
// plugins that are gone.
func advertised(bp v1alpha1.Blueprint, allocatable corev1.ResourceList) []v1alpha1.Finding {
	wrong, unknown := differing(bp, allocatable)
	if len(wrong) == 0 && len(unknown) == 0 {
		return nil
	}
	var expected, found []string
	for _, name := range wrong {
		expected = append(expected, amount(name, bp.Resources))
		if have := allocatable[name]; !have.IsZero() {
			found = append(found, amount(name, allocatable))
		}
	}
	for _, name := range unknown {
		found = append(found, amount(name, allocatable))
		if len(wrong) == 0 {
			expected = append(expected, amount(name, nil))
		}
	}
	if len(found) == 0 {
		for _, name := range wrong {
			found = append(found, amount(name, nil))
		}
	}
	want, have := strings.Join(expected, ", "), strings.Join(found, ", ")
	return []v1alpha1.Finding{{
		Reason: v1alpha1.FindingAdvertiseMismatch, Expected: want, Found: have,
		Message: fmt.Sprintf("the node should advertise %s, but advertises %s", want, have),
	}}
}

// differing lists the Blueprint's resources of which the node has another amount, and those of NVIDIA's that it has and
// the Blueprint does not.
func differing(bp v1alpha1.Blueprint, allocatable corev1.ResourceList) (wrong, unknown []corev1.ResourceName) {
	for name, want := range bp.Resources {
		if have := allocatable[name]; have.Cmp(want) != 0 {
			wrong = append(wrong, name)
		}
	}
	for name, have := range allocatable {
		_, known := bp.Resources[name]
		if strings.HasPrefix(string(name), v1alpha1.ResourcePrefix) && !known && !have.IsZero() {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(wrong)
	slices.Sort(unknown)
	return wrong, unknown
}

func amount(name corev1.ResourceName, in corev1.ResourceList) string {
	quantity := in[name]
	return fmt.Sprintf("%s: %s", name, quantity.String())
}
