package differential

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/conn"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// A message is what arrived.
type message struct {
	subject, reply string
	header, data   []byte
}

// client is a connection to one backend and everything that arrived on it, by box: one box for each inbox and
// one for each advisory subject. ingress/conn is used because nats.go sorts header blocks and folds their lines.
type client struct {
	name string
	c    *conn.Conn

	mu struct {
		sync.Mutex
		boxes   map[string][]message
		acks    map[AckRef]string // reply subjects of deliveries; N counts them
		count   map[AckRef]int
		last    map[AckRef]int
		firsts  int               // deliveries that are the first of their message
		names   map[string]string // generated consumer names → placeholder
		changed chan struct{}
	}
	cancels []func()
	prefix  string // of the inboxes of this script
}

// dialer opens connections to one server.
type dialer func(ctx context.Context) (net.Conn, error)

func newClient(ctx context.Context, name string, dial dialer) (*client, error) {
	c, err := conn.Open(ctx, conn.Config{Dial: dial, Name: "differential", Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	cl := &client{name: name, c: c}
	cl.mu.changed = make(chan struct{})
	return cl, nil
}

// begin forgets everything and subscribes to the inboxes and advisories of a new script.
func (c *client) begin(ctx context.Context, n int) error {
	c.end()
	c.mu.Lock()
	c.mu.boxes = make(map[string][]message)
	c.mu.acks = make(map[AckRef]string)
	c.mu.count = make(map[AckRef]int)
	c.mu.last = make(map[AckRef]int)
	c.mu.firsts = 0
	c.mu.names = make(map[string]string)
	c.mu.Unlock()
	c.prefix = "_INBOX.diff" + strconv.Itoa(n) + "."
	at := len(c.prefix)
	if err := c.subscribe(c.prefix+"one.*", func(subject string) string { return subject[at:] }); err != nil {
		return err
	}
	for _, s := range []string{"$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>", "$JS.EVENT.METRIC.>"} {
		if err := c.subscribe(s, func(subject string) string { return subject }); err != nil {
			return err
		}
	}
	return c.c.Flush(ctx)
}

// end drops the subscriptions of a script.
func (c *client) end() {
	for _, cancel := range c.cancels {
		cancel()
	}
	c.cancels = nil
}

func (c *client) subscribe(subject string, box func(subject string) string) error {
	cancel, err := c.c.Subscribe(subject, func(subject, reply string, header, data []byte) {
		c.arrived(box(subject), message{subject, reply, header, data})
	})
	if err != nil {
		return err
	}
	c.cancels = append(c.cancels, cancel)
	return nil
}

func (c *client) arrived(box string, m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mu.boxes[box]; len(b) > 0 && repeats(&b[len(b)-1], &m) {
		return
	}
	c.mu.boxes[box] = append(c.mu.boxes[box], m)
	if tok, ok := jsapi.ParseAckReply(m.reply); ok {
		consumer := tok.Consumer
		if p := c.mu.names[consumer]; p != "" {
			consumer = p
		}
		ref := AckRef{Stream: tok.Stream, Consumer: consumer}
		if tok.Delivered == 1 {
			c.mu.firsts++
		}
		n := c.mu.count[ref]
		c.mu.count[ref] = n + 1
		c.mu.last[AckRef{ref.Stream, ref.Consumer, int(tok.StreamSeq)}] = n
		ref.N = n
		c.mu.acks[ref] = m.reply
	}
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// repeats reports whether a message is a heartbeat like the one before: how many come depends on timing.
func repeats(last, m *message) bool {
	return bytes.HasPrefix(m.header, []byte("NATS/1.0 "+jsapi.StatusHeartbeat)) && bytes.Equal(last.header, m.header)
}

// box returns what arrived in a box, and a channel that closes when anything arrives.
func (c *client) box(name string) ([]message, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mu.boxes[name]
	return slices.Clip(b), c.mu.changed
}

// waitFor returns when a box has more than n messages.
func (c *client) waitFor(ctx context.Context, box string, n int) error {
	for {
		got, changed := c.box(box)
		if len(got) > n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: nothing on %s: %w", c.name, box, ctx.Err())
		}
	}
}

// counts returns how much each box has.
func (c *client) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int, len(c.mu.boxes))
	for name, b := range c.mu.boxes {
		out[name] = len(b)
	}
	return out
}

// named gives a generated consumer name its placeholder.
func (c *client) named(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.names[name] == "" {
		c.mu.names[name] = genName(len(c.mu.names))
	}
}

const genPrefix = "GEN"

func genName(n int) string { return genPrefix + strconv.Itoa(n) }

func isGenName(s string) bool { return strings.HasPrefix(s, genPrefix) }

// expand replaces placeholders by what they are on this side: GEN<n> is the n-th generated consumer name,
// {{now+5s}} a time.
func (c *client) expand(s string, now time.Time) string {
	c.mu.Lock()
	for name, p := range c.mu.names {
		s = strings.ReplaceAll(s, p, name)
	}
	c.mu.Unlock()
	for {
		from := strings.Index(s, "{{now")
		if from < 0 {
			return s
		}
		n := strings.Index(s[from:], "}}")
		if n < 0 {
			return s
		}
		d, err := time.ParseDuration(s[from+len("{{now") : from+n])
		if err != nil {
			return s
		}
		s = s[:from] + now.Add(d).UTC().Format(time.RFC3339Nano) + s[from+n+2:]
	}
}

// ackSubject is the reply subject of a delivery, or "" if there was none.
func (c *client) ackSubject(ref AckRef) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.acks[ref]
}

// send publishes an operation with a reply to box; own is whether the box needs a subscription of its own,
// because what comes has other subjects than the inbox.
func (c *client) send(op *Op, box string, now time.Time) error {
	subject, reply := c.expand(op.Subject, now), ""
	if op.Ack != nil {
		if subject = c.ackSubject(*op.Ack); subject == "" {
			return errSkipped
		}
	}
	switch {
	case op.Kind == Quiet:
	case op.Kind == Pull, op.Kind == Open, op.Ack != nil:
		reply = c.prefix + "own." + box
		if err := c.subscribe(reply, func(string) string { return box }); err != nil {
			return err
		}
	default:
		box = "one." + box
		reply = c.prefix + box
	}
	return c.c.Publish(subject, reply, []byte(c.expand(op.Header, now)), []byte(c.expand(op.Body, now)))
}

// boxOf is the box that send uses.
func boxOf(op *Op, box string) string {
	if op.Kind == Pull || op.Kind == Open || op.Ack != nil {
		return box
	}
	return "one." + box
}

// request sends one request outside of the script and waits for its answer.
func (c *client) request(ctx context.Context, subject, header, body string) ([]byte, error) {
	c.mu.Lock()
	id := strconv.Itoa(len(c.mu.boxes)) + "r" + strconv.FormatInt(time.Now().UnixNano(), 36)
	c.mu.Unlock()
	box := "one." + id
	if err := c.c.Publish(subject, c.prefix+box, []byte(header), []byte(body)); err != nil {
		return nil, err
	}
	for {
		got, changed := c.box(box)
		if len(got) > 0 {
			c.mu.Lock()
			delete(c.mu.boxes, box)
			c.mu.Unlock()
			return got[0].data, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: no answer to %s: %w", c.name, subject, ctx.Err())
		}
	}
}
