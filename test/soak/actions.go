package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
	"github.com/gpufleet/terraform-provider-gpufleet/test/soak/invariants"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// action is one kind of mischief. It returns what it did, nothing where there was nothing to do it to.
type action struct {
	name   string
	weight int
	do     func(*soak, context.Context, *rand.Rand) (did string, err error)
}

func actions() []action {
	return []action{
		{"scale pods", 12, (*soak).actScale},
		{"set limits", 5, (*soak).actLimits},
		{"drift by class", 2, (*soak).actClass},
		{"drift by label", 1, (*soak).actLabel},
		{"delete claims", 4, (*soak).actDeleteClaims},
		{"kill controller", 3, (*soak).actKillController},
		{"kill machine", 3, (*soak).actKillMachine},
		{"lose a board", 1, (*soak).actLoseBoard},
		{"give boards back", 2, (*soak).actGiveBoardsBack},
		{"hold answers", 4, (*soak).actHold},
		{"wrong machines", 2, (*soak).actWrongMachines},
		{"shortage", 2, (*soak).actShortage},
		{"quota", 2, (*soak).actQuota},
	}
}

// choose draws an action by weight.
func choose(chance *rand.Rand) action {
	all, sum := actions(), 0
	for _, each := range all {
		sum += each.weight
	}
	drawn := chance.IntN(sum)
	for _, each := range all {
		if drawn -= each.weight; drawn < 0 {
			return each
		}
	}
	return all[0] // not reached: drawn is below the sum
}

func one[T any](chance *rand.Rand, of []T) T { return of[chance.IntN(len(of))] }

func (s *soak) merge(ctx context.Context, object client.Object, format string, args ...any) error {
	return s.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)))
}

func (s *soak) actScale(ctx context.Context, chance *rand.Rand) (string, error) {
	p := one(chance, s.pools)
	j := one(chance, p.jobs)
	return s.scale(ctx, p, j, chance.IntN(j.most+1))
}

func (s *soak) scale(ctx context.Context, p *pool, j job, replicas int) (string, error) {
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: p.deployment(j), Namespace: "default"}}
	return fmt.Sprintf("%s to %d", object.Name, replicas), s.merge(ctx, object, `{"spec":{"replicas":%d}}`, replicas)
}

func (s *soak) actLimits(ctx context.Context, chance *rand.Rand) (string, error) {
	p := one(chance, s.pools)
	limits := invariants.Limits{}
	if len(p.gpuLimits) > 0 {
		limits.GPUs = new(one(chance, p.gpuLimits))
	}
	if len(p.nodeLimits) > 0 {
		limits.Nodes = new(one(chance, p.nodeLimits))
	}
	return s.setLimits(ctx, p, limits)
}

func (s *soak) setLimits(ctx context.Context, p *pool, limits invariants.Limits) (string, error) {
	limits.From = time.Now()
	object := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	err := s.merge(ctx, object, `{"spec":{"limits":{"gpus":%s,"nodes":%s}}}`, number(limits.GPUs), number(limits.Nodes))
	if err != nil {
		return "", err
	}
	p.changed(limits)
	return fmt.Sprintf("%s: gpus %s, nodes %s", p.name, number(limits.GPUs), number(limits.Nodes)), nil
}

// number is JSON.
func number(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// actClass changes the disk of a class, which a running node cannot change.
func (s *soak) actClass(ctx context.Context, chance *rand.Rand) (string, error) {
	p, size := one(chance, s.pools), 100+chance.IntN(50)
	object := &v1alpha1.GPUNodeClass{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	return fmt.Sprintf("class %s: root volume of %d GiB", p.name, size), s.merge(ctx, object, `{"spec":{"cloud":{"aws":{"rootVolume":{"sizeGiB":%d}}}}}`, size)
}

func (s *soak) actLabel(ctx context.Context, chance *rand.Rand) (string, error) {
	p, team := one(chance, s.pools), one(chance, []string{"red", "blue"})
	object := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	return fmt.Sprintf("%s: label team=%s", p.name, team), s.merge(ctx, object, `{"spec":{"labels":{"team":%q}}}`, team)
}

// actDeleteClaims deletes one claim, or all of a pool.
func (s *soak) actDeleteClaims(ctx context.Context, chance *rand.Rand) (string, error) {
	claims := &karpv1.NodeClaimList{}
	p, all := one(chance, s.pools), chance.IntN(4) == 0
	if err := s.Client.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelPool: p.name}); err != nil || len(claims.Items) == 0 {
		return "", err
	}
	chosen := claims.Items
	if !all {
		chosen = []karpv1.NodeClaim{one(chance, claims.Items)}
	}
	var names []string
	for i := range chosen {
		if err := s.Client.Delete(ctx, &chosen[i]); client.IgnoreNotFound(err) != nil {
			return "", err
		}
		names = append(names, chosen[i].Name)
	}
	return strings.Join(names, ", "), nil
}

// actKillController ends it as a lost node does, and starts it again at once or a little later.
func (s *soak) actKillController(ctx context.Context, chance *rand.Rand) (string, error) {
	away := time.Duration(0)
	if chance.IntN(2) == 0 {
		away = time.Duration(chance.IntN(10_000)) * time.Millisecond
	}
	if err := s.Stack.KillController(); err != nil {
		return "", errors.Join(errBroken, err)
	}
	if err := stack.Pause(ctx, away); err != nil {
		return "", err
	}
	if err := s.Stack.StartController(ctx); err != nil {
		return "", errors.Join(errBroken, err)
	}
	return fmt.Sprintf("it was away for %s and is ready again", away), nil
}

