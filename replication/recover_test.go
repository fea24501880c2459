package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestRecover(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		const n = 300 // enough for a snapshot
		for i := range n {
			w.put(fmt.Sprint("v", i))
		}
		survivor := w.leader()
		var lost []*node
		for _, o := range w.nodes {
			if o != survivor {
				lost = append(lost, o)
			}
		}
		w.pause(2 * testRetention().SnapshotAge) // the state says how many groups there are
		w.powerCut(nil, 0, lost...)
		survivor.down()
		// What a start with more groups than the cluster has leaves behind is no group to recover.
		if _, err := incarnation(survivor.mu.fs, "data/groups/2", testIncarnation); err != nil {
			t.Fatal(err)
		}

		for round, changed := range []bool{true, false} {
			got, err := Recover(survivor.config())
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 2 {
				t.Fatalf("recovered %d groups, want 2", len(got))
			}
			for i, r := range got {
				if r.Group != uint32(i) || r.Changed != changed || !strings.HasPrefix(r.Server, survivor.name+"/") {
					t.Errorf("round %d, group %d: %+v", round, i, r)
				}
				if changed && len(r.Before) != 3 {
					t.Errorf("group %d had the voters %v, want three", i, r.Before)
				}
			}
		}
		survivor.up()
		if w.leader() != survivor {
			t.Fatal("the survivor does not lead")
		}
		if seq := w.put("after"); seq != n+1 {
			t.Errorf("sequence %d after the recovery, want %d", seq, n+1)
		}
		for i := range n {
			m, err := survivor.group().Reader().Message(testStream, uint64(i+1))
			if err != nil || string(m.Payload) != fmt.Sprint("v", i) {
				t.Fatalf("message %d is %q, %v", i+1, m.Payload, err)
			}
		}
		// With their old data the others elect a leader of a higher term; it is not the survivor's.
		survivor.down()
		for _, o := range lost {
			o.up()
		}
		w.put("stale")
		survivor.up()
		w.pause(time.Minute)
		m, err := survivor.group().Reader().Message(testStream, n+1)
		if err != nil || string(m.Payload) != "after" {
			t.Errorf("message %d of the survivor is %q, %v; want what it acknowledged", n+1, m.Payload, err)
		}
		if term := survivor.group().Term(); term == nil || term.Check() != nil {
			t.Error("the survivor does not lead beside those that were given up")
		}
		if members := survivor.group().Status().Members; len(members) != 1 {
			t.Errorf("members %+v, want one", members)
		}
	})
}

func TestRecoverRefuses(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		fresh := w.nodes[0].config()
		if _, err := Recover(fresh); !errors.Is(err, errConfig) {
			t.Errorf("an empty directory: %v, want %v", err, errConfig)
		}
		w.found()
		w.put("v")
		w.down()
		n := w.nodes[1]
		other := n.config()
		other.NodeID = "z"
		if _, err := Recover(other); !errors.Is(err, errConfig) || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("the directory of another node: %v", err)
		}
		c := n.config()
		d := newDamage(1, "data/groups/1", "b/x", record.Damaged("data/groups/1/log", "torn"))
		if err := d.mark(c.FS, "data/groups/1"); err != nil {
			t.Fatal(err)
		}
		if _, err := Recover(c); !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "group 1") {
			t.Errorf("a damaged group: %v, want damage that names it", err)
		}
		// Nothing was written: group 0 still has three voters, and the two others go on.
		w.nodes[0].up()
		w.nodes[2].up()
		w.put("more")
	})
}
