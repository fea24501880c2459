package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
)

// clients connects one client to each node.
func clients(t *testing.T, c *Cluster) []jetstream.JetStream {
	t.Helper()
	out := make([]jetstream.JetStream, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		nc, err := nats.Connect(n.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, js)
	}
	return out
}

// Whoever was told that a stream or a consumer was made can use it through any node at once, and whoever was told
// that it was deleted finds nothing (https://github.com/nats-io/nats-server/issues/8410).
func TestWhatWasMadeIsThereForAll(t *testing.T) {
	t.Parallel()
	c, err := StartCluster(bounded(t), 3, t.TempDir(), &Ports{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c.Stop) })
	js := clients(t, c)
	for i := range 10 {
		first, second, third := js[i%3], js[(i+1)%3], js[(i+2)%3]
		askAgain(t, func(ctx context.Context) error {
			_, err := first.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
			return err
		})
		var cons jetstream.Consumer
		askAgain(t, func(ctx context.Context) (err error) {
			cons, err = second.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{
				Durable: "c", AckPolicy: jetstream.AckExplicitPolicy,
			})
			return err
		})
		askAgain(t, func(ctx context.Context) error {
			_, err := third.Consumer(ctx, "S", "c")
			return err
		})
		publishOnce(t, third, "s.x", strconv.Itoa(i))
		m, err := cons.Next(jetstream.FetchMaxWait(soon))
		if err != nil || string(m.Data()) != strconv.Itoa(i) {
			t.Fatalf("round %d: got %v, %v", i, m, err)
		}
		drop(t, second, "S")
		askAgain(t, func(ctx context.Context) error {
			_, err := third.Stream(ctx, "S")
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound):
				return nil
			case err == nil:
				t.Fatalf("round %d: a deleted stream is there", i)
			}
			return err
		})
	}
}

// askAgain makes a call of the API as a client does that knows of failures: when there is no leader, or its answer
// was lost, it asks again. Any other error fails the test.
func askAgain(t *testing.T, call func(context.Context) error) {
	t.Helper()
	for until := bounded(t); ; {
		ctx, cancel := context.WithTimeout(until, attempt)
		err := call(ctx)
		cancel()
		api, said := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil:
			return
		case until.Err() != nil, said && api.ErrorCode != 10008:
			t.Fatal(err)
		}
		t.Logf("asked again: %v", err)
	}
}

// drop deletes a stream.
func drop(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	askAgain(t, func(ctx context.Context) error {
		err := js.DeleteStream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // the call before did it
			return nil
		}
		return err
	})
}

// recreateRows is more than the log keeps behind snapshots in TestRecreatedStreamOfANodeThatWasAway.
const recreateRows = 120

// While a node is away, a stream is deleted and another of its name is made, and the log behind that is cut: the
// node that comes back, and leads, has the new stream only (https://github.com/nats-io/nats-server/issues/8413).
func TestRecreatedStreamOfANodeThatWasAway(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	var ports Ports
	c, err := StartCluster(bounded(t), 3, t.TempDir(), &ports, func(cfg *node.Config) {
		cfg.Retention = replication.DefaultRetention()
		cfg.Retention.MinTrailing, cfg.Retention.MaxTrailing = 64, 64
		cfg.Retention.SnapshotAge, cfg.Retention.SnapshotCheck = 100*time.Millisecond, 50*time.Millisecond
		if cfg.NodeID == "n3" {
			cfg.Logger = zap.New(core)
		}
		addr, err := ports.Address()
		if err != nil {
			t.Fatal(err)
		}
		cfg.AdminListen = addr
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c.Stop) })
	js := clients(t, c)[0]
	create := func(subject string, consumers ...string) {
		t.Helper()
		askAgain(t, func(ctx context.Context) error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{subject}, Replicas: 3})
			return err
		})
		for _, name := range consumers {
			askAgain(t, func(ctx context.Context) error {
				_, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{
					Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
				})
				return err
			})
		}
	}
	create("old.>", "a", "b")
	for i := range 20 {
		publishOnce(t, js, "old.x", "old "+strconv.Itoa(i))
	}
	stop(t, c.Nodes[2].Kill)
	drop(t, js, "S")
	create("new.>", "c")
	for i := range recreateRows {
		publishOnce(t, js, "new.x", "new "+strconv.Itoa(i))
	}
	before := logs.FilterMessage("installed a snapshot").Len()
	if err := errors.Join(c.Nodes[2].Start(bounded(t)), c.WaitReady(bounded(t))); err != nil {
		t.Fatal(err)
	}
	g := &gang{t: t, nodes: make(map[string]*Node)}
	for _, n := range c.Nodes {
		g.nodes[n.ID()] = n
	}
	g.leads("n3")
	if logs.FilterMessage("installed a snapshot").Len() == before {
		t.Error("the log was not cut: the node that was away needed no snapshot")
	}
	var s jetstream.Stream
	back := clients(t, c)[2]
	askAgain(t, func(ctx context.Context) (err error) {
		s, err = back.Stream(ctx, "S")
		return err
	})
	info := s.CachedInfo()
	if info.State.Msgs != recreateRows || info.State.Consumers != 1 || !slices.Equal(info.Config.Subjects, []string{"new.>"}) {
		t.Errorf("the stream has %+v and subjects %q", info.State, info.Config.Subjects)
	}
	askAgain(t, func(ctx context.Context) error {
		m, err := s.GetMsg(ctx, 1)
		if err == nil && string(m.Data) != "new 0" {
			t.Errorf("message 1 is %+v", m)
		}
		return err
	})
}

// leads hands group 1 to a node and waits until it leads.
func (g *gang) leads(id string) {
	g.t.Helper()
	g.until("leader "+id, func() string {
		groups, err := g.groups(id)
		if err != nil {
			return err.Error()
		}
		st := groups[1]
		switch {
		case st.Role == replication.RoleLeader && st.Replicating:
			return ""
		case st.Leader == "" || st.Leader == id:
			return "it is being elected"
		}
		var done any
		return fmt.Sprint("asked ", st.Leader, ": ", g.ask(st.Leader, http.MethodPost, "/transfer?group=1&to="+id, &done))
	})
}

// Messages that a worker gave back for later come when they are due, neither before nor never, though the node is
// killed meanwhile (https://github.com/nsqio/nsq/issues/674).
func TestDelaysOutliveTheNode(t *testing.T) {
	t.Parallel()
	const count, delay = 200, 3 * time.Second
	n := single(t)
	nc, c := queue(t, n, 1)
	for i := range count {
		if err := nc.Publish("q.x", []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	given := make(map[string]time.Time)
	for len(given) < count {
		m, err := c.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			t.Fatal(err)
		}
		given[string(m.Data())] = time.Now()
		nak := fmt.Sprintf(`-NAK {"delay":%d}`, delay) // with a reply, it is answered once it is kept
		if _, err := nc.RequestWithContext(bounded(t), m.Reply(), []byte(nak)); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, n.Kill)
	if err := errors.Join(n.Start(bounded(t)), n.WaitReady(bounded(t))); err != nil {
		t.Fatal(err)
	}
	for range count {
		m, err := c.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			t.Fatal(err)
		}
		since, ok := given[string(m.Data())]
		if late := time.Since(since); !ok || late < delay {
			t.Fatalf("%q was given back and came again %v later", m.Data(), late)
		}
		delete(given, string(m.Data()))
		if err := m.DoubleAck(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
}
