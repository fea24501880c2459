package conn

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Errors of a Conn.
var (
	// ErrDown: there is no connection at the moment.
	ErrDown = errors.New("client connection is down")
	// ErrClosed: the Conn was closed.
	ErrClosed = errors.New("client connection is closed")
	// ErrTooLarge: the message is larger than the server's max_payload; sending it would cost the connection.
	ErrTooLarge = errors.New("message exceeds max_payload")
	// ErrSubject: the subject is empty or has white space.
	ErrSubject = errors.New("invalid subject")
)

// Config says how to connect.
type Config struct {
	// Dial opens a connection to the server.
	Dial func(ctx context.Context) (net.Conn, error)
	// User and Password, or Token, as the server wants them.
	User, Password, Token string
	// Name is shown in the server's monitoring.
	Name string
	// Wait is the pause between two tries to connect. Default 100 ms.
	Wait time.Duration
	// Timeout bounds dialing and the handshake. Default 5 s.
	Timeout time.Duration
	// MaxPending bounds what is queued for writing, in bytes. Default 64 MiB.
	MaxPending int
	Logger     *zap.Logger
}

// Defaults of Config.
const (
	DefaultWait       = 100 * time.Millisecond
	DefaultTimeout    = 5 * time.Second
	DefaultMaxPending = 64 << 20
)

// Handler receives a message. header is the raw block or nil; the receiver owns both.
type Handler func(subject, reply string, header, data []byte)

// Conn is a client connection that lives until Close. Safe for concurrent use.
type Conn struct {
	cfg    Config
	cancel context.CancelFunc
	done   chan struct{}
	last   error // of the last try to connect; written by run, read when it has ended

	subsMu sync.RWMutex
	subs   map[uint64]*subscription
	leave  struct { // guarded by subsMu: cancelled, and their messages may still come
		asked []uint64 // the server has been asked about them
		next  []uint64 // it will be, when it has answered
	}

	mu sync.Mutex
	st struct { // guarded by mu, but for wake
		out     []byte // queued for writing
		wake    chan struct{}
		up      bool
		closed  bool
		pongs   []func(error)
		nextSID uint64
		max     int // max_payload
		down    time.Time
	}
}

type subscription struct {
	subject string
	h       Handler
	gone    bool // cancelled
}

// Open connects and returns when the first connection stands, or ctx ends.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	if cfg.Dial == nil || cfg.Logger == nil {
		return nil, fmt.Errorf("conn: Dial and Logger must be set")
	}
	if cfg.Wait == 0 {
		cfg.Wait = DefaultWait
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = DefaultMaxPending
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Conn{cfg: cfg, cancel: cancel, done: make(chan struct{}), subs: make(map[uint64]*subscription)}
	c.st.wake = make(chan struct{}, 1)
	c.st.down = time.Now()
	first := make(chan error, 1)
	go c.run(run, first)
	select {
	case err := <-first:
		if err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		c.Close()
		if c.last != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), c.last)
		}
		return nil, ctx.Err()
	}
}

// Close ends the connection and waits for its goroutines.
func (c *Conn) Close() {
	c.mu.Lock()
	c.st.closed = true
	c.mu.Unlock()
	c.cancel()
	<-c.done
}

// Down says since when there is no connection.
func (c *Conn) Down() (since time.Time, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.down, !c.st.up
}

