package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// proposer makes envelopes by hand on a term.
type proposer struct {
	t     *Term
	fence record.Fence
	base  record.Fence
	seq   uint64
}

// newProposer begins an epoch that no planner of the term uses.
func newProposer(t *Term, epoch uint64) *proposer {
	return &proposer{
		t:     t,
		fence: record.Fence{Term: t.Number(), Epoch: epoch},
		base:  t.Base(),
		seq:   1000 * epoch,
	}
}

// next proposes one message and returns where its Done arrives.
func (p *proposer) next(durable func()) chan error {
	p.fence.Ordinal++
	p.seq++
	b := command.NewBuilder(256)
	b.Store(testStream, &command.Item{Seq: p.seq}, &record.Message{Subject: "by.hand", Payload: []byte("x")})
	h := command.Header{Fence: p.fence, Proposal: p.t.NextID(), Time: p.t.Now()}
	if p.fence.Ordinal == 1 {
		h.Base = p.base
	}
	done := make(chan error, 2)
	p.t.Propose(
		&record.Proposal{
			ID:      h.Proposal,
			Entry:   b.Finish(&h),
			Durable: durable,
			Done:    func(err error) { done <- err },
		},
	)
	return done
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if (want == nil && got != nil) || !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestOutcomesOfProposals(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		var refuse atomic.Pointer[record.ProposalID]
		for _, n := range w.nodes {
			n.hook = func(p *record.Proposal) bool {
				id := refuse.Load()
				return id != nil && *id == p.ID
			}
		}
		w.found()
		leader := w.leader()
		term := leader.group().Term()
		p := newProposer(term, 50)
		var durable atomic.Int64
		first := p.next(func() { durable.Add(1) })
		id := term.NextID()
		n := binary.BigEndian.Uint64(id[8:])
		id = record.NewProposalID(id.Boot(), n+1)
		refuse.Store(&id)
		second := p.next(func() { durable.Add(100) })
		third := p.next(func() { durable.Add(1) })
		wantErr(t, "first", <-first, nil)
		wantErr(t, "refused", <-second, record.ErrRefused)
		wantErr(t, "planned on the refused one", <-third, record.ErrStalePlan)
		if durable.Load() != 2 {
			t.Errorf("durable %d, want 2: the stale one was stored too", durable.Load())
		}
		want := record.Fence{Term: term.Number(), Epoch: 50, Ordinal: 1}
		if diff := cmp.Diff(want, term.Base()); diff != "" {
			t.Errorf("base (-want +got):\n%s", diff)
		}
		if err := term.Barrier(t.Context()); err != nil {
			t.Error(err)
		}
		again := newProposer(term, 51)
		wantErr(t, "next epoch", <-again.next(nil), nil)

		// A leader that nobody hears.
		w.fabric.Isolate(leader.name, w.others(leader)...)
		doubt := again.next(func() { durable.Add(1000) })
		wantErr(t, "cut off", <-doubt, record.ErrUnknownOutcome)
		if durable.Load() != 1002 {
			t.Errorf("durable %d, want 1002", durable.Load())
		}
		wantErr(t, "check when cut off", term.Check(), record.ErrNotLeader)
		w.eventually("the term to end", func() bool { return leader.group().Term() == nil })
		wantErr(t, "after the term", <-again.next(nil), record.ErrNotLeader)
		wantErr(t, "barrier after the term", term.Barrier(t.Context()), record.ErrNotLeader)
		w.fabric.Rejoin(leader.name, w.others(leader)...)
		if next := w.leader().group().Term(); next.Number() <= term.Number() {
			t.Errorf("term %d after term %d", next.Number(), term.Number())
		}
	})
}

func TestLeaseEndsBeforeASuccessorServes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		for range 5 {
			old := w.leader()
			term := old.group().Term()
			w.fabric.Isolate(old.name, w.others(old)...)
			cut := time.Now()
			var lost time.Duration
			w.eventually("another leader", func() bool {
				if term.Check() == nil {
					lost = time.Since(cut)
				}
				for _, n := range w.nodes {
					if tn := n.group().Term(); n != old && tn != nil && tn.Check() == nil {
						return true
					}
				}
				return false
			})
			if term.Check() == nil {
				t.Error("two nodes may act as the leader")
			}
			if limit := Local().Heartbeat * 9 / 10; lost > limit {
				t.Errorf("the lease held for %v after the cut, want at most %v", lost, limit)
			}
			w.fabric.Rejoin(old.name, w.others(old)...)
			w.eventually("the old one to follow", func() bool {
				s := old.group().Status()
				return s.Role == RoleFollower && s.Replicating
			})
		}
	})
}

