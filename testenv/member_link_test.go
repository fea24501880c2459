package testenv

import (
	"context"
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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv/netcut"
)

// How long a leader keeps a group without its hub link, and when another one leads on a busy machine: who gets it
// while two of three have no link may have none, for which a few tries are allowed. If nobody handed over no other
// would lead ever: Raft does not see the hubs.
const (
	linkPatience = time.Second
	handedOver   = linkPatience + 2*time.Second
	handedOn     = linkPatience + 10*time.Second
)

// linked is a gang whose hubs' leafnode listeners, where the links go, are known.
type linked struct {
	*gang

	leafs map[string]int
}

func newLinked(t *testing.T, change func(*node.Config)) *linked {
	t.Helper()
	l := &linked{leafs: make(map[string]int)}
	l.gang = newGang(t, func(cfg *node.Config) {
		if change != nil {
			change(cfg)
		}
		port, err := l.ports.Reserve()
		l.must(err)
		l.leafs[cfg.NodeID] = port
		cfg.NATSConfig = filepath.Join(l.dir, cfg.NodeID+".conf")
		l.must(os.WriteFile(cfg.NATSConfig, fmt.Appendf(nil, "leafnodes { listen: %q }\n", loopback(port)), 0o600))
	})
	return l
}

// stream makes the stream Q. Where gossip takes a busy node for dead for a moment, the request or its answer is lost.
func (g *gang) stream(id string) jetstream.Stream {
	g.t.Helper()
	js := g.client(id)
	var s jetstream.Stream
	g.until("the stream is made", func() string {
		ctx, cancel := context.WithTimeout(g.t.Context(), attempt)
		defer cancel()
		var err error
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "Q", Subjects: []string{"q.>"}, Replicas: 3, Duplicates: time.Hour,
		})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return s
}

// client returns a client of a node.
func (g *gang) client(id string) jetstream.JetStream {
	g.t.Helper()
	nc, err := nats.Connect(g.nodes[id].URL(), nats.MaxReconnects(-1), nats.ReconnectWait(readyPoll))
	g.must(err)
	g.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	g.must(err)
	return js
}

// leadsAll makes a node the leader of every group.
func (g *gang) leadsAll(id string) {
	g.t.Helper()
	g.leads(id)
	g.until(id+" leads group 0", func() string {
		groups, err := g.groups(id)
		if err != nil {
			return err.Error()
		}
		switch groups[0].Leader {
		case id:
			return ""
		case "":
			return "it is being elected"
		}
		var done any
		return fmt.Sprint(g.ask(groups[0].Leader, http.MethodPost, "/transfer?group=0&to="+id, &done))
	})
	g.leads(id) // it was not taken meanwhile
}

// leaders are the leaders of all groups as a node sees them.
func (g *gang) leaders(id string) []string {
	g.t.Helper()
	groups, err := g.groups(id)
	g.must(err)
	var out []string
	for i := range groups {
		out = append(out, groups[i].Leader)
	}
	return out
}

// The node that leads everything loses its hub link for good while Raft is healthy; once, so has another one before. A
// node whose link lives leads within the bound, and clients of every hub go on, those of the ones without a link
// included. No publish is answered twice.
func TestLeaderWithoutHubLink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut    []string // in this order; the last one leads
		within time.Duration
	}{
		"one of three": {[]string{"n1"}, handedOver},
		"two of three": {[]string{"n2", "n1"}, handedOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newLinked(t, func(cfg *node.Config) { cfg.Profile = "lan" }) // a busy machine shall elect nobody
			g.found("n1", "n2", "n3")
			s := g.stream("n3")
			g.leadsAll("n1")
			ledgers := []*ledger{g.newLedger("here", "n1"), g.newLedger("there", "n2")}
			goOn := func(n int) {
				t.Helper()
				for _, l := range ledgers {
					l.goesOn(g.gang, n)
				}
			}
			goOn(20)
			for _, id := range c.cut {
				g.sever(id)
			}
			cut := time.Now()
			g.until("others lead", func() string {
				for group, id := range g.leaders("n3") {
					if id == "" || slices.Contains(c.cut, id) {
						return fmt.Sprintf("%q leads group %d", id, group)
					}
				}
				return ""
			})
			took := time.Since(cut)
			if took > c.within {
				t.Errorf("others lead after %v, want %v and a moment", took, linkPatience)
			}
			goOn(1)
			t.Logf("others lead after %v, publishes go on after %v", took, time.Since(cut))
			goOn(50)
			for _, id := range []string{"n1", "n2", "n3"} {
				g.apiAnswers(id)
			}
			g.caughtUp(c.cut...)
			for _, l := range ledgers {
				l.end(s)
			}
		})
	}
}

// sever cuts a node's link for good: its hub does not listen for links any more. It is the hub of clients all the same.
func (l *linked) sever(id string) {
	l.t.Helper()
	l.must(netcut.Sever(l.leafs[id]))
	running, err := l.nodes[id].Running()
	l.must(err)
	l.until("the link of "+id+" is down", func() string {
		if why := strings.Join(running.Readiness(), "; "); !strings.Contains(why, "hub link down") {
			return "not ready because of: " + why
		}
		return ""
	})
}

// apiAnswers asks, through a node, what the leader of the metadata group answers. A change of leader may lose an answer.
func (g *gang) apiAnswers(id string) {
	g.t.Helper()
	nc, err := nats.Connect(g.nodes[id].URL())
	g.must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	g.must(err)
	g.until("the API answers at "+id, func() string {
		ctx, cancel := context.WithTimeout(g.t.Context(), attempt)
		defer cancel()
		if _, err := js.Stream(ctx, "none"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Sprint("a stream that is not there: ", err)
		}
		cfg := jetstream.StreamConfig{Name: "by-" + id, Subjects: []string{"by." + id}}
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			return fmt.Sprint("a new stream: ", err)
		}
		return ""
	})
}
