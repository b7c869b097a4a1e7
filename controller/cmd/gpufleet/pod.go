package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

// PodState is what can be said of a pod in a word.
type PodState string

// States of a pod.
const (
	// PodHeld: something holds it.
	PodHeld PodState = "Held"
	// PodExpected: it waits, and a node or a machine can be expected to take it.
	PodExpected PodState = "Expected"
	// PodPlaced: it has a node.
	PodPlaced PodState = "Placed"
	// PodNominated: the scheduler evicts others for it.
	PodNominated PodState = "Nominated"
	// PodUnseen: the scheduler has not looked at it yet.
	PodUnseen PodState = "Unseen"
	// PodElsewhere: it is of a DaemonSet, and waits for a node that no pool has, or that is on its way out.
	PodElsewhere PodState = "Elsewhere"
	// PodNoGPU: it waits, and asks for no GPU.
	PodNoGPU PodState = "NoGPU"
	// PodLeaving: it is being deleted.
	PodLeaving PodState = "Leaving"
	// PodFinished: it has run its course.
	PodFinished PodState = "Finished"
)

// podReport is one pod, explained.
type podReport struct {
	about
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	State     PodState `json:"state"`
	// Since is when it came to that, as far as the pod says.
	Since metav1.Time `json:"since"`
	// Asks are the extended resources that it asks for, Claims its resource claims.
	Asks   map[corev1.ResourceName]string `json:"asks,omitempty"`
	Claims []string                       `json:"claims,omitempty"`
	// Pool is the pool of its node, or the one that is nearest to serving it; absent where there is none.
	Pool string `json:"pool,omitempty"`
	// Reason, Message, Remedy, Evidence and Moves say what holds a pod whose state is Held.
	*diagnose.Cause
	// Also are what would have to be true too, once that is.
	Also []diagnose.Cause `json:"also,omitempty"`
	// Pools are the verdicts of all pools that it names, where those are several.
	Pools []poolVerdict `json:"pools,omitempty"`
	// Place is where it is, or can be expected.
	Place *placeReport `json:"place,omitempty"`
	// Scheduler is what the scheduler says of a pod that waits, Phase how far one that has a node is.
	Scheduler string `json:"scheduler,omitempty"`
	Phase     string `json:"phase,omitempty"`
	// Hint is what may have been overlooked.
	Hint string `json:"hint,omitempty"`
	// ControllerSaid is what the controller said of it where that differs.
	ControllerSaid []said `json:"controllerSaid,omitempty"`
}

// poolVerdict is what a pod can expect of one pool.
type poolVerdict struct {
	Name    string `json:"name"`
	Nearest bool   `json:"nearest"`
	// Causes are empty where it is expected.
	Expected bool             `json:"expected"`
	Causes   []diagnose.Cause `json:"causes,omitempty"`
}

// placeReport is a node, a machine on its way, or one that may be launched.
type placeReport struct {
	// Kind is Node, Machine or MayBeLaunched.
	Kind string `json:"kind"`
	// Name is the node's or the NodeClaim's; absent where there is none yet.
	Name         string `json:"name,omitempty"`
	Pool         string `json:"pool,omitempty"`
	InstanceType string `json:"instanceType,omitempty"`
	GPUs         int64  `json:"gpus,omitempty"`
	PricePerHour string `json:"pricePerHour,omitempty"`
	State        State  `json:"state,omitempty"`
	// Since is when the machine was asked for.
	Since *metav1.Time `json:"since,omitempty"`
}

// Kinds of places.
const (
	placeNode          = "Node"
	placeMachine       = "Machine"
	placeMayBeLaunched = "MayBeLaunched"
)

func explainPod(p program, ctx context.Context, o *options, c *cluster, name string) (report, error) {
	namespace := o.namespace
	if before, after, found := strings.Cut(name, "/"); found && namespace == "" {
		namespace, name = before, after
	}
	if namespace == "" {
		namespace = c.namespace
	}
	pod, err := c.pod(ctx, o.timeout, namespace, name)
	if err != nil {
		return nil, err
	}
	s, err := c.read(ctx, p.now, o.timeout)
	if err != nil {
		return nil, err
	}
	s.see(pod)
	event := c.saidTo(ctx, s, o.timeout, pod)
	f := understand(s)
	r := podOf(f, pod)
	r.hear(f, event)
	return r, nil
}

// pod reads one pod. One that does not exist may be in another namespace, or be called a little otherwise.
func (c *cluster) pod(ctx context.Context, timeout time.Duration, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod, err := c.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return pod, c.refused(ctx, request{verb: "get", resource: corev1.Resource("pods"), namespace: namespace, name: name}, timeout, err)
	}
	pods, err := c.core.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: manyNames})
	if err != nil {
		return nil, missing(fmt.Sprintf("pod %s/%s does not exist", namespace, name), nil)
	}
	var elsewhere, here []string
	for i := range pods.Items {
		switch other := &pods.Items[i]; {
		case other.Namespace == namespace:
			here = append(here, other.Name)
		case other.Name == name:
			elsewhere = append(elsewhere, other.Namespace+"/"+other.Name)
		}
	}
	similar := near(name, here)
	for i := range similar {
		similar[i] = namespace + "/" + similar[i]
	}
	return nil, missing(fmt.Sprintf("pod %s/%s does not exist", namespace, name), append(elsewhere[:min(len(elsewhere), mostNear)], similar...))
}

// manyNames is how many pods are looked at for a name that may have been meant.
const manyNames = 5000

