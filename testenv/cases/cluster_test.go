package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds what must happen within a moment, on a machine that does other things, too.
const soon = 30 * time.Second

// attempt bounds one try of what can be tried again.
const attempt = 5 * time.Second

// poll is the pause between two looks at a condition.
const poll = 10 * time.Millisecond

// TestOneNode runs the cases for which one node is enough.
func TestOneNode(t *testing.T) {
	t.Parallel()
	e := start(t, 1)
	for name, f := range map[string]func(*testing.T, *env){
		"a late ack settles, a late nak does not":                     lateWordOfTheFirst,
		"naks that wait keep their place in the window":               waitingNaksKeepTheirPlace,
		"messages that expire while they are out free the window":     expiryFreesTheWindow,
		"a consumer whose message is being worked on is not idle":     workIsNotIdle,
		"a budget of bytes pays only for what was received":           budgetPaysForWhatCame,
		"overlapping filters deliver once":                            overlappingFiltersDeliverOnce,
		"a message of a work queue has one consumer on every path":    oneConsumerOnEveryPath,
		"header blocks come back as they went":                        headersComeBack,
		"only an exact header name means something":                   exactNamesOnly,
		"a header block cannot end its message":                       headersCannotInject,
		"names with line ends are refused":                            namesWithLineEnds,
		"a message id is known for its window after a purge":          idsOutliveAPurge,
		"what a killed worker had is given to others":                 killedWorkersGiveBack,
		"a purged subject can be used again, others keep what is out": purgedSubjectIsFree,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, e)
		})
	}
}

// TestThreeNodes runs the cases that need replicas, routes or another leader, one after the other.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	e := start(t, 3)
	for _, c := range []struct {
		name string
		f    func(*testing.T, *env)
	}{
		{"an ack stays within its filter", ackStaysWithinItsFilter},
		{"consumers that come and go lose nothing", nothingLostByConsumers},
		{"leaders that move end no delivery", movesEndNoDelivery},
		{"no_wait is always answered", noWaitIsAnswered},
		{"deleting what is not there is an error and nothing more", deleteOfNothing},
		{"a purge below a message leaves it", purgeLeavesWhatIsNotBelow},
		{"deep subjects do not mix", deepSubjectsDoNotMix},
	} {
		//nolint:paralleltest // they move leaders
		t.Run(c.name, func(t *testing.T) { c.f(t, e) })
	}
}

// env is a cluster and what tells about it.
type env struct{ *testenv.Cluster }

func start(t *testing.T, size int) *env {
	t.Helper()
	var ports testenv.Ports
	c, err := testenv.StartCluster(bounded(t), size, t.TempDir(), &ports, func(cfg *node.Config) {
		var err error
		if cfg.AdminListen, err = ports.Address(); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return &env{c}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// eventually returns when f finds nothing wrong.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for ctx := bounded(t); ; {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// read asks a question until it is answered, be it with an error of the API: NATS may lose an answer when the
// leader changes, which a busy machine can cause at any time.
func read[T any](t *testing.T, f func(context.Context) (T, error)) (out T, err error) {
	t.Helper()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		out, err = f(ctx)
		if _, said := errors.AsType[*jetstream.APIError](err); said {
			return nil
		}
		return err
	})
	return out, err
}

// admin sends a request to the admin listener of a node and decodes the answer, if out is not nil.
func (e *env) admin(t *testing.T, id, method, path string, out any) {
	t.Helper()
	n, err := e.Node(id)
	if err != nil {
		t.Fatal(err)
	}
	running, err := n.Running()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(bounded(t), method, running.AdminURL()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s, %v", path, resp.Status, body, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(body, out); err != nil {
		t.Fatal(err)
	}
}

// move hands the group of the streams to another node and waits until that one answers.
func (e *env) move(t *testing.T, s jetstream.Stream) {
	t.Helper()
	from := leader(t, s)
	e.admin(t, from, http.MethodPost, "/transfer?group=1", nil)
	eventually(t, func() error {
		info, err := streamInfo(t, s)
		if err == nil && (info.Cluster.Leader == from || info.Cluster.Leader == "") {
			err = fmt.Errorf("%q leads, want another than %q", info.Cluster.Leader, from)
		}
		return err
	})
}

// leader is the node that leads the group of a stream.
func leader(t *testing.T, s jetstream.Stream) string {
	t.Helper()
	info, err := streamInfo(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return info.Cluster.Leader
}

func streamInfo(t *testing.T, s jetstream.Stream) (*jetstream.StreamInfo, error) {
	t.Helper()
	return read(t, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.Info(ctx) })
}

// replicasAgree waits until every replica holds the same rows.
func (e *env) replicasAgree(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		var first node.ReplicaHash
		for i, n := range e.Nodes {
			var groups []node.ReplicaHash
			e.admin(t, n.ID(), http.MethodGet, "/hash", &groups)
			switch h := groups[1]; {
			case i == 0:
				first = h
			case h != first:
				return fmt.Errorf("%s holds %+v, %s holds %+v", e.Nodes[0].ID(), first, n.ID(), h)
			}
		}
		return nil
	})
}