// run connects again and again. first hears of the first try that the server
// answered, or of a refusal that no other try will mend.
func (c *Conn) run(ctx context.Context, first chan<- error) {
	defer close(c.done)
	for {
		err := c.session(ctx, first)
		if ctx.Err() != nil {
			return
		}
		c.last = err
		if _, refused := errors.AsType[*refusedError](err); refused {
			select {
			case first <- err:
			default:
			}
		}
		c.cfg.Logger.Warn("client connection lost", zap.String("name", c.cfg.Name), zap.Error(err))
		t := time.NewTimer(c.cfg.Wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// refusedError is an -ERR of the server during the handshake.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return "server refused the connection: " + e.text }

func (c *Conn) session(ctx context.Context, first chan<- error) error {
	dial, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	nc, err := c.cfg.Dial(dial)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	defer func() { _ = nc.Close() }()
	if err := nc.SetDeadline(time.Now().Add(c.cfg.Timeout)); err != nil {
		return err
	}
	r := bufio.NewReaderSize(nc, 64<<10)
	if err := c.handshake(nc, r); err != nil {
		return err
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.begin()
	select {
	case first <- nil:
	default:
	}
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		if err := c.write(nc, over); err != nil {
			_ = nc.Close()
		}
	})
	err = c.read(r)
	c.end(err)
	close(over)
	_ = nc.Close()
	wg.Wait()
	return err
}

type serverInfo struct {
	MaxPayload int `json:"max_payload"`
}

type connectInfo struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	User         string `json:"user,omitempty"`
	Password     string `json:"pass,omitempty"`
	Token        string `json:"auth_token,omitempty"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
	Echo         bool   `json:"echo"`
}

func (c *Conn) handshake(nc net.Conn, r *bufio.Reader) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	op, args := split(line)
	if string(op) != "INFO" {
		return fmt.Errorf("server began with %.40q, want INFO", line)
	}
	if err := c.info(args); err != nil {
		return err
	}
	hello, err := json.Marshal(connectInfo{ //nolint:gosec // the password is what a CONNECT is for
		User: c.cfg.User, Password: c.cfg.Password, Token: c.cfg.Token, Name: c.cfg.Name,
		Lang: "go", Version: "1", Protocol: 1, Headers: true, NoResponders: true, Echo: true,
	})
	if err != nil {
		return err
	}
	out := append([]byte("CONNECT "), hello...)
	out = append(out, "\r\nPING\r\n"...)
	if _, err := nc.Write(out); err != nil {
		return err
	}
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		switch op, args := split(line); string(op) {
		case "PONG":
			return nil
		case "PING":
			if _, err := nc.Write([]byte("PONG\r\n")); err != nil {
				return err
			}
		case "INFO":
			if err := c.info(args); err != nil {
				return err
			}
		case "-ERR":
			return &refusedError{string(args)}
		}
	}
}

func (c *Conn) info(args []byte) error {
	var in serverInfo
	if err := json.Unmarshal(args, &in); err != nil {
		return fmt.Errorf("INFO of the server: %w", err)
	}
	c.mu.Lock()
	if in.MaxPayload > 0 {
		c.st.max = in.MaxPayload
	}
	c.mu.Unlock()
	return nil
}

// begin marks the connection up, with the subscriptions first in the queue.
func (c *Conn) begin() {
	c.subsMu.RLock()
	var out []byte
	for sid, s := range c.subs {
		if !s.gone {
			out = appendSub(out, s.subject, sid)
		}
	}
	c.mu.Lock()
	c.st.out = append(c.st.out[:0], out...)
	c.st.up = true
	c.mu.Unlock()
	c.subsMu.RUnlock()
	c.signal()
}

func (c *Conn) end(err error) {
	c.mu.Lock()
	c.st.up, c.st.down = false, time.Now()
	pongs := c.st.pongs
	c.st.pongs = nil
	c.mu.Unlock()
	for _, p := range pongs {
		p(fmt.Errorf("%w: %w", ErrDown, err))
	}
}

func (c *Conn) signal() {
	select {
	case c.st.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued until over is closed.
func (c *Conn) write(nc net.Conn, over <-chan struct{}) error {
	var buf []byte
	for {
		select {
		case <-over:
			return nil
		case <-c.st.wake:
		}
		for {
			c.mu.Lock()
			buf, c.st.out = c.st.out, buf[:0]
			c.mu.Unlock()
			if len(buf) == 0 {
				break
			}
			if _, err := nc.Write(buf); err != nil {
				return err
			}
		}
	}
}

// queue appends to what is written next; false if there is no connection.
func (c *Conn) queue(f func(out []byte) []byte) error {
	c.mu.Lock()
	defer c.signal()
	defer c.mu.Unlock()
	switch {
	case c.st.closed:
		return ErrClosed
	case !c.st.up:
		return ErrDown
	case len(c.st.out) > c.cfg.MaxPending:
		return fmt.Errorf("%w: %d bytes wait to be written", ErrDown, len(c.st.out))
	}
	c.st.out = f(c.st.out)
	return nil
}

// ping queues a PING; f is told of its PONG, or why there is none.
func (c *Conn) ping(f func(error)) error {
	return c.queue(func(out []byte) []byte {
		c.st.pongs = append(c.st.pongs, f)
		return append(out, "PING\r\n"...)
	})
}

// Flush returns when the server has processed all that was queued before.
func (c *Conn) Flush(ctx context.Context) error {
	pong := make(chan error, 1)
	if err := c.ping(func(err error) { pong <- err }); err != nil {
		return err
	}
	select {
	case err := <-pong:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Publish queues a message. header is a raw block or empty.
func (c *Conn) Publish(subject, reply string, header, body []byte) error {
	if !valid(subject) || reply != "" && !valid(reply) {
		return fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	c.mu.Lock()
	limit := c.st.max
	c.mu.Unlock()
	if size := len(header) + len(body); limit > 0 && size > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	return c.queue(func(out []byte) []byte {
		verb := "PUB "
		if len(header) > 0 {
			verb = "HPUB "
		}
		out = append(out, verb...)
		out = append(out, subject...)
		out = append(out, ' ')
		if reply != "" {
			out = append(append(out, reply...), ' ')
		}
		if len(header) > 0 {
			out = append(strconv.AppendInt(out, int64(len(header)), 10), ' ')
		}
		out = strconv.AppendInt(out, int64(len(header)+len(body)), 10)
		out = append(out, "\r\n"...)
		out = append(append(out, header...), body...)
		return append(out, "\r\n"...)
	})
}

func valid(subject string) bool {
	for i := range len(subject) {
		if subject[i] <= ' ' {
			return false
		}
	}
	return subject != ""
}
