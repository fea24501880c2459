package replication

import (
	"testing"
	"time"
)

// TestOldDiskNeverDecides is the worst that an old disk can do: one of three voters has
// acknowledged something and lost it, the second has never had it, the third, which has
// it, is away. The two must not decide without it.
func TestOldDiskNeverDecides(t *testing.T) {
	cared(t, func(w *world) {
		leader := w.leader()
		var lagging, old *node
		for _, n := range w.nodes {
			switch {
			case n == leader:
			case lagging == nil:
				lagging = n
			default:
				old = n
			}
		}
		w.fabric.Isolate(lagging.name, leader.name)
		w.pause(time.Second)
		disk := old.mu.fs.CrashClone(crashAll)
		for i := range 20 {
			w.put(value(200 + i))
		}
		if w.leader() != leader {
			t.Fatal("another leader: nothing to see here")
		}
		w.pause(time.Second)
		// Marks travel with hellos: the lagging one hears the other's when it comes back.
		w.powerCut(nil, 0, lagging)
		w.fabric.Isolate(lagging.name, leader.name)
		lagging.up()
		heard := func() bool {
			have := old.group().rep.Load()
			return lagging.group().rep.Load().marks.of(string(have.server)).Index >= have.position().LastIndex
		}
		w.eventually("the lagging one to hear of the marks", heard)
		w.powerCut(nil, 0, leader, old)
		old.mu.fs = disk
		old.up()
		w.pause(20 * time.Second)
		for _, n := range []*node{lagging, old} {
			if term := n.group().Term(); term == nil || term.Check() != nil {
				continue
			}
			for i := range 20 {
				if _, err := n.group().Reader().Message(testStream, uint64(201+i)); err != nil {
					t.Fatalf("%s leads: message %d was acknowledged and is lost", n.name, 201+i)
				}
			}
		}
		leader.up()
		w.eventually("all to be sound", w.sound)
		w.complete(220)
	})
}
