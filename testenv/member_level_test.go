package testenv

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// Six groups are led by the voters evenly: by the founders, again so when one of them was away, when two nodes joined,
// when they left, and when a dead one was replaced.
func TestLeadersAreSpread(t *testing.T) {
	t.Parallel()
	g := newGang(t, func(cfg *node.Config) { cfg.Groups, cfg.SegmentSize = 6, 1<<20 })
	g.found("n1", "n2", "n3")
	g.spread("n1", "n2", "n3")
	stop(t, g.nodes["n2"].Stop)
	g.must(g.nodes["n2"].Start(bounded(t)))
	g.spread("n1", "n2", "n3")
	for _, id := range []string{"n4", "n5"} {
		cfg := g.config(id, 0)
		g.must(g.add(&cfg).Start(bounded(t)))
	}
	g.members("n1 n2 n3 n4 n5", "n1")
	g.spread("n1", "n2", "n3", "n4", "n5")
	var done node.Health
	for _, id := range []string{"n2", "n5"} {
		g.must(g.ask("n1", http.MethodPost, "/remove?node="+id, &done))
		stop(t, g.nodes[id].Kill)
	}
	g.members("n1 n3 n4", "n1")
	g.spread("n1", "n3", "n4")
	cfg := g.config("n6", 0)
	g.must(g.add(&cfg).Start(bounded(t)))
	g.members("n1 n3 n4 n6-", "n1")
	stop(t, g.nodes["n4"].Kill)
	g.members("n1 n3 n6", "n1")
	g.spread("n1", "n3", "n6")
}

// spread waits until the voters lead all groups of streams, each as many as another, or one more.
func (g *gang) spread(voters ...string) {
	g.t.Helper()
	g.until("leaders are spread", func() string {
		groups, err := g.groups("n1")
		if err != nil {
			return err.Error()
		}
		count := map[string]int{}
		for i := range groups[1:] {
			count[groups[1+i].Leader]++
		}
		least, most := len(groups), 0
		led := 0
		for _, id := range voters {
			least, most, led = min(least, count[id]), max(most, count[id]), led+count[id]
		}
		if led == len(groups)-1 && most-least <= 1 {
			return ""
		}
		return fmt.Sprint(count)
	})
}

// A rolling upgrade under load: the cluster's level rises when the last member can do it; from then on a node
// that cannot is refused, a member as well as one that wants to join.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	g.found("n1", "n2", "n3")
	l := g.load(3, "n1", "n2", "n3")
	level := func(id string) int {
		running, err := g.nodes[id].Running()
		g.must(err)
		return running.FeatureLevel()
	}
	for _, id := range []string{"n1", "n2", "n3"} {
		if got := level(id); got != 1 {
			t.Fatalf("level %d before %s can do 2", got, id)
		}
		stop(t, g.nodes[id].Stop)
		cfg := g.nodes[id].cfg
		cfg.Feature = 2
		g.must(g.add(&cfg).Start(bounded(t)))
		g.ready("n1", "n2", "n3")
	}
	for id := range g.nodes {
		g.until("the level rises", func() string {
			if got := level(id); got != 2 {
				return fmt.Sprintf("%s: %d", id, got)
			}
			return ""
		})
	}
	old := g.config("n4", 0)
	g.must(g.add(&old).Start(bounded(t)))
	g.refused(g.nodes["n4"], "--data-dir", "its cluster is at feature level 2, and version "+node.Version+" can do 1 at most")
	stop(t, g.nodes["n3"].Stop)
	cfg := g.nodes["n3"].cfg
	cfg.Feature = 0
	g.startRefused(&cfg, "--data-dir", "feature level 2")
	g.members("n1 n2 n3", "n1", "n2")
	l.end(t)
}

// A node that is given another number of groups than its cluster has is refused, one that wants to join as well as
// a member. With the right one it goes on with the files that it has.
func TestAnotherNumberOfGroups(t *testing.T) {
	t.Parallel()
	g := newGang(t, func(cfg *node.Config) { cfg.Groups = 2 })
	g.found("n1", "n2", "n3")
	for _, c := range []struct {
		id    string
		wrong int
		want  string
	}{
		{"n4", 1, "n1 n2 n3 n4-"},
		{"n5", 3, "n1 n2 n3 n4 n5"},
	} {
		cfg := g.config(c.id, 0)
		cfg.Groups = c.wrong
		g.must(g.add(&cfg).Start(bounded(t)))
		g.refused(g.nodes[c.id], "--groups", fmt.Sprintf("is %d, and the cluster of %s has 2", c.wrong, cfg.DataDir))
		cfg.Groups = 2
		g.must(g.add(&cfg).Start(bounded(t)))
		g.members(c.want, "n1", c.id)
		g.ready(c.id)
	}

	stop(t, g.nodes["n3"].Stop)
	cfg := g.nodes["n3"].cfg
	cfg.Groups = 3
	g.startRefused(&cfg, "--groups", "is 3, and the cluster of "+cfg.DataDir+" has 2")
	cfg.Groups = 2
	g.must(g.add(&cfg).Start(bounded(t)))
	g.ready("n3")
}
