package conn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

// TestHeadersAreVerbatim: whatever a publisher wrote between HPUB and the payload
// arrives, byte for byte, and so does what is published here.
func TestHeadersAreVerbatim(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c, other := open(t, s, nil), open(t, s, nil)
	raw := rawDial(t, s)
	var in, out inbox
	if _, err := c.Subscribe("in.>", in.handler); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Subscribe("out", out.handler); err != nil {
		t.Fatal(err)
	}
	flush(t, c)
	flush(t, other)
	blocks := []string{
		"NATS/1.0\r\nb: 2\r\na: 1\r\nb: 1\r\n\r\n",                // order, duplicates
		"NATS/1.0\r\nnats-msg-id: x\r\nNATS-MSG-ID: X\r\n\r\n",    // case
		"NATS/1.0\r\nempty:\r\nblank:   \r\n\r\n",                 // empty values
		"NATS/1.0\r\nk:v\r\nk2:  v  w \r\n\tfolded: no\r\n\r\n",   // spacing
		"NATS/1.0 503\r\n\r\n",                                    // a status
		"NATS/1.0 100 Idle Heartbeat\r\nk: \xff\xfe\x00 \r\n\r\n", // bytes that are no text
		"NATS/1.0\r\n\r\n",
		"NATS/1.0\r\n" + strings.Repeat("key: value\r\n", 500) + "\r\n",
	}
	var want []received
	for i, h := range blocks {
		data := fmt.Sprintf("payload %d\r\n", i)
		subject, reply := fmt.Sprintf("in.%d", i), ""
		if i%2 == 1 {
			reply = "reply.to"
		}
		want = append(want, received{subject, reply, h, data})
		raw.write(strings.Join(strings.Fields(fmt.Sprintf("HPUB %s %s %d %d", subject, reply, len(h), len(h)+len(data))), " ") +
			"\r\n" + h + data + "\r\n")
	}
	raw.write("PUB in.plain 0\r\n\r\n")
	want = append(want, received{Subject: "in.plain"})
	if diff := cmp.Diff(want, in.wait(t, len(want))); diff != "" {
		t.Fatalf("received (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i].Subject = "out"
		m := in.all()[i]
		var h []byte
		if m.Header != "" {
			h = []byte(m.Header)
		}
		if err := c.Publish("out", m.Reply, h, []byte(m.Data)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, out.wait(t, len(want))); diff != "" {
		t.Fatalf("published (-want +got):\n%s", diff)
	}
}

func TestNoHeaderIsNil(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c := open(t, s, nil)
	got := make(chan []byte, 2)
	if _, err := c.Subscribe("x", func(_, _ string, header, _ []byte) { got <- header }); err != nil {
		t.Fatal(err)
	}
	for _, h := range [][]byte{nil, []byte("NATS/1.0\r\n\r\n")} {
		if err := c.Publish("x", "", h, nil); err != nil {
			t.Fatal(err)
		}
		if header := <-got; (header == nil) != (h == nil) || cap(header) != len(header) {
			t.Fatalf("header %q of capacity %d, sent %q", header, cap(header), h)
		}
	}
}

// TestOrder: handlers are called in the order of the wire over all subscriptions.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c := open(t, s, nil)
	var in inbox
	for _, subject := range []string{"pub.>", "$JS.ACK.>", "api"} {
		if _, err := c.Subscribe(subject, in.handler); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, c)
	raw := rawDial(t, s)
	const n = 3000
	var b strings.Builder
	for i := range n {
		body := fmt.Sprint(i)
		fmt.Fprintf(&b, "PUB %s %d\r\n%s\r\n", []string{"pub.a", "$JS.ACK.S.C.1.1.1.1.1", "pub.b", "api"}[i%4], len(body), body)
	}
	raw.write(b.String())
	for i, m := range in.wait(t, n) {
		if m.Data != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.Data)
		}
	}
}

// TestUnsubscribe: one of two subscriptions of a subject goes, the other stays.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c := open(t, s, nil)
	var a, b inbox
	cancel, err := c.Subscribe("x", a.handler)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe("x", b.handler); err != nil {
		t.Fatal(err)
	}
	flush(t, c)
	cancel()
	cancel() // twice is once
	flush(t, c)
	if err := c.Publish("x", "", nil, []byte("1")); err != nil {
		t.Fatal(err)
	}
	b.wait(t, 1)
	if got := a.all(); len(got) != 0 {
		t.Fatalf("received %v after the subscription was canceled", got)
	}
	if n := s.NumSubscriptions(); n == 0 {
		t.Fatal("the other subscription is gone")
	}
}

