package main

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/gpu"
)

// nodeReport is one node, explained.
type nodeReport struct {
	about
	machineReport
	Pool string `json:"pool"`
	// GPUNode is absent while the node has not joined.
	GPUNode string `json:"gpuNode,omitempty"`
	// Reason and Message are of the verdict, VerdictSince is when it came, VerifiedAt when the node was proved first.
	Reason       string       `json:"reason,omitempty"`
	Message      string       `json:"message,omitempty"`
	VerdictSince *metav1.Time `json:"verdictSince,omitempty"`
	VerifiedAt   *metav1.Time `json:"verifiedAt,omitempty"`
	// Findings are where it differs from its Blueprint.
	Findings []findingReport `json:"findings,omitempty"`
	// Ordered is what it must be, in short; Found what is seen of that.
	Ordered *orderedReport `json:"ordered,omitempty"`
	Found   *foundReport   `json:"found,omitempty"`
	// ObservedAt is when the agent saw the last change; Failure why it could not look.
	ObservedAt *metav1.Time           `json:"observedAt,omitempty"`
	Failure    *v1alpha1.AgentFailure `json:"failure,omitempty"`
	Boards     []boardReport          `json:"boards,omitempty"`
	// Pods are those on it that hold GPUs; OtherPods counts the rest.
	Pods      []podOnNode `json:"pods"`
	OtherPods int         `json:"otherPods"`
	// HeldPods are those that wait because it is not what was ordered.
	HeldPods []podReference `json:"heldPods,omitempty"`
}

// findingReport is a finding with what to do about it.
type findingReport struct {
	v1alpha1.Finding
	Remedy string `json:"remedy,omitempty"`
}

// orderedReport is what a node must be: its Blueprint in short.
type orderedReport struct {
	GPUs             int32  `json:"gpus"`
	GPUModel         string `json:"gpuModel"`
	Layout           string `json:"layout,omitempty"`
	DriverMinVersion string `json:"driverMinVersion,omitempty"`
	// Resources are the extended resources of its allocatable.
	Resources map[corev1.ResourceName]string `json:"resources"`
}

// foundReport is what is seen of that.
type foundReport struct {
	GPUs          int                            `json:"gpus"`
	Products      []string                       `json:"products,omitempty"`
	DriverVersion string                         `json:"driverVersion,omitempty"`
	Resources     map[corev1.ResourceName]string `json:"resources,omitempty"`
}

// boardReport is one board as NVML sees it.
type boardReport struct {
	v1alpha1.GPUInventory
	// Room is what of the board is not cut; absent where MIG is off, and where that is not known of the board's model.
	Room *roomReport `json:"room,omitempty"`
}

// roomReport is what MIG instances leave of a board.
type roomReport struct {
	// FreeSlices are the memory slices that no instance takes.
	FreeSlices []int `json:"freeSlices"`
	// LargestPlaceable is the largest profile that could still be placed; absent where none could.
	LargestPlaceable string `json:"largestPlaceable,omitempty"`
}

// podOnNode is a pod that holds GPUs of a node.
type podOnNode struct {
	Namespace string                         `json:"namespace"`
	Name      string                         `json:"name"`
	Phase     string                         `json:"phase"`
	Since     metav1.Time                    `json:"since"`
	Holds     map[corev1.ResourceName]string `json:"holds"`
}

func explainNode(p program, ctx context.Context, o *options, c *cluster, name string) (report, error) {
	s, err := c.read(ctx, p.now, o.timeout)
	if err != nil {
		return nil, err
	}
	f := understand(s)
	var names []string
	for _, pool := range f.pools {
		for _, m := range pool.machines {
			own := m.names()
			if slices.Contains(own, name) {
				return nodeOf(f, pool, m), nil
			}
			names = append(names, own...)
		}
	}
	return nil, missing("no node, GPUNode, NodeClaim or instance of a pool is called "+name, someOf(names, name))
}

