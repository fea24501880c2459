package replication

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestPlaceIsAnothers: a second process with a node's id and an old copy of its files has its place for a while, as new
// replicas. The first one comes back with its own files: its replicas are in no group any more, and nothing that
// it hears tells it so.
func TestPlaceIsAnothers(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		n := w.follower()
		copied := n.mu.fs.CrashClone(crashAll)
		for i := range 20 {
			w.put(value(200 + i))
		}
		w.eventually("all replicas to be even", w.even)
		before := n.group().Server()
		w.powerCut(nil, 0, n)
		first := n.mu.fs
		n.mu.fs = copied
		n.up()
		w.eventually("another replica in its place", func() bool { return n.group().Server() != before && w.sound() })
		second := n.group().Server()
		w.put(value(220))

		w.powerCut(nil, 0, n)
		n.mu.fs = first
		n.up()
		if now := n.group().Server(); now != before {
			t.Fatalf("the first process has replica %s, want %s", now, before)
		}
		w.eventually("it to notice", func() bool {
			d := n.group().Damage()
			return d != nil && strings.Contains(d.Reason, second+", of other files, has its place")
		})
		w.eventually("all to be sound", w.sound)
		if now := n.group().Server(); now == before || now == second {
			t.Errorf("replica %s is back under its name", now)
		}
		w.complete(221)
	})
}

// TestPlaceNeedsTheGroupsWord: what the metadata group says of a place may be of a change that was never committed. The
// group's own leader says that a replica may go only of one that is not in the group.
func TestPlaceNeedsTheGroupsWord(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		leader, n := w.leader(), w.follower()
		g := n.group()
		ask := func(payload string) error {
			_, err := leader.host().serveReseed(t.Context(), n.name, g.ID(), []byte(payload))
			return err
		}
		if err := ask(g.Server()); err == nil || !strings.Contains(err.Error(), "is in the group") {
			t.Errorf("of a member: %v", err)
		}
		if err := ask(n.name + "/gone"); err != nil {
			t.Errorf("of a replica that is not in the group: %v", err)
		}
	})
}

// TestRegistrationLeavesAPlaceAlone: a node whose row names another replica than its own writes its own only if the
// group's leader says that this one is in.
func TestRegistrationLeavesAPlaceAlone(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		n := w.nodes[2]
		h := n.host()
		mine := NodeRow{Raft: n.name + ":1"}
		row, at, err := Row[NodeRow](h.Meta(), NodeKey(n.name))
		if err != nil {
			t.Fatal(err)
		}
		row.Servers[1] = n.name + "/another"
		value, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		at.Value = value
		if _, conds, err := h.nodeRow(mine, at); err != nil || len(conds) != 1 || conds[0].Key != GroupKey(1) {
			t.Errorf("a replica in its group: %v, %v", conds, err)
		}
		// The group's leader puts the row right again, perhaps before it is read.
		w.eventually("it to be refused while the row of its group lacks it", func() bool {
			group, was, err := Row[GroupRow](h.Meta(), GroupKey(1))
			if err != nil {
				t.Fatal(err)
			}
			group.Members = slices.DeleteFunc(group.Members, func(m Member) bool { return m.Node == n.name })
			group.Epoch++
			value, err := json.Marshal(group)
			if err != nil {
				t.Fatal(err)
			}
			err = h.Meta().Write(t.Context(), []record.MetaCond{{Key: was.Key, Version: was.Version}},
				[]record.MetaWrite{{Key: was.Key, Value: value}})
			if err != nil && !errors.Is(err, record.ErrConflict) {
				t.Fatal(err)
			}
			_, _, err = h.nodeRow(mine, at)
			if err != nil && !errors.Is(err, record.ErrNotFound) {
				t.Errorf("a replica that the row of its group lacks: %v", err)
			}
			return err != nil
		})
	})
}

// TestPlaceIsKept: replicas that hear no leader, as there is none, or as it does not reach them, stay what they are.
func TestPlaceIsKept(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		servers := func() (out []string) {
			for _, n := range w.nodes {
				for _, g := range n.host().Groups() {
					if d := g.Damage(); d != nil {
						t.Errorf("%s: group %d: %s", n.name, g.ID(), d.Reason)
					}
					out = append(out, g.Server())
				}
			}
			return out
		}
		before := strings.Join(servers(), " ")
		deaf := w.follower()
		w.fabric.Isolate(deaf.name, w.others(deaf)...)
		w.pause(3 * placeAfter)
		w.fabric.Rejoin(deaf.name, w.others(deaf)...)
		w.eventually("all to be sound", w.sound)
		for _, n := range w.nodes {
			w.fabric.Isolate(n.name, w.others(n)...)
		}
		w.pause(3 * placeAfter)
		for _, n := range w.nodes {
			w.fabric.Rejoin(n.name, w.others(n)...)
		}
		w.eventually("all to be sound", w.sound)
		if after := strings.Join(servers(), " "); after != before {
			t.Errorf("replicas %s, want %s", after, before)
		}
		w.complete(200)
	})
}

// TestPlaceAsksInTime follows one replica over what it hears.
func TestPlaceAsksInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	var p place
	in := []Member{{Server: "a/1", Node: "a"}}
	for i, step := range []struct {
		after time.Duration
		st    Status
		lost  bool
	}{
		{0, Status{Role: RoleFollower, Members: in}, false},
		{placeAfter - time.Nanosecond, Status{Role: RoleCandidate, Members: in}, false},
		{time.Nanosecond, Status{Role: RoleCandidate, Members: in}, true},
		{time.Second, Status{Role: RoleFollower, Members: in}, true},
		{time.Second, Status{Role: RoleFollower, Members: in, Leader: "a"}, false},
		{time.Second, Status{Role: RoleFollower, Members: in}, false},
		{placeAfter, Status{Role: RoleLeader, Members: in}, false},
		{placeAfter, Status{Role: RoleFollower, Members: in}, false},
		{placeAfter, Status{Role: RoleFollower, Members: in, Damage: &Damage{}}, false},
		{placeAfter, Status{Role: RoleFollower, Members: in, Damage: &Damage{Aside: "damaged-1"}}, false},
		{placeAfter, Status{Role: RoleFollower, Members: in, Damage: &Damage{Aside: "damaged-1"}}, true},
		{placeAfter, Status{Role: RoleFollower, Damage: &Damage{Aside: "damaged-1"}}, false}, // was never in the group
		{placeAfter, Status{Role: RoleFollower}, false},
	} {
		now = now.Add(step.after)
		if got := p.lost(step.st, now); got != step.lost {
			t.Errorf("step %d: %t, want %t", i, got, step.lost)
		}
	}
}
