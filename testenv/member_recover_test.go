package testenv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
)

// The two nodes that were given up when the third was recovered come back with their old data, after it acknowledged
// more alone: while it serves, or before it does, when they serve as the majority that they were. They are told and
// end, and it has what it acknowledged; what they had come to since is given up, too. With empty directories they join.
func TestGivenUpNodesComeBack(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"after it": false, "before it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGang(t, func(cfg *node.Config) { cfg.Profile = "lan" })
			g.found("n1", "n2", "n3")
			s := g.stream("n1")
			want := g.publishes("n1", "all", 20)
			for _, id := range []string{"n1", "n2", "n3"} {
				stop(t, g.nodes[id].Kill)
			}
			_, err := replication.Recover(replication.Config{
				NodeID: "n1", Dir: g.nodes["n1"].cfg.DataDir, Logger: zap.NewNop(),
			})
			g.must(err)
			g.must(g.nodes["n1"].Start(bounded(t)))
			g.ready("n1")
			want = append(want, g.publishes("n1", "alone", 20)...)
			if first {
				stop(t, g.nodes["n1"].Kill)
			}
			for _, id := range []string{"n2", "n3"} {
				g.must(g.nodes[id].Start(bounded(t)))
			}
			if first {
				g.until("the others lead", func() string {
					if got := g.leaders("n2"); got[0] == "" || got[1] == "" {
						return fmt.Sprint(got)
					}
					return ""
				})
				g.publishes("n2", "stale", 20)
				g.must(g.nodes["n1"].Start(bounded(t)))
			}
			for _, id := range []string{"n2", "n3"} {
				g.refused(g.nodes[id], "--data-dir", "was given up when its cluster was recovered by n1")
			}
			g.ready("n1")
			want = append(want, g.publishes("n1", "after", 20)...)
			if diff := cmp.Diff(want, g.holds(s)); diff != "" {
				t.Errorf("n1 holds (-want +got):\n%s", diff)
			}
			for _, id := range []string{"n2", "n3"} {
				g.wipe(id)
				g.must(g.nodes[id].Start(bounded(t)))
			}
			g.members("n1 n2 n3", "n1", "n2", "n3")
			g.leads("n2")
			if diff := cmp.Diff(want, g.holds(s)); diff != "" {
				t.Errorf("n2 holds (-want +got):\n%s", diff)
			}
		})
	}
}

// publishes publishes messages through a node, each until it is acknowledged, and returns them.
func (g *gang) publishes(id, name string, n int) (sent []string) {
	g.t.Helper()
	js := g.client(id)
	for i := range n {
		text := fmt.Sprintf("%s %d", name, i)
		publishOnce(g.t, js, "q.x", text)
		sent = append(sent, text)
	}
	return sent
}

// holds reads everything that a stream holds.
func (g *gang) holds(s jetstream.Stream) (got []string) {
	g.t.Helper()
	info, err := s.Info(bounded(g.t))
	g.must(err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(bounded(g.t), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		g.must(err)
		got = append(got, string(m.Data))
	}
	return got
}
