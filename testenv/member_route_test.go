package testenv

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv/netcut"
)

// The routes between the hubs are cut while Raft is up. Replicas follow, and the group can be moved; clients of the
// leader's hub go on, those of others are told at once that nobody serves, and nothing of theirs is stored, acknowledged
// or delivered to nobody. With routes again all go on, and nothing is lost.
func TestRoutesAreCut(t *testing.T) {
	t.Parallel()
	g := newGang(t, func(cfg *node.Config) { cfg.Profile = "lan" }) // a busy machine shall elect nobody
	all := []string{"n1", "n2", "n3"}
	g.found(all...)
	s := g.stream("n1")
	at := map[string]*ledger{}
	cons := map[string]jetstream.Consumer{}
	for _, id := range all[:2] {
		at[id] = g.newLedger(id, id)
		at[id].goesOn(g, 20)
		cons[id] = g.pulls(id)
	}
	for _, id := range all {
		g.must(netcut.Sever(portOf(t, g.nodes[id].cfg.RouteListen)))
	}
	for _, id := range all {
		running, err := g.nodes[id].Running()
		g.must(err)
		g.until(id+" has no route", func() string {
			routes, err := running.Routes()
			g.must(err)
			return cmp.Diff(routes, []string(nil))
		})
	}
	apart := func(leader, other string) {
		t.Helper()
		g.leads(leader)
		at[other].refused(g)
		stored := at[other].count()
		at[leader].goesOn(g, 50)
		if _, err := cons[other].Next(jetstream.FetchMaxWait(soon)); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a pull at %s: %v, want that nobody serves", other, err)
		}
		if m, err := cons[leader].Next(jetstream.FetchMaxWait(soon)); err != nil {
			t.Errorf("a pull at %s: %v", leader, err)
		} else if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 1 || m.DoubleAck(bounded(t)) != nil {
			t.Errorf("delivered %+v, %v; want it for the first time", meta, err)
		}
		if got := at[other].count(); got != stored {
			t.Errorf("%d publishes at %s were acknowledged without a route", got-stored, other)
		}
		g.caughtUp(all...)
	}
	apart("n1", "n2")
	apart("n2", "n1")
	for _, id := range all[1:] { // those who listen again; the first one dials them
		g.must(g.nodes[id].Restart(bounded(t)))
	}
	g.ready(all...)
	for _, id := range all[:2] {
		at[id].goesOn(g, 20)
	}
	for _, l := range at {
		l.end(s)
	}
}

// pulls returns the consumer C of the stream Q, for a client of a node.
func (g *gang) pulls(id string) jetstream.Consumer {
	g.t.Helper()
	c, err := g.client(id).CreateOrUpdateConsumer(bounded(g.t), "Q", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	})
	g.must(err)
	return c
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
