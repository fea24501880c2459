package memnet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Buffer is how many bytes of one direction may wait to be read.
const Buffer = 256 << 10

// backlog is how many dialled connections may wait to be accepted.
const backlog = 128

var errReset = fmt.Errorf("memnet: %w", syscall.ECONNRESET)

type direction struct{ from, to string }

// rule is how one direction between two hosts behaves.
type rule struct {
	cut   bool
	delay time.Duration
}

// Fabric is a network of hosts. All methods may be called concurrently.
type Fabric struct {
	mu sync.Mutex
	st struct { // guarded by mu
		rules     map[direction]rule
		listeners map[string]*listener
		pipes     map[*pipe]struct{} // open directions of connections
		nextPort  int
		changed   chan struct{} // closed and replaced when a rule changes
	}
}

// New returns a fabric without hosts or faults.
func New() *Fabric {
	f := &Fabric{}
	f.st.rules = map[direction]rule{}
	f.st.listeners = map[string]*listener{}
	f.st.pipes = map[*pipe]struct{}{}
	f.st.nextPort = 40000
	f.st.changed = make(chan struct{})
	return f
}

// Host returns a host's view of the network. Hosts need no registration.
func (f *Fabric) Host(name string) *Host { return &Host{f: f, name: name} }

func (f *Fabric) rule(d direction) rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.rules[d]
}

// change edits the rule of one direction and wakes whatever waits for it.
func (f *Fabric) change(d direction, edit func(*rule)) {
	f.mu.Lock()
	r := f.st.rules[d]
	edit(&r)
	f.st.rules[d] = r
	close(f.st.changed)
	f.st.changed = make(chan struct{})
	pipes := f.between(d)
	f.mu.Unlock()
	for _, p := range pipes {
		p.wake()
	}
}

// between returns the open pipes of a direction; f.mu is held.
func (f *Fabric) between(d direction) []*pipe {
	var out []*pipe
	for p := range f.st.pipes {
		if p.dir == d {
			out = append(out, p)
		}
	}
	return out
}

// Cut stops what goes from one host to another until Heal.
func (f *Fabric) Cut(from, to string) {
	f.change(direction{from, to}, func(r *rule) { r.cut = true })
}

// Heal ends a Cut and delivers what it held.
func (f *Fabric) Heal(from, to string) {
	f.change(direction{from, to}, func(r *rule) { r.cut = false })
}

// Isolate cuts a host from the others in both directions.
func (f *Fabric) Isolate(host string, others ...string) {
	for _, o := range others {
		f.Cut(host, o)
		f.Cut(o, host)
	}
}

// Rejoin heals both directions between a host and the others.
func (f *Fabric) Rejoin(host string, others ...string) {
	for _, o := range others {
		f.Heal(host, o)
		f.Heal(o, host)
	}
}

// Delay makes what is written from now on take d from one host to another; 0 ends it.
func (f *Fabric) Delay(from, to string, d time.Duration) {
	f.change(direction{from, to}, func(r *rule) { r.delay = d })
}

// Drop breaks every connection between two hosts.
func (f *Fabric) Drop(a, b string) {
	f.mu.Lock()
	pipes := append(f.between(direction{a, b}), f.between(direction{b, a})...)
	f.mu.Unlock()
	for _, p := range pipes {
		p.fail(errReset)
	}
}

// Crash breaks every connection of a host and closes its listeners.
func (f *Fabric) Crash(host string) {
	f.mu.Lock()
	var pipes []*pipe
	for p := range f.st.pipes {
		if p.dir.from == host || p.dir.to == host {
			pipes = append(pipes, p)
		}
	}
	var listeners []*listener
	for addr, l := range f.st.listeners {
		if hostOf(addr) == host {
			listeners = append(listeners, l)
		}
	}
	f.mu.Unlock()
	for _, p := range pipes {
		p.fail(errReset)
	}
	for _, l := range listeners {
		_ = l.Close() // never fails
	}
}

func hostOf(addr string) string {
	host, _, _ := strings.Cut(addr, ":")
	return host
}

// Host is one host's view of a Fabric; it implements transport.Network.
type Host struct {
	f    *Fabric
	name string
}

// Listen opens a listener; addr is "host:port" with this host's name. Port 0 picks one.
func (h *Host) Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != h.name {
		return nil, fmt.Errorf("memnet: listen on %q: want %q and a port", addr, h.name)
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if port == "0" {
		h.f.st.nextPort++
		addr = net.JoinHostPort(host, strconv.Itoa(h.f.st.nextPort))
	}
	if h.f.st.listeners[addr] != nil {
		return nil, fmt.Errorf("memnet: listen on %q: %w", addr, syscall.EADDRINUSE)
	}
	l := &listener{f: h.f, addr: address(addr), queue: make(chan *Conn, backlog), closed: make(chan struct{})}
	h.f.st.listeners[addr] = l
	return l, nil
}

// Dial connects to a listener. While a direction between the hosts is cut it waits
// for ctx or for the cut to heal; without a listener it is refused at once.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	there := direction{h.name, hostOf(addr)}
	back := direction{there.to, there.from}
	for {
		h.f.mu.Lock()
		cut := h.f.st.rules[there].cut || h.f.st.rules[back].cut
		changed := h.f.st.changed
		l := h.f.st.listeners[addr]
		h.f.mu.Unlock()
		if !cut {
			return h.connect(ctx, l, addr, there, back)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("memnet: dial %s: %w", addr, ctx.Err())
		}
	}
}

func (h *Host) connect(
	ctx context.Context,
	l *listener,
	addr string,
	there, back direction,
) (net.Conn, error) {
	refused := fmt.Errorf("memnet: dial %s: %w", addr, syscall.ECONNREFUSED)
	if l == nil {
		return nil, refused
	}
	h.f.mu.Lock()
	h.f.st.nextPort++
	local := address(net.JoinHostPort(h.name, strconv.Itoa(h.f.st.nextPort)))
	out, in := newPipe(h.f, there), newPipe(h.f, back)
	h.f.st.pipes[out], h.f.st.pipes[in] = struct{}{}, struct{}{}
	h.f.mu.Unlock()
	client := newConn(out, in, local, address(addr))
	server := newConn(in, out, address(addr), local)
	select {
	case l.queue <- server:
		return client, nil
	case <-l.closed:
		_ = client.Close() // nobody saw it
		return nil, refused
	case <-ctx.Done():
		_ = client.Close() // nobody saw it
		return nil, fmt.Errorf("memnet: dial %s: %w", addr, ctx.Err())
	}
}

type address string

func (a address) Network() string { return "mem" }
func (a address) String() string  { return string(a) }

type listener struct {
	f      *Fabric
	addr   address
	queue  chan *Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("memnet: accept on %s: %w", l.addr, net.ErrClosed)
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.f.mu.Lock()
		delete(l.f.st.listeners, string(l.addr))
		l.f.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.out.fail(errReset)
				c.in.fail(errReset)
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

var _ net.Listener = (*listener)(nil)
