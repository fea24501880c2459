package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
)

// link is the outbound side to one node: at most one control connection, dialled
// when a request wants it.
type link struct {
	t    *Transport
	node string

	mu sync.Mutex
	st struct { // guarded by mu
		cur     *conn
		dialing chan struct{} // closed when the dial in progress is over; nil = none
		err     error         // of the last dial
		retry   time.Duration // uptime before which a failed dial is not repeated
	}
}

// maxRedials bounds how often one request dials when connections end as soon as they are made.
const maxRedials = 2

// acquire returns the live connection, or waits for one to be dialled.
func (l *link) acquire(w *wait) (*conn, error) {
	for tries := 0; ; tries++ {
		l.mu.Lock()
		if l.st.cur != nil && l.st.cur.alive() {
			c := l.st.cur
			l.mu.Unlock()
			return c, nil
		}
		if l.st.dialing == nil {
			if tries > maxRedials {
				l.mu.Unlock()
				return nil, fmt.Errorf("%w: connections to %s end at once", ErrUnreachable, l.node)
			}
			if l.st.err != nil && (tries > 0 || l.t.uptime() < l.st.retry) {
				err := l.st.err
				l.mu.Unlock()
				return nil, err
			}
			if !l.begin() {
				l.mu.Unlock()
				return nil, ErrClosed
			}
		}
		dialing := l.st.dialing
		l.mu.Unlock()
		select {
		case <-dialing:
		case <-w.expired:
			l.t.count.Timeouts.Add(1)
			return nil, fmt.Errorf(
				"%w: %w: dialling %s for more than %v",
				ErrUnreachable,
				ErrTimeout,
				l.node,
				w.timeout,
			)
		case <-w.quit:
			return nil, ErrClosed
		case <-l.t.closed:
			return nil, ErrClosed
		case <-w.ctx:
			return nil, fmt.Errorf("%w: dialling %s: caller gave up", ErrTimeout, l.node)
		}
	}
}

// begin starts a dial. It reports false once the transport is closed. l.mu is held.
func (l *link) begin() bool {
	l.st.dialing = make(chan struct{})
	if !l.t.spawn(l.dial) {
		close(l.st.dialing)
		l.st.dialing = nil
		return false
	}
	return true
}

// dial makes the connection and then serves its reading side until it ends.
func (l *link) dial(ctx context.Context) {
	c, err := l.t.dial(ctx, l.node, kindControl, 0)
	l.mu.Lock()
	l.st.cur, l.st.err = c, err
	if err != nil {
		l.st.retry = l.t.uptime() + l.t.cfg.HeartbeatTimeout/10
	}
	close(l.st.dialing)
	l.st.dialing = nil
	l.mu.Unlock()
	if err != nil {
		l.t.log.Debug("dial failed", zap.String("peer", l.node), zap.Error(err))
		return
	}
	c.readReplies(ctx)
}

// current returns the live connection or nil.
func (l *link) current() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st.cur != nil && l.st.cur.alive() {
		return l.st.cur
	}
	return nil
}

// dial connects to a node and shakes hands. The connection's writer runs; its
// caller must run readReplies.
func (t *Transport) dial(ctx context.Context, node string, kind connKind, group uint32) (*conn, error) {
	t.count.Dials.Add(1)
	c, err := t.connect(ctx, node, kind, group)
	if err != nil {
		t.count.DialErrors.Add(1)
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, node, err)
	}
	if !t.spawn(func(context.Context) { c.writeLoop() }) {
		_ = c.nc.Close() // nobody uses it
		return nil, ErrClosed
	}
	return c, nil
}

func (t *Transport) connect(ctx context.Context, node string, kind connKind, group uint32) (*conn, error) {
	addr, ok := t.cfg.Resolve(node)
	if !ok {
		return nil, errors.New("no address known")
	}
	deadline := time.Now().Add(t.cfg.HandshakeTimeout)
	dctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	nc, err := t.cfg.Network.Dial(dctx, addr)
	if err != nil {
		return nil, err
	}
	raw := nc
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // unblocks the handshake
	defer stop()
	c, err := t.shake(nc, deadline, node, kind, group)
	if err != nil {
		_ = raw.Close() // the handshake's error matters
		return nil, err
	}
	if err := t.claimed(c); err != nil {
		c.close(err)
		return nil, err
	}
	t.letIn(node)
	return c, nil
}

// shake is the dialer's side of the handshake.
func (t *Transport) shake(
	nc net.Conn,
	deadline time.Time,
	node string,
	kind connKind,
	group uint32,
) (*conn, error) {
	if err := nc.SetDeadline(deadline); err != nil {
		return nil, err
	}
	nc, err := t.secure(nc, true)
	if err != nil {
		return nil, err
	}
	own := t.cfg.ClusterID()
	hs := handshake{
		version: Protocol, kind: kind, cluster: own, from: t.cfg.NodeID, to: node,
		boot: t.boot, dial: t.dials.Add(1),
	}
	b := endFrame(appendHandshake(beginFrame(nil, frameHandshake, group, 0), hs))
	if _, err := nc.Write(b); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	br := bufio.NewReaderSize(nc, connBuffer)
	f, err := readFrame(br, maxHandshake)
	if err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	if f.typ != frameWelcome {
		return nil, fmt.Errorf("%w: answer of type %d to a handshake", ErrProtocol, f.typ)
	}
	w, err := parseWelcome(f.payload)
	if err != nil {
		return nil, err
	}
	if w.refusal != "" {
		if own != "" && w.cluster != "" && own != w.cluster {
			return nil, fmt.Errorf("%w: %w: %s", ErrRefused, ErrOtherCluster, w.refusal)
		}
		if w.twin != "" {
			t.refusedAsTwin(node, w.twin)
			return nil, fmt.Errorf("%w: %w: %s", ErrRefused, ErrTwin, w.refusal)
		}
		return nil, fmt.Errorf("%w: %s", ErrRefused, w.refusal)
	}
	if w.version != Protocol {
		return nil, fmt.Errorf("%w: peer speaks version %d, this node %d", ErrProtocol, w.version, Protocol)
	}
	if err := checkIdentity(own, w.cluster, node, w.node); err != nil {
		return nil, err
	}
	if err := t.admit(node, nc); err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	c := t.newConn(nc, br, node, kind)
	c.dialer, c.ownCluster, c.boot = true, own, w.boot
	return c, nil
}

