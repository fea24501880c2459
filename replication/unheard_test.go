package replication

import (
	"slices"
	"testing"
	"time"
)

// unheard hands the leadership of a node over in a way that it does not hear of: it says
// "lead now", and hears nothing from then on. It still thinks that it leads while the
// other one is elected. What the network does until Rejoin is up to the caller.
func (w *world) unheard(from *node) {
	for _, name := range w.others(from) {
		w.fabric.Cut(name, from.name)
	}
}

// TestATransferThatIsNotHeardOf: a leader that told another one to lead may not act from
// then on, long before it could know that the other one has been elected.
func TestATransferThatIsNotHeardOf(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		for round := range 3 {
			w.put("before")
			w.pause(100 * time.Millisecond)
			old := w.leader()
			term := old.group().Term()
			to := w.nodes[0]
			if to == old {
				to = w.nodes[1]
			}
			w.unheard(old)
			go func() { _ = old.group().Transfer(t.Context(), to.name) }() // it fails: nobody answers
			// Mostly the one that was told; a vote that is split makes it the third.
			w.eventually("another one to lead", func() bool {
				return slices.ContainsFunc(w.nodes, func(n *node) bool {
					next := n.group().Term()
					return n != old && next != nil && next.Check() == nil
				})
			})
			if term.Check() == nil {
				t.Errorf("round %d: two nodes may act as the leader", round)
			}
			w.fabric.Rejoin(old.name, w.others(old)...)
			w.eventually("the old one to follow", func() bool {
				s := old.group().Status()
				return s.Role == RoleFollower && s.Replicating
			})
		}
	})
}
