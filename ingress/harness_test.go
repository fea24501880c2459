package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// world is a cluster in a bubble of virtual time: group 0 as a map, one group with
// one store that all nodes share, and the nodes' servers.
type world struct {
	t     *testing.T
	meta  *fakeMeta
	group *fakeGroup
	terms uint64
	inbox int
}

// node is one server.
type node struct {
	w    *world
	name string
	srv  *Server
	hub  *fakeHub
	term *fakeTerm // nil while it does not lead

	cancel context.CancelFunc
	done   chan struct{}
}

// inWorld runs a test in virtual time with one node, n, that leads everything.
func inWorld(t *testing.T, cfg Config, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, meta: newFakeMeta(), group: newFakeGroup(t)}
		n := w.node("n1", cfg)
		w.meta.set(func() { w.meta.leader = "n1" })
		n.lead()
		f(t, n)
	})
}

// node starts a server; it is closed with the test.
func (w *world) node(name string, cfg Config) *node {
	w.t.Helper()
	cfg.Node, cfg.Logger, cfg.Version = name, zap.NewNop(), "2.15.2"
	hub := newFakeHub()
	srv, err := New(cfg, hub, metaView{w.meta, name}, func(uint32) Store { return storeView{w.group.store} })
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{w: w, name: name, srv: srv, hub: hub}
	w.t.Cleanup(func() {
		n.endTerm()
		srv.Close()
	})
	return n
}

// lead begins the next term of the group on this node.
func (n *node) lead() *fakeTerm {
	n.w.terms++
	n.term = newFakeTerm(n.w.group, n.w.terms)
	n.w.meta.set(func() { n.w.meta.leaders[1] = n.name })
	ctx, cancel := context.WithCancel(n.w.t.Context())
	n.cancel, n.done = cancel, make(chan struct{})
	term, done := n.term, n.done
	go func() {
		defer close(done)
		n.srv.Lead(ctx, 1, term, storeView{n.w.group.store})
	}()
	synctest.Wait()
	return term
}

// endTerm ends this node's term; what waits in it never gets an outcome.
func (n *node) endTerm() {
	if n.term == nil {
		return
	}
	n.term.set(func() { n.term.ended = true })
	n.w.meta.set(func() { delete(n.w.meta.leaders, 1) })
	n.cancel()
	<-n.done
	n.term = nil
	synctest.Wait()
}

// stall stops the engine until the function returned is called.
func (n *node) stall() (goOn func()) {
	stop := make(chan struct{})
	n.srv.engine(1).q.push(event{kind: evRun, fn: func(*engine) { <-stop }})
	synctest.Wait()
	return func() {
		close(stop)
		synctest.Wait()
	}
}

// newInbox returns a reply subject that was never used.
func (w *world) newInbox() string {
	w.inbox++
	return fmt.Sprintf("_INBOX.%d", w.inbox)
}

// send injects a message with a new reply subject, which it returns.
func (n *node) send(subject, header, body string) string {
	inbox := n.w.newInbox()
	n.hub.conn.inject(Msg{Subject: subject, Reply: inbox, Header: []byte(header), Data: []byte(body)})
	synctest.Wait()
	return inbox
}

// publish injects a message and returns its reply subject; it must reach exactly one subscription.
func (n *node) publish(subject, header, body string) string {
	n.w.t.Helper()
	inbox := n.w.newInbox()
	m := Msg{Subject: subject, Reply: inbox, Header: []byte(header), Data: []byte(body)}
	if got := n.hub.conn.inject(m); got != 1 {
		n.w.t.Fatalf("%s reached %d subscriptions, want 1", subject, got)
	}
	synctest.Wait()
	return inbox
}

// answer returns the one answer that came to an inbox.
func (n *node) answer(inbox string) sent {
	n.w.t.Helper()
	got := n.hub.link.to(inbox)
	if len(got) != 1 {
		n.w.t.Fatalf("%d answers to %s, want 1: %+v", len(got), inbox, got)
	}
	return got[0]
}

// silent fails if an answer came to an inbox.
func (n *node) silent(inbox, why string) {
	n.w.t.Helper()
	if got := n.hub.link.to(inbox); len(got) != 0 {
		n.w.t.Fatalf("answered, but %s: %+v", why, got)
	}
}

// wantAck checks the answer of a publish byte for byte.
func (n *node) wantAck(inbox, body string) {
	n.w.t.Helper()
	if got := n.answer(inbox); got.body != body || got.header != "" {
		n.w.t.Fatalf("answered %q with header %q, want %q without", got.body, got.header, body)
	}
}

