package netcut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what a link does with what is sent over it.
type Mode int

// Modes of a link; doc.go says what each means.
const (
	Open Mode = iota
	Cut
	Reset
)

// State is how a link is. The zero value is open, without delay.
type State struct {
	Mode  Mode
	Delay time.Duration
	// Jitter is the most that Delay varies, up or down; at most Delay.
	Jitter time.Duration
}

// ErrState says that a State cannot be meant.
var ErrState = errors.New("netcut: bad state of a link")

func (s State) validate() error {
	switch {
	case s.Mode < Open || s.Mode > Reset:
		return fmt.Errorf("%w: mode %d; there are Open, Cut and Reset", ErrState, s.Mode)
	case s.Delay < 0:
		return fmt.Errorf("%w: delay %v; want 0 or more", ErrState, s.Delay)
	case s.Jitter < 0 || s.Jitter > s.Delay:
		return fmt.Errorf("%w: jitter %v; want 0 to the delay, %v", ErrState, s.Jitter, s.Delay)
	}
	return nil
}

type pair struct{ from, to string }

// Net is the links between some nodes, all open at first. Safe for concurrent use.
type Net struct {
	ctx      context.Context //nolint:containedctx // ends what the proxies wait for; Close cancels it
	cancel   context.CancelFunc
	routines sync.WaitGroup
	unknown  atomic.Uint64

	mu      sync.Mutex // guards what follows
	links   map[pair]*link
	conns   map[*conn]struct{}
	closers []io.Closer
	pids    map[string]int    // node → process
	bound   map[string]string // UDP address → node
	closed  bool
}

// New returns links without proxies.
func New() *Net {
	//nolint:forbidigo // what the proxies do ends with Close
	ctx, cancel := context.WithCancel(context.Background())
	return &Net{
		ctx: ctx, cancel: cancel, links: make(map[pair]*link), conns: make(map[*conn]struct{}),
		pids: make(map[string]int), bound: make(map[string]string),
	}
}

// Proxy starts a proxy for the TCP port at backend, which node owns; others dial listen.
func (n *Net) Proxy(ctx context.Context, node, listen, backend string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("netcut: proxy of %s: %w", node, err)
	}
	if err := n.own(l); err != nil {
		return err
	}
	n.routines.Go(func() { n.accept(l, node, backend) })
	return nil
}

// ProxyUDP starts a proxy for the UDP port at backend, which node owns and sends from.
func (n *Net) ProxyUDP(ctx context.Context, node, listen, backend string) error {
	to, err := net.ResolveUDPAddr("udp", backend)
	if err != nil {
		return fmt.Errorf("netcut: UDP port of %s: %w", node, err)
	}
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, "udp", listen)
	if err != nil {
		return fmt.Errorf("netcut: UDP proxy of %s: %w", node, err)
	}
	if err := n.own(pc); err != nil {
		return err
	}
	n.mu.Lock()
	n.bound[to.String()] = node
	n.mu.Unlock()
	n.routines.Go(func() { n.forward(pc, node, to) })
	return nil
}

// own notes what Close has to close.
func (n *Net) own(c io.Closer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.Join(net.ErrClosed, c.Close())
	}
	n.closers = append(n.closers, c)
	return nil
}

// Process says which process is a node now; 0 = none.
func (n *Net) Process(node string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pid == 0 {
		delete(n.pids, node)
		return
	}
	n.pids[node] = pid
}

// Set changes the link that carries what from sends to to.
func (n *Net) Set(from, to string, s State) error {
	if err := s.validate(); err != nil {
		return err
	}
	n.link(from, to).set(s)
	if s.Mode == Reset {
		n.reset(from, to)
	}
	return nil
}

// SetBoth changes both directions between two nodes.
func (n *Net) SetBoth(a, b string, s State) error {
	return errors.Join(n.Set(a, b, s), n.Set(b, a, s))
}

// Heal opens every link, without delay.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.set(State{})
	}
}

// Bytes is how much passed from one node to another so far, in bytes.
func (n *Net) Bytes(from, to string) uint64 { return n.link(from, to).bytes.Load() }

// Unknown is how many connections and datagrams came from nobody that is known.
func (n *Net) Unknown() uint64 { return n.unknown.Load() }

// Close ends every proxy and connection, and waits until they have ended.
func (n *Net) Close() error {
	n.mu.Lock()
	n.closed = true
	closers := n.closers
	n.closers = nil
	for c := range n.conns {
		closers = append(closers, c)
	}
	n.mu.Unlock()
	n.cancel()
	var errs []error
	for _, c := range closers {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	n.routines.Wait()
	return errors.Join(errs...)
}

func (n *Net) link(from, to string) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[pair{from, to}]
	if l == nil {
		l = &link{changed: make(chan struct{})}
		n.links[pair{from, to}] = l
	}
	return l
}

// reset ends the connections between two nodes.
func (n *Net) reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if (c.dialler == a && c.owner == b) || (c.dialler == b && c.owner == a) {
			c.abort()
		}
	}
}

// link is one direction between two nodes.
type link struct {
	bytes atomic.Uint64

	mu      sync.Mutex // guards what follows
	state   State
	changed chan struct{} // closed at the next change
}

func (l *link) set(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == s {
		return
	}
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) get() (State, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.changed
}

// errReset says that the link resets connections.
var errReset = errors.New("netcut: link is reset")

// open waits until the link lets bytes pass.
func (l *link) open(done <-chan struct{}) error {
	for {
		s, changed := l.get()
		switch s.Mode {
		case Open:
			return nil
		case Reset:
			return errReset
		case Cut:
		}
		select {
		case <-changed:
		case <-done:
			return net.ErrClosed
		}
	}
}
