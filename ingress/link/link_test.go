package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const helloInfo = `INFO {"server_name":"hub","max_payload":1000,"headers":true}` + "\r\n"

// peer is the hub's side of one connection.
type peer struct {
	net.Conn
	r *bufio.Reader
}

func (p *peer) send(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		t.Fatalf("hub sends %q: %v", s, err)
	}
}

// line reads a line without its end; "" when the connection is closed.
func (p *peer) line() string {
	s, _ := p.r.ReadString('\n')
	return strings.TrimSuffix(s, "\r\n")
}

func (p *peer) expect(t *testing.T, want string) {
	t.Helper()
	if got := p.line(); got != want {
		t.Fatalf("hub got %q, want %q", got, want)
	}
}

// greet does the hub's side of the handshake.
func (p *peer) greet(t *testing.T, table string) {
	t.Helper()
	p.send(t, helloInfo)
	if got := p.line(); !strings.HasPrefix(got, "CONNECT {") {
		t.Fatalf("hub got %q, want CONNECT", got)
	}
	p.expect(t, "PING")
	p.send(t, table+"PONG\r\n")
}

// rig is a Link whose Dial connects to peers.
type rig struct {
	*Link
	peers  chan *peer // one for each dial
	refuse chan error // an error here makes the next dial fail
	dials  []time.Time
	mu     sync.Mutex
	states []Status
}

// newRig runs a Link until the test ends. Call it inside a synctest bubble.
func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{peers: make(chan *peer, 10), refuse: make(chan error, 100)}
	cfg.Name = "us"
	cfg.Dial = func(context.Context) (net.Conn, error) {
		r.mu.Lock()
		r.dials = append(r.dials, time.Now())
		r.mu.Unlock()
		select {
		case err := <-r.refuse:
			return nil, err
		default:
		}
		ours, theirs := net.Pipe()
		r.peers <- &peer{Conn: theirs, r: bufio.NewReader(theirs)}
		return ours, nil
	}
	cfg.OnStatus = func(s Status) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, s)
	}
	var err error
	if r.Link, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *rig) accept(t *testing.T) *peer {
	t.Helper()
	p := <-r.peers
	t.Cleanup(func() { p.Close() })
	return p
}

func (r *rig) statuses() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Status(nil), r.states...)
}

func TestLinkLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := newRig(t, Config{PingInterval: time.Hour})
		if s := r.Status(); s.Up || !s.Since.Equal(begin) {
			t.Errorf("at first: %+v", s)
		}
		if err := r.Flush(t.Context()); !errors.Is(err, ErrDown) {
			t.Errorf("flush while down: %v", err)
		}
		p := r.accept(t)
		p.greet(t, "LS+ a\r\nLS+ w.> q 1\r\nLMSG x 2\r\nhi\r\nINFO {}\r\n+OK\r\n")
		synctest.Wait()
		if s := r.Status(); !s.Up || s.Err != nil || s.Hub != "hub" {
			t.Errorf("accepted: %+v", s)
		}
		if st := r.Stats(); st.Subscriptions != 2 || st.Unexpected != 1 || st.Connects != 1 {
			t.Errorf("%+v", st)
		}
		p.send(t, "PING\r\n")
		p.expect(t, "PONG")
		flushed := make(chan error, 1)
		go func() {
			if err := r.Send(Msg{Subject: "a", Body: []byte("x")}); err != nil {
				t.Error(err)
			}
			flushed <- r.Flush(t.Context())
		}()
		for _, want := range []string{"LMSG a 1", "x", "PING"} {
			p.expect(t, want)
		}
		p.send(t, "PONG\r\n")
		if err := <-flushed; err != nil {
			t.Errorf("flush: %v", err)
		}

		// The hub's limits, and new ones.
		if err := r.Send(Msg{Subject: "a", Body: make([]byte, 1001)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("past max_payload: %v", err)
		}
		p.send(t, `INFO {"max_payload":10,"headers":false}`+"\r\n")
		synctest.Wait()
		if err := r.Send(Msg{Subject: "a", Body: make([]byte, 11)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("past the new max_payload: %v", err)
		}
		tooLarge := Msg{Subject: "a", Header: []byte("NATS/1.0\r\n\r\n")}
		if err := r.Send(tooLarge); !errors.Is(err, ErrTooLarge) {
			t.Errorf("header: %v", err)
		}

		// The connection breaks.
		pass(time.Minute - time.Since(begin))
		p.send(t, "-ERR 'you are too loud'\r\n")
		p.Close()
		synctest.Wait()
		s := r.Status()
		if s.Up || !s.Since.Equal(begin.Add(time.Minute)) || !errors.Is(s.Err, ErrHub) ||
			!strings.Contains(s.Err.Error(), "too loud") {
			t.Errorf("broken: %+v", s)
		}
		if err := r.Deliver("i", []byte(ack), "s", nil, nil); !errors.Is(err, ErrDown) {
			t.Errorf("delivery while down: %v", err)
		}
		if err := r.Send(Msg{Subject: "f", Fenced: true}); !errors.Is(err, ErrDown) {
			t.Errorf("fenced message while down: %v", err)
		}
		if err := r.Send(Msg{Subject: "kept", Reply: "r"}); err != nil {
			t.Errorf("message while down: %v", err)
		}
		p = r.accept(t)
		p.greet(t, "")
		p.expect(t, "LMSG kept r 0")
		p.expect(t, "")
		synctest.Wait()
		var ups []bool
		for _, s := range r.statuses() {
			ups = append(ups, s.Up)
		}
		if fmt.Sprint(ups) != "[true false true]" {
			t.Errorf("callback told %v", ups)
		}
	})
}

func TestInterestOfLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{PingInterval: time.Hour})
		p := r.accept(t)
		interest := func(want bool) {
			t.Helper()
			if r.Interest("nobody") != want || r.QueueInterest("nobody", "q") != want {
				t.Errorf("interest in nobody: %v, want %v", r.Interest("nobody"), want)
			}
		}
		interest(true)
		pass(DefaultConnectTimeout - time.Second) // the handshake takes its time
		interest(true)
		p.greet(t, "LS+ a\r\nLS+ g q 2\r\n")
		synctest.Wait()
		up := time.Now()
		interest(true)
		pass(DefaultGrace - 1)
		interest(true)
		pass(1)
		interest(false)
		if !r.Interest("a") || !r.Interest("_R_.abc") || !r.QueueInterest("g", "q") ||
			r.QueueInterest("g", "x") || r.QueueInterest("a", "q") {
			t.Error("the table is not believed")
		}
		if !r.InterestYoung("nobody", up.Add(1)) || r.InterestYoung("nobody", up) ||
			!r.InterestYoung("a", up) {
			t.Error("age of the request")
		}
		p.send(t, "LS+ nobody\r\nLS+ nobody q 1\r\nLS- a\r\n")
		synctest.Wait()
		interest(true)
		if r.Interest("a") {
			t.Error("a is gone")
		}

		p.Close()
		synctest.Wait()
		p = r.accept(t)
		interest(true)
		p.greet(t, "LS+ b\r\n")
		synctest.Wait()
		interest(true)
		pass(DefaultGrace)
		interest(false) // the old table is forgotten
		if !r.Interest("b") {
			t.Error("b is in the new table")
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		r := newRig(t, Config{BackoffMin: 100 * time.Millisecond, BackoffMax: time.Second})
		p := r.accept(t)
		p.greet(t, "")
		synctest.Wait()
		for range 7 {
			r.refuse <- refused
		}
		p.Close()
		down := time.Now()
		r.accept(t).greet(t, "")
		synctest.Wait()
		if s := r.Status(); !s.Up {
			t.Fatalf("%+v", s)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		last := down
		for i, at := range r.dials[1:] {
			want := min(100*time.Millisecond<<i, time.Second)
			if d := at.Sub(last); d > want || d < want*8/10-1 {
				t.Errorf("attempt %d came after %v, want %v less a fifth at most", i, d, want)
			}
			last = at
		}
		if len(r.dials) != 9 {
			t.Errorf("%d dials, want 9", len(r.dials))
		}
	})
}

