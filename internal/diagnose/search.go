package diagnose

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxSteps bounds the search for a plan: sets of pods considered, and places considered for a pod. The hardest case that we
// know of with 64 nodes and 8 pods on each, no two alike, takes half of it. Beyond it nothing is said: a plan that was found
// then might not be the one with the fewest moves.
const maxSteps = 100_000

// search is one look for a plan: depth first, over sets of pods of one node, and for each set over the places where its
// pods may go.
type search struct {
	asked  demand
	places []*Place // verified, by name
	names  []corev1.ResourceName
	// free is what each place has left, less what the moves at hand bring there.
	free   []amounts
	chosen []*mover
	steps  int
}

// amounts are quantities in the order of the search's names, in thousandths: they are added up and compared many thousand
// times. No machine has the 9 petabytes that an int64 does not hold.
type amounts []int64

// unlimited is more than any machine has, and small enough to be added up.
const unlimited = 1 << 60

// target is a place where the pod would have room if pods moved off it.
type target struct {
	at int // among the places
	// short is what the pod lacks there, less what the moves at hand give back.
	short  amounts
	movers []*mover // by namespace and name
	// most is for each of the movers, of each resource, the most that one of it and those after it gives back.
	most []amounts
	// looked says that the movers' homes are known, apart that some of the movers repel each other.
	looked, apart bool
}

// mover is a pod that may move off a target.
type mover struct {
	demand
	gives amounts
	// must says that it has to move: it and the pod that needs room repel each other.
	must bool
	// homes are the other places that take it as they are, in order.
	homes []int
	// home is where it goes in the try at hand: one of its homes.
	home int
}

