package replication

import (
	"testing"
	"time"
)

// TestLeaderServesAgain: a leader whose replica of the metadata group was damaged for a while, with nobody to hand
// over to, or when its leadership began, serves when that replica is there again. Raft says nothing then: it led
// all the time.
func TestLeaderServesAgain(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		w.put("one")
		n := w.nodes[0]
		meta, g := n.host().Group(Metadata), n.group()
		serves := func() bool {
			term := g.Term()
			return term != nil && term.Check() == nil
		}
		meta.hurt.Store(&Damage{Reason: "a test"})
		n.host().directoryLost(Metadata)
		w.eventually("the term to end", func() bool { return !serves() })
		for range 5 * termRetry / (100 * time.Millisecond) {
			w.pause(100 * time.Millisecond)
			if serves() {
				t.Fatal("it serves without the metadata group")
			}
		}
		if !g.inst.Load().leads() {
			t.Fatal("it does not lead any more: there is nothing to see")
		}
		meta.hurt.Store(nil)
		w.eventually("the leader to serve again", serves)
		w.put("two")
	})
}