// see makes sure that the pod that is asked about is among those that have no node, if it has none.
func (s *snapshot) see(pod *corev1.Pod) {
	known := slices.ContainsFunc(s.unbound, func(other *corev1.Pod) bool { return other.UID == pod.UID })
	if pod.Spec.NodeName == "" && !known {
		s.unbound = append(s.unbound, pod)
	}
}

func podOf(f *fleet, pod *corev1.Pod) *podReport {
	r := &podReport{
		about: f.about(), Namespace: pod.Namespace, Name: pod.Name, Asks: asks(pod), Since: metav1.NewTime(diagnose.WaitingSince(pod)),
	}
	for _, claim := range pod.Spec.ResourceClaims {
		r.Claims = append(r.Claims, claim.Name)
	}
	if scheduled := diagnose.PodScheduled(pod); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		r.Scheduler = scheduled.Message
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		r.State, r.Phase = PodFinished, string(pod.Status.Phase)
	case pod.Spec.NodeName != "":
		r.placed(f, pod)
	case pod.DeletionTimestamp != nil:
		r.State, r.Since = PodLeaving, *pod.DeletionTimestamp
	case !diagnose.Waits(pod):
		r.State = PodUnseen
		r.nominated(f, pod)
	case !diagnose.AsksGPUs(f.cluster, pod):
		r.State = PodNoGPU
		r.nominated(f, pod)
	case f.elsewhere(pod):
		r.State = PodElsewhere
		r.Pool, r.Place = f.onNode(diagnose.PinnedTo(pod))
	default:
		r.waits(f, pod)
	}
	return r
}

// nominated is of a pod that others are evicted for, if it is one.
func (r *podReport) nominated(f *fleet, pod *corev1.Pod) {
	if node := pod.Status.NominatedNodeName; node != "" {
		r.State = PodNominated
		r.Pool, r.Place = f.onNode(node)
	}
}

// placed is of a pod that has a node.
func (r *podReport) placed(f *fleet, pod *corev1.Pod) {
	r.State, r.Phase, r.Since = PodPlaced, phaseOf(pod), pod.CreationTimestamp
	if pod.Status.StartTime != nil {
		r.Since = *pod.Status.StartTime
	}
	r.Pool, r.Place = f.onNode(pod.Spec.NodeName)
}

// onNode is a node as a place, with the name of its pool if it has one.
func (f *fleet) onNode(name string) (pool string, place *placeReport) {
	for _, p := range f.pools {
		for _, m := range p.machines {
			if m.node != nil && m.node.Name == name {
				return p.object.Name, placeOf(p, m)
			}
		}
	}
	return "", &placeReport{Kind: placeNode, Name: name}
}

// phaseOf is the pod's phase, with what its containers wait for.
func phaseOf(pod *corev1.Pod) string {
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := container.State.Waiting; waiting != nil && waiting.Reason != "" {
			return fmt.Sprintf("%s, container %s: %s", pod.Status.Phase, container.Name, waiting.Reason)
		}
	}
	return string(pod.Status.Phase)
}

// waits is of a pod that waits for GPUs.
func (r *podReport) waits(f *fleet, pod *corev1.Pod) {
	verdicts := f.verdicts[pod.UID]
	if len(verdicts) == 0 {
		verdicts = []diagnose.Verdict{f.unnamed(pod)}
		if !diagnose.Meant(pod) && diagnose.PinnedTo(pod) == "" {
			r.Hint = "the pod names nothing of gpufleet: it may be meant for other nodes of the cluster, of which nothing is known here"
		}
	}
	nearest := diagnose.Nearest(verdicts)
	r.Pool = nearest.Pool
	if len(verdicts) > 1 {
		for _, v := range verdicts {
			r.Pools = append(r.Pools, poolVerdict{Name: v.Pool, Nearest: v.Pool == nearest.Pool, Expected: v.Expected, Causes: v.Causes})
		}
	}
	if !nearest.Held() {
		r.State, r.Place = PodExpected, f.expectedPlace(nearest)
		r.nominated(f, pod)
		if r.Place.Kind == placeMayBeLaunched && r.Controller.silent() {
			r.Hint = "nothing is launched while the controller does not run"
		}
		return
	}
	r.State, r.Cause, r.Also = PodHeld, &nearest.Causes[0], nearest.Causes[1:]
}

// expectedPlace is where a pod can be expected.
func (f *fleet) expectedPlace(v diagnose.Verdict) *placeReport {
	p := f.pool(v.Pool)
	if place := p.expected[v.Pod.UID]; place != nil {
		for _, m := range p.machines {
			if m.name() == place.Name {
				return placeOf(p, m)
			}
		}
	}
	report := &placeReport{Kind: placeMayBeLaunched, Pool: v.Pool}
	if v.Offer != nil {
		report.InstanceType, report.GPUs = v.Offer.Blueprint.InstanceType, v.Offer.Machine.GPUs
		report.PricePerHour = price(v.Offer.Machine)
	}
	return report
}

func placeOf(p *pool, m *machine) *placeReport {
	since := m.since()
	report := &placeReport{
		Kind: placeMachine, Name: m.name(), Pool: p.object.Name, InstanceType: strings.Join(m.instanceTypes(), " or "), GPUs: m.counts.GPUs,
		PricePerHour: price(m.counts), State: m.state, Since: &since,
	}
	if m.node != nil {
		report.Kind = placeNode
	}
	return report
}

// asks are the extended resources that a pod asks for.
func asks(pod *corev1.Pod) map[corev1.ResourceName]string {
	list := map[corev1.ResourceName]string{}
	for name, quantity := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		if strings.Contains(string(name), "/") && quantity.Sign() > 0 {
			list[name] = quantity.String()
		}
	}
	return list
}
