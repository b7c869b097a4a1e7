package diagnose

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// Cluster is what holds for every pool at one moment.
type Cluster struct {
	Now time.Time
	// Expected is since when pods can be expected to be placed, for whoever has watched them; a pod that is not in it has
	// been expected since it began to wait. Longer than Patience is too long: then it is held by something unknown.
	Expected map[types.UID]time.Time
	// Joining is since when machines that had not joined have been expected to take pods, one after the other, for whoever has
	// watched them; of a pod that is not in it nothing is known but how old the machine at hand is.
	Joining map[types.UID]time.Time
	// Quotas are the ResourceQuotas of the pods' namespaces.
	Quotas []*corev1.ResourceQuota
	// Claims, Templates, Classes and Slices are what resource claims of pods are decided from; empty where the cluster does
	// not serve resource.k8s.io/v1.
	Claims    []*resourcev1.ResourceClaim
	Templates []*resourcev1.ResourceClaimTemplate
	Classes   []*resourcev1.DeviceClass
	Slices    []*resourcev1.ResourceSlice
	// Volumes are what PersistentVolumeClaims of pods are decided from; nil where they were not read.
	Volumes *Volumes
}

// Patience is how long a pod may wait although it can be expected to be placed: a machine is launched within seconds and
// the scheduler binds within a second.
const Patience = 5 * time.Minute

// JoinPatience is how long a machine may take from its NodeClaim to its Node. Large GPU machines boot for minutes; Karpenter
// gives a machine up that has not registered 15 minutes after its launch (pkg/controllers/nodeclaim/lifecycle/liveness.go),
// and asks for another: whoever waits for that in silence waits for ever.
const JoinPatience = 10 * time.Minute

// evictionPatience is how long the scheduler may take from naming the node that it makes room on to deleting the pods there:
// it does so beside its other work (k8s.io/kubernetes, pkg/scheduler/framework/preemption).
const evictionPatience = 10 * time.Second

// Pool is one GPUNodePool at one moment.
type Pool struct {
	Name     string
	Workload v1alpha1.Workload
	// Trouble is why the pool launches nothing whatever is asked of it: it is not accepted, its class is not ready, it is
	// being deleted, the cloud takes no request of it. Empty where it may launch.
	Trouble string
	// Offers are the machines that it may launch, in order of preference.
	Offers []Offer
	// Places are its nodes and the machines on their way to it. Decide fills them.
	Places []*Place
	// Usage is what the ledger says of it.
	Usage ledger.Usage
	// Blocked are the ways to buy that the cloud has refused and that are not tried now.
	Blocked []Blocked
	// Budgets are those whose scope has the pool.
	Budgets []Budget
}

// Offer is one machine that a pool may launch.
type Offer struct {
	Blueprint v1alpha1.Blueprint
	Machine   ledger.Machine
	// Most is a bound from above of what a pod can have of it.
	Most corev1.ResourceList
	// Ways are how it may be bought, in the pool's order of capacity types.
	Ways []Way
}

// Way is one way to buy a machine: a zone and a capacity type.
type Way struct {
	Zone         string
	CapacityType v1alpha1.CapacityType
	// Node is what a node of it will be: its labels.
	Node *corev1.Node
}

// Blocked is a way to buy that the cloud has refused.
type Blocked struct {
	InstanceType string
	Zone         string
	CapacityType v1alpha1.CapacityType
	// Reason is v1alpha1.HoldNoCapacity, HoldQuotaExceeded, HoldReservationUnavailable or ReasonLaunchRejected.
	Reason string
	// Message is the cloud's, with its code. Until is when it is tried again.
	Message string
	Until   time.Time
}

// Budget is one budget at one moment. Quantities are as people write them: "$42.10/h", "120 GPU hours".
type Budget struct {
	Name      string
	Used, Cap string
	// Refuses are the instance types that it admits no more machine of; Ends is when its period ends.
	Refuses []string
	Ends    time.Time
}

// State is how far a place is.
type State int

const (
	// Coming: a machine on its way, or a node that is not judged yet. What its Blueprint promises can be expected of it.
	Coming State = iota
	// Refused: a node that is not what was ordered, or a machine that has not joined in time. Nothing is expected of it.
	Refused
	// Verified: a node that is what was ordered, with what it says that it has.
	Verified
)

// Place is a node of a pool, or a machine on its way to it, with what it has left.
type Place struct {
	// Name is the node's, or the NodeClaim's while there is no node.
	Name  string
	State State
	// Machine is what was asked for; nil once it has joined as a node.
	Machine *Claim
	// Finding says of a Refused node what is wrong. Awaited says that it never was verified: until it is replaced, Karpenter
	// counts on it, and launches nothing for the pods that it is to take.
	Finding string
	Awaited bool
	// Node has the labels; nil while it is not known which they will be: then MayBe are those that it may get, if any are
	// known.
	Node   *corev1.Node
	MayBe  []*corev1.Node
	Taints []corev1.Taint
	Free   corev1.ResourceList
	// Has is what it has altogether, taken or not.
	Has corev1.ResourceList
	// Pods are there or can be expected there.
	Pods []*corev1.Pod
	// Leaving are on their way out and within their grace period: Free has what they still hold.
	Leaving []*corev1.Pod
}

// Verdict is what one waiting pod can expect of a pool.
type Verdict struct {
	Pod *corev1.Pod
	// Pool is the pool's name; empty for a pod that is meant for pools of ours but for none that exists.
	Pool string
	// Expected says that a node or a machine on its way can be expected to take the pod, or that one may be launched for
	// it: it is not held. Causes is empty then.
	Expected bool
	// Overdue says that it could be expected for longer than that may take, and therefore is no more.
	Overdue bool
	// Joining says that what it waits for, in time or not, is a machine that has not joined.
	Joining bool
	// Causes are all that stand in the way, in order of precedence. The first is the pod's reason; the others are what
	// would have to be true too.
	Causes []Cause
	// Offer is the machine that the pod waits for, Requests what it asks of it; Offer is nil where no machine of the pool
	// has anything that the pod asks for.
	Offer    *Offer
	Requests corev1.ResourceList
	// Since is when the pod began to wait.
	Since time.Time
}

// Held says whether something holds the pod.
func (v Verdict) Held() bool { return !v.Expected && len(v.Causes) > 0 }

// Reason is the name of the pod's one reason; empty where it is not held.
func (v Verdict) Reason() string {
	if !v.Held() {
		return ""
	}
	return v.Causes[0].Reason
}

// Cause is one thing that stands in a pod's way.
type Cause struct {
	// Reason is the name of one of v1alpha1.HoldReasons.
	Reason string `json:"reason"`
	// Message says it with the numbers, and begins with the pool's name: events on pods of several pools are told apart.
	Message string `json:"message"`
	// Remedy is one sentence that says what would free the pod.
	Remedy string `json:"remedy"`
	// Evidence are the numbers of the message, and more that help.
	Evidence []Fact `json:"evidence,omitempty"`
	// Limit is the limit's refusal where the reason is LimitReached.
	Limit *ledger.Refusal `json:"-"`
	// Moves are the fewest pods to move that would make room, where the reason is Fragmented.
	Moves *Plan `json:"moves,omitempty"`
}

// Fact is one thing that was looked at.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