// client is a stock client.
type client struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

// client connects to a node; the connection is closed with the test.
func (e *env) client(t *testing.T, i int) *client {
	t.Helper()
	nc, err := nats.Connect(e.Nodes[i].URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, nc, js}
}

func (c *client) stream(cfg *jetstream.StreamConfig) jetstream.Stream {
	c.t.Helper()
	s, err := c.js.CreateStream(bounded(c.t), *cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// consumer makes a durable consumer with explicit acks, or changes it.
func (c *client) consumer(s jetstream.Stream, cfg *jetstream.ConsumerConfig) jetstream.Consumer {
	c.t.Helper()
	if cfg.AckWait == 0 && cfg.BackOff == nil {
		cfg.AckWait = time.Hour
	}
	cons, err := s.CreateOrUpdateConsumer(bounded(c.t), *cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return cons
}

// publish returns the sequence. A publish that finds no leader is sent again.
func (c *client) publish(subject, text string) uint64 {
	c.t.Helper()
	ack, err := c.js.Publish(bounded(c.t), subject, []byte(text), jetstream.WithRetryAttempts(50))
	if err != nil {
		c.t.Fatalf("publish to %s: %v", subject, err)
	}
	return ack.Sequence
}

// publishOnce publishes with an id until a leader knows what became of it: one that loses its term may not.
func (c *client) publishOnce(subject, text string) {
	c.t.Helper()
	eventually(c.t, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), attempt)
		defer cancel()
		_, err := c.js.Publish(ctx, subject, []byte(text), jetstream.WithMsgID(text))
		return err
	})
}

// fetch takes n messages, no less.
func (c *client) fetch(cons jetstream.Consumer, n int) []jetstream.Msg {
	c.t.Helper()
	var got []jetstream.Msg
	for len(got) < n {
		m, err := cons.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			c.t.Fatalf("%d of %d messages: %v; %+v", len(got), n, err, c.info(cons))
		}
		got = append(got, m)
	}
	return got
}

func (c *client) ack(m jetstream.Msg) {
	c.t.Helper()
	if err := m.DoubleAck(bounded(c.t)); err != nil {
		c.t.Fatalf("ack of %s: %v", m.Subject(), err)
	}
}

func (c *client) info(cons jetstream.Consumer) *jetstream.ConsumerInfo {
	c.t.Helper()
	info, err := read(c.t, cons.Info)
	if err != nil {
		c.t.Fatal(err)
	}
	return info
}

func (c *client) state(s jetstream.Stream) jetstream.StreamState {
	c.t.Helper()
	info, err := streamInfo(c.t, s)
	if err != nil {
		c.t.Fatal(err)
	}
	return info.State
}

// wantHeld checks which sequences a stream holds.
func (c *client) wantHeld(s jetstream.Stream, want ...uint64) {
	c.t.Helper()
	var got []uint64
	for seq := uint64(1); seq <= c.state(s).LastSeq; seq++ {
		_, err := read(c.t, func(ctx context.Context) (*jetstream.RawStreamMsg, error) { return s.GetMsg(ctx, seq) })
		switch {
		case err == nil:
			got = append(got, seq)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			c.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Fatalf("the stream holds (-want +got):\n%s", diff)
	}
}

// sequences are those of the stream that messages have.
func sequences(t *testing.T, msgs []jetstream.Msg) []uint64 {
	t.Helper()
	var out []uint64
	for _, m := range msgs {
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, meta.Sequence.Stream)
	}
	return out
}

func wantSequences(t *testing.T, msgs []jetstream.Msg, want ...uint64) {
	t.Helper()
	if diff := cmp.Diff(want, sequences(t, msgs)); diff != "" {
		t.Fatalf("delivered (-want +got):\n%s", diff)
	}
}

// wantCode checks the code of an error of the API.
func wantCode(t *testing.T, err error, want jetstream.ErrorCode) {
	t.Helper()
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != want {
		t.Fatalf("answered %v, want error %d", err, want)
	}
}
