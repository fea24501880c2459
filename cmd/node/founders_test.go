package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/replication/membership"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestNoStreamsBeforeAllFoundersAreThere: a create is answered 10008, and the node is not
// ready, while a founder has not said that it holds the first configuration, unless that one
// is not to be in the cluster any more.
func TestNoStreamsBeforeAllFoundersAreThere(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(t *testing.T, n *Node){
		"it registers": func(t *testing.T, n *Node) {
			t.Helper()
			put(t, n, replication.NodeKey("late"), replication.NodeRow{})
		},
		"another one is in its place": func(t *testing.T, n *Node) {
			t.Helper()
			put(t, n, membershipKey, membership.Desired{Voters: []string{n.cfg.NodeID}})
		},
		"an operator removes it": func(t *testing.T, n *Node) {
			t.Helper()
			n.members.Store(&[]discovery.Member{{
				NodeID: "late", Status: discovery.Failed, Since: time.Now(), Tags: discovery.Tags{Incarnations: "i"},
			}})
			if err := n.removeNode(t.Context(), "late"); err != nil {
				t.Fatal(err)
			}
		},
		"an operator removes it, and only the first configuration knows it": func(t *testing.T, n *Node) {
			t.Helper()
			holding := func() (in int) {
				for _, g := range n.host.Groups() {
					if holds(g.Status(), "late/i") {
						in++
					}
				}
				return in
			}
			for _, g := range n.host.Groups() {
				if err := g.Configure(t.Context(), replication.AddNonvoter, "late/i", 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.removeNode(t.Context(), "late"); err != nil {
				t.Fatal(err)
			}
			wait(t, func() bool { return holding() == 0 })
			if !n.leaving("late") {
				t.Error("it was removed, and does not leave any more")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lateFounder(t, startNode(t, nil), settle)
		})
	}
}

func put(t *testing.T, n *Node, key string, value any) {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	row, _ := n.meta.Get(key)
	err = n.meta.Write(t.Context(), []record.MetaCond{{Key: key, Version: row.Version}},
		[]record.MetaWrite{{Key: key, Value: b}})
	if err != nil {
		t.Fatal(err)
	}
}

func lateFounder(t *testing.T, n *Node, settle func(*testing.T, *Node)) {
	t.Helper()
	nc, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	create := func() string {
		t.Helper()
		m, err := nc.Request("$JS.API.STREAM.CREATE.F",
			[]byte(`{"name":"F","subjects":["f"],"retention":"limits","storage":"file"}`), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Data)
	}
	wait(t, func() bool { _, version := n.desired(); return version != 0 })
	put(t, n, membershipKey, membership.Desired{Voters: []string{"late", n.cfg.NodeID}})
	put(t, n, foundersKey, []string{n.cfg.NodeID, "late"})
	if body := create(); !strings.Contains(body, `"err_code":10008`) {
		t.Fatalf("created before all founders are there: %s", body)
	}
	if why := n.Readiness(); !slices.ContainsFunc(why, func(s string) bool { return strings.Contains(s, "founder late") }) {
		t.Fatalf("ready, or for another reason not: %q", why)
	}
	settle(t, n)
	if body := create(); !strings.Contains(body, `"did_create":true`) {
		t.Fatalf("not created when no founder is missing: %s", body)
	}
	if why := n.Readiness(); len(why) != 0 {
		t.Fatalf("not ready: %q", why)
	}
}

// TestFoundersInGossip: all that are expected found a cluster, and nobody beside one that is there already,
// whether or not those of it ever expected anybody.
func TestFoundersInGossip(t *testing.T) {
	t.Parallel()
	member := func(id string, expect int, cluster string) discovery.Member {
		return discovery.Member{NodeID: id, Status: discovery.Alive, Tags: discovery.Tags{
			Expect: expect, ClusterID: cluster, Incarnations: id + "-i",
		}}
	}
	three := []discovery.Member{member("n3", 3, ""), member("n1", 3, ""), member("n2", 3, "")}
	with := func(m discovery.Member) []discovery.Member { return append(slices.Clone(three), m) }
	left := member("n0", 0, "c")
	left.Status = discovery.Failed
	for _, c := range []struct {
		name    string
		members []discovery.Member
		want    string
	}{
		{"all", three, "[{n1 n1-i} {n2 n2-i} {n3 n3-i}]"},
		{"one is missing", three[:2], "[]"},
		{"one joins", with(member("n0", 0, "")), "[{n1 n1-i} {n2 n2-i} {n3 n3-i}]"},
		{"one expects another number", with(member("n0", 5, "")), "[]"},
		{"one is a member", with(member("n0", 3, "c")), "[]"},
		{"one is a member that expected nobody", with(member("n0", 0, "c")), "[]"},
		{"a member is gone", with(left), "[{n1 n1-i} {n2 n2-i} {n3 n3-i}]"},
	} {
		n := &Node{cfg: Config{BootstrapExpect: 3, MaxVoters: 5}, log: zap.NewNop()}
		n.members.Store(&c.members)
		if got := fmt.Sprint(n.gossipFounders(t.Context())); got != c.want {
			t.Errorf("%s: founders %s, want %s", c.name, got, c.want)
		}
	}
}
