package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestElectReplicateCutHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 100)
		c.holds(100, c.nodes...)

		rest := c.others(l)
		c.fab.Isolate(l.id, ids(rest)...)
		l2 := c.leader(rest...)
		l2.apply(101, 200)
		c.fab.Rejoin(l.id, ids(rest)...)
		c.holds(200, c.nodes...)
		c.until(10*time.Second, "the old leader follows", func() bool { return l.r.State() == raft.Follower })
	})
}

func TestStalledDiskElectsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		l.log.mu.Lock()
		l.log.hang = make(chan struct{})
		l.log.mu.Unlock()
		f := l.r.Apply([]byte("stuck"), 0)
		l2 := c.leader(c.others(l)...)
		l2.apply(11, 20)
		c.holds(20, c.others(l)...)
		if l.tr.Counters().Stalled.Load() == 0 {
			t.Error("no append was held back")
		}
		if l.g.LeaseValid(l.r.CurrentTerm()) {
			t.Error("the stalled leader has a valid lease")
		}
		l.log.release()
		if err := f.Error(); err == nil {
			t.Error("the stuck command was committed")
		}
		c.holds(20, c.nodes...)
	})
}

func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		c.holds(10, c.nodes...)
		term := l.r.CurrentTerm()
		if !l.g.LeaseValid(term) {
			t.Fatal("a leader of three without a lease")
		}
		target := c.others(l)[0]
		start := time.Now()
		if err := l.r.LeadershipTransferToServer(raft.ServerID(target.addr), target.addr).
			Error(); err != nil {
			t.Fatal(err)
		}
		c.until(time.Second, "the target leads", func() bool { return target.r.State() == raft.Leader })
		if d := time.Since(start); d > 500*time.Millisecond {
			t.Errorf("the hand-over took %v", d)
		}
		if l.g.LeaseValid(term) {
			t.Error("the old leader's lease outlives the transfer")
		}
		c.leader(target).apply(11, 20)
		c.holds(20, c.nodes...)
		if !target.g.LeaseValid(target.r.CurrentTerm()) {
			t.Error("the new leader has no lease")
		}
	})
}

// A transfer to a follower that does not get the request in time: the lease is
// void, and valid again when the follower acknowledges what was sent after it.
func TestFailedTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		c.holds(10, c.nodes...)
		term := l.r.CurrentTerm()
		target := c.others(l)[0]
		target.g.campaign() // it will refuse: it does not know the leader any more
		err := l.r.LeadershipTransferToServer(raft.ServerID(target.addr), target.addr).Error()
		if err == nil {
			t.Fatal("the transfer succeeded")
		}
		c.until(time.Second, "the lease is valid again", func() bool { return l.g.LeaseValid(term) })
		if l.r.State() != raft.Leader || l.r.CurrentTerm() != term {
			t.Fatal("the leader changed")
		}
		c.until(
			5*time.Second,
			"proposals are taken again",
			func() bool { return l.r.Barrier(0).Error() == nil },
		)
		l.apply(11, 20)
		c.holds(20, c.nodes...)
	})
}

func TestSnapshotInstall(t *testing.T) {
	for _, pad := range []int{0, DefaultSnapshotChunk - 50, 5<<20 + 17} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *raft.Config) { cfg.TrailingLogs = 5 })
			for _, n := range c.nodes {
				n.fsm.pad = pad
			}
			l := c.leader()
			l.apply(1, 10)
			c.holds(10, c.nodes...)
			late := c.others(l)[0]
			c.fab.Isolate(late.id, ids(c.others(late))...)
			l.apply(11, 200)
			synctest.Wait() // what the leader read of its log is on its way, and will be lost
			if err := l.r.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			for _, o := range c.others(late) {
				c.fab.Drop(late.id, o.id) // appends that the cut held are lost
			}
			c.fab.Rejoin(late.id, ids(c.others(late))...)
			c.holds(200, c.nodes...)
			was := l
			l = c.leader()
			if l != was {
				t.Errorf("the leader changed from %s to %s term %d", was.id, l.id, l.r.CurrentTerm())
			}
			l.apply(201, 210)
			c.holds(210, c.nodes...)
			var sent, received, bytes uint64
			for _, n := range c.nodes {
				sent += n.tr.Counters().SnapshotsSent.Load()
				received += n.tr.Counters().SnapshotsReceived.Load()
				bytes += n.tr.Counters().SnapshotBytesReceived.Load()
			}
			if sent != 1 || received != 1 || bytes < uint64(pad) {
				t.Errorf("pad %d: %d sent, %d received, %d bytes", pad, sent, received, bytes)
			}
		})
	}
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		c.holds(10, c.nodes...)
		f := c.others(l)[0]
		f.restart()
		if !f.g.Embargoed() {
			t.Error("a restarted replica may vote at once")
		}
		c.holds(10, f)
		l.apply(11, 20)
		c.holds(20, c.nodes...)
		c.until(2*time.Second, "the embargo ends", func() bool { return !f.g.Embargoed() })
	})
}

