package memnet

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is one side of a connection.
type Conn struct {
	out, in       *pipe
	local, remote address
	read, write   *deadline
	once          sync.Once
	closed        chan struct{}
}

func newConn(out, in *pipe, local, remote address) *Conn {
	return &Conn{
		out: out, in: in, local: local, remote: remote,
		read: newDeadline(), write: newDeadline(), closed: make(chan struct{}),
	}
}

// Read waits for bytes, the end, a fault or the deadline.
func (c *Conn) Read(b []byte) (int, error) { return c.in.read(b, c.read, c.closed) }

// Write waits until all of b is buffered.
func (c *Conn) Write(b []byte) (int, error) { return c.out.write(b, c.write, c.closed) }

// Close ends both directions; what was written is still delivered.
func (c *Conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.finish()
		c.in.abandon()
	})
	return nil
}

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other side's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines; the zero time removes them.
func (c *Conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline sets the deadline of reads, also of one in progress.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

// SetWriteDeadline sets the deadline of writes, also of one in progress.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// deadline is a point in time that can be moved under whoever waits for it.
type deadline struct {
	mu      sync.Mutex
	at      time.Time
	changed chan struct{}
}

func newDeadline() *deadline { return &deadline{changed: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *deadline) get() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.changed
}

// chunk is what one write left, due at a time.
type chunk struct {
	b   []byte
	due time.Time
}

// pipe is one direction of a connection.
type pipe struct {
	f   *Fabric
	dir direction

	mu      sync.Mutex
	chunks  []chunk
	size    int
	ended   bool      // the writer closed
	endDue  time.Time // when its end arrives
	gone    bool      // the reader closed
	err     error     // broken for both sides
	last    time.Time // due time of the newest chunk: delays never reorder
	changed chan struct{}
}

func newPipe(f *Fabric, d direction) *pipe {
	return &pipe{f: f, dir: d, changed: make(chan struct{})}
}

// wake makes both sides look again; p.mu must not be held.
func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify()
}

// notify wakes both sides; p.mu is held.
func (p *pipe) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.chunks, p.size = nil, 0
	p.notify()
	p.mu.Unlock()
	p.forget()
}

// finish is the writer's close.
func (p *pipe) finish() {
	delay := p.f.rule(p.dir).delay
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.endDue = p.later(time.Now().Add(delay))
	p.notify()
}

// abandon is the reader's close: nobody will read what comes.
func (p *pipe) abandon() {
	p.mu.Lock()
	p.gone = true
	p.chunks, p.size = nil, 0
	p.notify()
	p.mu.Unlock()
	p.forget()
}

// forget takes the pipe out of the fabric's books.
func (p *pipe) forget() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	delete(p.f.st.pipes, p)
}

// later keeps due times in the order of writes; p.mu is held.
func (p *pipe) later(t time.Time) time.Time {
	if t.Before(p.last) {
		t = p.last
	}
	p.last = t
	return t
}

func (p *pipe) write(b []byte, d *deadline, closed <-chan struct{}) (int, error) {
	written := 0
	for {
		delay := p.f.rule(p.dir).delay
		p.mu.Lock()
		err := p.err
		if err == nil && p.gone && !p.f.rule(p.dir).cut {
			err = errReset
		}
		if err == nil && p.size < Buffer && len(b) > 0 {
			n := min(len(b), Buffer-p.size)
			if !p.gone {
				p.chunks = append(
					p.chunks,
					chunk{b: append([]byte(nil), b[:n]...), due: p.later(time.Now().Add(delay))},
				)
				p.size += n
				p.notify()
			}
			b = b[n:]
			written += n
		}
		changed := p.changed
		p.mu.Unlock()
		if err != nil || len(b) == 0 {
			return written, err
		}
		if err := await(changed, time.Time{}, d, closed); err != nil {
			return written, err
		}
	}
}

func (p *pipe) read(b []byte, d *deadline, closed <-chan struct{}) (int, error) {
	for {
		if err := passed(d, closed); err != nil {
			return 0, err
		}
		p.mu.Lock()
		n, due, err := p.take(b, p.f.rule(p.dir).cut)
		changed := p.changed
		p.mu.Unlock()
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if err := await(changed, due, d, closed); err != nil {
			return 0, err
		}
	}
}

// take moves what is due into b; otherwise it says when something will be. p.mu is held.
//
//nolint:revive // cut is the state of the network
func (p *pipe) take(b []byte, cut bool) (n int, due time.Time, err error) {
	if p.err != nil {
		return 0, time.Time{}, p.err
	}
	if cut {
		return 0, time.Time{}, nil
	}
	now := time.Now()
	for len(p.chunks) > 0 && n < len(b) {
		c := &p.chunks[0]
		if c.due.After(now) {
			break
		}
		m := copy(b[n:], c.b)
		n += m
		p.size -= m
		if c.b = c.b[m:]; len(c.b) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	switch {
	case n > 0:
		p.notify()
		return n, time.Time{}, nil
	case len(p.chunks) > 0:
		return 0, p.chunks[0].due, nil
	case p.ended && !p.endDue.After(now):
		return 0, time.Time{}, io.EOF
	case p.ended:
		return 0, p.endDue, nil
	default:
		return 0, time.Time{}, nil
	}
}

func passed(d *deadline, closed <-chan struct{}) error {
	select {
	case <-closed:
		return fmt.Errorf("memnet: %w", net.ErrClosed)
	default:
	}
	if at, _ := d.get(); !at.IsZero() && !at.After(time.Now()) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// await waits for a change, for due, or for the end of the caller's patience.
func await(changed <-chan struct{}, due time.Time, d *deadline, closed <-chan struct{}) error {
	at, moved := d.get()
	next := at
	if !due.IsZero() && (next.IsZero() || due.Before(next)) {
		next = due
	}
	var fire <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		fire = t.C
	}
	select {
	case <-changed:
	case <-moved:
	case <-fire:
	case <-closed:
	}
	return passed(d, closed)
}
