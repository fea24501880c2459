package link

import (
	"bytes"
	"strconv"
	"sync"
	"time"
)

const (
	// maxWrite bounds one write to the connection, so that WriteTimeout bounds the time without progress.
	maxWrite = 1 << 20
	// keepBuffer is the largest buffer kept for reuse.
	keepBuffer = 4 << 20
	// lineSlack covers what a protocol line holds beside its subject, reply and queue: separators and sizes.
	lineSlack = 48
)

// headerStart and headerEnd enclose every header block.
const (
	headerStart = "NATS/1.0"
	headerEnd   = "\r\n\r\n"
)

// Stats counts what a Link did since New.
type Stats struct {
	// Sent and SentBytes count messages taken into the buffer, and their bytes on the wire.
	Sent, SentBytes uint64
	// Writes counts writes to connections.
	Writes uint64
	// Overflow counts messages refused with ErrOverflow, Down those refused with ErrDown, Invalid those
	// refused for their size, subject or header.
	Overflow, Down, Invalid uint64
	// Lost counts messages that were taken into the buffer but not written to a connection before it broke
	// or the hold ended; of an interrupted write all count. A message lost in the kernel's buffers is not
	// counted.
	Lost uint64
	// Connects counts connections the hub accepted.
	Connects uint64
	// Unexpected counts messages the hub sent, which are skipped.
	Unexpected uint64
	// Pending is the number of bytes that wait to be written now.
	Pending int
	// Subscriptions is the size of the interest table now.
	Subscriptions int
}

// frame is one message, in the parts its protocol line is made of.
type frame struct {
	subject string
	reply   string // of a plain message
	ack     []byte // of a delivery, with visible: together the reply is ack@visible
	visible string
	queue   string
	header  []byte
	body    []byte
	hold    bool // keep it while the link is down
}

// waiter is a PING whose PONG is outstanding.
type waiter struct {
	sent time.Time
	done chan error // nil for a keepalive; capacity one otherwise
}

// outbox is the buffer between senders and the writer of the current connection.
type outbox struct {
	maxLine int
	limit   int
	holdFor time.Duration
	wake    chan struct{} // capacity one: something is in buf

	mu        sync.Mutex
	buf       []byte // not yet taken by the writer
	bufCount  int    // messages in buf
	spare     []byte // reused as the next buf
	writing   int    // bytes the writer has taken and not yet written
	taken     int    // messages in what the writer has taken
	up        bool
	downSince time.Time // while not up
	maxMsg    int       // largest message; the last hub's limit while down
	headers   bool      // the hub takes headers
	pings     []waiter  // oldest first
	stats     Stats
}

func newOutbox(c Config, now time.Time) *outbox {
	maxMsg := c.MaxPayload
	if maxMsg == 0 {
		maxMsg = int(^uint(0) >> 1)
	}
	return &outbox{
		maxLine: c.MaxControlLine, limit: c.PendingLimit, holdFor: c.HoldFor,
		wake: make(chan struct{}, 1), downSince: now, maxMsg: maxMsg, headers: true,
	}
}

// put appends a message to the buffer, or says why not.
func (o *outbox) put(f *frame) error {
	err := f.check(o.maxLine)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil:
	case len(f.header)+len(f.body) > o.maxMsg:
		err = ErrTooLarge
	case len(f.header) > 0 && !o.headers:
		err = ErrNoHeaders
	}
	if err != nil {
		o.stats.Invalid++
		return err
	}
	if !o.up && (!f.hold || time.Since(o.downSince) >= o.holdFor) {
		o.stats.Down++
		return ErrDown
	}
	if len(o.buf)+o.writing >= o.limit {
		o.stats.Overflow++
		return ErrOverflow
	}
	before := len(o.buf)
	o.buf = f.appendTo(o.buf)
	o.bufCount++
	o.stats.Sent++
	o.stats.SentBytes += uint64(len(o.buf) - before)
	o.signal()
	return nil
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// check finds what the hub would answer by closing the connection.
func (f *frame) check(maxLine int) error {
	if f.subject == "" || !isToken(f.subject) || !isToken(f.reply) || !isToken(f.queue) ||
		!isToken(f.visible) || !isToken(f.ack) {
		return ErrBadSubject
	}
	line := len(f.subject) + len(f.reply) + len(f.ack) + len(f.visible) + len(f.queue) + lineSlack
	if line > maxLine {
		return ErrTooLarge
	}
	// A delivered block is the publisher's, and nobody's to judge.
	if len(f.header) > 0 && f.ack == nil && !isHeader(f.header) {
		return ErrBadHeader
	}
	return nil
}