func newSearch(places []*Place, asked demand) *search {
	s := &search{asked: asked}
	for _, place := range places {
		if place.State == Verified {
			s.places = append(s.places, place)
		}
	}
	slices.SortFunc(s.places, func(a, b *Place) int { return cmp.Compare(a.Name, b.Name) })
	for _, place := range s.places {
		for name := range place.Free {
			s.names = append(s.names, name)
		}
	}
	for name := range asked.requests {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	for _, place := range s.places {
		s.free = append(s.free, s.freeOf(place))
	}
	return s
}

// fewest is the plan with the fewest moves: all nodes are looked at for one move before any is for two.
func (s *search) fewest() *Plan {
	if slices.ContainsFunc(s.places, func(place *Place) bool { return place.takes(s.asked) }) {
		return nil
	}
	targets := s.targets()
	for moves, most := 1, mostMovers(targets); moves <= most; moves++ {
		for _, t := range targets {
			if s.choose(t, 0, moves) {
				return s.plan(t)
			}
		}
	}
	return nil
}

func mostMovers(targets []*target) int {
	most := 0
	for _, t := range targets {
		most = max(most, len(t.movers))
	}
	return most
}

func (s *search) amountsOf(list corev1.ResourceList) amounts {
	out := make(amounts, len(s.names))
	for i, name := range s.names {
		quantity := list[name]
		out[i] = quantity.MilliValue()
	}
	return out
}

// freeOf is what a place has left, as fits reads it: what is neither listed nor counted is not known.
func (s *search) freeOf(place *Place) amounts {
	free := s.amountsOf(place.Free)
	for i, name := range s.names {
		if _, listed := place.Free[name]; !listed && !counted(name) {
			free[i] = unlimited
		}
	}
	return free
}

// targets are the places where moves might make room, by name.
func (s *search) targets() []*target {
	var out []*target
	for at, place := range s.places {
		if !s.asked.tolerates(place.Taints) || (place.Node != nil && !s.asked.selects(place.Node)) {
			continue
		}
		t := &target{at: at, short: s.shortOf(at)}
		if s.othersHold(t) && s.addMovers(t) {
			out = append(out, t)
		}
	}
	return out
}

// shortOf is what the pod lacks on a place. What a node does not list, no move gives back.
func (s *search) shortOf(at int) amounts {
	short := s.amountsOf(s.asked.requests)
	for i, name := range s.names {
		_, asked := s.asked.requests[name]
		_, listed := s.places[at].Free[name]
		switch {
		case !asked:
			short[i] = 0
		case listed || !counted(name):
			short[i] -= s.free[at][i]
		case short[i] > 0:
			short[i] = unlimited
		}
	}
	return short
}

// othersHold says whether the other places together have as much left as has to leave the target.
func (s *search) othersHold(t *target) bool {
	left := make(amounts, len(s.names))
	for at, free := range s.free {
		for i, amount := range free {
			if at != t.at {
				left[i] = min(unlimited, left[i]+max(0, amount))
			}
		}
	}
	return left.hold(t.short)
}

// addMovers finds the pods that may leave a target. It is false where one that has to cannot.
func (s *search) addMovers(t *target) bool {
	place := s.places[t.at]
	for _, pod := range place.Pods {
		must := avoids(pod, s.asked.pod) || avoids(s.asked.pod, pod)
		switch {
		case movable(pod, place.Name):
			asked := demandOf(pod)
			t.movers = append(t.movers, &mover{demand: asked, gives: s.amountsOf(asked.requests), must: must})
		case must:
			return false
		}
	}
	slices.SortFunc(t.movers, func(a, b *mover) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	t.measure()
	return true
}

func (t *target) measure() {
	t.most = make([]amounts, len(t.movers)+1)
	t.most[len(t.movers)] = make(amounts, len(t.short))
	for i := len(t.movers) - 1; i >= 0; i-- {
		t.most[i] = slices.Clone(t.most[i+1])
		for n, amount := range t.movers[i].gives {
			t.most[i][n] = max(t.most[i][n], amount)
		}
	}
}

// lookAround finds the homes of a target's movers, once. Those that have none stay; where one of them has to go, none needs
// to be looked at.
func (s *search) lookAround(t *target) {
	if t.looked {
		return
	}
	t.looked = true
	for _, m := range t.movers {
		for at, place := range s.places {
			s.steps++
			if at != t.at && place.takes(m.demand) {
				m.homes = append(m.homes, at)
			}
		}
	}
	stuck := func(m *mover) bool { return len(m.homes) == 0 }
	if slices.ContainsFunc(t.movers, func(m *mover) bool { return m.must && stuck(m) }) {
		t.movers = nil
	}
	t.movers = slices.DeleteFunc(t.movers, stuck)
	t.apart = slices.ContainsFunc(t.movers, func(m *mover) bool { return m.repelled(t.movers) })
	t.measure()
}

// repelled says whether the pod and another of some repel each other.
func (m *mover) repelled(others []*mover) bool {
	return slices.ContainsFunc(others, func(o *mover) bool { return o != m && (avoids(m.pod, o.pod) || avoids(o.pod, m.pod)) })
}

// alike says whether two movers of a target can stand for each other. Where some repel each other, none does.
func (t *target) alike(a, b *mover) bool {
	return !t.apart && a.must == b.must && slices.Equal(a.gives, b.gives) && slices.Equal(a.homes, b.homes)
}

// choose adds movers from the i-th on to those that are chosen, until as many as are wanted make room and find homes. It
// leaves out what cannot be better than what was tried: sets of which a part makes room, since that part was tried when
// fewer moves were, and found no homes; and sets with a pod in another's place that is like it and comes before it.
func (s *search) choose(t *target, i, wanted int) bool {
	if s.steps++; s.steps > maxSteps {
		return false
	}
	enough := t.enough(i)
	if wanted == 0 {
		return enough && !s.crowded(s.chosen) && s.settle(t, inOrder(s.chosen), 0)
	}
	if enough || !t.reachable(i, wanted) {
		return false
	}
	s.lookAround(t)
	for at := i; at <= len(t.movers)-wanted; at++ {
		m := t.movers[at]
		if slices.ContainsFunc(t.movers[i:at], func(before *mover) bool { return t.alike(before, m) }) {
			continue
		}
		s.chosen = append(s.chosen, m)
		t.short.add(m.gives, -1)
		if s.choose(t, at+1, wanted-1) {
			return true
		}
		t.short.add(m.gives, 1)
		s.chosen = s.chosen[:len(s.chosen)-1]
		if m.must {
			break
		}
	}
	return false
}

// enough says whether the pod has room when none of the movers from the i-th on goes.
func (t *target) enough(i int) bool {
	lacks := slices.ContainsFunc(t.short, func(short int64) bool { return short > 0 })
	return !lacks && !slices.ContainsFunc(t.movers[i:], func(m *mover) bool { return m.must })
}

// reachable says whether so many of the movers from the i-th on may give back what is short.
func (t *target) reachable(i, wanted int) bool {
	for n, short := range t.short {
		if short > int64(wanted)*t.most[i][n] {
			return false
		}
	}
	return true
}

// crowded says whether the homes of some movers hold fewer pods than these are, even if all were as small as the smallest.
func (s *search) crowded(movers []*mover) bool {
	least, counted, room := slices.Clone(movers[0].gives), make([]bool, len(s.places)), int64(0)
	for _, m := range movers {
		for i, amount := range m.gives {
			least[i] = min(least[i], amount)
		}
	}
	for _, m := range movers {
		for _, home := range m.homes {
			if !counted[home] {
				counted[home] = true
				room = min(unlimited, room+s.free[home].times(least))
			}
		}
	}
	return room < int64(len(movers))
}

// inOrder puts those first that have the fewest homes: where it cannot be done, it shows soon.
func inOrder(chosen []*mover) []*mover {
	return slices.SortedStableFunc(slices.Values(chosen), func(a, b *mover) int {
		return cmp.Or(cmp.Compare(len(a.homes), len(b.homes)), slices.Compare(b.gives, a.gives), slices.Compare(a.homes, b.homes))
	})
}

// settle finds a home for each of the movers from the i-th on, beside those before it. Pods that are alike go to homes in
// rising order, so that each way to divide them up is tried once.
func (s *search) settle(t *target, movers []*mover, i int) bool {
	if i == len(movers) {
		return true
	}
	m, first := movers[i], 0
	if i > 0 && t.alike(movers[i-1], m) {
		first = movers[i-1].home
	}
	for _, m.home = range m.homes {
		if s.steps++; s.steps > maxSteps {
			return false
		}
		if m.home < first || !s.free[m.home].hold(m.gives) || (t.apart && m.repelled(goingTo(m.home, movers[:i]))) {
			continue
		}
		s.free[m.home].add(m.gives, -1)
		if s.settle(t, movers, i+1) {
			return true
		}
		s.free[m.home].add(m.gives, 1)
	}
	return false
}

func goingTo(home int, movers []*mover) []*mover {
	var there []*mover
	for _, m := range movers {
		if m.home == home {
			there = append(there, m)
		}
	}
	return there
}

func (a amounts) add(other amounts, times int64) {
	for i := range a {
		a[i] += times * other[i]
	}
}

// hold says whether there is enough of everything that is asked.
func (a amounts) hold(asked amounts) bool {
	for i, amount := range asked {
		if amount > 0 && amount > a[i] {
			return false
		}
	}
	return true
}

// times is how many times there is what is asked.
func (a amounts) times(asked amounts) int64 {
	times := int64(unlimited)
	for i, amount := range asked {
		if amount > 0 {
			times = min(times, max(0, a[i])/amount)
		}
	}
	return times
}