func TestReconnect(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	port := s.Addr().(*net.TCPAddr).Port //nolint:errcheck // a TCP listener
	c := open(t, s, nil)
	var in inbox
	cancel, err := c.Subscribe("gone", in.handler)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe("kept", in.handler); err != nil {
		t.Fatal(err)
	}
	flush(t, c)
	if _, down := c.Down(); down {
		t.Fatal("down while it is connected")
	}
	before := time.Now()
	s.Shutdown()
	s.WaitForShutdown()
	eventually(t, "the Conn notices", func() bool { _, down := c.Down(); return down })
	if since, _ := c.Down(); since.Before(before) {
		t.Fatalf("down since %v, the server stopped at %v", since, before)
	}
	if err := c.Publish("kept", "", nil, nil); !errors.Is(err, ErrDown) {
		t.Fatalf("Publish while down: %v, want ErrDown", err)
	}
	if err := c.Flush(t.Context()); !errors.Is(err, ErrDown) {
		t.Fatalf("Flush while down: %v, want ErrDown", err)
	}
	cancel()
	if _, err := c.Subscribe("new", in.handler); err != nil {
		t.Fatalf("Subscribe while down: %v", err)
	}
	again := startServer(t, server.Options{Port: port})
	eventually(t, "the Conn is back", func() bool { _, down := c.Down(); return !down })
	flush(t, c)
	raw := rawDial(t, again)
	raw.write("PUB gone 1\r\n1\r\nPUB kept 1\r\n2\r\nPUB new 1\r\n3\r\n")
	want := []received{{Subject: "kept", Data: "2"}, {Subject: "new", Data: "3"}}
	if diff := cmp.Diff(want, in.wait(t, 2)); diff != "" {
		t.Fatalf("after the reconnect (-want +got):\n%s", diff)
	}
}

// TestFlushTellsOfALostConnection that what was queued may not have arrived.
func TestFlushTellsOfALostConnection(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	c := openPipe(t, link)
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
	done := make(chan error, 1)
	go func() { done <- c.conn.Flush(t.Context()) }()
	srv.line("PING")
	srv.close()
	if err := <-done; !errors.Is(err, ErrDown) {
		t.Fatalf("Flush: %v, want ErrDown", err)
	}
	next := <-link.servers
	next.handshake()
	eventually(t, "up again", func() bool { _, down := c.conn.Down(); return !down })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.conn.Flush(ctx) }()
	next.line("PING")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Flush: %v, want canceled", err)
	}
	next.write("PONG\r\n") // of the one that gave up
	go func() { done <- c.conn.Flush(t.Context()) }()
	next.line("PING")
	next.write("PONG\r\n")
	if err := <-done; err != nil {
		t.Fatalf("Flush after one that gave up: %v", err)
	}
}

func TestMaxPayload(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{MaxPayload: 1000})
	c := open(t, s, nil)
	var in inbox
	if _, err := c.Subscribe("x", in.handler); err != nil {
		t.Fatal(err)
	}
	h := []byte("NATS/1.0\r\n\r\n")
	for _, tc := range []struct {
		header []byte
		body   int
		ok     bool
	}{{nil, 1000, true}, {nil, 1001, false}, {h, 1000 - len(h), true}, {h, 1001 - len(h), false}} {
		err := c.Publish("x", "", tc.header, make([]byte, tc.body))
		if tc.ok && err != nil || !tc.ok && !errors.Is(err, ErrTooLarge) {
			t.Errorf("header of %d, body of %d bytes: %v", len(tc.header), tc.body, err)
		}
	}
	in.wait(t, 2)
	flush(t, c) // the connection still stands
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{Username: "u", Password: "p"})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, user := range []string{"", "u"} {
		_, err := Open(ctx, Config{Dial: dial(s.Addr().String()), User: user, Password: "no", Logger: zap.NewNop()})
		if err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
			t.Errorf("user %q: %v, want the server's words", user, err)
		}
	}
	c := open(t, s, func(cfg *Config) { cfg.User, cfg.Password = "u", "p" })
	flush(t, c)
}

