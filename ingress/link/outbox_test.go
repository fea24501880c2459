package link

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ack = "$JS.ACK.s.c.1.2.3.4.5"

func TestWireForm(t *testing.T) {
	t.Parallel()
	hdr := []byte("NATS/1.0 404 No Messages\r\n\r\n")
	for _, c := range []struct {
		f    frame
		want string
	}{
		{frame{subject: "a"}, "LMSG a 0\r\n\r\n"},
		{frame{subject: "a", body: []byte("hi")}, "LMSG a 2\r\nhi\r\n"},
		{frame{subject: "a", reply: "r", body: []byte("hi")}, "LMSG a r 2\r\nhi\r\n"},
		{frame{subject: "a", queue: "q", body: []byte("hi")}, "LMSG a | q 2\r\nhi\r\n"},
		{frame{subject: "a", queue: "q", reply: "r"}, "LMSG a + r q 0\r\n\r\n"},
		{frame{subject: "a", header: hdr}, "HMSG a 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"},
		{
			frame{subject: "a", reply: "r", header: hdr, body: []byte("hi")},
			"HMSG a r 28 30\r\nNATS/1.0 404 No Messages\r\n\r\nhi\r\n",
		},
		{
			frame{subject: "a", queue: "q", header: hdr},
			"HMSG a | q 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
		},
		{
			frame{subject: "a", reply: "r", queue: "q", header: hdr},
			"HMSG a + r q 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
		},
		{
			frame{subject: "_INBOX.1", ack: []byte(ack), visible: "$KV.b.k", body: []byte("v")},
			"LMSG _INBOX.1 " + ack + "@$KV.b.k 1\r\nv\r\n",
		},
		{
			frame{subject: "d", ack: []byte(ack), visible: "o", queue: "q", header: hdr, body: []byte("v")},
			"HMSG d + " + ack + "@o q 28 29\r\nNATS/1.0 404 No Messages\r\n\r\nv\r\n",
		},
	} {
		if err := c.f.check(DefaultMaxControlLine); err != nil {
			t.Errorf("%q: %v", c.want, err)
		}
		if got := string(c.f.appendTo(nil)); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

// openBox is an outbox with a connection and no writer.
func openBox(c Config) *outbox {
	o := newOutbox(c.withDefaults(), time.Now())
	o.open(time.Now())
	return o
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	o := openBox(Config{MaxControlLine: 200})
	o.limits(100, true)
	long := strings.Repeat("x", 200-lineSlack)
	good := []byte("NATS/1.0\r\n\r\n")
	for _, c := range []struct {
		name string
		f    frame
		want error
	}{
		{"payload at the limit", frame{subject: "a", body: make([]byte, 100)}, nil},
		{"payload past it", frame{subject: "a", body: make([]byte, 101)}, ErrTooLarge},
		{"header and body at the limit", frame{subject: "a", header: good, body: make([]byte, 88)}, nil},
		{"header and body past it", frame{subject: "a", header: good, body: make([]byte, 89)}, ErrTooLarge},
		{"line at the limit", frame{subject: long}, nil},
		{"line past it", frame{subject: long, reply: "r"}, ErrTooLarge},
		{"line past it by ack", frame{subject: long[1:], ack: []byte("aa"), visible: ""}, ErrTooLarge},
		{"line past it by visible", frame{subject: long[2:], ack: []byte("a"), visible: "bb"}, ErrTooLarge},
		{"line past it by queue", frame{subject: long, queue: "q"}, ErrTooLarge},
		{"no subject", frame{}, ErrBadSubject},
		{"space in subject", frame{subject: "a b"}, ErrBadSubject},
		{"newline in subject", frame{subject: "a\r\nPUB"}, ErrBadSubject},
		{"tab in reply", frame{subject: "a", reply: "a\tb"}, ErrBadSubject},
		{"zero in queue", frame{subject: "a", queue: "a\x00"}, ErrBadSubject},
		{"DEL in visible", frame{subject: "a", ack: []byte("a"), visible: "\x7f"}, ErrBadSubject},
		{"newline in ack", frame{subject: "a", ack: []byte("a\n"), visible: "b"}, ErrBadSubject},
		{"DEL in ack", frame{subject: "a", ack: []byte("a\x7f"), visible: "b"}, ErrBadSubject},
		{"UTF-8 is fine", frame{subject: "a.ü", reply: "世"}, nil},
		{"shortest header", frame{subject: "a", header: good}, nil},
		{"header without end", frame{subject: "a", header: []byte("NATS/1.0\r\nA: b\r\n")}, ErrBadHeader},
		{"header without start", frame{subject: "a", header: []byte("A: b\r\n\r\n12345")}, ErrBadHeader},
		{"header too short", frame{subject: "a", header: []byte("\r\n\r\n")}, ErrBadHeader},
		{"HTTP header", frame{subject: "a", header: []byte("HTTP/1.0\r\n\r\n")}, ErrBadHeader},
	} {
		before := o.snapshot()
		if err := o.put(&c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		after := o.snapshot()
		if c.want != nil && (after.Pending != before.Pending || after.Invalid != before.Invalid+1) {
			t.Errorf("%s: refused, but %+v became %+v", c.name, before, after)
		}
		if c.want == nil && (after.Pending <= before.Pending || after.Sent != before.Sent+1) {
			t.Errorf("%s: taken, but %+v became %+v", c.name, before, after)
		}
	}
	o.limits(100, false)
	if err := o.put(&frame{subject: "a", header: good}); !errors.Is(err, ErrNoHeaders) {
		t.Errorf("headers to a hub without: %v", err)
	}
}

func TestPendingLimit(t *testing.T) {
	t.Parallel()
	msg := frame{subject: "a", body: []byte("0123456789")} // LMSG a 10\r\n…\r\n
	size := len(msg.appendTo(nil))
	o := openBox(Config{PendingLimit: 3*size + 1})
	for i := range 4 { // the limit is not reached before the fourth
		if err := o.put(&msg); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := o.put(&msg); !errors.Is(err, ErrOverflow) {
		t.Fatalf("past the limit: %v", err)
	}
	b := o.take()
	if len(b) != 4*size {
		t.Fatalf("took %d bytes, want %d", len(b), 4*size)
	}
	if err := o.put(&msg); !errors.Is(err, ErrOverflow) {
		t.Errorf("taken, but not written: %v", err)
	}
	o.pong() // protocol answers are not refused
	o.wrote(len(b))
	o.recycle(b)
	if err := o.put(&msg); err != nil {
		t.Errorf("after the write: %v", err)
	}
	want := Stats{
		Sent: 5, SentBytes: uint64(5 * size), Writes: 1, Overflow: 2, Connects: 1, Pending: size + 6,
	}
	if got := o.snapshot(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Config{HoldFor: time.Second}.withDefaults()
		held, fenced := frame{subject: "a", hold: true}, frame{subject: "b"}
		o := newOutbox(c, time.Now())
		put := func(f frame, want error) {
			t.Helper()
			if err := o.put(&f); !errors.Is(err, want) {
				t.Fatalf("%s: %v, want %v", f.subject, err, want)
			}
		}
		take := func(want string) {
			t.Helper()
			b := o.take()
			o.wrote(len(b))
			if string(b) != want {
				t.Fatalf("took %q, want %q", b, want)
			}
			o.recycle(b)
		}
		const a = "LMSG a 0\r\n\r\n"

		// Before the first connection.
		put(held, nil)
		put(fenced, ErrDown)
		pass(time.Second - 1)
		put(held, nil)
		o.open(time.Now())
		take(a + a)

		// A hold that lasts too long is dropped as a whole.
		o.shut(time.Now())
		put(held, nil)
		pass(time.Second)
		put(held, ErrDown)
		o.open(time.Now())
		take("")

		// What waits for a connection that breaks is lost, held or not.
		put(held, nil)
		put(fenced, nil)
		o.take()
		put(fenced, nil)
		o.shut(time.Now())
		put(held, nil)
		o.open(time.Now())
		take(a)
		if s := o.snapshot(); s.Lost != 1+3 || s.Down != 2 || s.Sent != 7 || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestPings(t *testing.T) {
	t.Parallel()
	o := newOutbox(Config{}.withDefaults(), time.Now())
	now := time.Now()
	if err := o.ping(now, nil); !errors.Is(err, ErrDown) {
		t.Errorf("ping while down: %v", err)
	}
	o.open(now)
	done := make(chan error, 1)
	if o.ponged() {
		t.Error("a PONG out of the blue was taken")
	}
	if err := errors.Join(o.ping(now, done), o.ping(now.Add(time.Second), nil)); err != nil {
		t.Fatal(err)
	}
	if err := o.keepAlive(now.Add(3*time.Second-1), 3*time.Second); err != nil {
		t.Errorf("just before the patience ends: %v", err)
	}
	if err := o.keepAlive(now.Add(3*time.Second), 3*time.Second); !errors.Is(err, ErrStale) {
		t.Errorf("patience ended: %v", err)
	}
	if !o.ponged() || <-done != nil {
		t.Error("first PONG")
	}
	if !o.ponged() || o.ponged() {
		t.Error("second and third PONG")
	}
	if err := o.keepAlive(now.Add(time.Hour), time.Second); err != nil || len(o.pings) != 1 {
		t.Errorf("keepalive: %v, %d outstanding", err, len(o.pings))
	}
	if err := o.ping(now, done); err != nil {
		t.Fatal(err)
	}
	o.shut(now)
	if err := <-done; !errors.Is(err, ErrDown) {
		t.Errorf("connection broke: %v", err)
	}
}

// Big buffers are not kept.
func TestBuffersShrink(t *testing.T) {
	t.Parallel()
	o := openBox(Config{})
	if err := o.put(&frame{subject: "a", body: make([]byte, keepBuffer)}); err != nil {
		t.Fatal(err)
	}
	b := o.take()
	o.wrote(len(b))
	o.recycle(b)
	if o.spare != nil {
		t.Errorf("a buffer of %d bytes was kept", cap(o.spare))
	}
}
