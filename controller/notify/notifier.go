package notify

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Notice is one thing that a person should hear of: pods of a pool are held for a reason, or are no more.
type Notice struct {
	// Pool is the name of the GPUNodePool, Workload its class.
	Pool     string
	Workload string
	// Reason is one of v1alpha1.HoldReasons.
	Reason string
	// Held is false when it ended, or is not so.
	Held bool
	// Pods and GPUs are how many are held; 0 when it ended.
	Pods, GPUs int
	// Since is when the first of the pods began to wait.
	Since time.Time
	// Message is what was found, with the numbers; Remedy what would free the pods.
	Message string
	Remedy  string
	// Command is what to run next: kubectl gpufleet explain pool NAME.
	Command string
}

// Notifier tells webhooks.
type Notifier struct {
	clock    clock.Clock
	webhooks []*webhook
}

var (
	_ manager.Runnable               = (*Notifier)(nil)
	_ manager.LeaderElectionRunnable = (*Notifier)(nil)
)

// New returns a notifier of a cluster. It sends nothing before Start.
func New(config Config, cluster string, logger logr.Logger, clk clock.Clock) (*Notifier, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	n := &Notifier{clock: clk}
	for _, each := range config.Webhooks {
		n.webhooks = append(n.webhooks, newWebhook(each, cluster, logger.WithName("notify").WithValues("webhook", each.Name), clk))
	}
	return n, nil
}

// Notify takes note of what holds, or does not. It never blocks and never fails, and is called with the same again and
// again: at each look, for each reason, also for one that holds nothing and for a pool that is gone. Of what nobody has
// spoken of for ten minutes nothing is said any more.
func (n *Notifier) Notify(notice Notice) {
	notice = notice.bounded()
	now := n.clock.Now()
	for _, each := range n.webhooks {
		each.hear(notice, now)
	}
}

// Start sends until the context ends, and returns when nothing of it runs any more.
func (n *Notifier) Start(ctx context.Context) error {
	var senders sync.WaitGroup
	for _, each := range n.webhooks {
		senders.Go(func() { each.run(ctx) })
	}
	<-ctx.Done()
	senders.Wait()
	return nil
}

// NeedLeaderElection: of several replicas one tells.
func (n *Notifier) NeedLeaderElection() bool { return true }

// longestText bounds, in bytes, each text that is remembered and sent.
const longestText = 4096

func (n Notice) bounded() Notice {
	for _, text := range []*string{&n.Message, &n.Remedy, &n.Command} {
		*text = cut(*text)
	}
	return n
}
