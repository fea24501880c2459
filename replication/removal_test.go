package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/replication/membership"
)

// configured are the voters and the other members of group 1 as a node has them, by name.
func (n *node) configured() map[string]bool {
	out := make(map[string]bool)
	for _, m := range n.group().Status().Members {
		out[m.Node] = m.Voter
	}
	return out
}

// A replica that is cut off, asks for votes all the while, and is removed meanwhile, does not disturb the leader when it
// is reached again, with its old log and configuration: hashicorp/raft issues 502 and 524.
func TestCutOffReplicaIsRemoved(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("one")
		leader, out := w.leader(), w.follower()
		g := leader.group()
		w.fabric.Isolate(out.name, w.others(out)...)
		w.eventually("it misses the leader", func() bool { return out.group().Status().Leader == "" })
		w.put("two")
		if err := g.Configure(t.Context(), Remove, out.group().Server(), 0); err != nil {
			t.Fatal(err)
		}
		term := g.Term()
		w.pause(time.Minute) // it campaigns some hundred times
		w.fabric.Rejoin(out.name, w.others(out)...)
		for i := range 60 {
			w.put(fmt.Sprint(i))
			w.pause(time.Second)
		}
		if g.Term() != term || term.Check() != nil {
			t.Error("the leader was disturbed")
		}
		if got, applied := out.group().Status(), g.Status().Applied; got.Applied >= applied || got.Leader == out.name {
			t.Errorf("the removed one applied %d of %d, its leader: %q", got.Applied, applied, got.Leader)
		}
		if out.group().Term() != nil {
			t.Error("the removed one leads")
		}
	})
}

// The leader loses its power within a change of voters that no other one has heard of, or that one other one has without
// the leader knowing. Whatever becomes of the change, all agree on it, nothing acknowledged is lost, and the change can
// be made again.
func TestLeaderDiesWithinAChangeOfVoters(t *testing.T) {
	for _, c := range []struct {
		name   string
		change Change
		before []Change
	}{
		{name: "remove", change: Remove},
		{name: "demote", change: Demote},
		{name: "add", change: AddVoter, before: []Change{Demote}},
	} {
		for _, heard := range []string{"by nobody", "by the one", "by the other"} {
			t.Run(c.name+" heard "+heard, func(t *testing.T) {
				for tries, told := 0, false; !told; tries++ {
					if tries == 20 {
						t.Fatal("the change was never sent: nothing was seen here")
					}
					bubble(t, 3, func(w *world) { told = leaderDiesWithin(w, c.change, c.before, heard) })
				}
			})
		}
	}
}

