package node

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestRemovalOfARememberedIncarnation: a node that has just joined may be asked to remove another one before it has
// all rows. What it says of an incarnation that was replaced meanwhile must not count as said.
func TestRemovalOfARememberedIncarnation(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	const id = "gone"
	register := func(incarnation string) {
		t.Helper()
		value, err := json.Marshal(replication.NodeRow{ID: id, Servers: map[uint32]string{0: id + "/" + incarnation}})
		if err != nil {
			t.Fatal(err)
		}
		row, _ := n.meta.Get(replication.NodeKey(id))
		err = n.meta.Write(t.Context(), []record.MetaCond{{Key: replication.NodeKey(id), Version: row.Version}},
			[]record.MetaWrite{{Key: replication.NodeKey(id), Value: value}})
		if err != nil {
			t.Fatal(err)
		}
	}
	leaves := func() string {
		row, _ := n.meta.Get(leavePrefix + id)
		return string(row.Value)
	}
	conds, writes, refusal := n.departure(id)
	if !errors.Is(refusal, record.ErrNotFound) || len(writes) != 0 {
		t.Fatalf("of an unknown node: %v, %v", writes, refusal)
	}
	if err := n.removeNode(t.Context(), id); !errors.Is(err, record.ErrNotFound) {
		t.Fatalf("removing an unknown node: %v", err)
	}
	register("a")
	if err := n.meta.Write(t.Context(), conds, writes); !errors.Is(err, record.ErrConflict) {
		t.Fatalf("unknown no more: %v, want a conflict", err)
	}
	if err := n.removeNode(t.Context(), id); err != nil || leaves() != id+"/a" {
		t.Fatalf("%v, %q is to leave", err, leaves())
	}
	conds, writes, refusal = n.departure(id) // said already, as far as this node knows
	register("b")
	if err := n.meta.Write(t.Context(), conds, writes); refusal != nil || !errors.Is(err, record.ErrConflict) {
		t.Fatalf("of an incarnation that was replaced: %v, %v, want a conflict", refusal, err)
	}
	if err := n.removeNode(t.Context(), id); err != nil || leaves() != id+"/b" {
		t.Fatalf("%v, %q is to leave", err, leaves())
	}
}
