package region

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/test/nvml"
)

const (
	// shutdownDelay is how long an instance stays shutting-down.
	shutdownDelay = time.Second
	// retryEvery is how long a machine's programs wait before they try again what the cluster refused.
	retryEvery = time.Second
)

// live starts an instance's life: pending, running, shutting-down, terminated.
func (r *Region) live(row *instance) {
	r.work.Go(func() { r.life(r.ctx, row) })
}

func (r *Region) life(ctx context.Context, row *instance) {
	wait(ctx, r.cfg.BootDelay, row.end)
	m := &machine{region: r, row: row, dir: r.machineDir(row.id)}
	if ctx.Err() == nil && r.books.start(row.id) {
		r.logf("%s %s runs", row.id, row.typeName)
		m.run(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	m.powerOff(ctx)
	wait(ctx, shutdownDelay, nil)
	if ctx.Err() != nil {
		return
	}
	r.books.terminate(row.id)
	r.capacity.give(row.typeName, row.subnet.Zone, row.capacityType)
	r.logf("%s %s is terminated", row.id, row.typeName)
	m.forget(ctx)
}

func (r *Region) machineDir(id string) string { return filepath.Join(r.cfg.Dir, id) }

// machine is one running instance that may be a node.
type machine struct {
	region *Region
	row    *instance
	dir    string
	// node is the name that its kubelet registers; empty where it cannot.
	node string
}

// say writes a line to the machine's console.
func (m *machine) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	m.region.books.say(m.row.id, line)
	m.region.logf("%s: %s", m.row.id, line)
}

// run boots the machine and returns when the instance ends and all that ran on it has ended.
func (m *machine) run(ctx context.Context) {
	on, off := context.WithCancel(ctx)
	defer off()
	var power sync.WaitGroup
	defer power.Wait()
	power.Go(func() {
		defer off()
		select {
		case <-m.row.end:
		case <-on.Done():
		}
	})
	if m.region.cluster != nil {
		m.boot(on)
	}
	<-on.Done()
}

// boot does what cloud-init, nodeadm and the kubelet do, then runs the DaemonSets of the node until the power goes.
func (m *machine) boot(ctx context.Context) {
	if err := m.fitBoards(); err != nil {
		m.say("boot: %v", err)
		return
	}
	config, err := parseUserData(m.row.userData)
	if err != nil {
		m.say("nodeadm: %v", err)
		return
	}
	node, err := newNode(m.row, &config)
	if err != nil {
		m.say("kubelet: %v", err)
		return
	}
	if err := m.region.cluster.admits(&config, m.row.profile); err != nil {
		m.say("%v", err)
		return
	}
	m.node = node.Name
	m.untilDone(ctx, "kubelet: register the node", func() error { return m.region.cluster.registerNode(ctx, node) })
	m.untilDone(ctx, "cloud-controller-manager: initialize the node", func() error {
		_, err := m.region.cluster.initializeNode(ctx, node.Name, m.row)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	m.region.books.joined(m.row.id, node.Name)
	m.say("kubelet: joined cluster %s as node %s", config.Cluster.Name, node.Name)
	var programs sync.WaitGroup
	programs.Go(func() { m.runAgent(ctx) })
	programs.Go(func() { m.runDevicePlugin(ctx) })
	programs.Wait()
}

// untilDone repeats what the cluster refuses, as the programs of a node do, and says why it was refused.
func (m *machine) untilDone(ctx context.Context, what string, try func() error) {
	for ctx.Err() == nil {
		err := try()
		if err == nil || ctx.Err() != nil {
			return
		}
		m.say("%s: %v", what, err)
		wait(ctx, retryEvery, nil)
	}
}

// powerOff ends the heartbeat of a machine that joined.
func (m *machine) powerOff(ctx context.Context) {
	if m.node == "" {
		return
	}
	m.untilDone(ctx, "end the heartbeat", func() error { return m.region.cluster.stopHeartbeat(ctx, m.node) })
}

func (m *machine) forget(ctx context.Context) {
	if m.node == "" {
		return
	}
	m.untilDone(ctx, "cloud-controller-manager: delete the node", func() error {
		return m.region.cluster.forgetNode(ctx, m.node, m.row.providerID(), m.say)
	})
}

func (m *machine) statePath() string { return filepath.Join(m.dir, "nvml.state") }

// fitBoards writes what NVML finds on the machine when it boots: the type's boards, less what a fault takes away.
func (m *machine) fitBoards() error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return fmt.Errorf("make the machine's directory: %w", err)
	}
	state := boardsOf(m.row.id, m.row.kind, m.region.catalog)
	if missing, set := fault[missingGPU](m.region.faults, faultMissingGPU); set && missing.GPU < len(state.GPUs) {
		state.GPUs = slices.Delete(state.GPUs, missing.GPU, missing.GPU+1)
	}
	if lose, set := fault[loseMIGInstance](m.region.faults, faultLoseMIGInstance); set {
		state.Faults = append(state.Faults, nvml.Fault{Name: nvml.FaultLoseInstance, GPU: lose.GPU, N: lose.Nth})
	}
	if err := nvml.Write(m.statePath(), state); err != nil {
		return fmt.Errorf("fit the machine's boards: %w", err)
	}
	return nil
}

// boardsOf is a machine of this type that has just been made: MIG off, nothing wrong.
func boardsOf(id string, kind instanceType, c *catalog) nvml.State {
	state := nvml.State{Driver: c.Driver, NVML: c.NVML, CUDA: c.CUDA}
	for i, bus := range kind.Board.Buses {
		state.GPUs = append(state.GPUs, nvml.GPU{
			UUID: boardUUID(id, i), Name: kind.Board.Product, PCIBusID: bus, Board: kind.Board.Key, MemoryMiB: kind.Board.MemoryMiB,
		})
	}
	return state
}

// boardUUID is the same for the same machine and slot.
func boardUUID(id string, slot int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s board %d", id, slot))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
