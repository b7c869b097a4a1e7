package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/test/soak/invariants"
	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

const (
	// served bounds how long all pods may take to run, or to hear why they wait, when nothing stands in the way any more. A
	// node that core gave to a pod and that never was verified may hold it for longer, and says so.
	served = 6 * time.Minute
	// emptied bounds how long the fleet may take to go.
	emptied = 6 * time.Minute
)

// end takes away what stands in the way and wants all pods served; then it takes away pods and pools and wants no machine
// left.
func (s *soak) end(ctx context.Context) error {
	if err := s.makeGenerous(ctx); err != nil {
		return err
	}
	lacks, err := s.until(ctx, served, "every pod runs", s.waiting)
	if err == nil && len(lacks) > 0 {
		lacks, err = s.unexplained(ctx)
	}
	s.missing("every pod runs, or has an event that says why it waits", lacks)
	if err == nil {
		err = s.takeAway(ctx)
	}
	if err != nil {
		return err
	}
	lacks, err = s.until(ctx, emptied, "no pod, pool, node or machine is left", s.left)
	s.missing("no pod, pool, node or machine is left", lacks)
	return err
}

// missing notes what should be and is not.
func (s *soak) missing(what string, lacks []string) {
	if len(lacks) > 0 {
		s.watch.tell(fmt.Sprintf("it is not so that %s: %s", what, strings.Join(lacks, "; ")))
	}
}

// makeGenerous ends all faults, makes machines whole, and sets limits that every job fits into.
func (s *soak) makeGenerous(ctx context.Context) error {
	s.diary.say("mischief ends: no faults, generous limits")
	if _, err := s.admin(ctx, http.MethodPost, "/v1/reset", nil); err != nil {
		return err
	}
	if _, err := s.actGiveBoardsBack(ctx, nil); err != nil {
		return err
	}
	for _, p := range s.pools {
		limits := invariants.Limits{}
		if len(p.gpuLimits) > 0 {
			limits.GPUs = new(int64(100))
		}
		if len(p.nodeLimits) > 0 {
			limits.Nodes = new(int64(20))
		}
		if _, err := s.setLimits(ctx, p, limits); err != nil {
			return err
		}
	}
	return nil
}

// until waits until nothing is missing, and returns what is when the time is over.
func (s *soak) until(ctx context.Context, span time.Duration, what string, missing func(context.Context) ([]string, error)) ([]string, error) {
	s.diary.say("waiting until %s", what)
	for began, said := time.Now(), time.Now(); ; {
		lacks, err := missing(ctx)
		if err != nil {
			return nil, err
		}
		if len(lacks) == 0 {
			s.diary.say("after %s: %s", time.Since(began).Round(time.Second), what)
		}
		if len(lacks) == 0 || time.Since(began) > span {
			return lacks, nil
		}
		if time.Since(said) > 30*time.Second {
			s.diary.say("not yet: %d, such as %s", len(lacks), lacks[0])
			said = time.Now()
		}
		if err := stack.Pause(ctx, time.Second); err != nil {
			return nil, err
		}
		select {
		case dead := <-s.Stack.Died():
			return nil, errors.Join(errBroken, dead)
		default:
		}
	}
}

// waiting are the pods that do not run.
func (s *soak) waiting(ctx context.Context) ([]string, error) {
	pods, err := s.jobPods(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range pods {
		if !runs(&pods[i]) {
			out = append(out, inWords(&pods[i]))
		}
	}
	return out, nil
}

func (s *soak) jobPods(ctx context.Context) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := s.Client.List(ctx, pods, client.HasLabels{labelJob})
	return pods.Items, err
}

