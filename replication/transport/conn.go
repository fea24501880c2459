package transport

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	connBuffer = 64 << 10
	// writeQueue is how many frames may wait for the writer before senders wait.
	writeQueue = 64
	// flushFrames bounds how many frames are gathered before a flush.
	flushFrames = 64
)

// conn is one connection past its handshake. Frames go out through one writer
// goroutine in the order in which they were queued; one goroutine reads.
type conn struct {
	t      *Transport
	nc     net.Conn
	br     *bufio.Reader
	peer   string
	kind   connKind
	group  uint32 // of an inbound snapshot connection
	serial uint64 // higher = made later on this node
	dialer bool
	// ownCluster is the cluster id that this side stated; see provisional.
	ownCluster string
	// boot is the peer's process. It and dialNo order the inbound connections of a peer; see handshake.
	boot, dialNo uint64

	out  chan []byte
	done chan struct{}
	once sync.Once
	// drained is closed when an inbound connection has stopped handing frames over.
	drained chan struct{}

	received atomic.Int64 // uptime of the last frame received
	suspect  atomic.Bool  // a request timed out: find out now whether the peer is there
	acked    atomic.Int64 // snapshot bytes acknowledged; -1 before it is said where to begin
	acks     chan struct{}

	mu sync.Mutex
	st struct { // guarded by mu
		cause   error
		pending map[uint64]chan reply
		hellos  map[uint32]*helloState
	}
}

// reply is the answer to one request.
type reply struct {
	status  status
	payload []byte
	err     error // the connection ended first
}

func (t *Transport) newConn(nc net.Conn, br *bufio.Reader, peer string, kind connKind) *conn {
	c := &conn{
		t: t, nc: nc, br: br, peer: peer, kind: kind, serial: t.serials.Add(1),
		out: make(chan []byte, writeQueue), done: make(chan struct{}),
		drained: make(chan struct{}), acks: make(chan struct{}, 1),
	}
	c.st.pending = map[uint64]chan reply{}
	c.st.hellos = map[uint32]*helloState{}
	c.acked.Store(-1)
	c.received.Store(int64(t.uptime()))
	return c
}

// close ends the connection for a reason; only the first counts.
func (c *conn) close(cause error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.st.cause = cause
		pending := c.st.pending
		c.st.pending = nil
		c.mu.Unlock()
		close(c.done)
		_ = c.nc.Close() // its error says nothing that cause does not
		for _, ch := range pending {
			ch <- reply{err: c.lost()}
		}
		if errors.Is(cause, ErrProtocol) {
			c.t.count.ProtocolErrors.Add(1)
		}
		c.t.log.Debug(
			"connection closed",
			zap.String("peer", c.peer),
			zap.Bool("dialer", c.dialer),
			zap.Error(cause),
		)
	})
}

// lost is the error of requests that the end of the connection cut off.
func (c *conn) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%w: connection to %s: %w", ErrUnreachable, c.peer, c.st.cause)
}

func (c *conn) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// provisional says that this side did not know its cluster at the handshake and
// does now: the connection has served its purpose, the next one states it.
func (c *conn) provisional() bool { return c.ownCluster == "" && c.t.cfg.ClusterID() != "" }

// wait bounds how long a caller waits: a deadline and up to two other ends.
type wait struct {
	timeout time.Duration
	expired <-chan time.Time
	quit    <-chan struct{} // the group was closed; nil = none
	ctx     <-chan struct{} // the caller's context; nil = none
}

// queue hands a frame to the writer.
func (c *conn) queue(b []byte, w *wait) error {
	select {
	case <-c.done:
		return c.lost()
	default:
	}
	select {
	case c.out <- b:
		return nil
	case <-c.done:
		return c.lost()
	case <-w.expired:
		c.suspect.Store(true)
		return w.timedOut(c)
	case <-w.quit:
		return ErrClosed
	case <-w.ctx:
		return w.canceled(c)
	}
}

