package node

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/discovery"
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

// TestReplicaOfANode: the registry says which replica a node has, gossip which one it has that is not registered yet.
// What gossip remembers of a node that is not alive may be older than the registry.
func TestReplicaOfANode(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	put(t, n, replication.NodeKey("known"), replication.NodeRow{
		ID: "known", Incarnation: "registered", Servers: map[uint32]string{0: "known/registered"},
	})
	for _, c := range []struct {
		id     string
		status discovery.Status
		want   string
	}{
		{"known", discovery.Alive, "known/gossiped"},
		{"known", discovery.Failed, "known/registered"},
		{"known", discovery.Left, "known/registered"},
		{"unknown", discovery.Alive, "unknown/gossiped"},
		{"unknown", discovery.Failed, "unknown/gossiped"},
	} {
		n.members.Store(&[]discovery.Member{{
			NodeID: c.id, Status: c.status, Tags: discovery.Tags{Incarnations: "gossiped"}, Since: time.Now(),
		}})
		if got := n.replica(c.id, replication.Metadata); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.id, c.status, got, c.want)
		}
	}
}
