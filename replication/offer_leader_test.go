package replication

import (
	"testing"
	"time"
)

// TestInstallGoesOnWithTheSameLeader: an install goes on when its leader is none any more, for a
// state that a majority has is right whoever leads; and one that is cut then is not begun again
// when the same node leads again, but gone on with.
func TestInstallGoesOnWithTheSameLeader(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.transport = smallChunks
		c := w.farBehind()
		leader := w.leader()
		other := w.nodes[0]
		if other == leader {
			other = w.nodes[1]
		}
		w.slow(c, 50*time.Millisecond)
		stop := make(chan struct{})
		offered := w.watch(stop)
		// The one that leads meanwhile begins no install of its own: that would be another stream.
		w.fabric.Isolate(c.name, other.name)
		c.up()
		sent := func() uint64 { return leader.host().trans.Counters().SnapshotBytesSent.Load() }
		onTheWay := func(from uint64) {
			w.eventually("an install that goes on", func() bool { return sent() > from+(32<<10) })
		}
		hand := func(from, to *node) {
			w.eventually("another leader", func() bool {
				if w.leader() == from {
					_ = from.group().Transfer(w.t.Context(), to.name) // it is tried again
				}
				return w.leader() == to
			})
		}
		onTheWay(0)
		hand(leader, other)
		onTheWay(sent())
		w.fabric.Drop(leader.name, c.name)
		if at := c.group().Status().Applied; at > 10 {
			t.Fatalf("the install is over, the follower is at %d", at)
		}
		w.pause(2 * Local().Election)
		cut := sent()
		hand(other, leader)
		w.eventually("the follower is there", func() bool {
			return c.group().Status().Applied >= leader.group().Status().Applied
		})
		all, resumed, done := w.snapshotBytes()
		close(stop)
		size := offered()
		if limit := size + resumed*(4<<10); all > limit || all <= cut || all != sent() {
			t.Errorf("%d bytes sent, %d before the cut and %d by this leader, of %d", all, cut, sent(), size)
		}
		if resumed == 0 || done != 1 {
			t.Errorf("gone on with %d times, %d installs done, want one", resumed, done)
		}
		w.fabric.Rejoin(c.name, other.name)
	})
}
