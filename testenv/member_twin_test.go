package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// The second of two live nodes with one id is told who has it, and stops; the first goes on. That is so whether
// it brings an empty directory or a copy of the first one's.
func TestTwins(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	g.found("n1", "n2", "n3")
	l := g.load(3, "n1", "n3")
	clone := filepath.Join(t.TempDir(), "clone")
	first := g.nodes["n2"]
	stop(t, first.Kill)
	g.must(os.CopyFS(clone, os.DirFS(first.cfg.DataDir)))
	g.must(first.Start(bounded(t)))
	g.ready("n1", "n2", "n3")
	for _, dir := range []string{t.TempDir(), clone} {
		cfg := g.config("n2", 0)
		cfg.DataDir = dir
		twin, err := NewNode(cfg, &g.ports)
		g.must(err)
		t.Cleanup(func() { stop(t, twin.Kill) })
		g.must(twin.Start(bounded(t)))
		g.refused(twin, "--node-id",
			"n2 is in use by another live node, whose gossip address is "+first.cfg.SerfListen)
	}
	g.ready("n1", "n2", "n3")
	g.members("n1 n2 n3", "n1", "n2", "n3")
	l.end(t)
}

// The same with a fixed membership, where no gossip tells them apart: the nodes that hear the first one refuse the
// second, and it ends.
func TestTwinsOfFixedMembership(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	ids := []string{"n1", "n2", "n3"}
	var peers []string
	configs := make(map[string]node.Config)
	fixed := func(id string) node.Config {
		cfg := g.config(id, 0)
		cfg.Join, cfg.SerfListen = nil, ""
		return cfg
	}
	for _, id := range ids {
		configs[id] = fixed(id)
		peers = append(peers, id+"="+configs[id].RaftListen)
	}
	for _, id := range ids {
		cfg := configs[id]
		cfg.Peers = peers
		g.must(g.add(&cfg).Start(bounded(t)))
	}
	g.ready(ids...)
	l := g.load(3, "n1", "n3")
	clone := filepath.Join(t.TempDir(), "clone")
	first := g.nodes["n2"]
	stop(t, first.Kill)
	g.must(os.CopyFS(clone, os.DirFS(first.cfg.DataDir)))
	g.must(first.Start(bounded(t)))
	g.ready(ids...)
	for _, dir := range []string{t.TempDir(), clone} {
		cfg := fixed("n2")
		cfg.DataDir = dir
		cfg.Peers = []string{peers[0], "n2=" + cfg.RaftListen, peers[2]}
		twin, err := NewNode(cfg, &g.ports)
		g.must(err)
		t.Cleanup(func() { stop(t, twin.Kill) })
		g.must(twin.Start(bounded(t)))
		g.refused(twin, "--node-id", "n2 is in use by another live node, which n")
	}
	running, err := first.Running()
	g.must(err)
	select {
	case err := <-running.Failed():
		t.Errorf("the first one ended, too: %v", err)
	default:
	}
	g.ready(ids...)
	g.members("n1 n2 n3", ids...)
	l.end(t)
}

// Founders start in any order; one ends before the last is there, one right after the first configuration came,
// and is back, once with its files and once without.
func TestAbortedBootstrap(t *testing.T) {
	t.Parallel()
	for name, wipe := range map[string]bool{"with its files": false, "without its files": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGang(t, func(cfg *node.Config) { cfg.BootstrapExpect = 3 })
			for _, id := range []string{"n3", "n1", "n2"} {
				cfg := g.config(id, 3)
				g.add(&cfg)
			}
			g.must(g.nodes["n3"].Start(bounded(t)))
			g.must(g.nodes["n1"].Start(bounded(t)))
			stop(t, g.nodes["n1"].Kill)
			g.must(g.nodes["n1"].Start(bounded(t)))
			g.must(g.nodes["n2"].Start(bounded(t)))
			g.until("n2 has the first configuration", func() string {
				groups, err := g.groups("n2")
				if err != nil {
					return err.Error()
				}
				if len(groups[0].Members) == 0 {
					return "none"
				}
				return ""
			})
			stop(t, g.nodes["n1"].Kill)
			if wipe {
				g.wipe("n1")
			}
			g.must(g.nodes["n1"].Start(bounded(t)))
			g.ready("n1", "n2", "n3")
			g.members("n1 n2 n3", "n1", "n2", "n3")
			g.load(3, "n1").end(t)
		})
	}
}
