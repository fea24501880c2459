package netcut

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 64 << 10
	// chunksHeld is how many chunks of a delayed direction are on their way at most.
	chunksHeld = 256
	// dialTimeout bounds the dial of the real port; on loopback it is there or not.
	dialTimeout = 5 * time.Second
)

// conn is a connection through a proxy.
type conn struct {
	dialler, owner string
	front, back    net.Conn // back is nil until the owner was dialled

	once sync.Once
	done chan struct{} // closed when both sides are to end
	mu   sync.Mutex    // guards back against abort
}

func (n *Net) accept(l net.Listener, node, backend string) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a connection that ended before it was accepted
		}
		n.routines.Go(func() { n.serve(c, node, backend) })
	}
}

// serve carries one connection to its end.
func (n *Net) serve(front net.Conn, owner, backend string) {
	c := &conn{owner: owner, front: front, done: make(chan struct{})}
	c.dialler = n.dialler(front)
	if c.dialler == "" {
		n.unknown.Add(1)
		_ = front.Close()
		return
	}
	if !n.enter(c) {
		_ = front.Close()
		return
	}
	defer n.leave(c)
	there, back := n.link(c.dialler, owner), n.link(owner, c.dialler)
	// A handshake needs both directions.
	if errors.Join(there.open(c.done), back.open(c.done)) != nil {
		c.abort()
		return
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(n.ctx, "tcp", backend)
	if err != nil || !c.connected(conn) {
		c.abort()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.pump(front, conn, there) })
	both.Go(func() { c.pump(conn, front, back) })
	both.Wait()
	_ = c.Close()
}

func (n *Net) enter(c *conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *Net) leave(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// connected notes the second half; false if the connection was ended meanwhile.
func (c *conn) connected(back net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		_ = back.Close()
		return false
	default:
		c.back = back
		return true
	}
}

// Close ends both sides.
func (c *conn) Close() error {
	c.end(func(*net.TCPConn) {})
	return nil
}

// abort ends both sides with a reset.
func (c *conn) abort() { c.end(func(t *net.TCPConn) { _ = t.SetLinger(0) }) }

func (c *conn) end(before func(*net.TCPConn)) {
	c.once.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.done)
		for _, side := range []net.Conn{c.front, c.back} {
			if side == nil {
				continue
			}
			if t, ok := side.(*net.TCPConn); ok {
				before(t)
			}
			_ = side.Close()
		}
	})
}

// chunk is bytes, or the end, on their way.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

// pump carries one direction until it ends.
func (c *conn) pump(src, dst net.Conn, l *link) {
	chunks := make(chan chunk, chunksHeld)
	var reader sync.WaitGroup
	reader.Go(func() { c.read(src, l, chunks) })
	defer reader.Wait()
	for {
		select {
		case ch := <-chunks:
			if !c.pass(dst, l, ch) {
				return
			}
		case <-c.done:
			return
		}
	}
}

func (c *conn) read(src net.Conn, l *link, chunks chan<- chunk) {
	var last time.Time
	for {
		buf := make([]byte, chunkSize)
		k, err := src.Read(buf)
		ch := chunk{data: buf[:k], err: err}
		if s, _ := l.get(); s.Delay > 0 {
			ch.due = time.Now().Add(s.delay())
			if ch.due.Before(last) {
				ch.due = last
			}
			last = ch.due
		}
		select {
		case chunks <- ch:
		case <-c.done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (s State) delay() time.Duration {
	if s.Jitter == 0 {
		return s.Delay
	}
	return s.Delay - s.Jitter + rand.N(2*s.Jitter+1)
}

// pass delivers a chunk; false ends the direction.
func (c *conn) pass(dst net.Conn, l *link, ch chunk) bool {
	if !wait(time.Until(ch.due), c.done) {
		return false
	}
	if err := l.open(c.done); err != nil {
		c.abort()
		return false
	}
	if len(ch.data) > 0 {
		l.bytes.Add(uint64(len(ch.data))) // before they can be read, so that whoever read them finds them counted
		if _, err := dst.Write(ch.data); err != nil {
			c.abort()
			return false
		}
	}
	switch {
	case ch.err == nil:
		return true
	case errors.Is(ch.err, io.EOF):
		if t, ok := dst.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
	default:
		c.abort()
	}
	return false
}

// wait waits; false if done came first.
func wait(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
