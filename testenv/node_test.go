package testenv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

func TestMain(m *testing.M) {
	var late []goleak.Option // memberlist's own end a moment after its shutdown
	for _, f := range []string{"streamListen", "packetListen", "packetHandler", "triggerFunc", "pushPullTrigger"} {
		late = append(late, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist)."+f))
	}
	goleak.VerifyTestMain(m, late...)
}

// soon bounds what must happen within a moment, on a machine that does other things, too.
const soon = 30 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// single starts a node alone, stopped with the test.
func single(t *testing.T) *Node {
	t.Helper()
	n, err := NewNode(node.Config{DataDir: t.TempDir()}, &Ports{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n.Kill) })
	if err := errors.Join(n.Start(bounded(t)), n.WaitReady(bounded(t))); err != nil {
		t.Fatal(err)
	}
	return n
}

func stop(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Error(err)
	}
}

// queue makes a stream of the subjects q.> with a consumer, and returns a connection.
func queue(t *testing.T, n *Node, replicas int) (*nats.Conn, jetstream.Consumer) {
	t.Helper()
	nc, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(bounded(t), jetstream.StreamConfig{
		Name: "Q", Subjects: []string{"q.>"}, Replicas: replicas,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CreateConsumer(bounded(t), jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return nc, c
}

const next = "$JS.API.CONSUMER.MSG.NEXT.Q.c"

// ask sends a pull request that waits, and returns when it does.
func ask(t *testing.T, nc *nats.Conn, c jetstream.Consumer, waiting int) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	if err == nil {
		err = nc.PublishRequest(next, sub.Subject, []byte(`{"batch":10,"expires":60000000000}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := c.Info(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if info.NumWaiting >= waiting {
			return sub
		}
	}
}

func TestStopTellsWaitingClients(t *testing.T) {
	t.Parallel()
	n := single(t)
	nc, c := queue(t, n, 1)
	sub := ask(t, nc, c, 1)
	stop(t, n.Stop)
	m, err := sub.NextMsgWithContext(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if m.Header.Get("Status") != "409" || m.Header.Get("Description") != "Server Shutdown" {
		t.Errorf("a stopping node said %v", m.Header)
	}
}

// A request whose client unsubscribed gets nothing, though it is young: another worker waits.
func TestClientThatLeftGetsNothing(t *testing.T) {
	t.Parallel()
	n := single(t)
	nc, c := queue(t, n, 1)
	left := ask(t, nc, c, 1)
	stays := ask(t, nc, c, 2)
	if err := errors.Join(left.Unsubscribe(), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	// Both requests are young; the first would be served first. The end of its subscription travels on
	// another connection than the messages, so the first few may still go to it.
	for {
		if err := nc.Publish("q.x", nil); err != nil {
			t.Fatal(err)
		}
		_, err := stays.NextMsg(100 * time.Millisecond)
		if err == nil {
			return
		}
		if !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
		if info, err := c.Info(bounded(t)); err != nil || info.NumAckPending > 5 {
			t.Fatalf("the client that left got everything: %+v, %v", info, err)
		}
	}
}

func TestRestartKeepsDataAndPorts(t *testing.T) {
	t.Parallel()
	n := single(t)
	nc, c := queue(t, n, 1)
	url := n.URL()
	if _, err := nc.RequestWithContext(bounded(t), "q.x", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(bounded(t)); !errors.Is(err, ErrRunning) {
		t.Errorf("second start: %v, want %v", err, ErrRunning)
	}
	stop(t, n.Stop)
	if _, err := n.Running(); !errors.Is(err, ErrStopped) || n.URL() != "" {
		t.Errorf("stopped node: %v at %q, want %v", err, n.URL(), ErrStopped)
	}
	if err := n.Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if n.URL() != url {
		t.Errorf("clients connect to %s, before the restart to %s", n.URL(), url)
	}
	m, err := c.Next(jetstream.FetchMaxWait(soon))
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Data()) != "kept" {
		t.Errorf("got %q after a restart", m.Data())
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	var p Ports
	seen := map[int]bool{}
	for range 100 {
		port, err := p.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < portLow || port >= portHigh {
			t.Errorf("port %d", port)
		}
		seen[port] = true
	}
	p.mu.Lock()
	for port := portLow; port < portHigh; port++ {
		p.used[port] = true
	}
	p.mu.Unlock()
	if _, err := p.Address(); !errors.Is(err, ErrNoPort) {
		t.Errorf("no port is left: %v, want %v", err, ErrNoPort)
	}
	p.Release(portLow + 1)
	if _, err := p.Reserve(); err != nil && !errors.Is(err, ErrNoPort) { // it may be taken by somebody else
		t.Error(err)
	}
}

// Two Ports share no block, so that a port of a node that is down is not given to another test.
func TestPortsOfOthers(t *testing.T) {
	t.Parallel()
	blocks := func(p *Ports) map[int]bool {
		out := make(map[int]bool)
		for range 2 * portBlock {
			port, err := p.Reserve()
			if err != nil {
				t.Fatal(err)
			}
			out[port-port%portBlock] = true
		}
		return out
	}
	var a, b Ports
	of, others := blocks(&a), blocks(&b)
	for block := range of {
		if others[block] {
			t.Errorf("both have ports of the block at %d", block)
		}
	}
	if len(of) < 3 || len(of) != len(a.blocks) {
		t.Errorf("%d ports are of %d blocks, %d are held", 2*portBlock, len(of), len(a.blocks))
	}
}
