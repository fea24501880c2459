package replication

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/replication/membership"
)

// fault is one entry of a plan.
type fault struct {
	at   time.Duration
	what string
	do   func()
}

// plan draws the faults of a run.
func (s *sim) plan(length time.Duration) []fault {
	var plan []fault
	add := func(at time.Duration, what string, do func()) {
		plan = append(plan, fault{at: at, what: what, do: do})
	}
	for at := s.between(500, 1500); at < length; at += s.between(200, 2500) {
		s.draw(at, add)
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return plan
}

// between draws a duration, in milliseconds.
func (s *sim) between(lo, hi int) time.Duration {
	return time.Duration(lo+s.rng.IntN(hi-lo)) * time.Millisecond
}

func (s *sim) draw(at time.Duration, add func(time.Duration, string, func())) {
	a := s.nodes[s.rng.IntN(len(s.nodes))]
	b := s.nodes[s.rng.IntN(len(s.nodes))]
	end := at + s.between(50, 4000)
	percent := []int{0, 0, 0, 50}[s.rng.IntN(4)]
	disk := rand.New(rand.NewPCG(s.rng.Uint64(), 3))
	kind := s.rng.IntN(19)
	switch len(s.nodes) {
	case 1:
		kind = []int{0, 1, 2, 3, 3}[s.rng.IntN(5)]
	case 5:
		if s.rng.IntN(3) == 0 {
			s.drawFive(at, end, add)
			return
		}
	}
	switch kind {
	case 0, 1:
		add(at, "power cut of "+a.name, func() { s.crash(disk, percent, a) })
		add(end, "start of "+a.name, a.up)
	case 2:
		add(at, "power cut of all", func() { s.crash(disk, percent, s.nodes...) })
		for _, n := range s.nodes {
			add(at+s.between(0, 1000), "start of "+n.name, n.up)
		}
	case 3, 12:
		every := int64(2 + s.rng.IntN(6))
		add(at, fmt.Sprintf("refuse one in %d", every), func() { s.every.Store(every) })
		add(end, "refuse none", func() { s.every.Store(0) })
	case 4:
		add(at, "clean stop of "+a.name, a.down)
		add(end, "start of "+a.name, a.up)
	case 5, 6:
		add(at, "isolate "+a.name, func() { s.fabric.Isolate(a.name, s.others(a)...) })
		add(end, "rejoin "+a.name, func() { s.fabric.Rejoin(a.name, s.others(a)...) })
	case 7:
		add(at, "cut "+a.name+" to "+b.name, func() { s.fabric.Cut(a.name, b.name) })
		add(end, "heal "+a.name+" to "+b.name, func() { s.fabric.Heal(a.name, b.name) })
	case 13, 14:
		hurt := damageKinds[s.rng.IntN(len(damageKinds))]
		group := s.rng.IntN(2)
		add(at, fmt.Sprintf("%s of group %d at %s", hurt.name, group, a.name), func() {
			s.hurt(func(n *node) { hurt.do(diskEdit{s.world, n.mu.fs}, fmt.Sprintf("data/groups/%d", group)) }, a)
		})
	case 15:
		back := s.oldCopy(a)
		add(at, "copy of the disk of "+a.name, back.take)
		add(at+s.between(1500, 3000), "old disk of "+a.name, back.put)
	case 8:
		add(at, "drop "+a.name+" and "+b.name, func() { s.fabric.Drop(a.name, b.name) })
	case 9, 10:
		add(at, "transfer to "+a.name, func() { s.transfer(a) })
	case 11:
		add(at, "failing transfer to "+a.name, func() { s.transfer(a) })
		add(at+s.between(0, 3), "isolate "+a.name, func() { s.fabric.Isolate(a.name, s.others(a)...) })
		add(end, "rejoin "+a.name, func() { s.fabric.Rejoin(a.name, s.others(a)...) })
	case 18:
		s.drawFewer(at, []*node{a}, add)
	case 16, 17:
		var from *node
		add(at, "unheard transfer to "+a.name, func() {
			if from = s.leads(); from != nil {
				s.unheard(from)
				s.transfer(a)
			}
		})
		add(end, "hear again", func() {
			if from != nil {
				s.fabric.Rejoin(from.name, s.others(from)...)
			}
		})
	}
}

// drawFive draws what only a cluster of five can bear.
func (s *sim) drawFive(at, end time.Duration, add func(time.Duration, string, func())) {
	order := s.rng.Perm(len(s.nodes))
	few := []*node{s.nodes[order[0]], s.nodes[order[1]]}
	names := few[0].name + " and " + few[1].name
	switch s.rng.IntN(6) {
	case 4:
		hurt := damageKinds[s.rng.IntN(len(damageKinds))]
		group := s.rng.IntN(2)
		add(at, fmt.Sprintf("%s of group %d at %s", hurt.name, group, names), func() {
			s.hurt(func(n *node) {
				hurt.do(diskEdit{s.world, n.mu.fs}, fmt.Sprintf("data/groups/%d", group))
			}, few...)
		})
	case 5:
		back := s.oldCopy(few...)
		add(at, "copy of the disks of "+names, back.take)
		add(at+s.between(1500, 3000), "old disks of "+names, back.put)
	case 0:
		again := at + s.between(50, 4000)
		disk := rand.New(rand.NewPCG(s.rng.Uint64(), 3))
		add(at, "power cut of "+names, func() { s.crash(disk, 50, few...) })
		add(end, "start of "+few[0].name, few[0].up)
		add(again, "start of "+few[1].name, few[1].up)
	case 1:
		sides := func(change func(from, to string)) {
			for _, i := range order[:2] {
				for _, j := range order[2:] {
					change(s.nodes[i].name, s.nodes[j].name)
					change(s.nodes[j].name, s.nodes[i].name)
				}
			}
		}
		add(at, "partition of "+names, func() { sides(s.fabric.Cut) })
		add(end, "end of the partition", func() { sides(s.fabric.Heal) })
	default:
		s.drawFewer(at, few, add)
	}
}

// drawFewer takes nodes out, or only their votes, and gives them back.
func (s *sim) drawFewer(at time.Duration, few []*node, add func(time.Duration, string, func())) {
	less := &membership.Desired{}
	var names []string
	for _, n := range s.nodes {
		if slices.Contains(few, n) {
			names = append(names, n.name)
		} else {
			less.Voters = append(less.Voters, n.name)
		}
	}
	what := "removal of "
	if s.rng.IntN(2) == 0 {
		what = "no more votes for "
		less.Followers = names
	}
	add(at, what+strings.Join(names, " and "), func() { s.desired.Store(less) })
	add(at+s.between(500, 3000), "all vote again", func() { s.desired.Store(nil) })
}

// leads is the node that serves group 1, nil if none does at this moment.
func (s *sim) leads() *node {
	for _, n := range s.nodes {
		if h := n.host(); h != nil {
			if t := h.Group(1).Term(); t != nil && t.Check() == nil {
				return n
			}
		}
	}
	return nil
}

func (s *sim) crash(rng *rand.Rand, percent int, nodes ...*node) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.host() == nil })
	s.powerCut(rng, percent, nodes...)
}

