package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/testenv"
)

// identityDamage is what can happen to a small file.
var identityDamage = map[string]func(t *testing.T, path string){
	"empty":     func(t *testing.T, path string) { t.Helper(); rewrite(t, path, 0) },
	"truncated": func(t *testing.T, path string) { t.Helper(); rewrite(t, path, 10) },
	"flipped":   func(t *testing.T, path string) { t.Helper(); flip(t, path, 3) },
	"missing": func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	},
}

func rewrite(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedIdentityIsReplaced: a node whose file NODE, or the INCARNATION of a group, is
// damaged says so, is a voter again by itself, and nothing is lost.
func TestDamagedIdentityIsReplaced(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, tt := range []struct {
		kind, membership, file string
	}{
		{"empty", "gossip", "groups/0/INCARNATION"},
		{"truncated", "fixed", "groups/1/INCARNATION"},
		{"flipped", "gossip", "groups/1/INCARNATION"},
		{"missing", "fixed", "groups/0/INCARNATION"},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			damagedIdentity(t, identityCluster(t, tt.membership), identityDamage[tt.kind], []string{"NODE", tt.file})
		})
	}
}

// trio is three nodes of one cluster.
type trio struct {
	dir     string
	ports   testenv.Ports
	configs []node.Config
	nodes   []*testenv.Node
}

// identityCluster founds a cluster of three whose members find each other by gossip or are fixed.
func identityCluster(t *testing.T, membership string) *trio {
	t.Helper()
	c := newTrio(t, membership)
	for i := range c.configs {
		c.add(t, i)
	}
	c.start(t)
	c.ready(t)
	return c
}

// newTrio configures three founders.
func newTrio(t *testing.T, membership string) *trio {
	t.Helper()
	configs := make([]node.Config, 3)
	c := &trio{dir: t.TempDir(), configs: configs, nodes: make([]*testenv.Node, len(configs))}
	var peers, join []string
	for i := range configs {
		id := fmt.Sprint("n", i+1)
		cfg := &configs[i]
		*cfg = node.Config{NodeID: id, DataDir: filepath.Join(c.dir, id), Profile: "fast", AdminListen: "127.0.0.1:0"}
		addresses := []*string{&cfg.RaftListen, &cfg.RouteListen}
		if membership == "gossip" {
			addresses = append(addresses, &cfg.SerfListen)
			cfg.BootstrapExpect = len(configs)
		}
		for _, p := range addresses {
			var err error
			if *p, err = c.ports.Address(); err != nil {
				t.Fatal(err)
			}
		}
		peers, join = append(peers, id+"="+cfg.RaftListen), append(join, cfg.SerfListen)
	}
	for i := range configs {
		cfg := &configs[i]
		if membership == "gossip" {
			cfg.Join = slices.Delete(slices.Clone(join), i, i+1)
		} else {
			cfg.Peers = peers
		}
	}
	return c
}

// add makes a node of its configuration as it is now.
func (c *trio) add(t *testing.T, i int) {
	t.Helper()
	n, err := testenv.NewNode(c.configs[i], &c.ports)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[i] = n
	t.Cleanup(func() { _ = n.Kill(context.Background()) })
}