func TestOpenEnds(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Open(ctx, Config{
		Dial: func(context.Context) (net.Conn, error) {
			if tries.Add(1) == 3 {
				cancel()
			}
			return nil, errors.New("no route")
		},
		Wait: time.Millisecond, Logger: zap.NewNop(),
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no route") {
		t.Fatalf("Open: %v, want canceled with the last reason", err)
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Fatal("a Config without Dial and Logger is accepted")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c := open(t, s, nil)
	c.Close()
	c.Close()
	if err := c.Publish("x", "", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish: %v", err)
	}
	if _, err := c.Subscribe("x", func(string, string, []byte, []byte) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("Subscribe: %v", err)
	}
	if err := c.Flush(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Flush: %v", err)
	}
	eventually(t, "the server has no client", func() bool { return s.NumClients() == 0 })
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	s := startServer(t, server.Options{})
	c := open(t, s, nil)
	for _, subject := range []string{"", " ", "a b", "a\r\nPUB b 0", "a\tb"} {
		if err := c.Publish(subject, "", nil, nil); !errors.Is(err, ErrSubject) {
			t.Errorf("Publish to %q: %v", subject, err)
		}
		if subject != "" {
			if err := c.Publish("x", subject, nil, nil); !errors.Is(err, ErrSubject) {
				t.Errorf("Publish with reply %q: %v", subject, err)
			}
		}
		if _, err := c.Subscribe(subject, nil); !errors.Is(err, ErrSubject) {
			t.Errorf("Subscribe %q: %v", subject, err)
		}
	}
	flush(t, c)
}

// TestServerPings: they are answered, or the server would end the connection.
func TestServerPings(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	c := openPipe(t, link)
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
	srv.write("PING\r\nINFO {\"max_payload\":5}\r\n+OK\r\n-ERR 'Permissions Violation'\r\nPING\r\n")
	srv.line("PONG")
	srv.line("PONG")
	if err := c.conn.Publish("x", "", nil, make([]byte, 6)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("Publish above the new limit: %v", err)
	}
}

// TestCancelledSubscriptionGetsTheRest: what the server sent before it knew. Many that
// are cancelled together are one question, and one after it another.
func TestCancelledSubscriptionGetsTheRest(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	c := openPipe(t, link)
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
	var in inbox
	var cancels []func()
	for i := range 3 {
		cancel, err := c.conn.Subscribe(fmt.Sprint("a", i), in.handler)
		if err != nil {
			t.Fatal(err)
		}
		cancels = append(cancels, cancel)
		srv.line(fmt.Sprintf("SUB a%d %d", i, i+1))
	}
	cancels[0]()
	srv.line("UNSUB 1")
	srv.line("PING")
	cancels[1]()
	cancels[1]() // once is enough
	cancels[2]()
	srv.line("UNSUB 2")
	srv.line("UNSUB 3")
	srv.write("MSG a0 1 r0 1\r\nx\r\nMSG a1 2 r1 1\r\nx\r\nPONG\r\n")
	srv.line("PING") // the next question
	// Nobody asked for 1 any more, 2 and 3 are still on their way out.
	srv.write("MSG a0 1 late 1\r\nx\r\nMSG a2 3 r2 1\r\nx\r\nPONG\r\nMSG a2 3 late 1\r\nx\r\nPING\r\n")
	srv.line("PONG")
	var got []string
	for _, m := range in.all() {
		got = append(got, m.Reply)
	}
	if !slices.Equal(got, []string{"r0", "r1", "r2"}) {
		t.Fatalf("got %q", got)
	}
	if len(c.conn.subs) != 0 {
		t.Fatalf("%d subscriptions are kept", len(c.conn.subs))
	}
}

// TestCancelledWhileTheConnectionEnds: nothing is kept, and nothing is subscribed again.
func TestCancelledWhileTheConnectionEnds(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	c := openPipe(t, link)
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
	cancel, err := c.conn.Subscribe("gone", func(string, string, []byte, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.Subscribe("stays", func(string, string, []byte, []byte) {}); err != nil {
		t.Fatal(err)
	}
	srv.line("SUB gone 1")
	srv.line("SUB stays 2")
	cancel()
	srv.line("UNSUB 1")
	srv.line("PING")
	srv.close()
	srv = <-link.servers
	srv.handshake()
	srv.line("SUB stays 2")
	srv.write("PING\r\n")
	srv.line("PONG")
	c.conn.subsMu.RLock()
	defer c.conn.subsMu.RUnlock()
	if len(c.conn.subs) != 1 {
		t.Fatalf("%d subscriptions, want the one that stays", len(c.conn.subs))
	}
}

// TestMaxPending: what a server does not read is bounded.
func TestMaxPending(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	link.pending = 1000
	c := openPipe(t, link)
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
	n := 0
	for ; n < 100; n++ {
		if err := c.conn.Publish("x", "", nil, make([]byte, 100)); err != nil {
			if !errors.Is(err, ErrDown) {
				t.Fatalf("Publish: %v", err)
			}
			break
		}
	}
	if n < 9 || n > 20 {
		t.Fatalf("%d messages of about 110 bytes were queued, the bound is 1000 bytes and what is being written", n)
	}
}

// TestNonsenseEndsTheConnection, and another one is made.
func TestNonsenseEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"unknown operation": "WHAT\r\n",
		"no end":            "MSG x 1 1\r\nabc\r\n",
		"header too long":   "HMSG x 1 9 5\r\n12345\r\n",
		"no number":         "MSG x 1 many\r\n",
		"too large":         "MSG x 1 99999999999\r\n",
		"endless line":      strings.Repeat("x", 2*MaxLine),
		"broken INFO":       "INFO {\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := newPipes(t)
			c := openPipe(t, link)
			srv := <-link.servers
			srv.handshake()
			c.wait(t)
			go srv.try(says)
			next := <-link.servers
			next.handshake()
			eventually(t, "up again", func() bool { _, down := c.conn.Down(); return !down })
		})
	}
}

func TestHandshakeThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	link := newPipes(t)
	c := openPipe(t, link)
	for _, says := range []string{"HELLO\r\n", "INFO nonsense\r\n"} {
		srv := <-link.servers
		srv.try(says)
		srv.close()
	}
	srv := <-link.servers
	srv.handshake()
	c.wait(t)
}

// pipes connects Conns to servers that the test plays.
type pipes struct {
	t       *testing.T
	servers chan *played
	pending int
}

func newPipes(t *testing.T) *pipes {
	t.Helper()
	return &pipes{t: t, servers: make(chan *played)}
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	p.t.Cleanup(func() { _ = b.Close() })
	select {
	case p.servers <- &played{p.t, b, bufio.NewReader(b)}:
		return a, nil
	case <-ctx.Done():
		_, _ = a.Close(), b.Close()
		return nil, ctx.Err()
	}
}

// opening is a Conn that connects in the background.
type opening struct {
	conn *Conn
	done chan error
}

func openPipe(t *testing.T, p *pipes) *opening {
	t.Helper()
	o := &opening{done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	go func() {
		defer cancel()
		c, err := Open(ctx, Config{Dial: p.dial, Wait: time.Millisecond, MaxPending: p.pending, Logger: zap.NewNop()})
		o.conn = c
		o.done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if o.conn != nil {
			o.conn.Close()
		}
	})
	return o
}

func (o *opening) wait(t *testing.T) {
	t.Helper()
	if err := <-o.done; err != nil {
		t.Fatal(err)
	}
}

// played is the server's end of a connection.
type played struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func (s *played) close() { _ = s.nc.Close() }

// try writes and does not mind a connection that ended.
func (s *played) try(text string) { _, _ = s.nc.Write([]byte(text)) }

func (s *played) write(text string) {
	s.t.Helper()
	if _, err := s.nc.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *played) line(prefix string) {
	s.t.Helper()
	_ = s.nc.SetReadDeadline(time.Now().Add(testTimeout))
	l, err := s.r.ReadString('\n')
	if err != nil || !strings.HasPrefix(l, prefix) {
		s.t.Fatalf("the client says %q, %v; want %q", l, err, prefix)
	}
}

func (s *played) handshake() {
	s.t.Helper()
	s.write("INFO {\"max_payload\":1048576}\r\n")
	s.line("CONNECT {")
	s.line("PING")
	s.write("PONG\r\n")
}