// names are those that a machine goes by, each once.
func (m *machine) names() []string {
	names := []string{m.name(), m.claim.Name}
	if m.launched() {
		names = append(names, diagnose.InstanceOf(m.claim.Status.ProviderID))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func nodeOf(f *fleet, p *pool, m *machine) *nodeReport {
	r := &nodeReport{about: f.about(), machineReport: machineOf(p.is, m), Pool: p.object.Name, Pods: []podOnNode{}}
	if m.gpuNode != nil {
		r.judged(m.gpuNode)
	}
	if m.node != nil && m.gpuNode != nil {
		r.on(f.bound[m.node.Name], m.gpuNode.Spec.Resources)
		r.Found.Resources = some(m.node.Status.Allocatable, m.gpuNode.Spec.Resources)
	}
	if m.state == StateRefused {
		r.holding(p)
	}
	return r
}

// judged is the verdict and what it was drawn from.
func (r *nodeReport) judged(node *v1alpha1.GPUNode) {
	r.GPUNode, r.VerifiedAt = node.Name, node.Status.VerifiedAt
	if verdict := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionVerified); verdict != nil {
		r.Reason, r.Message, r.VerdictSince = verdict.Reason, verdict.Message, &verdict.LastTransitionTime
	}
	for _, finding := range node.Status.Findings {
		r.Findings = append(r.Findings, findingReport{Finding: finding, Remedy: remedyOf(finding.Reason)})
	}
	spec := node.Spec
	r.Ordered = &orderedReport{GPUs: spec.GPU.Count, GPUModel: spec.GPU.Model, DriverMinVersion: spec.DriverMinVersion, Resources: some(spec.Resources, spec.Resources)}
	r.Found = &foundReport{}
	if spec.Layout != nil {
		r.Ordered.Layout = spec.Layout.Name
	}
	inventory := node.Status.Inventory
	if inventory == nil {
		return
	}
	r.ObservedAt, r.Failure = &inventory.ObservedAt, inventory.Failure
	r.Found.GPUs, r.Found.DriverVersion = len(inventory.GPUs), inventory.DriverVersion
	for _, board := range inventory.GPUs {
		r.Found.Products = addNew(r.Found.Products, board.ProductName)
		r.Boards = append(r.Boards, boardOf(spec.GPU, board))
	}
}

func remedyOf(reason string) string {
	for _, known := range v1alpha1.FindingReasons {
		if known.Name == reason {
			return known.Remedy
		}
	}
	return ""
}

// some are the quantities of the resources that are named.
func some(list, named corev1.ResourceList) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name := range named {
		quantity := list[name]
		out[name] = quantity.String()
	}
	return out
}

// boardOf says what of a board is cut and what is left. Of a board that is not the model that was ordered only that is known.
func boardOf(ordered v1alpha1.GPUBlueprint, board v1alpha1.GPUInventory) boardReport {
	r := boardReport{GPUInventory: board}
	model, known := gpu.Lookup(ordered.Model)
	if !known || board.MIG == nil || !board.MIG.Enabled || !slices.Contains(ordered.ProductNames, board.ProductName) {
		return r
	}
	var taken []gpu.Placement
	for _, instance := range board.MIG.Instances {
		taken = append(taken, gpu.Placement{Start: int(instance.Start), Size: int(instance.Size)})
	}
	r.Room = &roomReport{FreeSlices: append([]int{}, model.FreeSlices(taken)...)}
	if largest, fits := model.LargestPlaceable(taken); fits {
		r.Room.LargestPlaceable = largest.Name
	}
	return r
}

// on sorts the pods of a node by what they hold of its resources.
func (r *nodeReport) on(pods []*corev1.Pod, offered corev1.ResourceList) {
	for _, pod := range pods {
		holds := map[corev1.ResourceName]string{}
		for name, quantity := range asks(pod) {
			if _, ours := offered[name]; ours {
				holds[name] = quantity
			}
		}
		if len(holds) == 0 {
			r.OtherPods++
			continue
		}
		r.Pods = append(r.Pods, podOnNode{Namespace: pod.Namespace, Name: pod.Name, Phase: phaseOf(pod), Since: startOf(pod), Holds: holds})
	}
	slices.SortFunc(r.Pods, func(a, b podOnNode) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func startOf(pod *corev1.Pod) metav1.Time {
	if pod.Status.StartTime != nil {
		return *pod.Status.StartTime
	}
	return pod.CreationTimestamp
}

// holding are the pods that would be on the node if it were what was ordered.
func (r *nodeReport) holding(p *pool) {
	for _, v := range p.held {
		for _, fact := range v.Causes[0].Evidence {
			// NotVerified names each node that could take the pod in its evidence; no other reason does.
			if fact.Name == "node "+r.machineReport.Name {
				r.HeldPods = append(r.HeldPods, podReference{Namespace: v.Pod.Namespace, Name: v.Pod.Name, Since: metav1.NewTime(v.Since)})
			}
		}
	}
}
