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