func (t *Transport) secure(nc net.Conn, client bool) (net.Conn, error) {
	if t.cfg.Secure == nil {
		return nc, nil
	}
	s, err := t.cfg.Secure(nc, client)
	if err != nil {
		return nil, fmt.Errorf("secure the connection: %w", err)
	}
	return s, nil
}

func (t *Transport) admit(node string, nc net.Conn) error {
	if t.cfg.Admit == nil {
		return nil
	}
	if err := t.cfg.Admit(node, nc); err != nil {
		return fmt.Errorf("node %q not admitted: %w", node, err)
	}
	return nil
}

// readReplies reads what comes back on a dialled connection until it ends.
func (c *conn) readReplies(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { c.close(ErrClosed) })
	defer stop()
	for {
		f, err := c.read(c.t.cfg.MaxFrameBytes)
		if err != nil {
			c.close(err)
			return
		}
		switch f.typ {
		case framePong:
		case frameReply:
			c.settle(f)
		case frameSnapAck:
			d := decoder{b: f.payload}
			n := d.i64()
			if err := d.end(); err != nil {
				c.close(err)
				return
			}
			c.acked.Store(n)
			select {
			case c.acks <- struct{}{}:
			default:
			}
		default:
			c.close(fmt.Errorf("%w: frame of type %d on a dialled connection", ErrProtocol, f.typ))
			return
		}
	}
}

// settle gives a reply to whoever waits for it; a late one is dropped.
func (c *conn) settle(f frame) {
	d := decoder{b: f.payload}
	r := reply{status: status(d.u8()), payload: d.b}
	if d.err != nil {
		c.close(d.err)
		return
	}
	c.mu.Lock()
	ch := c.st.pending[f.req]
	delete(c.st.pending, f.req)
	c.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

// expect registers a request; its channel gets exactly one reply unless forgotten.
func (c *conn) expect(req uint64) (chan reply, error) {
	c.mu.Lock()
	if c.st.pending == nil {
		c.mu.Unlock()
		return nil, c.lost()
	}
	defer c.mu.Unlock()
	ch := make(chan reply, 1)
	c.st.pending[req] = ch
	return ch, nil
}

func (c *conn) forget(req uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.st.pending, req)
}

// roundTrip sends a request and waits for its reply. fill appends the payload.
func (c *conn) roundTrip(
	typ frameType,
	group uint32,
	size int,
	w *wait,
	fill func([]byte) []byte,
) (reply, error) {
	req := c.t.requests.Add(1)
	ch, err := c.expect(req)
	if err != nil {
		return reply{}, err
	}
	b := endFrame(fill(beginFrame(c.t.buffer(headerSize+size), typ, group, req)))
	if err := c.queue(b, w); err != nil {
		c.forget(req)
		return reply{}, err
	}
	return c.await(req, ch, w)
}

// await waits for the reply to a request that was queued.
func (c *conn) await(req uint64, ch chan reply, w *wait) (reply, error) {
	select {
	case r := <-ch:
		return r, r.err
	case <-w.expired:
		c.forget(req)
		c.suspect.Store(true)
		return reply{}, w.timedOut(c)
	case <-w.quit:
		c.forget(req)
		return reply{}, ErrClosed
	case <-w.ctx:
		c.forget(req)
		return reply{}, w.canceled(c)
	}
}

// failure turns a reply that is not OK into an error.
func (r reply) failure(node string) error {
	text := string(r.payload)
	switch r.status {
	case statusOK:
		return nil
	case statusRemote:
		return &RemoteError{NodeID: node, Text: text}
	case statusEmbargo:
		return fmt.Errorf("%w at %s", ErrEmbargo, node)
	case statusHello:
		return fmt.Errorf("%w: %s: hello: %s", ErrRefused, node, text)
	default:
		return &refusal{node: node, status: r.status, text: text}
	}
}

func (s status) describe(text string) string {
	names := map[status]string{
		statusNoGroup:    "unknown group",
		statusQuarantine: "group quarantined",
		statusReceiver:   "another incarnation is here",
		statusSender:     "sender is not whom its hello named",
		statusNeedHello:  "hello needed",
		statusBusy:       "queue full",
		statusNotLeader:  "not from the current leader",
		statusNoHandler:  "no handler for this kind",
		statusMalformed:  "malformed",
		statusClosing:    "closing",
	}
	name, ok := names[s]
	if !ok {
		name = fmt.Sprintf("status %d", s)
	}
	if text != "" {
		name += ": " + text
	}
	return name
}
