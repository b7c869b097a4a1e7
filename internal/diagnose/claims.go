package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// AsksGPUs says whether a pod asks for GPUs: by an extended resource, or by a claim of a device class of NVIDIA's.
func AsksGPUs(cluster Cluster, pod *corev1.Pod) bool {
	return HasGPUs(requestsOf(pod)) || (len(pod.Spec.ResourceClaims) > 0 && len(newClaims(cluster, nil).of(pod)) > 0)
}

// claims are the resource claims of pods against the devices that nodes publish.
type claims struct {
	cluster  Cluster
	compiled *cel.Cache
	devices  []device
	// taken are the devices that are allocated, or that a pod of this pass can be expected to get.
	taken map[deviceID]bool
}

type deviceID struct{ driver, pool, device string }

type device struct {
	id    deviceID
	node  string
	value cel.Device
}

// maxExpressions bounds the expressions that one pass remembers in compiled form.
const maxExpressions = 100

func newClaims(cluster Cluster, places []*Place) *claims {
	c := &claims{cluster: cluster, taken: map[deviceID]bool{}, compiled: cel.NewCache(maxExpressions, cel.Features{})}
	for _, slice := range cluster.Slices {
		node := ""
		if slice.Spec.NodeName != nil {
			node = *slice.Spec.NodeName
		}
		if !slices.ContainsFunc(places, func(p *Place) bool { return p.Name == node }) {
			continue
		}
		for _, d := range slice.Spec.Devices {
			c.devices = append(c.devices, device{
				id: deviceID{slice.Spec.Driver, slice.Spec.Pool.Name, d.Name}, node: node,
				value: cel.Device{Driver: slice.Spec.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity},
			})
		}
	}
	for _, claim := range cluster.Claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			c.taken[deviceID{result.Driver, result.Pool, result.Device}] = true
		}
	}
	return c
}

// any says whether nodes publish devices at all.
func (c *claims) any() bool { return len(c.devices) > 0 }

// ask is one request of a claim of a pod: so many devices of a class.
type ask struct {
	// claim names the claim, or the template that it is made from.
	claim    string
	made     bool
	class    *resourcev1.DeviceClass
	name     string
	count    int64
	selector []string
}

// of are the requests for GPUs of a pod's claims that no device is allocated to. A request that offers alternatives counts
// by its first.
func (c *claims) of(pod *corev1.Pod) []ask {
	var asks []ask
	for _, ref := range pod.Spec.ResourceClaims {
		name, spec, made, allocated := c.resolve(pod, ref)
		if spec == nil || allocated {
			continue
		}
		for _, request := range spec.Devices.Requests {
			exact := request.Exactly
			if exact == nil && len(request.FirstAvailable) > 0 {
				first := request.FirstAvailable[0]
				exact = &resourcev1.ExactDeviceRequest{DeviceClassName: first.DeviceClassName, Selectors: first.Selectors, Count: first.Count}
			}
			if exact == nil {
				continue
			}
			each := ask{claim: name, made: made, name: exact.DeviceClassName, count: max(exact.Count, 1), class: c.class(exact.DeviceClassName)}
			if each.class != nil {
				each.selector = expressions(each.class.Spec.Selectors)
			}
			each.selector = append(each.selector, expressions(exact.Selectors)...)
			if each.ofNVIDIA() {
				asks = append(asks, each)
			}
		}
	}
	return asks
}

// ofNVIDIA says whether a device class is of GPUs: NVIDIA's driver names its classes gpu.nvidia.com and mig.nvidia.com, and
// a class of the user's own selects that driver.
func (a ask) ofNVIDIA() bool {
	return strings.HasSuffix(a.name, "nvidia.com") || slices.ContainsFunc(a.selector, func(s string) bool { return strings.Contains(s, "nvidia.com") })
}

func expressions(selectors []resourcev1.DeviceSelector) []string {
	var out []string
	for _, selector := range selectors {
		if selector.CEL != nil {
			out = append(out, selector.CEL.Expression)
		}
	}
	return out
}

// resolve finds the claim of a pod, or the template while the claim is not made.
func (c *claims) resolve(pod *corev1.Pod, ref corev1.PodResourceClaim) (name string, spec *resourcev1.ResourceClaimSpec, made, allocated bool) {
	if ref.ResourceClaimName != nil {
		name = *ref.ResourceClaimName
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name == ref.Name && status.ResourceClaimName != nil {
			name = *status.ResourceClaimName
		}
	}
	for _, claim := range c.cluster.Claims {
		if name != "" && claim.Name == name && claim.Namespace == pod.Namespace {
			return name, &claim.Spec, true, claim.Status.Allocation != nil
		}
	}
	if ref.ResourceClaimTemplateName == nil {
		return name, nil, false, false
	}
	for _, template := range c.cluster.Templates {
		if template.Name == *ref.ResourceClaimTemplateName && template.Namespace == pod.Namespace {
			return template.Name, &template.Spec.Spec, false, false
		}
	}
	return name, nil, false, false
}

func (c *claims) class(name string) *resourcev1.DeviceClass {
	for _, class := range c.cluster.Classes {
		if class.Name == name {
			return class
		}
	}
	return nil
}