// actKillMachine fails the hardware of a machine, one that is still pending among them.
func (s *soak) actKillMachine(ctx context.Context, chance *rand.Rand) (string, error) {
	machines, err := s.inState(ctx, one(chance, []string{"running", "running", "pending"}))
	if err != nil || len(machines) == 0 {
		return "", err
	}
	chosen := one(chance, machines)
	_, err = s.admin(ctx, http.MethodPost, "/v1/machines/"+chosen.ID+"/kill", nil)
	return fmt.Sprintf("%s of %s, which was %s", chosen.ID, invariants.PoolOf(chosen), chosen.State), err
}

// actLoseBoard takes a board from a machine that runs.
func (s *soak) actLoseBoard(ctx context.Context, chance *rand.Rand) (string, error) {
	machines, err := s.inState(ctx, "running")
	if err != nil || len(machines) == 0 {
		return "", err
	}
	chosen := one(chance, machines)
	return fmt.Sprintf("%s of %s", chosen.ID, invariants.PoolOf(chosen)), s.setBoards(ctx, chosen, gpus[chosen.Type]-1)
}

func (s *soak) setBoards(ctx context.Context, machine region.Instance, boards int64) error {
	_, err := s.admin(ctx, http.MethodPatch, "/v1/machines/"+machine.ID, map[string]any{"nvml": map[string]any{"gpus": boards}})
	return err
}

// actGiveBoardsBack makes every machine whole that does not end meanwhile.
func (s *soak) actGiveBoardsBack(ctx context.Context, _ *rand.Rand) (string, error) {
	machines, err := s.inState(ctx, "running")
	if err != nil {
		return "", err
	}
	whole := 0
	for _, each := range machines {
		if s.setBoards(ctx, each, gpus[each.Type]) == nil {
			whole++
		}
	}
	if whole == 0 {
		return "", nil
	}
	return fmt.Sprintf("to %d of %d machines", whole, len(machines)), nil
}

// onFor is how long a fault stays on.
func onFor(chance *rand.Rand) time.Duration { return time.Duration(5+chance.IntN(40)) * time.Second }

// actHold loses answers: the controller waits for as long as it does for an answer whose call took effect.
func (s *soak) actHold(ctx context.Context, chance *rand.Rand) (string, error) {
	operation := one(chance, []string{"RunInstances", "RunInstances", "TerminateInstances", "DescribeInstances"})
	return s.fault(ctx, "hold-response", map[string]any{"operation": operation, "seconds": 1 + chance.IntN(60)}, onFor(chance))
}

func (s *soak) actWrongMachines(ctx context.Context, chance *rand.Rand) (string, error) {
	span := onFor(chance)
	switch chance.IntN(3) {
	case 0:
		return s.fault(ctx, "missing-gpu", map[string]any{"gpu": 0}, span)
	case 1:
		return s.fault(ctx, "lose-mig-instance", map[string]any{"gpu": 0, "nth": 1 + chance.IntN(2)}, span)
	}
	from := one(chance, []string{"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"})
	return s.fault(ctx, "rename-resource", map[string]any{"from": from, "to": from + ".other"}, span)
}

func (s *soak) fault(ctx context.Context, name string, body map[string]any, span time.Duration) (string, error) {
	s.faults[name] = time.Now().Add(span)
	return fmt.Sprintf("%s %v for %s", name, body, span), s.SetFault(ctx, name, body)
}

// actShortage leaves little of some types, everywhere and however they are bought.
func (s *soak) actShortage(ctx context.Context, chance *rand.Rand) (string, error) {
	var short []region.Capacity
	free, span := chance.IntN(2), onFor(chance)
	chosen := one(chance, sortedTypes())
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		for _, capacityType := range []string{"on-demand", "spot"} {
			short = append(short, region.Capacity{Type: chosen, Zone: zone, CapacityType: capacityType, Free: free})
		}
	}
	s.faults["capacity"] = time.Now().Add(span)
	_, err := s.admin(ctx, http.MethodPut, "/v1/capacity", short)
	return fmt.Sprintf("%d more of %s in each zone, for %s", free, chosen, span), err
}

func sortedTypes() []string {
	var out []string
	for name := range gpus {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (s *soak) actQuota(ctx context.Context, chance *rand.Rand) (string, error) {
	quota := region.Quota{
		Bucket: one(chance, []string{"P", "G"}), CapacityType: one(chance, []string{"on-demand", "spot"}), VCPUs: 96 * chance.IntN(3),
	}
	span := onFor(chance)
	s.faults["quotas"] = time.Now().Add(span)
	_, err := s.admin(ctx, http.MethodPut, "/v1/quotas", []region.Quota{quota})
	return fmt.Sprintf("%d vCPUs of %s %s for %s", quota.VCPUs, quota.Bucket, quota.CapacityType, span), err
}

// endFaults switches off what has been on for long enough.
func (s *soak) endFaults(ctx context.Context) {
	for name, until := range s.faults {
		if time.Now().Before(until) {
			continue
		}
		var err error
		switch name {
		case "capacity":
			_, err = s.admin(ctx, http.MethodPut, "/v1/capacity", []region.Capacity{})
		case "quotas":
			_, err = s.admin(ctx, http.MethodPut, "/v1/quotas", []region.Quota{})
		default:
			err = s.ClearFault(ctx, name)
		}
		if err != nil {
			s.diary.say("%s is not over: %v", name, err)
			continue
		}
		delete(s.faults, name)
		s.diary.say("%s is over", name)
	}
}
