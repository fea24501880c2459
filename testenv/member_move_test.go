package testenv

import (
	"testing"
	"time"
)

// move gives a node that does not run other ports for the other nodes.
func (g *gang) move(id string) {
	g.t.Helper()
	cfg := g.nodes[id].cfg
	for _, p := range []*string{&cfg.RaftListen, &cfg.SerfListen, &cfg.RouteListen} {
		var err error
		*p, err = g.ports.Address()
		g.must(err)
	}
	cfg.Join = nil
	for other, n := range g.nodes {
		if other != id {
			cfg.Join = append(cfg.Join, n.cfg.SerfListen)
		}
	}
	g.add(&cfg)
}

// A node comes back with its files on other addresses, under load; then all of them do, at once.
func TestNodesMove(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	g.found("n2", "n3", "n1")
	l := g.load(3, "n1", "n2", "n3")
	begun := time.Now()
	stop(t, g.nodes["n2"].Kill)
	g.move("n2")
	g.must(g.nodes["n2"].Start(bounded(t)))
	g.ready("n1", "n2", "n3")
	g.caughtUp("n2")
	t.Log("one moved after", time.Since(begun))

	all := []string{"n1", "n2", "n3"}
	for _, id := range all {
		stop(t, g.nodes[id].Kill)
	}
	for _, id := range all {
		g.move(id)
	}
	for _, id := range all { // each knows where the others are now
		cfg := g.nodes[id].cfg
		cfg.Join = nil
		for _, other := range all {
			if other != id {
				cfg.Join = append(cfg.Join, g.nodes[other].cfg.SerfListen)
			}
		}
		g.add(&cfg)
	}
	for _, id := range all {
		g.must(g.nodes[id].Start(bounded(t)))
	}
	g.ready(all...)
	g.caughtUp(all...)
	t.Log("all moved after", time.Since(begun))
	g.members("n1 n2 n3", all...)
	l.end(t)
}

// caughtUp waits until the replicas of nodes have what was committed when it was called.
func (g *gang) caughtUp(ids ...string) {
	g.t.Helper()
	goal := make(map[uint32]uint64)
	for id := range g.nodes {
		groups, err := g.groups(id)
		g.must(err)
		for i := range groups {
			goal[groups[i].Group] = max(goal[groups[i].Group], groups[i].Commit)
		}
	}
	for _, id := range ids {
		g.until(id+" has what is committed", func() string {
			groups, err := g.groups(id)
			if err != nil {
				return err.Error()
			}
			for i := range groups {
				if groups[i].Commit < goal[groups[i].Group] {
					return "not yet"
				}
			}
			return ""
		})
	}
}