// Since stays the time the link went down, whatever the attempts meet; Err is the last one's.
func TestStatusWhileDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{BackoffMin: time.Second, BackoffMax: time.Second})
		p := r.accept(t)
		p.greet(t, "")
		synctest.Wait()
		pass(time.Second)
		down := time.Now()
		for i := range 3 {
			r.refuse <- fmt.Errorf("refused %d", i)
		}
		p.Close()
		synctest.Wait()
		if s := r.Status(); !errors.Is(s.Err, io.EOF) || !s.Since.Equal(down) {
			t.Errorf("%+v", s)
		}
		pass(3 * time.Second)
		synctest.Wait()
		s := r.Status()
		if s.Up || !s.Since.Equal(down) || s.Hub != "hub" ||
			s.Err == nil || s.Err.Error() != "link: dial: refused 2" {
			t.Errorf("%+v", s)
		}
		if n := len(r.statuses()); n != 2 {
			t.Errorf("callback was told %d times, want up and down", n)
		}
	})
}

func TestRefusedByHub(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, first, then string
		want              error
		text              string
	}{
		{"authorization", helloInfo, "-ERR 'Authorization Violation'\r\n", ErrHub, "'Authorization Viol"},
		{"not a hub", "HTTP/1.0 400 Bad Request\r\n", "", ErrProtocol, "unknown operation"},
		{"no INFO", "PING\r\n", "", ErrProtocol, "did not begin with INFO"},
		{"garbage", helloInfo, "LS+ a b\r\n", ErrProtocol, "LS+ with 2 arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				p := r.accept(t)
				p.send(t, c.first)
				if c.then != "" {
					p.line()
					p.line()
					p.send(t, "PING\r\n") // also before it is accepted
					p.expect(t, "PONG")
					p.send(t, c.then)
				}
				synctest.Wait()
				s := r.Status()
				if s.Up || !errors.Is(s.Err, c.want) || !strings.Contains(s.Err.Error(), c.text) {
					t.Errorf("%+v", s)
				}
				r.accept(t).greet(t, "") // it tries again
				synctest.Wait()
				if !r.Status().Up {
					t.Error("not up")
				}
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{PingInterval: 10 * time.Second, BackoffMin: time.Millisecond})
		fails := func(after time.Duration, want error) {
			t.Helper()
			synctest.Wait()
			begin := time.Now()
			was := r.Status().Err
			for r.Status().Up || errors.Is(r.Status().Err, was) {
				pass(time.Millisecond)
			}
			if d := time.Since(begin); d < after-time.Millisecond || d > after+time.Millisecond {
				t.Errorf("failed after %v, want %v", d, after)
			}
			if err := r.Status().Err; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		var timeout net.Error
		r.accept(t) // says nothing
		pass(DefaultConnectTimeout)
		synctest.Wait()
		if err := r.Status().Err; !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("silent hub: %v", err)
		}

		// It accepts, then does not answer pings: the first comes after an interval, and is given two.
		p := r.accept(t)
		p.greet(t, "")
		go func() { _, _ = io.Copy(io.Discard, p.r) }()
		fails(30*time.Second, ErrStale)

		// It answers them.
		p = r.accept(t)
		p.greet(t, "")
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for p.line() == "PING" {
				if _, err := io.WriteString(p, "PONG\r\n"); err != nil {
					return
				}
			}
		}()
		pass(time.Hour)
		if s := r.Status(); !s.Up {
			t.Errorf("down although pings are answered: %+v", s)
		}
		p.Close()
		<-stop

		// It stops reading.
		p = r.accept(t)
		p.greet(t, "")
		synctest.Wait()
		if err := r.Send(Msg{Subject: "a"}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for r.Status().Up {
			pass(time.Millisecond)
		}
		if d := time.Since(begin); d < DefaultWriteTimeout || d > DefaultWriteTimeout+time.Millisecond {
			t.Errorf("gave up after %v, want %v", d, DefaultWriteTimeout)
		}
		if err := r.Status().Err; !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("hub that does not read: %v", err)
		}
		if st := r.Stats(); st.Lost != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		p := r.accept(t)
		p.greet(t, "")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- r.Flush(ctx) }()
		p.expect(t, "PING")
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush without PONG: %v", err)
		}
		go func() { second <- r.Flush(t.Context()) }()
		p.expect(t, "PING")
		p.send(t, "PONG\r\n") // belongs to the first
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("the first PONG ended the second flush: %v", err)
		default:
		}
		p.Close()
		if err := <-second; !errors.Is(err, ErrDown) {
			t.Errorf("flush over a broken connection: %v", err)
		}
	})
}