// leaderDiesWithin is false if the change was not sent before the leader stepped down: it sends one append at a time, and
// one that is being answered when the answers are cut holds up the next.
func leaderDiesWithin(w *world, change Change, before []Change, heard string) (told bool) {
	t := w.t
	w.found()
	acked := make(acks)
	w.publish("before", acked)
	old, one := w.leader(), w.follower()
	other := w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n != old && n != one })]
	for _, b := range before {
		if err := old.group().Configure(t.Context(), b, one.group().Server(), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("one configuration", func() bool { return w.agree() })
	first := old.configured()

	witness := map[string]*node{"by nobody": old, "by the one": one, "by the other": other}[heard]
	for _, n := range []*node{one, other} {
		if n != witness {
			w.fabric.Isolate(old.name, n.name)
		}
	}
	w.fabric.Cut(witness.name, old.name)
	at := witness.group().Status().LastLog
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- old.group().Configure(ctx, change, one.group().Server(), 0) }()
	w.eventually("the change is in a log, or the term is over", func() bool {
		told = witness.group().Status().LastLog > at
		return told || old.group().Term() == nil
	})
	w.powerCut(nil, 0, old)
	cancel()
	if err := <-ended; err == nil {
		t.Error("a change that a majority cannot have heard of is confirmed")
	}
	w.fabric.Rejoin(old.name, one.name, other.name)
	w.pause(5 * time.Second) // long enough for an election among those left
	old.up()

	w.putAtLeastOnce("after")
	w.eventually("one configuration again", func() bool { return w.agree() })
	got := w.leader().configured()
	voter, member := first[one.name], true
	switch change {
	case Remove:
		voter, member = false, false
	case Demote:
		voter = false
	case AddVoter, AddNonvoter:
		voter = change == AddVoter
	}
	changed := maps.Clone(first)
	changed[one.name] = voter
	if !member {
		delete(changed, one.name)
	}
	if !maps.Equal(got, first) && !maps.Equal(got, changed) {
		t.Errorf("the members are %v; before the change %v, by it %v", got, first, changed)
	}
	if leader := w.leader(); leader != one {
		if err := leader.group().Configure(t.Context(), change, one.group().Server(), 0); err != nil {
			t.Errorf("the same again: %v", err)
		}
		if got := leader.configured(); !maps.Equal(got, changed) {
			t.Errorf("the members are %v, want %v", got, changed)
		}
	}
	w.publish("at last", acked)
	if _, in := w.leader().configured()[one.name]; !in {
		if err := w.leader().group().Configure(t.Context(), AddVoter, one.group().Server(), 0); err != nil {
			t.Fatal(err)
		}
	}
	w.holds(acked)
	return told
}

// agree reports whether all that are members by the leader's configuration have that one.
func (w *world) agree() bool {
	want := w.leader().configured()
	for _, n := range w.nodes {
		if _, in := want[n.name]; in && !maps.Equal(n.configured(), want) {
			return false
		}
	}
	return true
}

// TestReplacementDies: a damaged replica is being replaced, and its node is lost for good as soon as the new replica has
// answered once, whatever it has of the log. The two nodes that nothing happened to go on.
func TestReplacementDies(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		end := w.careFor()
		defer end()
		victim := w.flushedFollower(50)
		old := victim.group().Server()
		victim.rotTables(1)
		_, _ = victim.group().Reader().StateHash(t.Context()) // finds it
		w.eventually("the new replica to answer the leader", func() bool {
			now := victim.group().Server()
			return now != old && slices.ContainsFunc(w.leader().group().Progress(), func(p Progress) bool {
				return p.Server == now && p.Contact >= 0
			})
		})
		w.fabric.Isolate(victim.name, w.others(victim)...)
		victim.down()
		w.pause(10 * time.Second) // for whatever changes of voters the leader takes for right
		w.putAtLeastOnce("acknowledged by the other two")
	})
}

// TestNoVoteIsGivenUpBesideADamagedReplica: a node of three is to leave just as the leader hears that another's replica
// is damaged. With two voters, one of which never answers again, there would be no leader any more to replace it.
func TestNoVoteIsGivenUpBesideADamagedReplica(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		end := w.careFor()
		defer end()
		victim := w.flushedFollower(50)
		old, leader := victim.group().Server(), w.leader()
		leaves := w.others(victim)[0]
		if leaves == leader.name {
			leaves = w.others(victim)[1]
		}
		victim.rotTables(1)
		_, _ = victim.group().Reader().StateHash(t.Context()) // finds it
		w.eventually("the leader to hear of the damage", func() bool {
			return slices.ContainsFunc(leader.group().Progress(), func(p Progress) bool {
				return p.Server == old && p.OutOfService
			})
		})
		w.desired.Store(&membership.Desired{Voters: []string{leader.name, victim.name}})
		w.eventually("two voters, the damaged one replaced", func() bool {
			st := w.leader().group().Status()
			voters := slices.DeleteFunc(slices.Clone(st.Members), func(m Member) bool { return !m.Voter })
			return len(voters) == 2 && !slices.ContainsFunc(st.Members, func(m Member) bool {
				return m.Node == leaves || m.Server == old
			})
		})
		w.putAtLeastOnce("acknowledged by the two")
	})
}
