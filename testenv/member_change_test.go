package testenv

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// Three become five, three and one, by command, under load. Who was removed says so and stops; with its old data
// it is refused, with an empty directory it is a new member.
func TestGrowShrinkAndReturn(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	g.found("n3", "n1", "n2")
	l := g.load(3, "n1", "n2", "n3")
	for _, id := range []string{"n4", "n5"} {
		cfg := g.config(id, 0)
		g.must(g.add(&cfg).Start(bounded(t)))
	}
	g.members("n1 n2 n3 n4 n5", "n1", "n4", "n5")
	for _, id := range []string{"n1", "n2", "n5"} { // at most one of them leads a group
		g.acceptsClock(id)
	}

	g.leads("n5") // it must give the group away before it is out of group 0, where it reads that
	var done node.Health
	g.must(g.ask("n1", http.MethodPost, "/remove?node=n5", &done))
	g.refused(g.nodes["n5"], "--data-dir", "which was removed from its cluster")
	g.must(g.ask("n4", http.MethodPost, "/leave", &done))
	left, err := g.nodes["n4"].Running()
	g.must(err)
	<-left.Left()
	stop(t, g.nodes["n4"].Stop)
	g.members("n1 n2 n3", "n1", "n2", "n3")

	g.must(g.nodes["n5"].Start(bounded(t)))
	g.refused(g.nodes["n5"], "--data-dir", "which was removed from its cluster")
	g.members("n1 n2 n3", "n1", "n2", "n3")
	if _, err := os.Stat(g.nodes["n5"].cfg.DataDir); err != nil {
		t.Errorf("its data are gone: %v", err)
	}
	g.wipe("n5")
	g.must(g.nodes["n5"].Start(bounded(t)))
	g.members("n1 n2 n3 n5-", "n1", "n5")
	stop(t, g.nodes["n5"].Stop)

	for _, id := range []string{"n5", "n3", "n2"} {
		g.must(g.ask("n1", http.MethodPost, "/remove?node="+id, &done))
	}
	g.members("n1", "n1")
	if err := g.ask("n1", http.MethodPost, "/remove?node=n1", &done); err == nil {
		t.Error("the last one may leave")
	}
	l.end(t)
}

// Three of which one is dead become one by command: the live one keeps its vote until the dead one has lost its own.
func TestDeadAndLiveNodesAreRemoved(t *testing.T) {
	t.Parallel()
	g := newGang(t, func(cfg *node.Config) {
		cfg.Membership.ReapAfter, cfg.Membership.Contact = time.Minute, time.Second/2
	})
	g.found("n1", "n2", "n3")
	g.leads("n1")
	stop(t, g.nodes["n3"].Kill)
	g.gossips("n1", "n3", "failed")
	for _, id := range []string{"n2", "n3"} {
		g.must(g.ask("n1", http.MethodPost, "/remove?node="+id, new(node.Health)))
	}
	g.members("n1", "n1")
	g.ready("n1")
}

// gossips waits until a node says this of another one.
func (g *gang) gossips(id, of, want string) {
	g.t.Helper()
	g.until("gossip of "+id, func() string {
		var members []node.MemberStatus
		if err := g.ask(id, http.MethodGet, "/members", &members); err != nil {
			return err.Error()
		}
		for _, m := range members {
			if m.ID == of && m.Gossip == want {
				return ""
			}
		}
		return fmt.Sprintf("%+v", members)
	})
}

// A voter that is gone for its time is replaced by the one that followed; when it comes back with its old data
// it follows, and has what it missed.
func TestDeadNodeIsReplacedAndComesBack(t *testing.T) {
	t.Parallel()
	g := newGang(t, nil)
	g.found("n1", "n2", "n3")
	l := g.load(3, "n1", "n2")
	cfg := g.config("n4", 0)
	g.must(g.add(&cfg).Start(bounded(t)))
	g.members("n1 n2 n3 n4-", "n1", "n4")
	stop(t, g.nodes["n3"].Kill)
	g.members("n1 n2 n4", "n1", "n2", "n4")
	g.must(g.nodes["n3"].Start(bounded(t)))
	g.members("n1 n2 n3- n4", "n1", "n2", "n3", "n4")
	g.ready("n1", "n2", "n3", "n4")
	l.end(t)
}

// acceptsClock: any node takes an operator's word on the wall clocks, and tells the leaders of all groups.
func (g *gang) acceptsClock(id string) {
	g.t.Helper()
	g.until("accept-clock by "+id, func() string {
		var groups []node.AcceptedClock
		if err := g.ask(id, http.MethodPost, "/accept-clock", &groups); err != nil {
			return err.Error() // no leader at the moment
		}
		if len(groups) != 2 || groups[0].Group != 0 || groups[1].Group != 1 {
			g.t.Fatalf("accept-clock by %s: %+v", id, groups)
		}
		return ""
	})
}
