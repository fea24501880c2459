package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Link is a leafnode connection that comes back. Its methods may be called from any goroutine, also before
// and after Run.
type Link struct {
	cfg      Config
	out      *outbox
	interest table

	mu     sync.Mutex
	status Status
}

// Msg is a message as Send takes it.
type Msg struct {
	// Subject is what the message is routed by and, unless the reply is of the delivery form, shown as.
	Subject string
	// Reply is empty for none.
	Reply string
	// Header is a complete header block, from NATS/1.0 to the empty line (\r\n\r\n); empty for none.
	Header []byte
	// Body is the payload.
	Body []byte
	// Queue names the queue group that gets the message, beside plain subscribers; empty for none.
	Queue string
	// Fenced says that the right to send was checked before the call and does not last, as with a status or
	// an answer under a lease: while the link is down the message is refused instead of kept.
	Fenced bool
}

// Delivery is a message as DeliverQueue takes it.
type Delivery struct {
	// Inbox is what the message is routed by.
	Inbox string
	// Ack is the reply the subscriber sees: $JS.ACK.… with at least eight dots.
	Ack []byte
	// Subject is what the subscriber sees as the message's subject.
	Subject string
	// Header and Body are as in Msg.
	Header, Body []byte
	// Queue is as in Msg.
	Queue string
}

// New makes a Link; Run connects it. The error wraps ErrConfig.
func New(cfg Config) (*Link, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	return &Link{
		cfg:      cfg,
		out:      newOutbox(cfg, now),
		interest: table{grace: cfg.Grace, limit: cfg.MaxInterest},
		status:   Status{Since: now},
	}, nil
}

// Send queues a message. It does not block and keeps nothing of m. While the link is down the message waits
// for a connection within Config.HoldFor, unless it is Fenced. Errors: ErrTooLarge, ErrBadSubject,
// ErrBadHeader, ErrNoHeaders, ErrOverflow, ErrDown.
func (l *Link) Send(m Msg) error {
	return l.out.put(&frame{
		subject: m.Subject, reply: m.Reply, queue: m.Queue, header: m.Header, body: m.Body, hold: !m.Fenced,
	})
}

// Deliver queues a message that is routed to inbox and shown there under subject, with ackReply ($JS.ACK.…,
// at least eight dots) as its reply. It does not block and keeps nothing of its arguments. While the link
// is down it returns ErrDown. The other errors are those of Send.
func (l *Link) Deliver(inbox string, ackReply []byte, subject string, header, body []byte) error {
	return l.out.put(&frame{subject: inbox, ack: ackReply, visible: subject, header: header, body: body})
}

// DeliverQueue is Deliver to the members of a queue group as well as to plain subscribers.
func (l *Link) DeliverQueue(d Delivery) error {
	return l.out.put(&frame{
		subject: d.Inbox, ack: d.Ack, visible: d.Subject, header: d.Header, body: d.Body, queue: d.Queue,
	})
}

// Flush waits until the hub has processed everything sent before. It fails with ErrDown if the link is or
// goes down, or with ctx's error.
func (l *Link) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	if err := l.out.ping(time.Now(), done); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("link: flush: %w", ctx.Err())
	}
}

// Interest reports whether somebody in the account listens to subject, which must be literal, or whether
// that is unknown; see the package comment.
func (l *Link) Interest(subject string) bool { return l.interest.has(subject) }

// InterestYoung is Interest for a request that arrived at since: if it is younger than Config.Grace the
// subscription of its reply may still be on its way, and the answer is true, unless the hub said after the
// request that the subscription has ended.
func (l *Link) InterestYoung(subject string, since time.Time) bool {
	return l.interest.young(subject, since)
}

// QueueInterest reports whether the queue group has a member that listens to subject, or whether that is
// unknown.
func (l *Link) QueueInterest(subject, queue string) bool { return l.interest.hasQueue(subject, queue) }

// Status returns the link's state.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Stats returns counters.
func (l *Link) Stats() Stats {
	s := l.out.snapshot()
	s.Subscriptions = l.interest.size()
	return s
}

// Run connects, and connects again whenever the connection breaks, until ctx ends; then it returns nil.
// Only one Run may be in progress.
func (l *Link) Run(ctx context.Context) error {
	backoff := l.cfg.BackoffMin
	for ctx.Err() == nil {
		accepted, err := l.session(ctx)
		if accepted {
			backoff = l.cfg.BackoffMin
		}
		l.setDown(err)
		// Up to a fifth is random, so that the links of many accounts do not come in step.
		jitter := time.Duration(rand.Int64N(int64(backoff)/5 + 1)) //nolint:gosec // no secret
		timer := time.NewTimer(backoff - jitter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		backoff = min(2*backoff, l.cfg.BackoffMax)
	}
	return nil
}

// session is one connection, from dialing to its end. It reports whether the hub accepted it.
func (l *Link) session(ctx context.Context) (accepted bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, l.cfg.ConnectTimeout)
	conn, err := l.cfg.Dial(dialCtx)
	cancel()
	if err != nil {
		return false, fmt.Errorf("link: dial: %w", err)
	}
	// Closing is all there is to do with a connection, and the only error it gives is that it is closed.
	closeConn := func() { _ = conn.Close() }
	defer closeConn()
	unhook := context.AfterFunc(ctx, closeConn)
	defer unhook()

	l.interest.reset()
	defer l.interest.doubt()
	p := newParser(conn)
	if err := l.handshake(conn, p); err != nil {
		return false, err
	}
	now := time.Now()
	l.interest.completed(now)
	l.out.open(now)

	stop := make(chan struct{})
	writer := make(chan error, 1)
	go func() {
		err := l.write(conn, stop)
		closeConn() // ends the reader
		writer <- err
	}()
	l.setUp(now)
	readErr := l.read(p)
	closeConn() // ends the writer
	close(stop)
	writeErr := <-writer
	l.out.shut(time.Now())
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	// The first failure closed the connection; what that made fail says nothing.
	if isClosed(readErr) {
		return true, writeErr
	}
	if isClosed(writeErr) {
		writeErr = nil
	}
	return true, errors.Join(readErr, writeErr)
}