// matches says whether a device is what is asked for. The error is of an expression that does not compile or cannot be
// evaluated; a device that lacks an attribute is such a case, and no match.
func (c *claims) matches(a ask, d device) (bool, error) {
	for _, expression := range a.selector {
		result := c.compiled.GetOrCompile(expression)
		if result.Error != nil {
			return false, fmt.Errorf("the expression %q does not compile: %w", expression, result.Error)
		}
		matched, _, err := result.DeviceMatches(context.Background(), d.value)
		if err != nil || !matched {
			return false, nil
		}
	}
	return true, nil
}

// fit says whether a place has free devices for all GPU claims of a pod.
func (c *claims) fit(pod *corev1.Pod, p *Place) bool {
	_, fit := c.choose(pod, p)
	return fit
}

// take expects the pod's devices to be allocated on the place.
func (c *claims) take(pod *corev1.Pod, p *Place) {
	chosen, _ := c.choose(pod, p)
	for _, id := range chosen {
		c.taken[id] = true
	}
}

func (c *claims) choose(pod *corev1.Pod, p *Place) ([]deviceID, bool) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, true
	}
	var chosen []deviceID
	for _, each := range c.of(pod) {
		need := each.count
		for _, d := range c.devices {
			if need == 0 {
				break
			}
			if d.node != p.Name || c.taken[d.id] || slices.Contains(chosen, d.id) {
				continue
			}
			if matched, err := c.matches(each, d); err == nil && matched {
				chosen, need = append(chosen, d.id), need-1
			}
		}
		if need > 0 {
			return nil, false
		}
	}
	return chosen, true
}

// count is how many devices match a request, and how many of those are free.
func (c *claims) count(a ask) (matching, free int, err error) {
	for _, d := range c.devices {
		matched, err := c.matches(a, d)
		if err != nil {
			return 0, 0, err
		}
		if matched {
			matching++
			if !c.taken[d.id] {
				free++
			}
		}
	}
	return matching, free, nil
}

// dra is why no machine is launched for the claims of a pod: nodes of the pool offer their GPUs by the device plugin, and a
// node that does not exist publishes no device.
func (d *decision) dra(asked demand, offer *Offer) []Cause {
	var causes []Cause
	for _, each := range d.claims.of(asked.pod) {
		c := d.cause(v1alpha1.HoldDRAUnsupported, "%s", d.claimInWords(each, offer))
		c.Remedy = fmt.Sprintf("ask for %s instead of a claim of device class %s", namesOf(offer.Blueprint.Resources), each.name)
		c.Evidence = []Fact{{"deviceClass", each.name}, {"selectors", strings.Join(each.selector, " && ")},
			{"preemption", "does not apply to resource claims: devices that a claim holds are not freed for another"}}
		causes = append(causes, c)
	}
	return causes
}

func (d *decision) claimInWords(a ask, offer *Offer) string {
	what := fmt.Sprintf("claim %s asks for %d of device class %s", a.claim, a.count, a.name)
	plugin := fmt.Sprintf("no machine is launched for it, since nodes on %s offer their GPUs by the device plugin, as %s", offer.Blueprint.InstanceType, namesOf(offer.Blueprint.Resources))
	if a.class == nil {
		return fmt.Sprintf("%s, which does not exist; %s", what, plugin)
	}
	matching, free, err := d.claims.count(a)
	switch {
	case err != nil:
		return fmt.Sprintf("%s, and %s", what, err)
	case matching > 0:
		return fmt.Sprintf("%s: of %d devices that match %d are free, on no node enough; %s", what, matching, free, plugin)
	case d.claims.any():
		return fmt.Sprintf("%s: none of the %d devices that the pool's nodes publish matches; %s", what, len(d.claims.devices), plugin)
	}
	return what + "; " + plugin
}

// notAllowed are ResourceQuotas that keep the claims of a pod from being made: without them the scheduler does not look for
// a node. What a quota says of the pod itself was decided when the pod was made.
func (d *decision) notAllowed(asked demand) []Cause {
	var causes []Cause
	for _, each := range d.claims.of(asked.pod) {
		if each.made {
			continue
		}
		for _, quota := range d.cluster.Quotas {
			if quota.Namespace != asked.pod.Namespace {
				continue
			}
			devices := corev1.ResourceName(each.name + corev1.ResourceClaimsPerClass)
			if c, over := d.overQuota(quota, devices, each.count, each); over {
				causes = append(causes, c)
			}
			if c, over := d.overQuota(quota, countOfClaims, 1, each); over {
				causes = append(causes, c)
			}
		}
	}
	return causes
}

// countOfClaims is what a ResourceQuota bounds the number of claims by, whatever their class.
const countOfClaims corev1.ResourceName = "count/resourceclaims.resource.k8s.io"

func (d *decision) overQuota(quota *corev1.ResourceQuota, name corev1.ResourceName, need int64, a ask) (Cause, bool) {
	hard, limited := quota.Status.Hard[name]
	used := quota.Status.Used[name]
	if !limited || used.Value()+need <= hard.Value() {
		return Cause{}, false
	}
	c := d.cause(v1alpha1.HoldNotAllowed, "ResourceQuota %s of namespace %s admits no claim from template %s: %s: %s of %s used, %d asked",
		quota.Name, quota.Namespace, a.claim, name, used.String(), hard.String(), need)
	c.Remedy = fmt.Sprintf("raise %s of ResourceQuota %s in namespace %s to %d or more, or free what the namespace holds", name, quota.Name, quota.Namespace, used.Value()+need)
	c.Evidence = []Fact{{"quota", quota.Name}, {"hard", hard.String()}, {"used", used.String()}, {"asked", fmt.Sprint(need)}}
	return c, true
}