// hurt takes the power of a minority and changes its disks before it comes back, if all
// replicas are sound and even: what another node loses meanwhile would be a majority's.
func (s *sim) hurt(change func(n *node), few ...*node) {
	if !s.sound() {
		return
	}
	s.hurts.Add(int64(len(few)))
	s.powerCut(nil, 0, few...)
	for _, n := range few {
		s.hurtNodes[n] = true
		change(n)
	}
	for _, n := range few {
		n.up()
	}
}

// copied are the disks of a minority as they were.
type copied struct {
	s       *sim
	few     []*node
	servers []string
	disks   map[*node]*vfs.MemFS
}

func (s *sim) oldCopy(few ...*node) *copied { return &copied{s: s, few: few} }

func (c *copied) names() []string {
	var out []string
	for _, n := range c.few {
		if h := n.host(); h != nil {
			for _, g := range h.Groups() {
				out = append(out, g.Server())
			}
		}
	}
	return out
}

func (c *copied) take() {
	if !c.s.sound() {
		return
	}
	c.servers, c.disks = c.names(), make(map[*node]*vfs.MemFS)
	for _, n := range c.few {
		c.disks[n] = n.mu.fs.CrashClone(crashAll)
	}
}

// put brings the old disks back, unless a replica was replaced meanwhile: the cluster
// knows a new one then. Something is written after the copy, and heard of by all.
func (c *copied) put() {
	if c.disks == nil || !slices.Equal(c.names(), c.servers) {
		return
	}
	c.s.hurt(func(n *node) { n.mu.fs = c.disks[n] }, c.few...)
}

func (s *sim) transfer(to *node) {
	for _, n := range s.nodes {
		h := n.host()
		if h == nil || n == to || h.Group(1).Term() == nil {
			continue
		}
		s.work.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
			defer cancel()
			_ = h.Group(1).Transfer(ctx, to.name) // it may fail
		})
	}
}