// All nodes stop and come back: nobody leads, so hellos must be asked for.
func TestRestartOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.leader().apply(1, 10)
		c.holds(10, c.nodes...)
		for _, n := range c.nodes {
			n.stop()
		}
		// A minority never gets over its embargo.
		c.nodes[0].fsm = &list{}
		c.nodes[0].open()
		c.nodes[0].raft()
		<-time.After(time.Minute)
		if !c.nodes[0].g.Embargoed() {
			t.Error("one of three is over its embargo without a hello")
		}
		c.nodes[1].fsm = &list{}
		c.nodes[1].open()
		c.nodes[1].raft()
		start := time.Now()
		l := c.leader(c.nodes[:2]...)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("no leader for %v", d)
		}
		l.apply(11, 20)
		c.holds(20, c.nodes[:2]...)
		c.nodes[2].fsm = &list{}
		c.nodes[2].open()
		c.nodes[2].raft()
		c.holds(20, c.nodes...)
	})
}

func TestRecreateInProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		c.holds(10, c.nodes...)
		for _, n := range []*node{c.others(l)[0], l} { // a follower, then the leader
			n.recreate()
			if !n.g.Embargoed() {
				t.Errorf("%s may vote right after it was re-created", n.id)
			}
			c.leader()
			c.holds(10, c.nodes...)
		}
		c.leader().apply(11, 20)
		c.holds(20, c.nodes...)
	})
}

// A follower that answers an append with a refusal (its log is behind) catches up:
// there is no pipeline to wedge.
func TestRefusedAppendDoesNotWedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 50)
		c.holds(50, c.nodes...)
		f := c.others(l)[0]
		for round := range 3 {
			f.stop()
			// It comes back with a log that ends earlier.
			last, err := f.log.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			if err := f.log.DeleteRange(last-9, last); err != nil {
				t.Fatal(err)
			}
			from := 51 + round*50
			l.apply(from, from+49)
			f.fsm = &list{}
			f.open()
			f.raft()
			c.holds(from+49, c.nodes...)
		}
	})
}

func TestOneWayCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.leader()
		l.apply(1, 10)
		rest := c.others(l)
		// The leader hears everybody and reaches nobody.
		c.fab.Cut(l.id, rest[0].id)
		c.fab.Cut(l.id, rest[1].id)
		l2 := c.leader(rest...)
		l2.apply(11, 20)
		c.fab.Heal(l.id, rest[0].id)
		c.fab.Heal(l.id, rest[1].id)
		c.holds(20, c.nodes...)
		// And the other way round.
		l = c.leader()
		rest = c.others(l)
		c.fab.Cut(rest[0].id, l.id)
		c.fab.Cut(rest[1].id, l.id)
		term := l.r.CurrentTerm()
		c.until(2*time.Second, "the lease runs out", func() bool { return !l.g.LeaseValid(term) })
		c.until(20*time.Second, "the leader steps down", func() bool { return l.r.State() != raft.Leader })
		c.fab.Rejoin(l.id, ids(rest)...)
		c.leader().apply(21, 30)
		c.holds(30, c.nodes...)
	})
}

// A lease and another replica's leadership never overlap, whatever is cut.
func TestLeaseExcludesAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.leader()
		for round := range 6 {
			l := c.leader()
			rest := c.others(l)
			switch round % 3 {
			case 0:
				c.fab.Isolate(l.id, ids(rest)...)
			case 1:
				c.fab.Cut(l.id, rest[0].id)
				c.fab.Cut(l.id, rest[1].id)
			case 2:
				rest[0].restart()
				c.fab.Isolate(l.id, ids(rest)...)
			}
			for range 3000 {
				<-time.After(time.Millisecond)
				var holders []string
				leaders := 0
				for _, n := range c.nodes {
					if n.r.State() == raft.Leader {
						leaders++
						if n.g.LeaseValid(n.r.CurrentTerm()) {
							holders = append(holders, n.id)
						}
					}
				}
				if len(holders) > 1 || len(holders) == 1 && leaders > 1 && holders[0] == l.id {
					t.Fatalf("round %d: leases of %v among %d leaders", round, holders, leaders)
				}
			}
			c.fab.Rejoin(l.id, ids(rest)...)
			c.leader()
		}
	})
}

func TestSoleVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		l := c.leader()
		l.apply(1, 10)
		<-time.After(time.Hour)
		if !l.g.LeaseValid(l.r.CurrentTerm()) {
			t.Error("a sole voter without a lease")
		}
		l.restart()
		c.leader().apply(11, 20)
		c.holds(20, l)
	})
}