func TestUnaskedPong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		p := r.accept(t)
		p.greet(t, "PONG\r\n")
		synctest.Wait()
		if s := r.Status(); s.Up || !errors.Is(s.Err, ErrProtocol) {
			t.Errorf("%+v", s)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	dial := func(context.Context) (net.Conn, error) { return nil, io.EOF }
	for want, change := range map[string]func(*Config){
		"Dial is nil":                            func(c *Config) { c.Dial = nil },
		`Name "" must be one word`:               func(c *Config) { c.Name = "" },
		`Name "a b" must be one word`:            func(c *Config) { c.Name = "a b" },
		"BackoffMax 1ns is below BackoffMin 2ns": func(c *Config) { c.BackoffMin, c.BackoffMax = 2, 1 },
		"MaxPayload must not be negative":        func(c *Config) { c.MaxPayload = -1 },
		"MaxControlLine must not be negative":    func(c *Config) { c.MaxControlLine = -1 },
		"PendingLimit must not be negative":      func(c *Config) { c.PendingLimit = -1 },
		"MaxInterest must not be negative":       func(c *Config) { c.MaxInterest = -1 },
		"HoldFor must not be negative":           func(c *Config) { c.HoldFor = -1 },
		"Grace must not be negative":             func(c *Config) { c.Grace = -1 },
		"PingInterval must not be negative":      func(c *Config) { c.PingInterval = -1 },
		"ConnectTimeout must not be negative":    func(c *Config) { c.ConnectTimeout = -1 },
		"WriteTimeout must not be negative":      func(c *Config) { c.WriteTimeout = -1 },
		"BackoffMin must not be negative":        func(c *Config) { c.BackoffMin = -1 },
	} {
		c := Config{Dial: dial, Name: "n"}
		change(&c)
		if _, err := New(c); !errors.Is(err, ErrConfig) || err.Error() != "link: configuration: "+want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	l, err := New(Config{Dial: dial, Name: "n", BackoffMin: time.Minute, MaxPayload: 100})
	if err != nil || l.cfg.BackoffMax != time.Minute {
		t.Errorf("%v, %v", l.cfg.BackoffMax, err)
	}
	l.learn(info{MaxPayload: 50, Headers: true})
	if err := l.Send(Msg{Subject: "a", Body: make([]byte, 51)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("the hub's limit: %v", err)
	}
	l.learn(info{MaxPayload: 500, Headers: true})
	if err := l.Send(Msg{Subject: "a", Body: make([]byte, 101)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("our own limit: %v", err)
	}
	if err := l.Send(Msg{Subject: "a", Body: make([]byte, 100)}); err != nil {
		t.Errorf("within both: %v", err)
	}
}

// sink is a connection that takes everything at once.
type sink struct{ net.Conn }

func (sink) Write(b []byte) (int, error)      { return len(b), nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }

// sending returns a Link with a writer to a sink.
func sending(tb testing.TB) *Link {
	tb.Helper()
	l, err := New(Config{Name: "n", Dial: func(context.Context) (net.Conn, error) { return nil, io.EOF }})
	if err != nil {
		tb.Fatal(err)
	}
	l.out.limits(1<<20, true)
	l.out.open(time.Now())
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- l.write(sink{}, stop) }()
	tb.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	return l
}

func TestSendingDoesNotAllocate(t *testing.T) {
	l := sending(t)
	inbox, subject, ackReply := "_INBOX.abcdefghijklmnopqrstuv.1", "orders.eu.new", []byte(ack)
	header, body := []byte("NATS/1.0\r\nA: b\r\n\r\n"), make([]byte, 128)
	send := func() {
		err := errors.Join(
			l.Deliver(inbox, ackReply, subject, header, body),
			l.DeliverQueue(Delivery{Inbox: inbox, Ack: ackReply, Subject: subject, Body: body, Queue: "q"}),
			l.Send(Msg{Subject: inbox, Reply: "r", Body: body}),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 10_000 { // the buffers grow to what they need
		send()
	}
	if n := testing.AllocsPerRun(10_000, send); n != 0 {
		t.Errorf("%v allocations for three messages", n)
	}
}

func BenchmarkDeliver(b *testing.B) {
	for _, size := range []int{128, 1024, 16384} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l := sending(b)
			inbox, subject, ackReply := "_INBOX.abcdefghijklmnopqrstuv.1", "orders.eu.new", []byte(ack)
			body := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for errors.Is(l.Deliver(inbox, ackReply, subject, nil, body), ErrOverflow) {
					pass(time.Microsecond)
				}
			}
		})
	}
}
