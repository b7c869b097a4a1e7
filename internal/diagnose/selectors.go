package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// selectors are the labels that the pod selects and that no node of the offer will have.
func (d *decision) selectors(asked demand, offer *Offer) []Cause {
	if len(offer.Ways) == 0 || len(offer.waysFor(asked)) > 0 {
		return nil
	}
	way := closest(asked, offer.Ways)
	mismatches, remedies := d.mismatches(asked, offer, way.Node)
	if len(mismatches) == 0 {
		mismatches = []string{"its required node affinity (" + affinityInWords(asked.pod) + ") admits no node of the pool"}
		remedies = []string{"change the pod's required node affinity"}
	}
	c := d.cause(v1alpha1.HoldSelectorMismatch, "the pod selects %s", strings.Join(mismatches, "; "))
	c.Remedy = strings.Join(remedies, ", and ")
	for _, key := range sortedKeys(way.Node.Labels) {
		c.Evidence = append(c.Evidence, Fact{"label " + key, way.Node.Labels[key]})
	}
	return []Cause{c}
}

// closest is the way with the fewest labels that differ from what the pod selects.
func closest(asked demand, ways []Way) Way {
	return slices.MinFunc(ways, func(a, b Way) int { return wrong(asked.pod, a.Node) - wrong(asked.pod, b.Node) })
}

func wrong(pod *corev1.Pod, node *corev1.Node) int {
	count := 0
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			count++
		}
	}
	return count
}

// mismatches are the labels of the pod's node selector that a node of the offer will not have, with what to do of each.
func (d *decision) mismatches(asked demand, offer *Offer, node *corev1.Node) (mismatches, remedies []string) {
	for _, key := range sortedKeys(asked.pod.Spec.NodeSelector) {
		value := asked.pod.Spec.NodeSelector[key]
		has, there := node.Labels[key]
		switch {
		case there && has == value:
		case key == labelProduct:
			mismatches = append(mismatches, fmt.Sprintf("%s=%s; a node on %s is labelled %s, and only once it runs, so that no node is ever launched for it",
				key, value, offer.Blueprint.InstanceType, strings.Join(products(offer.Blueprint), " or ")))
			remedies = append(remedies, fmt.Sprintf("select %s=%s instead, which is known before a node exists", v1alpha1.LabelGPUModel, offer.Blueprint.GPU.Model))
		case there:
			mismatches = append(mismatches, fmt.Sprintf("%s=%s, and its nodes have %s", key, value, d.values(offer, key)))
			remedies = append(remedies, fmt.Sprintf("select %s=%s or leave %s out", key, has, key))
		default:
			mismatches = append(mismatches, fmt.Sprintf("%s=%s, a label that its nodes do not have", key, value))
			remedies = append(remedies, fmt.Sprintf("leave %s out, or add it to the labels of the GPUNodePool", key))
		}
	}
	return mismatches, remedies
}

// values are what nodes of the offer may have as a label.
func (d *decision) values(offer *Offer, key string) string {
	var values []string
	for _, way := range offer.Ways {
		values = append(values, way.Node.Labels[key])
	}
	slices.Sort(values)
	return strings.Join(slices.Compact(values), " or ")
}

// labelProduct is the product name that NVIDIA's GPU feature discovery labels running nodes with.
const labelProduct = "nvidia.com/gpu.product"

// products are the labels that GPU feature discovery may give a node of a Blueprint: the product's name with dashes for
// spaces, -MIG-<profile> where every GPU is cut alike under one name, and -SHARED where time is sliced and the resource is
// not renamed (NVIDIA/k8s-device-plugin, internal/lm/resource.go).
func products(bp v1alpha1.Blueprint) []string {
	suffix := ""
	if bp.MIGStrategy == v1alpha1.MIGSingle && bp.Layout != nil {
		for _, device := range bp.Layout.Devices {
			if len(device.Instances) > 0 {
				suffix = "-MIG-" + device.Instances[0].Profile
				break
			}
		}
	}
	if bp.Sharing == v1alpha1.SharingTimeSlicing && !bp.RenameByDefault {
		suffix += "-SHARED"
	}
	labels := make([]string, len(bp.GPU.ProductNames))
	for i, name := range bp.GPU.ProductNames {
		labels[i] = strings.ReplaceAll(name, " ", "-") + suffix
	}
	return labels
}

// affinityInWords writes the terms of the pod's required node affinity.
func affinityInWords(pod *corev1.Pod) string {
	var terms []string
	for _, term := range requiredTerms(pod) {
		var parts []string
		for _, expression := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			part := fmt.Sprintf("%s %s", expression.Key, expression.Operator)
			if len(expression.Values) > 0 {
				part += " " + strings.Join(expression.Values, ",")
			}
			parts = append(parts, part)
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	return strings.Join(terms, " or ")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
