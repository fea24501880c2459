package transport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Transport is a node's port for all groups. Make it with New, then Run it.
type Transport struct {
	cfg      Config
	log      *zap.Logger
	listener net.Listener
	boot     uint64
	start    time.Time
	count    Counters
	dials    atomic.Uint64 // numbers this node's dials
	serials  atomic.Uint64 // numbers connections, inbound and outbound
	requests atomic.Uint64
	buffers  sync.Pool // of *[]byte, for frames on their way out

	closing chan struct{} // Close was called
	closed  chan struct{} // shutdown began; everything ends
	ended   chan struct{} // Run returned
	wg      sync.WaitGroup

	mu sync.Mutex
	st struct { // guarded by mu
		// run starts a goroutine under the context of Run; nil before Run and after shutdown.
		run        func(func(context.Context))
		waiting    []func(context.Context) // to start when Run is called
		started    bool
		stopped    bool
		closeOnce  bool
		groups     map[uint32]*GroupTransport
		quarantine map[uint32]string
		handlers   map[uint8]Handler
		links      map[string]*link
		inbound    map[inboundKey]*conn
		inboundN   int
		processes  map[string]*process  // by peer
		refusals   map[string]*refusals // by peer
	}
}

// New checks the configuration and opens the listener, so that Addr is known.
// Nothing is accepted or dialled before Run; Close releases the listener.
func New(cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l, err := cfg.Network.Listen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	t := &Transport{
		cfg: cfg, log: cfg.Logger, listener: l,
		boot: nonce(), start: time.Now(),
		closing: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	t.buffers.New = func() any { return new([]byte) }
	t.st.groups = map[uint32]*GroupTransport{}
	t.st.quarantine = map[uint32]string{}
	t.st.handlers = map[uint8]Handler{}
	t.st.links = map[string]*link{}
	t.st.inbound = map[inboundKey]*conn{}
	t.st.processes = map[string]*process{}
	t.st.refusals = map[string]*refusals{}
	return t, nil
}

// nonce tells one process of a node from another.
func nonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}

// Addr returns the address that the listener is bound to.
func (t *Transport) Addr() net.Addr { return t.listener.Addr() }

// Counters returns the transport's event counters.
func (t *Transport) Counters() *Counters { return &t.count }

// Run accepts and serves connections until ctx ends or Close is called, then
// closes all connections, waits for every goroutine and returns nil. It may be
// called once; again, or after Close, it returns ErrClosed.
func (t *Transport) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.st.started || t.st.stopped {
		t.mu.Unlock()
		return ErrClosed
	}
	t.st.started = true
	t.st.run = func(fn func(context.Context)) { t.wg.Go(func() { fn(ctx) }) }
	t.st.run(t.accept)
	for _, fn := range t.st.waiting {
		t.st.run(fn)
	}
	t.st.waiting = nil
	t.mu.Unlock()
	defer close(t.ended)

	select {
	case <-ctx.Done():
	case <-t.closing:
	}
	t.stop()
	cancel()
	t.wg.Wait()
	return nil
}

// stop ends everything; Run waits for it.
func (t *Transport) stop() {
	t.mu.Lock()
	first := !t.st.stopped
	t.st.stopped = true
	t.st.run, t.st.waiting = nil, nil
	t.mu.Unlock()
	if first {
		close(t.closed)
		_ = t.listener.Close() // nothing else can be done about a listener that does not close
	}
}

// Close ends Run and waits for it. Groups should be closed before. Idempotent.
func (t *Transport) Close() error {
	t.mu.Lock()
	if !t.st.closeOnce {
		t.st.closeOnce = true
		close(t.closing)
	}
	started := t.st.started
	t.mu.Unlock()
	if started {
		<-t.ended
	} else {
		t.stop()
	}
	return nil
}

// spawn starts fn under the context of Run, or when Run is called. It reports
// false once the transport is closed.
func (t *Transport) spawn(fn func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.st.stopped:
		return false
	case t.st.run == nil:
		t.st.waiting = append(t.st.waiting, fn)
	default:
		t.st.run(fn)
	}
	return true
}

// Quarantine refuses all frames of a group from now on, to it and from it, and
// tells peers the reason. The group's transport, if any, stays to be closed.
func (t *Transport) Quarantine(group uint32, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.st.quarantine[group] = reason
}

// Unquarantine ends a quarantine; a group transport can be made again.
func (t *Transport) Unquarantine(group uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.st.quarantine, group)
}

func (t *Transport) quarantined(group uint32) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reason, ok := t.st.quarantine[group]
	return reason, ok
}

// group finds the current transport of a group for an inbound frame.
func (t *Transport) group(id uint32) (*GroupTransport, status, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reason, ok := t.st.quarantine[id]; ok {
		t.count.Quarantined.Add(1)
		return nil, statusQuarantine, reason
	}
	g := t.st.groups[id]
	if g == nil {
		t.count.UnknownGroup.Add(1)
		return nil, statusNoGroup, ""
	}
	return g, statusOK, ""
}

func (t *Transport) link(node string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.st.links[node]
	if l == nil {
		l = &link{t: t, node: node}
		t.st.links[node] = l
	}
	return l
}

const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// accept serves the listener until it is closed.
func (t *Transport) accept(ctx context.Context) {
	backoff := acceptBackoffMin
	for {
		nc, err := t.listener.Accept()
		if err == nil {
			backoff = acceptBackoffMin
			if !t.admitInbound() || !t.spawn(func(ctx context.Context) { t.serve(ctx, nc) }) {
				_ = nc.Close() // over the limit or closing: the peer sees it end
			}
			continue
		}
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		t.log.Warn("accept failed", zap.Error(err), zap.Duration("retry_in", backoff))
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, acceptBackoffMax)
		}
	}
}

func (t *Transport) admitInbound() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.st.inboundN >= t.cfg.MaxInbound {
		t.count.HandshakeRefused.Add(1)
		return false
	}
	t.st.inboundN++
	return true
}

// uptime is the monotonic clock of idle checks.
func (t *Transport) uptime() time.Duration { return time.Since(t.start) }

// buffer returns an empty buffer for a frame; the writer gives it back.
func (t *Transport) buffer(size int) []byte {
	p, _ := t.buffers.Get().(*[]byte)
	if cap(*p) < size {
		*p = make([]byte, 0, size)
	}
	return (*p)[:0]
}

func (t *Transport) release(b []byte) { t.buffers.Put(&b) }