// isHeader reports whether h starts and ends like a header block. The shortest one is "NATS/1.0\r\n\r\n".
func isHeader(h []byte) bool {
	return len(h) >= len(headerStart)+len(headerEnd) &&
		string(h[:len(headerStart)]) == headerStart && bytes.HasSuffix(h, []byte(headerEnd))
}

// isToken reports whether s has no byte that ends a token of a protocol line.
func isToken[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// appendTo appends the message in the form of the wire.
func (f *frame) appendTo(b []byte) []byte {
	if len(f.header) > 0 {
		b = append(b, "HMSG "...)
	} else {
		b = append(b, "LMSG "...)
	}
	b = append(b, f.subject...)
	b = append(b, ' ')
	hasReply := f.reply != "" || len(f.ack) > 0
	if f.queue != "" {
		if hasReply {
			b = append(b, "+ "...)
		} else {
			b = append(b, "| "...)
		}
	}
	if hasReply {
		b = append(b, f.reply...)
		if len(f.ack) > 0 {
			b = append(b, f.ack...)
			b = append(b, '@')
			b = append(b, f.visible...)
		}
		b = append(b, ' ')
	}
	if f.queue != "" {
		b = append(b, f.queue...)
		b = append(b, ' ')
	}
	if len(f.header) > 0 {
		b = strconv.AppendInt(b, int64(len(f.header)), 10)
		b = append(b, ' ')
	}
	b = strconv.AppendInt(b, int64(len(f.header)+len(f.body)), 10)
	b = append(b, "\r\n"...)
	b = append(b, f.header...)
	b = append(b, f.body...)
	return append(b, "\r\n"...)
}

// ping appends a PING. done, if not nil, receives nil for its PONG or the reason why there will be none.
func (o *outbox) ping(now time.Time, done chan error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.up {
		return ErrDown
	}
	o.buf = append(o.buf, "PING\r\n"...)
	o.pings = append(o.pings, waiter{sent: now, done: done})
	o.signal()
	return nil
}

// keepAlive pings if no ping is outstanding, and fails if the oldest is older than patience.
func (o *outbox) keepAlive(now time.Time, patience time.Duration) error {
	o.mu.Lock()
	waiting := len(o.pings) > 0
	stale := waiting && now.Sub(o.pings[0].sent) >= patience
	o.mu.Unlock()
	switch {
	case stale:
		return ErrStale
	case waiting:
		return nil
	default:
		return o.ping(now, nil)
	}
}

// pong answers a PING of the hub.
func (o *outbox) pong() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, "PONG\r\n"...)
	o.signal()
}

// ponged settles the oldest ping. It reports whether there was one.
func (o *outbox) ponged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pings) == 0 {
		return false
	}
	w := o.pings[0]
	if o.pings = o.pings[1:]; len(o.pings) == 0 {
		o.pings = nil
	}
	if w.done != nil {
		w.done <- nil
	}
	return true
}

// open makes the buffer, with what was held for it, available to the writer of a new connection.
func (o *outbox) open(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.downSince) >= o.holdFor {
		o.discard()
	}
	o.up = true
	o.stats.Connects++
	o.signal()
}

// limits sets what the hub takes.
func (o *outbox) limits(maxMsg int, headers bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.maxMsg, o.headers = maxMsg, headers
}

// shut ends the use by a connection: what is in the buffer is lost, outstanding pings fail.
func (o *outbox) shut(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.up {
		o.up = false
		o.downSince = now
		o.discard()
	}
	if o.writing > 0 {
		o.stats.Lost += uint64(o.taken)
	}
	o.writing, o.taken = 0, 0
	for _, w := range o.pings {
		if w.done != nil {
			w.done <- ErrDown
		}
	}
	o.pings = nil
}

// discard drops the buffer's messages. The lock is held.
func (o *outbox) discard() {
	o.stats.Lost += uint64(o.bufCount)
	o.buf, o.bufCount = o.buf[:0], 0
}

// take hands the buffer to the writer; wrote must be called for each write of it.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.buf
	o.writing, o.taken = len(b), o.bufCount
	o.buf, o.bufCount, o.spare = o.spare[:0], 0, nil
	return b
}

// wrote tells how much of the taken buffer has been written.
func (o *outbox) wrote(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing -= n
	o.stats.Writes++
}

// recycle gives a written buffer back.
func (o *outbox) recycle(b []byte) {
	if cap(b) > keepBuffer {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = b
}

func (o *outbox) unexpected() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.Unexpected++
}

func (o *outbox) snapshot() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Pending = len(o.buf) + o.writing
	return s
}