func TestCheckAllocatesNothing(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		term := w.leader().group().Term()
		if n := testing.AllocsPerRun(100, func() {
			if term.Check() != nil {
				t.Error("not the leader")
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestInFlightLimit(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		leader := w.leader()
		w.fabric.Isolate(leader.name, w.others(leader)...)
		p := newProposer(leader.group().Term(), 50)
		limit := int(testRetention().inFlight())
		var answers []chan error
		for range limit {
			answers = append(answers, p.next(nil))
		}
		over := p.next(nil)
		for i, a := range answers {
			wantErr(t, fmt.Sprint("proposal ", i), <-a, record.ErrUnknownOutcome)
		}
		wantErr(t, "past the limit", <-over, record.ErrRefused)
	})
}

func TestRecreate(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("before")
		for range 3 {
			leader := w.leader()
			p := newProposer(leader.group().Term(), 50)
			var answers []chan error
			for range 8 {
				answers = append(answers, p.next(nil))
			}
			made := leader.group().Status().Instances
			leader.group().recreate("test")
			for _, a := range answers {
				if err := <-a; err != nil && !errors.Is(err, record.ErrUnknownOutcome) &&
					!errors.Is(err, record.ErrNotLeader) {
					t.Errorf("proposal in flight: %v", err)
				}
			}
			w.eventually("a new instance", func() bool { return leader.group().Status().Instances == made+1 })
			for _, n := range w.nodes {
				if n != leader {
					n.group().recreate("test of a follower")
					break
				}
			}
			w.put("between")
		}
		for _, n := range w.nodes {
			n.check()
		}
	})
}

// TestInstallOverALongerLog meets what wedges the library: a follower that is sent a
// snapshot while its own log reaches beyond it.
func TestInstallOverALongerLog(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("common")
		old := w.leader()
		g := old.group()
		w.fabric.Isolate(old.name, w.others(old)...)
		g.inst.Load().limit = 1000 // the limit is there to keep this from happening
		p := newProposer(g.Term(), 50)
		for range 300 {
			p.next(nil)
		}
		w.eventually("the term to end", func() bool { return g.Term() == nil })
		tail := g.Status().LastLog
		next := w.leader()
		for i := range 150 {
			w.put(fmt.Sprint("v", i))
		}
		in := next.group().inst.Load()
		if err := in.snapshot(); err != nil {
			t.Fatal(err)
		}
		first := next.group().rep.Load().logs.log.FirstIndex()
		if applied := next.group().Status().Applied; first < 10 || applied >= tail {
			t.Fatalf("log starts at %d, applied %d, tail %d: nothing to see here", first, applied, tail)
		}
		// Appends made before the snapshot could still arrive and shorten the log: let
		// them time out, and drop what lies in the connections.
		w.pause(2 * worldAppendTimeout)
		for _, name := range w.others(old) {
			w.fabric.Drop(old.name, name)
		}
		w.fabric.Rejoin(old.name, w.others(old)...)
		w.eventually("the old leader to have caught up", func() bool {
			return old.group().Status().Applied == next.group().Status().Applied
		})
		w.eventually("a second Raft instance", func() bool { return g.Status().Instances == 2 })
		w.put("after")
	})
}

func TestTransfer(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("something")
		from := w.leader()
		var to, third *node
		for _, n := range w.nodes {
			switch {
			case n == from:
			case to == nil:
				to = n
			default:
				third = n
			}
		}
		ctx := t.Context()
		g := from.group()
		wantErr(t, "to itself", g.Transfer(ctx, from.name), record.ErrRefused)
		wantErr(t, "to a stranger", g.Transfer(ctx, "nobody"), record.ErrRefused)
		wantErr(t, "by a follower", to.group().Transfer(ctx, third.name), record.ErrNotLeader)
		w.fabric.Isolate(third.name, w.others(third)...)
		w.pause(transferFresh + 50*time.Millisecond)
		wantErr(t, "to one that is cut off", g.Transfer(ctx, third.name), record.ErrRefused)
		w.fabric.Rejoin(third.name, w.others(third)...)

		begin := time.Now()
		if err := g.Transfer(ctx, to.name); err != nil {
			t.Fatal(err)
		}
		w.eventually("the target to lead", func() bool { return w.leader() == to })
		if d := time.Since(begin); d > Local().Heartbeat {
			t.Errorf("a transfer took %v", d)
		}
		w.put("something else")
		w.eventually("all to be fresh", func() bool { return to.group().Transfer(ctx, "") == nil })
		if w.leader() == to {
			t.Error("still leads after a transfer to the best other one")
		}
	})
}

func TestFailedTransferRecovers(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("something")
		from := w.leader()
		to := w.nodes[0]
		if to == from {
			to = w.nodes[1]
		}
		g := from.group()
		term := g.Term()
		// The target hears nothing: TimeoutNow is written and never arrives in time.
		w.fabric.Cut(from.name, to.name)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.Transfer(ctx, to.name); err == nil {
			t.Fatal("the transfer did not fail")
		}
		// Whatever became of it, the group serves again; no two at once.
		w.fabric.Heal(from.name, to.name)
		w.put("after")
		if now := w.leader().group().Term(); now != term && term.Check() == nil {
			t.Error("two terms act")
		}
	})
}