func (c *trio) ready(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *trio) start(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAllIdentitiesDamaged: when no node knows any more who it is, nothing is founded beside
// the data, and every node says what happened.
func TestAllIdentitiesDamaged(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, membership := range []string{"gossip", "fixed"} {
		t.Run(membership, func(t *testing.T) {
			c := identityCluster(t, membership)
			if _, err := stream(t, c.nodes[0].URL()).Publish("damage.x", []byte("0")); err != nil {
				t.Fatal(err)
			}
			cluster := clusterIDOf(t, c.dir, "n1")
			for i, n := range c.nodes {
				if err := n.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				kind := []string{"empty", "flipped", "missing"}[i]
				identityDamage[kind](t, filepath.Join(c.dir, n.ID(), "NODE"))
			}
			c.start(t)
			for _, n := range c.nodes {
				r, err := n.Running()
				if err != nil {
					t.Fatal(err)
				}
				within(t, "both groups to wait for the others", time.Minute, func() bool {
					return strings.Count(strings.Join(r.Health().Reasons, "\n"), "no leader with a healthy majority") == 2
				})
			}
			for _, n := range c.nodes {
				r, err := n.Running()
				if err != nil {
					t.Fatal(err)
				}
				for _, st := range statusOf(t, r) {
					if st.Damage == nil || st.Damage.Aside != "" || st.Leader != "" || st.Role != replication.RoleDamaged {
						t.Errorf("%s: %+v", n.ID(), st)
					}
				}
				data := filepath.Join(c.dir, n.ID())
				who, ok, err := replication.ReadIdentity(storage.DefaultFS(), data)
				if err != nil || !ok || who.Cluster != "" && who.Cluster != cluster {
					t.Errorf("%s: %+v, %t, %v; it was of cluster %s", n.ID(), who, ok, err, cluster)
				}
				if logs, err := filepath.Glob(filepath.Join(data, "groups", "*", "log", "*.seg")); err != nil || len(logs) < 2 {
					t.Errorf("%s: its logs are %v, %v", n.ID(), logs, err)
				}
			}
		})
	}
}

// TestDamagedIdentityOfASingleNode: it does not start, and says which file it is and what to do.
func TestDamagedIdentityOfASingleNode(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "n1")
	c, err := testenv.StartCluster(t.Context(), 1, dir, &testenv.Ports{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := c.Nodes[0]
	defer func() { _ = c.Stop(context.Background()) }()
	js := client(t, n.URL())
	if _, err := js.AddStream(&nats.StreamConfig{Name: "DAMAGE", Subjects: []string{"damage.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("damage.x", []byte("0")); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	identityDamage["flipped"](t, filepath.Join(data, "NODE"))
	err = n.Start(t.Context())
	for _, want := range []string{filepath.Join(data, "NODE"), "holdfast cluster recover " + data + " --survivor n1", "salvage"} {
		if !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one that says %q", err, want)
		}
	}
	if _, err := replication.Recover(replication.Config{NodeID: "n1", Dir: data}); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := client(t, n.URL()).GetMsg("DAMAGE", 1)
	if err != nil || string(m.Data) != "0" {
		t.Errorf("%v, %v", m, err)
	}
}

func damagedIdentity(t *testing.T, c *trio, damage func(*testing.T, string), files []string) {
	t.Helper()
	nodes, dir := c.nodes, c.dir
	js := stream(t, nodes[0].URL())
	stored := 0
	publish := func(n int) { t.Helper(); stored = publishMore(t, js, stored, n) }
	publish(20)
	victim, data := nodes[2], filepath.Join(dir, "n3")
	cluster := clusterIDOf(t, dir, "n1")
	for _, file := range files {
		before := incarnations(t, victim)
		if err := victim.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		damage(t, filepath.Join(data, file))
		if err := victim.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := victim.Running()
		if err != nil {
			t.Fatal(err)
		}
		saidSo(t, n, filepath.Join(data, file))
		publish(5)
		within(t, "the node to be sound", time.Minute, func() bool { return n.Health().OK && len(n.Readiness()) == 0 })
		within(t, "the node to be a voter", time.Minute, func() bool {
			return slices.ContainsFunc(members(t, n), func(m node.MemberStatus) bool {
				return m.ID == "n3" && len(m.Votes) == 2 && len(m.Follows) == 0
			})
		})
		for i, server := range incarnations(t, victim) {
			if mine := file == "NODE" || strings.Contains(file, fmt.Sprint(i)); mine == (server == before[i]) {
				t.Errorf("%s was damaged: group %d was %s, is %s", file, i, before[i], server)
			}
		}
		if _, err := os.ReadFile(filepath.Join(data, file)); err != nil {
			t.Error(err)
		}
	}
	within(t, "its cluster to be written", 20*time.Second, func() bool {
		who, ok, err := replication.ReadIdentity(storage.DefaultFS(), data)
		return err == nil && ok && who.Node == "n3" && who.Cluster == cluster
	})
	// NODE is of both groups, the other file of one.
	if kept, _ := filepath.Glob(filepath.Join(data, "groups", "*", "damaged-*", "log")); len(kept) != 3 {
		t.Errorf("set aside: %v, want three logs", kept)
	}
	complete(t, nodes, stored)
}

// saidSo expects health and metrics to name a damaged file.
func saidSo(t *testing.T, n *node.Node, file string) {
	t.Helper()
	h := n.Health()
	if h.OK || h.Status != "degraded" || !strings.Contains(strings.Join(h.Reasons, "\n"), file) {
		t.Errorf("health %+v, want it to name %s", h, file)
	}
	if filepath.Base(file) == "NODE" {
		if len(h.Reasons) != 2 {
			t.Errorf("health %+v, want both groups out of service", h)
		}
		kept, err := filepath.Glob(filepath.Join(filepath.Dir(file), "damaged-*", "NODE"))
		if err != nil || len(kept) > 1 || len(kept) == 1 && !strings.Contains(h.Reasons[0], filepath.Dir(kept[0])) {
			t.Errorf("health %+v, want it to name where the file is kept: %v, %v", h, kept, err)
		}
	}
	if metrics := get(t, n, "/metrics"); !strings.Contains(metrics, `holdfast_damage_info{file="`+file+`"`) {
		t.Errorf("no metric names %s", file)
	}
}

// incarnations are the replicas of a node.
func incarnations(t *testing.T, n *testenv.Node) []string {
	t.Helper()
	r, err := n.Running()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, st := range statusOf(t, r) {
		out = append(out, st.Server)
	}
	return out
}

func statusOf(t *testing.T, n *node.Node) (out []replication.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(get(t, n, "/raft")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// complete expects all messages when the first node is gone: the last one holds them.
func complete(t *testing.T, nodes []*testenv.Node, stored int) {
	t.Helper()
	if err := nodes[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := client(t, nodes[2].URL())
	within(t, "all messages", time.Minute, func() bool {
		info, err := js.StreamInfo("DAMAGE")
		return err == nil && info.State.Msgs == uint64(stored)
	})
	for i := range stored {
		m, err := js.GetMsg("DAMAGE", uint64(i+1))
		if err != nil || string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("message %d: %v, %v", i+1, m, err)
		}
	}
}
