package node_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
)

// TestFoundersWithDifferentGroups: founders that were given different numbers of groups found nothing, and each says
// who has which; with one number they found the cluster, on the files that they have.
func TestFoundersWithDifferentGroups(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, membership := range []string{"gossip", "fixed"} {
		t.Run(membership, func(t *testing.T) {
			c := newTrio(t, membership)
			for i, groups := range []int{2, 1, 3} {
				c.configs[i].Groups = groups
				c.add(t, i)
			}
			c.start(t)
			for _, n := range c.nodes {
				r, err := n.Running()
				if err != nil {
					t.Fatal(err)
				}
				within(t, "the reason", time.Minute, func() bool { return says(r.Health().Notes) && says(r.Readiness()) })
			}
			for i, n := range c.nodes {
				r, err := n.Running()
				if err != nil {
					t.Fatal(err)
				}
				if got := statusOf(t, r); slices.ContainsFunc(got, founded) {
					t.Errorf("%s: %+v, want no configuration of any group", n.ID(), got)
				}
				if err := n.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.configs[i].Groups = 2
				c.add(t, i)
			}
			c.start(t)
			c.ready(t)
			for _, n := range c.nodes {
				r, err := n.Running()
				if err != nil {
					t.Fatal(err)
				}
				if h := r.Health(); !h.OK || len(h.Notes) != 0 {
					t.Errorf("%s: %+v", n.ID(), h)
				}
				if got := statusOf(t, r); len(got) != 3 || slices.ContainsFunc(got, notThree) {
					t.Errorf("%s: %+v, want three groups of three", n.ID(), got)
				}
			}
		})
	}
}

func says(texts []string) bool {
	const reason = "n1 has 2, n2 has 1, n3 has 3; start all of them with the same --groups"
	return strings.Contains(strings.Join(texts, "\n"), reason)
}

func founded(st replication.Status) bool { return len(st.Members) > 0 }

func notThree(st replication.Status) bool { return len(st.Members) != 3 }
