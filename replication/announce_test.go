package replication

import (
	"encoding/json"
	"testing"

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