func (w *wait) timedOut(c *conn) error {
	c.t.count.Timeouts.Add(1)
	return fmt.Errorf("%w: %s after %v", ErrTimeout, c.peer, w.timeout)
}

func (w *wait) canceled(c *conn) error {
	return fmt.Errorf("%w: %s: caller gave up", ErrTimeout, c.peer)
}

// writeLoop writes queued frames until the connection ends. On a dialled
// connection it also pings, so that both sides hear something within IdleTimeout,
// and closes a connection that has gone silent.
func (c *conn) writeLoop() {
	bw := bufio.NewWriterSize(c.nc, connBuffer)
	var tick <-chan time.Time
	watch := watchdog{c: c}
	if c.dialer {
		ticker := time.NewTicker(min(c.t.cfg.HeartbeatTimeout/4, c.t.cfg.pingEvery()/2))
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		var err error
		select {
		case <-c.done:
			return
		case b := <-c.out:
			err = c.write(bw, b)
		case <-tick:
			var ping bool
			if ping, err = watch.tick(c.t.uptime()); ping && err == nil {
				err = c.write(bw, endFrame(beginFrame(c.t.buffer(headerSize), framePing, 0, 0)))
			}
		}
		if err != nil {
			c.close(err)
			return
		}
	}
}

// write writes b and whatever else is queued, then flushes.
func (c *conn) write(bw *bufio.Writer, b []byte) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.t.cfg.AppendTimeout)); err != nil {
		return err
	}
	for n := 1; ; n++ {
		if _, err := bw.Write(b); err != nil {
			return err
		}
		c.t.count.FramesSent.Add(1)
		c.t.count.BytesSent.Add(uint64(len(b)))
		c.t.release(b)
		if n == flushFrames {
			return bw.Flush()
		}
		select {
		case b = <-c.out:
		default:
			return bw.Flush()
		}
	}
}

// read reads the next frame: its first byte within IdleTimeout, the rest within AppendTimeout.
func (c *conn) read(limit int) (frame, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.t.cfg.IdleTimeout)); err != nil {
		return frame{}, err
	}
	f, n, err := readHeader(c.br, limit)
	if err != nil {
		return frame{}, err
	}
	if n > c.br.Buffered() {
		if err := c.nc.SetReadDeadline(time.Now().Add(c.t.cfg.AppendTimeout)); err != nil {
			return frame{}, err
		}
	}
	if f.payload, err = readPayload(c.br, n); err != nil {
		return frame{}, err
	}
	c.received.Store(int64(c.t.uptime()))
	c.t.count.FramesReceived.Add(1)
	c.t.count.BytesReceived.Add(uint64(headerSize + n))
	return f, nil
}

// watchdog decides when to ping and when a connection is dead.
type watchdog struct {
	c      *conn
	pinged time.Duration
	probe  time.Duration // a ping after a timed-out request that must be heard; 0 = none
}

func (w *watchdog) tick(now time.Duration) (ping bool, err error) {
	cfg, heard := &w.c.t.cfg, time.Duration(w.c.received.Load())
	if now-heard > cfg.IdleTimeout {
		return false, fmt.Errorf("%w: nothing received for %v", ErrTimeout, now-heard)
	}
	if w.c.provisional() {
		return false, errors.New("cluster id became known")
	}
	if w.probe != 0 && heard < w.probe && now-w.probe > cfg.HeartbeatTimeout {
		return false, fmt.Errorf("%w: no answer to a ping for %v", ErrTimeout, now-w.probe)
	}
	if w.probe != 0 && heard >= w.probe {
		w.probe = 0
	}
	if w.probe == 0 && w.c.suspect.Swap(false) {
		w.probe, w.pinged = now, now
		return true, nil
	}
	if now-w.pinged >= cfg.pingEvery() {
		w.pinged = now
		return true, nil
	}
	return false, nil
}