// isClosed reports whether the error comes from using a connection after we closed it.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// handshake introduces the link and reads until the hub has accepted it.
func (l *Link) handshake(conn net.Conn, p *parser) error {
	if err := conn.SetDeadline(time.Now().Add(l.cfg.ConnectTimeout)); err != nil {
		return fmt.Errorf("link: handshake: %w", err)
	}
	e, err := p.next()
	if err != nil {
		return fmt.Errorf("link: waiting for INFO: %w", err)
	}
	if e.op != opInfo {
		return fmt.Errorf("%w: the hub did not begin with INFO", ErrProtocol)
	}
	l.learn(e.info)
	line, err := hello(l.cfg)
	if err != nil {
		return err
	}
	if _, err := conn.Write(line); err != nil {
		return fmt.Errorf("link: CONNECT: %w", err)
	}
	for {
		e, err := p.next()
		if err != nil {
			return fmt.Errorf("link: handshake: %w", err)
		}
		switch e.op {
		case opPong:
			return conn.SetDeadline(time.Time{})
		case opErr:
			return fmt.Errorf("%w: %s", ErrHub, e.text)
		case opPing:
			if _, err := conn.Write([]byte("PONG\r\n")); err != nil {
				return fmt.Errorf("link: handshake: %w", err)
			}
		default:
			l.apply(e)
		}
	}
}

// read applies what the hub sends until the connection breaks.
func (l *Link) read(p *parser) error {
	var said error
	for {
		e, err := p.next()
		if err != nil {
			return errors.Join(said, fmt.Errorf("link: read: %w", err))
		}
		switch e.op {
		case opPing:
			l.out.pong()
		case opPong:
			if !l.out.ponged() {
				return fmt.Errorf("%w: PONG without PING", ErrProtocol)
			}
		case opErr:
			// The hub closes the connection if it means it; then this is why.
			said = fmt.Errorf("%w: %s", ErrHub, e.text)
		default:
			l.apply(e)
		}
	}
}

// apply handles the elements that mean the same before and after the link is up.
func (l *Link) apply(e element) {
	switch e.op {
	case opInfo:
		l.learn(e.info)
	case opSub:
		l.interest.add(e.subject, e.queue, e.weight)
	case opUnsub:
		l.interest.remove(e.subject, e.queue)
	case opMsg:
		l.out.unexpected()
	case opOK, opPing, opPong, opErr:
	}
}

// learn takes the hub's limits. An INFO that states none changes nothing.
func (l *Link) learn(i info) {
	if i.MaxPayload > 0 {
		limit := i.MaxPayload
		if l.cfg.MaxPayload > 0 {
			limit = min(limit, l.cfg.MaxPayload)
		}
		l.out.limits(limit, i.Headers)
	}
	if i.ServerName != "" {
		l.mu.Lock()
		l.status.Hub = i.ServerName
		l.mu.Unlock()
	}
}

// write writes what gathers in the outbox and pings, until stop is closed or a write fails.
func (l *Link) write(conn net.Conn, stop <-chan struct{}) error {
	ticker := time.NewTicker(l.cfg.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return nil
		case now := <-ticker.C:
			if err := l.out.keepAlive(now, 2*l.cfg.PingInterval); err != nil {
				return err
			}
		case <-l.out.wake:
			if err := l.drain(conn); err != nil {
				return fmt.Errorf("link: write: %w", err)
			}
		}
	}
}

// drain writes until the outbox is empty.
func (l *Link) drain(conn net.Conn) error {
	for {
		b := l.out.take()
		if len(b) == 0 {
			l.out.recycle(b)
			return nil
		}
		for rest := b; len(rest) > 0; {
			part := rest[:min(len(rest), maxWrite)]
			if err := conn.SetWriteDeadline(time.Now().Add(l.cfg.WriteTimeout)); err != nil {
				return err
			}
			if _, err := conn.Write(part); err != nil {
				return err
			}
			l.out.wrote(len(part))
			rest = rest[len(part):]
		}
		l.out.recycle(b)
	}
}

func (l *Link) setUp(now time.Time) {
	l.change(func(s *Status) { s.Up, s.Since, s.Err = true, now, nil })
}

// setDown notes that the link is down, or why it still is.
func (l *Link) setDown(err error) {
	l.change(func(s *Status) {
		if s.Up {
			s.Up, s.Since = false, time.Now()
		}
		s.Err = err
	})
}

// change changes the status and tells the callback if the link went up or down.
func (l *Link) change(f func(*Status)) {
	l.mu.Lock()
	was := l.status.Up
	f(&l.status)
	now := l.status
	l.mu.Unlock()
	if was != now.Up && l.cfg.OnStatus != nil {
		l.cfg.OnStatus(now)
	}
}