func runs(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

func inWords(pod *corev1.Pod) string {
	return fmt.Sprintf("pod %s: %s on node %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
}

// unexplained are the pods that neither run nor have an event with a reason for which their pool says that pods wait.
func (s *soak) unexplained(ctx context.Context) ([]string, error) {
	pods, err := s.jobPods(ctx)
	if err != nil {
		return nil, err
	}
	told, err := s.told(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	why, run := map[string]int{}, 0
	for i := range pods {
		reason := told[pods[i].UID]
		switch {
		case runs(&pods[i]):
			run++
		case pods[i].Spec.NodeName == "" && reason != "":
			why[reason]++
		default:
			out = append(out, inWords(&pods[i]))
		}
	}
	s.diary.say("%d pods run; that wait and know why: %v; that do not: %d", run, why, len(out))
	return out, nil
}

// told are the reasons that pods have heard of, and that their pool still has.
func (s *soak) told(ctx context.Context) (map[types.UID]string, error) {
	pools, events := &v1alpha1.GPUNodePoolList{}, &corev1.EventList{}
	for _, list := range []client.ObjectList{pools, events} {
		if err := s.Client.List(ctx, list); err != nil {
			return nil, err
		}
	}
	holds := map[string]bool{}
	for i := range pools.Items {
		for _, hold := range pools.Items[i].Status.Holds {
			holds[pools.Items[i].Name+" "+hold.Reason] = true
		}
	}
	told := map[types.UID]string{}
	for i := range events.Items {
		about, reason := events.Items[i].InvolvedObject, events.Items[i].Reason
		for _, p := range s.pools {
			if strings.HasPrefix(about.Name, p.name+"-by-") && holds[p.name+" "+reason] {
				told[about.UID] = reason
			}
		}
	}
	return told, nil
}

// takeAway deletes jobs, pools and classes.
func (s *soak) takeAway(ctx context.Context) error {
	s.diary.say("pods and pools are deleted")
	for _, p := range s.pools {
		for _, j := range p.jobs {
			object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: p.deployment(j), Namespace: "default"}}
			if err := s.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				return err
			}
		}
		if err := s.Client.Delete(ctx, &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name}}); err != nil {
			return err
		}
	}
	return nil
}

// left is everything that is still there.
func (s *soak) left(ctx context.Context) ([]string, error) {
	var out []string
	for _, list := range []client.ObjectList{&corev1.PodList{}, &v1alpha1.GPUNodePoolList{}, &corev1.NodeList{}} {
		var options []client.ListOption
		if _, is := list.(*corev1.PodList); is {
			options = append(options, client.HasLabels{labelJob})
		}
		if err := s.Client.List(ctx, list, options...); err != nil {
			return nil, err
		}
		if n := lengthOf(list); n > 0 {
			out = append(out, fmt.Sprintf("%d in the %T", n, list))
		}
	}
	books, err := s.books(ctx)
	return append(out, invariants.Left(books)...), err
}

func lengthOf(list client.ObjectList) int {
	switch list := list.(type) {
	case *corev1.PodList:
		return len(list.Items)
	case *v1alpha1.GPUNodePoolList:
		return len(list.Items)
	case *corev1.NodeList:
		return len(list.Items)
	}
	return 0
}

// summary says what was done and what was seen.
func (s *soak) summary(ctx context.Context) {
	if s.watch == nil {
		return
	}
	books, err := s.books(ctx)
	if err != nil {
		s.diary.say("the books cannot be read any more: %v", err)
	}
	s.watch.look(books)
	s.watch.lookAtBindings(books)
	s.diary.say("seed %d: what was done", s.seed)
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		t := s.done[name]
		s.diary.say("  %-18s %3d done, %2d with nothing to do it to, %2d did not work", name, t.done, t.nothing, t.failed)
	}
	launched := map[string]int{}
	for _, each := range books {
		launched[invariants.PoolOf(each)]++
	}
	s.diary.say("machines ever: %v", launched)
	looks, most := s.watch.seen()
	s.diary.say("most GPUs that were there at one of %d looks: %v", looks, most)
	broken := s.watch.broken()
	s.diary.say("violations: %d", len(broken))
	for _, each := range broken {
		s.diary.say("  %s", each)
	}
}
