package replication

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestNewReplicasOfANode tells the registry of replicas, one group at a time.
func TestNewReplicasOfANode(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		n := w.nodes[0]
		n.up()
		if err := n.host().BootstrapSingle(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.leader()
		old := NodeRow{
			ID: "n2", Raft: "n2:1", Incarnation: "old", Servers: map[uint32]string{0: "n2/old", 1: "n2/old"},
		}
		value, err := json.Marshal(old)
		if err != nil {
			t.Fatal(err)
		}
		err = n.host().Meta().Write(t.Context(), []record.MetaCond{{Key: NodeKey("n2")}},
			[]record.MetaWrite{{Key: NodeKey("n2"), Value: value}})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			r    newReplica
			want map[uint32]string
		}{
			{"a damaged one replaced", newReplica{1, "n2/mended", "old"}, map[uint32]string{0: "n2/old", 1: "n2/mended"}},
			{"the same again", newReplica{1, "n2/mended", "old"}, map[uint32]string{0: "n2/old", 1: "n2/mended"}},
			{"another directory", newReplica{1, "n2/new", "new"}, map[uint32]string{1: "n2/new"}},
			{"its other group", newReplica{0, "n2/new", "new"}, map[uint32]string{0: "n2/new", 1: "n2/new"}},
		} {
			payload, err := json.Marshal(tt.r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.host().serveReplica(t.Context(), "n2", Metadata, payload); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			row, _, err := Row[NodeRow](n.host().Meta(), NodeKey("n2"))
			if err != nil || row.Incarnation != tt.r.Incarnation || row.Raft != "n2:1" {
				t.Errorf("%s: %+v, %v", tt.name, row, err)
			}
			if diff := cmp.Diff(tt.want, row.Servers); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	})
}

// TestRegisteredWhileReplaced: a copy of an old disk comes up at another address and registers that; before a leader
// takes it, the node's replicas are found to hold less than they acknowledged, and replaced. The row must name the
// new ones then: with the old ones in it, the groups would take the new ones out again.
func TestRegisteredWhileReplaced(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		c := w.follower()
		disk := c.mu.fs.CrashClone(crashAll)
		for i := range 20 {
			w.put(value(200 + i))
			key := fmt.Sprint("test/", i)
			err := c.host().Meta().Write(t.Context(), []record.MetaCond{{Key: key}},
				[]record.MetaWrite{{Key: key, Value: []byte("x")}})
			if err != nil {
				t.Fatal(err)
			}
		}
		w.eventually("all replicas to be even", w.even)
		w.powerCut(nil, 0, c)
		c.mu.fs = disk
		c.up()
		before := []string{c.host().Group(0).Server(), c.host().Group(1).Server()}
		moved := NodeRow{Raft: c.name + ":2"}
		registered := make(chan struct{})
		go func() {
			defer close(registered)
			for c.host().Register(t.Context(), moved) != nil { // as long as its replicas are none
				w.pause(100 * time.Millisecond)
			}
		}()
		w.eventually("other replicas", func() bool {
			return c.host().Group(0).Server() != before[0] && c.host().Group(1).Server() != before[1]
		})
		w.eventually("all to be sound", w.sound)
		<-registered
		w.pause(10 * time.Second) // nothing changes any more
		if !w.sound() {
			t.Error("the new replicas were taken out again")
		}
		row, _, err := Row[NodeRow](w.leader().host().Meta(), NodeKey(c.name))
		if err != nil {
			t.Fatal(err)
		}
		want := NodeRow{ID: c.name, Raft: moved.Raft, Incarnation: c.host().Incarnation(), Servers: map[uint32]string{
			0: c.host().Group(0).Server(), 1: c.host().Group(1).Server(),
		}}
		if diff := cmp.Diff(want, row); diff != "" {
			t.Errorf("row (-want +got):\n%s", diff)
		}
		w.complete(220)
	})
}
