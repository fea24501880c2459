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

// inboundKey names what a new inbound connection replaces: the peer's control
// connection, or the peer's snapshot connection for one group.
type inboundKey struct {
	node  string
	kind  connKind
	group uint32
}

// serve is the whole life of one inbound connection.
func (t *Transport) serve(ctx context.Context, nc net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // unblocks reads at shutdown
	defer stop()
	defer func() {
		_ = nc.Close() // whatever happened, it is over
		t.mu.Lock()
		t.st.inboundN--
		t.mu.Unlock()
	}()
	c, hs, err := t.greet(nc)
	if err != nil {
		t.count.HandshakeRefused.Add(1)
		t.log.Debug("inbound connection refused", zap.Stringer("from", nc.RemoteAddr()), zap.Error(err))
		return
	}
	key := inboundKey{node: c.peer, kind: c.kind}
	if c.kind == kindSnapshot {
		key.group = c.group
	}
	old, silent, err := t.register(key, c, hs)
	if err != nil {
		close(c.drained)
		t.refuse(c.nc, err)
		return
	}
	t.replaced(silent)
	defer t.unregister(key, c)
	defer close(c.drained)
	if old != nil {
		// The peer made a new connection, so nothing that the old one still holds may
		// be handed over after this one's first frame.
		t.count.Replaced.Add(1)
		old.close(errors.New("replaced by a newer connection"))
		<-old.drained
	}
	if err := t.welcome(c); err != nil {
		c.close(err)
		return
	}
	t.count.Accepted.Add(1)
	if !t.spawn(func(context.Context) { c.writeLoop() }) {
		c.close(ErrClosed)
		return
	}
	if c.kind == kindSnapshot {
		c.serveSnapshot()
		return
	}
	c.serveControl(ctx)
}

// greet is the acceptor's side of the handshake up to its answer.
func (t *Transport) greet(nc net.Conn) (*conn, handshake, error) {
	if err := nc.SetDeadline(time.Now().Add(t.cfg.HandshakeTimeout)); err != nil {
		return nil, handshake{}, err
	}
	nc, err := t.secure(nc, false)
	if err != nil {
		return nil, handshake{}, err
	}
	br := bufio.NewReaderSize(nc, connBuffer)
	f, err := readFrame(br, maxHandshake)
	if err != nil {
		return nil, handshake{}, err
	}
	if f.typ != frameHandshake {
		return nil, handshake{}, fmt.Errorf("%w: first frame has type %d", ErrProtocol, f.typ)
	}
	hs, err := parseHandshake(f.payload)
	own := t.cfg.ClusterID()
	if err == nil {
		err = checkIdentity(own, hs.cluster, hs.to, t.cfg.NodeID)
	}
	if err == nil && hs.from == t.cfg.NodeID {
		err = fmt.Errorf("peer has this node's id %q", hs.from)
	}
	if err == nil {
		err = t.admit(hs.from, nc)
	}
	if err != nil {
		t.refuse(nc, err)
		return nil, hs, err
	}
	c := t.newConn(nc, br, hs.from, hs.kind)
	c.ownCluster = own
	c.group = f.group
	return c, hs, nil
}

// refuse tells a dialer why, as far as it listens.
func (t *Transport) refuse(nc net.Conn, cause error) {
	w := welcome{
		version: Protocol, cluster: t.cfg.ClusterID(), node: t.cfg.NodeID, boot: t.boot, refusal: cause.Error(),
	}
	if twin, ok := errors.AsType[*twinError](cause); ok {
		w.twin = twin.at
	}
	b := endFrame(appendWelcome(beginFrame(nil, frameWelcome, 0, 0), w))
	_, _ = nc.Write(b) // the connection is given up either way
}

func (t *Transport) welcome(c *conn) error {
	w := welcome{version: Protocol, cluster: c.ownCluster, node: t.cfg.NodeID, boot: t.boot}
	b := endFrame(appendWelcome(beginFrame(nil, frameWelcome, 0, 0), w))
	if _, err := c.nc.Write(b); err != nil {
		return err
	}
	return c.nc.SetDeadline(time.Time{})
}

// register makes c the peer's connection and returns the one it replaces, and those of a process that claim
// gave up. A dial that is older than the current one's, of the same process, is refused: its
// dialer has given it up.
func (t *Transport) register(key inboundKey, c *conn, hs handshake) (old *conn, silent []*conn, err error) {
	c.boot, c.dialNo = hs.boot, hs.dial
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.st.inbound[key]
	if old != nil && old.boot == hs.boot && old.dialNo > hs.dial {
		return nil, nil, errors.New("a newer connection is open")
	}
	if silent, err = t.claim(c); err != nil {
		return nil, nil, err
	}
	t.st.inbound[key] = c
	return old, silent, nil
}

func (t *Transport) unregister(key inboundKey, c *conn) {
	c.close(errors.New("served"))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.st.inbound[key] == c {
		delete(t.st.inbound, key)
	}
}

// worker handles the frames of one group on one inbound connection, in order.
type worker struct {
	frames chan frame
	// bound is whom the hello on this connection named; nil group = none yet.
	group *GroupTransport
	from  string
}

// serveControl reads frames until the connection ends, then waits until none of
// them is being handed over any more.
func (c *conn) serveControl(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	workers := map[uint32]*worker{}
	slots := make(chan struct{}, c.t.cfg.MaxCalls)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for {
		f, err := c.read(c.t.cfg.MaxFrameBytes)
		if err != nil {
			c.close(err)
			return
		}
		switch f.typ {
		case framePing:
			if c.provisional() {
				c.close(errors.New("cluster id became known"))
				return
			}
			c.send(endFrame(beginFrame(c.t.buffer(headerSize), framePong, 0, 0)))
		case frameCall:
			c.serveCall(ctx, f, slots)
		case frameHello, frameAppend, frameVote, framePreVote, frameTimeout:
			w := workers[f.group]
			if w == nil {
				w = &worker{frames: make(chan frame, c.t.cfg.GroupQueue)}
				workers[f.group] = w
				wg.Go(func() { c.work(w) })
			}
			select {
			case w.frames <- f:
			default:
				c.t.count.Busy.Add(1)
				c.answer(f, statusBusy, "")
			}
		default:
			c.close(fmt.Errorf("%w: frame of type %d on a control connection", ErrProtocol, f.typ))
			return
		}
	}
}

func (c *conn) work(w *worker) {
	for {
		select {
		case <-c.done:
			return
		case f := <-w.frames:
			if !c.alive() {
				return // a replaced connection's frames are dropped
			}
			c.handle(w, f)
		}
	}
}

// send queues a frame of the serving side; a connection that ends drops it.
func (c *conn) send(b []byte) {
	select {
	case c.out <- b:
	case <-c.done:
	}
}

// reply answers a request with OK and what fill appends.
func (c *conn) reply(f frame, size int, fill func([]byte) []byte) {
	b := beginFrame(c.t.buffer(headerSize+1+size), frameReply, f.group, f.req)
	c.send(endFrame(fill(append(b, byte(statusOK)))))
}

// maxText bounds the text of a refusal.
const maxText = 1 << 10

// answer answers a request with a status that is not OK.
func (c *conn) answer(f frame, s status, text string) {
	text = cut(text, maxText)
	b := beginFrame(c.t.buffer(headerSize+1+len(text)), frameReply, f.group, f.req)
	c.send(endFrame(append(append(b, byte(s)), text...)))
}