func TestMembers(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		a := w.nodes[0]
		a.up()
		ctx := t.Context()
		if err := a.host().BootstrapSingle(ctx); err != nil {
			t.Fatal(err)
		}
		w.put("one")
		g := a.group()
		server := func(n *node) string { return n.group().Server() }
		for _, n := range w.nodes[1:] {
			n.up()
			for group := range uint32(2) {
				g, s := a.host().Group(group), n.host().Group(group).Server()
				if err := g.Configure(ctx, AddNonvoter, s, g.Status().Configured); err != nil {
					t.Fatal(err)
				}
				w.eventually("the new one to catch up", func() bool {
					return n.host().Group(group).Status().Applied == g.Status().Applied
				})
			}
		}
		want := func(voters ...*node) {
			t.Helper()
			var got, names []string
			for _, m := range g.Status().Members {
				if m.Voter {
					got = append(got, m.Node)
				}
			}
			for _, n := range voters {
				names = append(names, n.name)
			}
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("voters (-want +got):\n%s", diff)
			}
		}
		want(a)
		b, c := w.nodes[1], w.nodes[2]
		before := g.Status().Configured
		for _, n := range w.nodes[1:] {
			if err := g.Configure(ctx, AddVoter, server(n), 0); err != nil {
				t.Fatal(err)
			}
		}
		want(a, b, c)
		wantErr(t, "on an old configuration", g.Configure(ctx, Demote, server(b), before), record.ErrConflict)
		wantErr(t, "by a follower", b.group().Configure(ctx, Demote, server(c), 0), record.ErrNotLeader)
		wantErr(t, "no server", g.Configure(ctx, Remove, "b", 0), record.ErrFormat)
		w.eventually("cluster id at the new ones", func() bool {
			return b.host().ClusterID() == a.host().ClusterID() &&
				c.host().ClusterID() == a.host().ClusterID()
		})
		// hashicorp/raft refuses its vote to a replica that is no voter in the own, older
		// configuration, however much of the log that one has: see doc.go.
		w.eventually("the configuration everywhere", func() bool {
			return b.group().Status().Configured == g.Status().Configured &&
				c.group().Status().Configured == g.Status().Configured
		})
		w.powerCut(nil, 0, a) // the others go on
		w.put("two")
		a.up()
		leader := w.leader()
		g = leader.group()
		if err := g.Configure(ctx, Demote, server(c), 0); leader != c && err != nil {
			t.Fatal(err)
		}
		if leader != c {
			want(a, b)
			if err := g.Configure(ctx, Remove, server(c), 0); err != nil {
				t.Fatal(err)
			}
			if n := len(g.Status().Members); n != 2 {
				t.Errorf("%d members, want 2", n)
			}
		}
	})
}

func TestLastVoterStays(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		g := w.leader().group()
		wantErr(
			t,
			"remove the last voter",
			g.Configure(t.Context(), Remove, g.Server(), 0),
			record.ErrConflict,
		)
		wantErr(
			t,
			"demote the last voter",
			g.Configure(t.Context(), Demote, g.Server(), 0),
			record.ErrConflict,
		)
		w.put("still there")
	})
}

func TestSnapshotsAreTakenByAge(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		w.put("one")
		g := w.nodes[0].group()
		at := g.Status().Applied
		w.pause(testRetention().SnapshotAge + 2*testRetention().SnapshotCheck)
		snap := g.rep.Load().store.Pointer().Snapshot.Index
		if snap < at {
			t.Fatalf("snapshot at %d, applied %d long ago", snap, at)
		}
		w.pause(3 * testRetention().SnapshotAge)
		if again := g.rep.Load().store.Pointer().Snapshot.Index; again != snap {
			t.Errorf("an idle group took a snapshot at %d after one at %d", again, snap)
		}
	})
}

func TestSnapshotsKeepTheLogShort(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		g := w.nodes[0].group()
		for i := range 600 {
			w.put(fmt.Sprintf("%0500d", i))
			if i%20 == 0 {
				w.pause(testRetention().SnapshotCheck)
			}
		}
		w.pause(2 * testRetention().SnapshotCheck)
		if size, limit := g.rep.Load().logs.log.Bytes(), 3*testRetention().LogMaxBytes; size > limit {
			t.Errorf("the log holds %d bytes, want at most %d", size, limit)
		}
		if g.rep.Load().logs.log.FirstIndex() == 1 {
			t.Error("the log was never cut")
		}
	})
}

func TestWaitApplied(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("one")
		index := w.leader().group().Status().Applied
		for _, n := range w.nodes {
			if err := n.group().WaitApplied(t.Context(), index); err != nil {
				t.Fatal(err)
			}
			m, err := n.group().Reader().Message(testStream, 1)
			if err != nil || string(m.Payload) != "one" {
				t.Errorf("%s: %q, %v", n.name, m.Payload, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, "never", w.leader().group().WaitApplied(ctx, index+1000), context.DeadlineExceeded)
		got, err := w.nodes[0].host().LeaderApplied(t.Context(), 1)
		if err != nil || got != index {
			t.Errorf("the leader has applied %d (%v), want %d", got, err, index)
		}
		_, err = w.nodes[0].host().LeaderApplied(t.Context(), 9)
		wantErr(t, "no such group", err, record.ErrNotFound)
	})
}
