package link_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/hub"
	"github.com/holdfast-mq/holdfast/ingress/link"
)

const testTimeout = 10 * time.Second

const ack = "$JS.ACK.orders.worker.1.22.333.1700000000000000000.4444"

func startHub(t *testing.T, cfg hub.Config) *hub.Hub {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.Log = zap.NewNop()
	h, err := hub.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	return h
}

func confFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hub.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// runLink runs a link to h until the test ends and waits until it is up.
func runLink(t *testing.T, h *hub.Hub, account string, change func(*link.Config)) *link.Link {
	t.Helper()
	a, err := h.Leaf(account)
	if err != nil {
		t.Fatal(err)
	}
	cfg := link.Config{
		Dial: a.Dial, Name: "test-link", User: a.User, Password: a.Password,
		MaxPayload: a.MaxPayload, MaxControlLine: a.MaxControlLine, Grace: time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	l, err := link.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	eventually(t, "the link is up", func() bool { return l.Status().Up })
	return l
}

func eventually(t *testing.T, what string, want func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !want() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func connect(t *testing.T, h *hub.Hub, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(h.ClientURL(), append([]nats.Option{nats.Timeout(testTimeout)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func subscribe(t *testing.T, nc *nats.Conn, subject, queue string) *nats.Subscription {
	t.Helper()
	sub, err := nc.QueueSubscribeSync(subject, queue)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(testTimeout); err != nil {
		t.Fatal(err)
	}
	return sub
}

func next(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(testTimeout)
	if err != nil {
		t.Fatalf("%s: %v", sub.Subject, err)
	}
	return m
}

func check(t *testing.T, m *nats.Msg, subject, reply, body string) {
	t.Helper()
	if m.Subject != subject || m.Reply != reply || string(m.Data) != body {
		t.Errorf("got  %q %q %.60q\nwant %q %q %.60q", m.Subject, m.Reply, m.Data, subject, reply, body)
	}
}

func TestDeliveryToStockClient(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	l := runLink(t, h, "$G", nil)
	nc := connect(t, h)
	inbox := nc.NewInbox()
	sub := subscribe(t, nc, inbox, "")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	must(l.Deliver(inbox, []byte(ack), "orders.eu.new", nil, []byte("body")))
	m := next(t, sub)
	check(t, m, "orders.eu.new", ack, "body")
	if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != 22 || meta.Sequence.Consumer != 333 ||
		meta.NumPending != 4444 || meta.Stream != "orders" || meta.Consumer != "worker" {
		t.Errorf("metadata %+v, %v", meta, err)
	}

	// The newer form with domain and account hash, a subject with @, headers, an empty body.
	const ack2 = "$JS.ACK._.ACCHASH.orders.worker.1.22.333.1700000000000000000.4444.tok"
	headers := []byte("NATS/1.0\r\nNats-Msg-Id: 1\r\nX: a\r\nX: b\r\n\r\n")
	must(l.Deliver(inbox, []byte(ack2), "$KV.b.a@b", headers, nil))
	m = next(t, sub)
	check(t, m, "$KV.b.a@b", ack2, "")
	if m.Header.Get("Nats-Msg-Id") != "1" || fmt.Sprint(m.Header["X"]) != "[a b]" {
		t.Errorf("headers %v", m.Header)
	}

	// A status line as it is, a flow control request, a plain answer.
	must(l.Send(link.Msg{Subject: inbox, Header: []byte("NATS/1.0 404 No Messages\r\n\r\n"), Fenced: true}))
	m = next(t, sub)
	check(t, m, inbox, "", "")
	if m.Header.Get("Status") != "404" || m.Header.Get("Description") != "No Messages" {
		t.Errorf("status %v", m.Header)
	}
	fc := "$JS.FC.orders.worker.abc"
	headers = []byte("NATS/1.0 100 FlowControl Request\r\n\r\n")
	must(l.Send(link.Msg{Subject: inbox, Reply: fc, Header: headers}))
	check(t, next(t, sub), inbox, fc, "")
	must(l.Send(link.Msg{Subject: inbox, Body: []byte(`{"seq":1}`)}))
	check(t, next(t, sub), inbox, "", `{"seq":1}`)

	// The ack reaches our client connection.
	acks := subscribe(t, connect(t, h), "$JS.ACK.>", "")
	must(l.Deliver(inbox, []byte(ack), "s", nil, nil))
	must(next(t, sub).Ack())
	check(t, next(t, acks), ack, "", "+ACK")

	if st := l.Stats(); st.Sent != 6 || st.Connects != 1 || st.Invalid+st.Overflow+st.Down+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func TestStatusLineOnTheWire(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	l := runLink(t, h, "$G", nil)
	conn, err := net.Dial("tcp", h.ClientAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	const hello = `CONNECT {"verbose":false,"headers":true,"no_responders":true}` + "\r\nSUB i 7\r\nPING\r\n"
	if _, err := conn.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	read := func(until string) string {
		t.Helper()
		buf := make([]byte, 4096)
		for !strings.HasSuffix(string(got), until) {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("after %q: %v", got, err)
			}
			got = append(got, buf[:n]...)
		}
		s := string(got)
		got = nil
		return s
	}
	read("PONG\r\n")
	if err := l.Send(link.Msg{Subject: "i", Header: []byte("NATS/1.0 404 No Messages\r\n\r\n")}); err != nil {
		t.Fatal(err)
	}
	if err := l.Deliver("i", []byte(ack), "o", []byte("NATS/1.0\r\n\r\n"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	want := "HMSG i 7 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n" +
		"HMSG o 7 " + ack + " 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
	if s := read("x\r\n"); s != want {
		t.Errorf("got  %q\nwant %q", s, want)
	}
}

func TestQueueGroups(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	l := runLink(t, h, "$G", nil)
	nc := connect(t, h)
	plain, q, other := subscribe(t, nc, "d", ""), subscribe(t, nc, "d", "q"), subscribe(t, nc, "d", "other")
	eventually(t, "interest of the groups", func() bool {
		return l.QueueInterest("d", "q") && l.QueueInterest("d", "other")
	})
	if l.QueueInterest("d", "nobody") || l.QueueInterest("x", "q") {
		t.Error("interest of groups without members")
	}
	d := link.Delivery{Inbox: "d", Ack: []byte(ack), Subject: "o", Body: []byte("1"), Queue: "q"}
	if err := l.DeliverQueue(d); err != nil {
		t.Fatal(err)
	}
	d.Header = []byte("NATS/1.0\r\nA: b\r\n\r\n")
	if err := l.DeliverQueue(d); err != nil {
		t.Fatal(err)
	}
	if err := l.Send(link.Msg{Subject: "d", Body: []byte("2"), Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Send(link.Msg{Subject: "d", Reply: "r", Body: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []*nats.Subscription{plain, q} {
		check(t, next(t, sub), "o", ack, "1")
		if m := next(t, sub); m.Header.Get("A") != "b" {
			t.Errorf("headers %v", m.Header)
		}
		check(t, next(t, sub), "d", "", "2")
	}
	check(t, next(t, plain), "d", "r", "3")
	if n, _, err := other.Pending(); err != nil || n != 0 {
		t.Errorf("the other group got %d messages, %v", n, err)
	}
	if n, _, err := q.Pending(); err != nil || n != 0 {
		t.Errorf("the group got a message that does not name it: %d, %v", n, err)
	}
}

func TestInterestComesAndGoes(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	before := connect(t, h)
	subscribe(t, before, "early.*", "")
	l := runLink(t, h, "$G", nil)
	eventually(t, "the grace is over", func() bool { return !l.Interest("nobody.here") })
	if !l.Interest("early.x") || l.Interest("early") || l.Interest("early.x.y") {
		t.Error("a subscription older than the link")
	}
	nc := connect(t, h)
	sub := subscribe(t, nc, "late.>", "")
	eventually(t, "interest appears", func() bool { return l.Interest("late.a.b") })
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "interest disappears", func() bool { return !l.Interest("late.a.b") })
	subscribe(t, nc, "late", "g")
	eventually(t, "interest of a group", func() bool { return l.Interest("late") })
	nc.Close()
	eventually(t, "its client has gone", func() bool { return !l.Interest("late") })
	if !l.Interest("early.x") {
		t.Error("the other client is still there")
	}
}

func TestAccountsAreApart(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{ConfigFile: confFile(t, `accounts {
		A { users: [{user: a, password: a}], limits { max_payload: 500 } }
		B { users: [{user: b, password: b}] } }`)})
	la, lb := runLink(t, h, "A", nil), runLink(t, h, "B", nil)
	a := subscribe(t, connect(t, h, nats.UserInfo("a", "a")), "x", "")
	b := subscribe(t, connect(t, h, nats.UserInfo("b", "b")), "x", "")
	if err := errors.Join(
		la.Deliver("x", []byte(ack), "of.a", nil, nil), lb.Deliver("x", []byte(ack), "of.b", nil, nil),
	); err != nil {
		t.Fatal(err)
	}
	check(t, next(t, a), "of.a", ack, "")
	check(t, next(t, b), "of.b", ack, "")
	// The account's limit is lower than the server's, and beyond it the hub would close the link.
	err := la.Deliver("x", []byte(ack), "of.a", nil, make([]byte, 501))
	if !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("past the account's limit: %v", err)
	}
	if err := la.Deliver("x", []byte(ack), "of.a", nil, make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	if m := next(t, a); len(m.Data) != 500 {
		t.Errorf("%d bytes", len(m.Data))
	}
}

func TestMaxPayloadEdge(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{ConfigFile: confFile(t, "max_payload: 10000\nmax_control_line: 512")})
	l := runLink(t, h, "$G", nil)
	nc := connect(t, h)
	sub := subscribe(t, nc, "i", "")
	hdr := []byte("NATS/1.0\r\nA: b\r\n\r\n")
	body := make([]byte, 10000)
	if err := errors.Join(
		l.Deliver("i", []byte(ack), "s", nil, body), l.Deliver("i", []byte(ack), "s", hdr, body[len(hdr):]),
	); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		next(t, sub)
	}
	for _, err := range []error{
		l.Deliver("i", []byte(ack), "s", hdr, body[len(hdr)-1:]),
		l.Send(link.Msg{Subject: "i", Body: make([]byte, 10001)}),
		l.Send(link.Msg{Subject: "i", Reply: strings.Repeat("x", 16*512)}),
	} {
		if !errors.Is(err, link.ErrTooLarge) {
			t.Errorf("past a limit: %v", err)
		}
	}
	// The longest line, which the hub still takes.
	long := strings.Repeat("x", 16*512-1-48)
	if err := l.Send(link.Msg{Subject: "i", Reply: long}); err != nil {
		t.Fatal(err)
	}
	check(t, next(t, sub), "i", long, "")
	if s := l.Stats(); s.Connects != 1 {
		t.Errorf("%+v", s)
	}
}

// fixedAddr returns an address whose port nobody takes while nobody listens: it is not an ephemeral one.
func fixedAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000))))
		if err == nil {
			ln.Close()
			return ln.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func TestReconnectAfterRestart(t *testing.T) {
	t.Parallel()
	leaf := fixedAddr(t)
	cfg := hub.Config{Listen: fixedAddr(t), ConfigFile: confFile(t, `leafnodes {
		listen: "`+leaf+`", authorization { user: us, password: secret } }`)}
	h := startHub(t, cfg)
	states := make(chan link.Status, 10)
	l := runLink(t, h, "$G", func(c *link.Config) {
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", leaf)
		}
		c.User, c.Password = "us", "secret"
		c.OnStatus = func(s link.Status) { states <- s }
	})
	if s := <-states; !s.Up {
		t.Errorf("%+v", s)
	}
	nc := connect(t, h, nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	sub := subscribe(t, nc, "i", "")
	for i := range 3 {
		begin := time.Now()
		h.Stop()
		if s := <-states; s.Up || s.Since.Before(begin) || s.Err == nil {
			t.Errorf("restart %d: %+v", i, s)
		}
		if err := l.Deliver("i", []byte(ack), "s", nil, nil); !errors.Is(err, link.ErrDown) {
			t.Errorf("delivery while down: %v", err)
		}
		h = startHub(t, cfg)
		if s := <-states; !s.Up || s.Err != nil {
			t.Errorf("restart %d: %+v", i, s)
		}
		eventually(t, "the client is back", func() bool {
			return !l.Interest("nobody.here") && l.Interest("i")
		})
		if err := l.Deliver("i", []byte(ack), "again", nil, []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		check(t, next(t, sub), "again", ack, strconv.Itoa(i))
	}
	if st := l.Stats(); st.Connects != 4 || st.Down != 3 {
		t.Errorf("%+v", st)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	a, err := h.Leaf("$G")
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.New(link.Config{Name: "n", Dial: a.Dial, User: a.User, Password: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	eventually(t, "the hub refuses", func() bool {
		err := l.Status().Err
		return errors.Is(err, link.ErrHub) && strings.Contains(err.Error(), "Authorization Violation")
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// cluster returns two hubs with a route between them.
func cluster(t *testing.T) (a, b *hub.Hub) {
	t.Helper()
	cfg := hub.Config{ServerName: "a", ClusterName: "c", RouteListen: "127.0.0.1:0"}
	a = startHub(t, cfg)
	cfg.ServerName, cfg.Routes = "b", []string{a.RouteAddr()}
	b = startHub(t, cfg)
	eventually(t, "the route", func() bool {
		names, err := b.RouteNames()
		return err == nil && len(names) == 1
	})
	return a, b
}

func TestOverRoute(t *testing.T) {
	t.Parallel()
	a, b := cluster(t)
	l := runLink(t, a, "$G", nil)
	nc := connect(t, b)
	sub, group := subscribe(t, nc, "i", ""), subscribe(t, nc, "w.*", "q")
	eventually(t, "interest over the route", func() bool {
		return !l.Interest("nobody") && l.Interest("i") && l.QueueInterest("w.1", "q")
	})
	if err := errors.Join(
		l.Deliver("i", []byte(ack), "orders.new", []byte("NATS/1.0\r\nA: b\r\n\r\n"), []byte("1")),
		l.Deliver("i", []byte(ack), "$KV.b.k", nil, nil),
		l.Send(link.Msg{Subject: "i", Header: []byte("NATS/1.0 408 Request Timeout\r\n\r\n")}),
		l.DeliverQueue(link.Delivery{Inbox: "w.1", Ack: []byte(ack), Subject: "o", Queue: "q"}),
	); err != nil {
		t.Fatal(err)
	}
	m := next(t, sub)
	check(t, m, "orders.new", ack, "1")
	if m.Header.Get("A") != "b" {
		t.Errorf("headers %v", m.Header)
	}
	check(t, next(t, sub), "$KV.b.k", ack, "")
	m = next(t, sub)
	check(t, m, "i", "", "")
	if m.Header.Get("Status") != "408" || m.Header.Get("Description") != "Request Timeout" {
		t.Errorf("status %v", m.Header)
	}
	check(t, next(t, group), "o", ack, "")
	acks := subscribe(t, connect(t, a), "$JS.ACK.>", "")
	eventually(t, "the ack comes back over the route", func() bool {
		if err := nc.Publish(ack, []byte("+ACK")); err != nil {
			t.Fatal(err)
		}
		m, err := acks.NextMsg(50 * time.Millisecond)
		return err == nil && m.Subject == ack
	})
}

// Several senders at once, deep subjects, bodies that look like the protocol: every message arrives whole,
// once, and in its sender's order.
func TestNothingBleeds(t *testing.T) {
	t.Parallel()
	a, b := cluster(t)
	l := runLink(t, a, "$G", nil)
	const senders, each = 8, 500
	type inbox struct {
		name string
		sub  *nats.Subscription
	}
	var inboxes []inbox
	for i := range senders {
		on := a
		if i%2 == 1 {
			on = b
		}
		name := fmt.Sprintf("_INBOX.%d.%s", i, strings.Repeat("deep.", 60)+"end")
		inboxes = append(inboxes, inbox{name, subscribe(t, connect(t, on), name, "")})
	}
	eventually(t, "interest", func() bool {
		for _, in := range inboxes {
			if !l.Interest(in.name) {
				return false
			}
		}
		return !l.Interest("nobody")
	})
	message := func(sender, i int) (subject, reply string, header, body []byte) {
		r := rand.New(rand.NewPCG(uint64(sender), uint64(i)))
		subject = fmt.Sprintf("s%d.%s%d", sender, strings.Repeat("t@.", r.IntN(100)), i)
		reply = fmt.Sprintf("$JS.ACK.s.consumer%d.1.%d.%d.1700000000000000000.%d", sender, i, i, r.IntN(1e9))
		if r.IntN(2) == 0 {
			header = fmt.Appendf(nil, "NATS/1.0\r\nI: %d\r\n\r\n", i)
		}
		body = []byte(strings.Repeat(fmt.Sprintf("\r\nLMSG x %d\r\nPING\r\n", i), r.IntN(50)))
		return subject, reply, header, body
	}
	var wg sync.WaitGroup
	for sender, in := range inboxes {
		wg.Go(func() {
			for i := range each {
				subject, reply, header, body := message(sender, i)
				if err := l.Deliver(in.name, []byte(reply), subject, header, body); err != nil {
					t.Errorf("sender %d message %d: %v", sender, i, err)
					return
				}
			}
		})
	}
	for sender, in := range inboxes {
		for i := range each {
			subject, reply, header, body := message(sender, i)
			m := next(t, in.sub)
			check(t, m, subject, reply, string(body))
			want := ""
			if header != nil {
				want = strconv.Itoa(i)
			}
			if m.Header.Get("I") != want || t.Failed() {
				t.Fatalf("sender %d message %d: header %v, want %q", sender, i, m.Header, want)
			}
		}
	}
	wg.Wait()
	st := l.Stats()
	if st.Sent != senders*each || st.Connects != 1 || st.Writes >= st.Sent {
		t.Errorf("messages are not gathered, or lost: %+v", st)
	}
}

func TestFlushWithHub(t *testing.T) {
	t.Parallel()
	h := startHub(t, hub.Config{})
	l := runLink(t, h, "$G", nil)
	sub := subscribe(t, connect(t, h), "i", "")
	for i := range 1000 {
		if err := l.Send(link.Msg{Subject: "i", Body: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		check(t, next(t, sub), "i", "", strconv.Itoa(i))
	}
}
