package replication

import (
	"errors"
	"testing"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestDamageIsFoundTwiceAtOnce: the replicators of two followers, or one of them and Raft's own loop, read the same
// rotten entry, and each gets one that does nothing in its place. The first one has noted the damage, and has come no
// further, when the second returns: nothing of it may be sent or applied all the same.
func TestDamageIsFoundTwiceAtOnce(t *testing.T) {
	cared(t, func(w *world) {
		n := w.leader()
		g := n.group()
		r := g.rep.Load()
		rot := record.Damaged("x", "rot")
		g.hurt.Store(newDamage(g.id, g.cfg.Dir, g.Server(), rot))
		r.logs.damaged(rot)
		if _, err := n.host().open(g, r); !errors.Is(err, transport.ErrQuarantined) {
			w.t.Errorf("the group's frames still come and go: %v", err)
		}
		if err := r.fsm.broken(); !errors.Is(err, record.ErrDamaged) {
			w.t.Errorf("entries are still applied: %v", err)
		}
		g.hurt.Store(nil)
		r.logs.damaged(rot) // the first one goes on
		w.eventually("the replica to be replaced", func() bool { return n.group().Server() != string(r.server) && w.sound() })
	})
}
