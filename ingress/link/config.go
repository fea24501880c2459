package link

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Defaults and limits of Config.
const (
	// DefaultPendingLimit is how many bytes may wait to be written.
	DefaultPendingLimit = 64 << 20
	// DefaultHoldFor is how long messages are kept while the link is down.
	DefaultHoldFor = time.Second
	// DefaultGrace is how long after the first table, and after a request, interest is unknown.
	DefaultGrace = 2 * time.Second
	// DefaultMaxInterest bounds the interest table, in subscriptions (a queue group of a subject counts as
	// one).
	DefaultMaxInterest = 1_000_000
	// DefaultMaxControlLine is the longest protocol line a nats-server with default settings takes from a
	// leafnode, in bytes.
	DefaultMaxControlLine = 64 << 10
	// DefaultPingInterval is the time between our pings. Two of them unanswered break the connection.
	DefaultPingInterval = 5 * time.Second
	// DefaultConnectTimeout bounds dialing and, separately, the handshake.
	DefaultConnectTimeout = 5 * time.Second
	// DefaultWriteTimeout bounds the write of maxWrite bytes.
	DefaultWriteTimeout = 10 * time.Second
	// DefaultBackoffMin and DefaultBackoffMax bound the wait before another attempt to connect; it doubles.
	DefaultBackoffMin = 20 * time.Millisecond
	DefaultBackoffMax = time.Second
)

// Config says where a Link connects and what bounds it. Zero durations and numbers mean the default.
type Config struct {
	// Dial opens a connection to the hub's leafnode listener; the INFO line must be the first thing to read.
	// Needed.
	Dial func(ctx context.Context) (net.Conn, error)
	// Name is what the hub shows for this link and the id the link claims. It must not be the name of the
	// hub's cluster or the id of a server. Needed.
	Name string
	// User and Password are sent in the CONNECT unless User is empty.
	User, Password string

	// MaxPayload bounds a message, header included, in bytes, if it is lower than the hub's own limit.
	// Zero: the hub's.
	MaxPayload int
	// MaxControlLine is the longest protocol line the hub takes, in bytes. Zero: DefaultMaxControlLine.
	MaxControlLine int
	// PendingLimit bounds the bytes that wait to be written. A message is taken if it is not yet reached.
	PendingLimit int
	// MaxInterest bounds the interest table, in subscriptions.
	MaxInterest int

	// HoldFor is how long after the link went down Send keeps messages for the next connection.
	HoldFor time.Duration
	// Grace is how long interest stays unknown after the first complete table, and for how long after a
	// request InterestYoung does not believe the table.
	Grace time.Duration
	// PingInterval is the time between our pings.
	PingInterval time.Duration
	// ConnectTimeout bounds dialing, and the handshake.
	ConnectTimeout time.Duration
	// WriteTimeout bounds a write. Writes are at most maxWrite bytes, so it is a bound on no progress.
	WriteTimeout time.Duration
	// BackoffMin is the wait after a broken connection or a first failed attempt, BackoffMax the longest
	// one; up to a fifth of it is random.
	BackoffMin, BackoffMax time.Duration

	// OnStatus is told when the link goes up or down, in order, by the goroutine of Run; it must not block.
	// A nil one is allowed.
	OnStatus func(Status)
}

// Status is the state of a Link.
type Status struct {
	// Up reports whether the hub has accepted the link.
	Up bool
	// Since is when the state began. A link starts down, since New.
	Since time.Time
	// Hub is the hub's server name while the link is up, and the last one known after that.
	Hub string
	// Err is why the link is down, or why the last attempt to connect failed; nil while it is up.
	Err error
}

func (c Config) withDefaults() Config {
	number := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	duration := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	number(&c.MaxControlLine, DefaultMaxControlLine)
	number(&c.PendingLimit, DefaultPendingLimit)
	number(&c.MaxInterest, DefaultMaxInterest)
	duration(&c.HoldFor, DefaultHoldFor)
	duration(&c.Grace, DefaultGrace)
	duration(&c.PingInterval, DefaultPingInterval)
	duration(&c.ConnectTimeout, DefaultConnectTimeout)
	duration(&c.WriteTimeout, DefaultWriteTimeout)
	duration(&c.BackoffMin, DefaultBackoffMin)
	duration(&c.BackoffMax, max(DefaultBackoffMax, c.BackoffMin))
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dial == nil:
		return fmt.Errorf("%w: Dial is nil", ErrConfig)
	case c.Name == "" || strings.ContainsAny(c.Name, " \t\r\n"):
		return fmt.Errorf("%w: Name %q must be one word", ErrConfig, c.Name)
	case c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("%w: BackoffMax %v is below BackoffMin %v", ErrConfig, c.BackoffMax, c.BackoffMin)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxPayload", int64(c.MaxPayload)},
		{"MaxControlLine", int64(c.MaxControlLine)},
		{"PendingLimit", int64(c.PendingLimit)},
		{"MaxInterest", int64(c.MaxInterest)},
		{"HoldFor", int64(c.HoldFor)},
		{"Grace", int64(c.Grace)},
		{"PingInterval", int64(c.PingInterval)},
		{"ConnectTimeout", int64(c.ConnectTimeout)},
		{"WriteTimeout", int64(c.WriteTimeout)},
		{"BackoffMin", int64(c.BackoffMin)},
	} {
		if n.value < 0 {
			return fmt.Errorf("%w: %s must not be negative", ErrConfig, n.name)
		}
	}
	return nil
}