// wantError checks that the answer is an error with this code and text.
func (n *node) wantError(inbox string, code jsapi.ErrCode, text string) {
	n.w.t.Helper()
	var got struct {
		Error *jsapi.Error `json:"error"`
	}
	a := n.answer(inbox)
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		n.w.t.Fatalf("answer %q: %v", a.body, err)
	}
	if got.Error == nil || got.Error.ErrCode != code || !strings.Contains(got.Error.Description, text) {
		n.w.t.Fatalf("answered %q, want error %d with %q", a.body, code, text)
	}
}

// ask sends a request and decodes its one answer.
func ask[T any](n *node, verb string, req any) T {
	n.w.t.Helper()
	body := ""
	switch r := req.(type) {
	case nil:
	case string:
		body = r
	default:
		b, err := json.Marshal(r)
		if err != nil {
			n.w.t.Fatal(err)
		}
		body = string(b)
	}
	inbox := n.send(jsapi.DefaultPrefix+"."+verb, "", body)
	var out T
	if err := json.Unmarshal([]byte(n.answer(inbox).body), &out); err != nil {
		n.w.t.Fatal(err)
	}
	return out
}

// must is ask for a call that succeeds.
func must[T any](n *node, verb string, req any) T {
	n.w.t.Helper()
	type failed struct {
		Error *jsapi.Error `json:"error"`
	}
	body := ask[json.RawMessage](n, verb, req)
	var e failed
	if err := json.Unmarshal(body, &e); err != nil || e.Error != nil {
		n.w.t.Fatalf("%s: %s", verb, body)
	}
	var out T
	if err := json.Unmarshal(body, &out); err != nil {
		n.w.t.Fatal(err)
	}
	return out
}

type m map[string]any

// stream creates a stream S of subject s.> with further settings.
func (n *node) stream(settings m) {
	n.w.t.Helper()
	cfg := m{
		"name": "S", "subjects": []string{"s.>"}, "retention": "limits", "storage": "file", "discard": "old",
		"num_replicas": 1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1,
		"max_msg_size": -1, "max_consumers": -1,
	}
	for k, v := range settings {
		cfg[k] = v
	}
	must[jsapi.StreamCreateResponse](n, "STREAM.CREATE.S", cfg)
}

// consumer creates a durable consumer of S.
func (n *node) consumer(name string, settings m) {
	n.w.t.Helper()
	cfg := m{"durable_name": name, "ack_policy": "explicit", "ack_wait": 30 * time.Second}
	for k, v := range settings {
		cfg[k] = v
	}
	must[jsapi.ConsumerResponse](n, "CONSUMER.DURABLE.CREATE.S."+name, m{"stream_name": "S", "config": cfg})
}

func (n *node) state() jsapi.StreamState {
	n.w.t.Helper()
	return must[jsapi.StreamInfoResponse](n, "STREAM.INFO.S", nil).State
}

func (n *node) consumerInfo(name string) *jsapi.ConsumerInfo {
	n.w.t.Helper()
	return must[jsapi.ConsumerResponse](n, "CONSUMER.INFO.S."+name, nil).ConsumerInfo
}

// pull asks a consumer of S for messages; it returns the inbox that they go to.
func (n *node) pull(name, body string) string {
	return n.send(jsapi.DefaultPrefix+".CONSUMER.MSG.NEXT.S."+name, "", body)
}

// deliveries are the messages, not the statuses, that came to an inbox.
func (n *node) deliveries(inbox string) []sent {
	var out []sent
	for _, s := range n.hub.link.to(inbox) {
		if s.subject != "" {
			out = append(out, s)
		}
	}
	return out
}

// seqs are the stream sequences of deliveries.
func (n *node) seqs(msgs []sent) []uint64 {
	n.w.t.Helper()
	var out []uint64
	for _, s := range msgs {
		r, ok := jsapi.ParseAckReply(s.reply)
		if !ok {
			n.w.t.Fatalf("reply %q", s.reply)
		}
		out = append(out, r.StreamSeq)
	}
	return out
}

// ack sends an ack without asking for an answer.
func (n *node) ack(reply, payload string) {
	n.hub.conn.inject(Msg{Subject: reply, Data: []byte(payload)})
	synctest.Wait()
}

const ackHeader = "NATS/1.0\r\nHoldfast-Ack: %s\r\n\r\n"

func withAck(level string) string { return fmt.Sprintf(ackHeader, level) }

func header(kv ...string) string {
	b := "NATS/1.0\r\n"
	for i := 0; i < len(kv); i += 2 {
		b += kv[i] + ": " + kv[i+1] + "\r\n"
	}
	return b + "\r\n"
}

// wait returns when every goroutine of the bubble waits.
func wait() { synctest.Wait() }

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
