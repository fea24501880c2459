package deliver

import (
	"fmt"
	"math"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Bounds of the work of one call, so that no consumer holds up its group.
const (
	// MaxTurn is how many messages one Wake delivers.
	MaxTurn = 256
	// MaxScan is how many calls of Source.Next one Wake makes beyond those that deliver.
	MaxScan = 256
	// MaxDue is how many ack waits one Tick ends.
	MaxDue = 4096
	// SweepEvery is how often a full queue of requests is searched for dead ones, nanoseconds.
	SweepEvery = int64(time.Second)
	// RecordSkipped is how far the cursor moves over messages that do not match
	// before that alone is worth a change.
	RecordSkipped = 4096
)

// Limits bounds the memory of a consumer. Many consumers share one value; it
// must not be changed after it is in use. Zero fields take the defaults.
type Limits struct {
	// MaxUnacked is the window of a consumer without max_ack_pending.
	MaxUnacked int
	// MaxAhead is how many messages may be settled ahead of the cursor when
	// there is no max_ack_pending, which is the bound otherwise.
	MaxAhead int
	// MaxExhausted is how many sequences that reached max_deliver are kept in
	// memory; above it the lowest is known by its stored row only.
	MaxExhausted int
	// MaxHeld is how many answers may wait for a change to be applied; an ack
	// beyond it counts, but is not answered.
	MaxHeld int
	// HoldTimeout is how long an answer waits, nanoseconds; then it is dropped.
	HoldTimeout int64
}

// Defaults of Limits.
const (
	DefaultMaxUnacked   = 1_000_000
	DefaultMaxAhead     = 65_536
	DefaultMaxExhausted = 65_536
	DefaultMaxHeld      = 4096
	DefaultHoldTimeout  = int64(5 * time.Second)
)

// WithDefaults returns l with its zero fields set.
func (l Limits) WithDefaults() *Limits {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.MaxUnacked, DefaultMaxUnacked)
	def(&l.MaxAhead, DefaultMaxAhead)
	def(&l.MaxExhausted, DefaultMaxExhausted)
	def(&l.MaxHeld, DefaultMaxHeld)
	if l.HoldTimeout == 0 {
		l.HoldTimeout = DefaultHoldTimeout
	}
	return &l
}

// Config is what a consumer needs to know. The zero value of a field means no
// limit or off, unless its comment says otherwise.
type Config struct {
	// StreamID and ID name the rows of the consumer.
	StreamID record.StreamID
	ID       record.ConsumerID
	// Stream and Name are the names in ack subjects; Account and Domain make
	// them of the second form (see jsapi.AckReply).
	Stream, Name    string
	Account, Domain string

	// Ack is the ack policy; flow_control acks like all.
	Ack jsapi.AckPolicy
	// AckWait is when an unacked delivery is repeated; 0 = 30 s.
	AckWait time.Duration
	// Backoff replaces AckWait: entry n counts after the delivery n+1, the last one for all later.
	Backoff []time.Duration
	// MaxDeliver is how often a message is delivered; below 1 = no limit. With 1
	// a delivery is recorded before it is sent.
	MaxDeliver int
	// MaxAckPending is the window of unacked messages; below 1 = Limits.MaxUnacked.
	MaxAckPending int
	// MaxWaiting is how many pull requests wait; 0 = 512.
	MaxWaiting int
	// MaxBatch, MaxExpires and MaxBytes bound a pull request.
	MaxBatch   int
	MaxExpires time.Duration
	MaxBytes   int
	// Filters are the subjects delivered; none = all.
	Filters []string
	// InactiveThreshold is after how long without use the consumer expires.
	InactiveThreshold time.Duration
	// PauseUntil is before when nothing is delivered, cluster time in nanoseconds.
	PauseUntil int64
	// SampleFreq is how many acks of a hundred are reported.
	SampleFreq int
	// HeadersOnly: the payload is left out, and its size is told in a header.
	HeadersOnly bool
	// Push: messages go to a deliver subject; pull requests are refused.
	Push bool
	// Settles: the stream's retention wants to hear of settled messages (interest, workqueue).
	Settles bool
	// Volatile: the cursor lives in the leader's memory only (ack none, mem_storage). It has no
	// effect together with Settles.
	Volatile bool
	// AckAnyDelivery: the ack of an earlier delivery settles a message that was
	// delivered again since, as JetStream has it. See the package comment.
	AckAnyDelivery bool
	// Limits bounds memory; nil = the defaults.
	Limits *Limits
}

// ConfigOf takes over what a consumer's JetStream configuration says. Names, ids
// and what the stream decides (Settles) are set by the caller.
func ConfigOf(c *jsapi.ConsumerConfig) Config {
	cfg := Config{
		Name: c.Name, Ack: c.AckPolicy, AckWait: c.AckWait, Backoff: c.BackOff,
		MaxDeliver: c.MaxDeliver, MaxAckPending: c.MaxAckPending, MaxWaiting: c.MaxWaiting,
		MaxBatch: c.MaxRequestBatch, MaxExpires: c.MaxRequestExpires, MaxBytes: c.MaxRequestMaxBytes,
		Filters: c.Filters(), InactiveThreshold: c.InactiveThreshold, HeadersOnly: c.HeadersOnly,
		Push: c.IsPush(), Volatile: c.MemoryStorage && c.AckPolicy == jsapi.AckNone,
	}
	if c.PauseUntil != nil && !c.PauseUntil.IsZero() {
		cfg.PauseUntil = jsapi.UnixNano(*c.PauseUntil)
	}
	return cfg
}

// Validate says what is wrong with c; a consumer is made of a valid Config only.
func (c *Config) Validate() error {
	switch {
	case c.Stream == "" || c.Name == "":
		return fmt.Errorf("consumer %q of stream %q: both names must be given", c.Name, c.Stream)
	case c.Ack > jsapi.AckFlowControl:
		return fmt.Errorf("ack policy %d: want none, all, explicit or flow_control", c.Ack)
	case c.AckWait < 0:
		return fmt.Errorf("ack wait %v: want 0 or more", c.AckWait)
	case c.SampleFreq < 0 || c.SampleFreq > 100:
		return fmt.Errorf("sample frequency %d: want 0 to 100", c.SampleFreq)
	case c.Volatile && c.Ack != jsapi.AckNone:
		return fmt.Errorf("volatile consumer with ack policy %v: only none can be", c.Ack)
	}
	for i, d := range c.Backoff {
		if d < 0 {
			return fmt.Errorf("backoff entry %d is %v: want 0 or more", i, d)
		}
	}
	return nil
}

// fill sets the fields that have defaults. A cursor that nobody records can not
// tell again what was settled, so under such a retention it is recorded.
func (c *Config) fill() {
	c.Volatile = c.Volatile && !c.Settles
	if c.AckWait == 0 {
		c.AckWait = jsapi.DefaultAckWait
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = jsapi.DefaultMaxWaiting
	}
}

// wait is the ack wait after the nth delivery, counted from 1.
func (c *Config) wait(deliveries uint32) int64 {
	if n := len(c.Backoff); n > 0 {
		return int64(c.Backoff[min(max(int(deliveries), 1), n)-1])
	}
	return int64(c.AckWait)
}

func (c *Config) matches(subject string) bool {
	if len(c.Filters) == 0 {
		return true
	}
	for _, f := range c.Filters {
		if jsapi.SubjectMatches(f, subject) {
			return true
		}
	}
	return false
}

// Never is the time of what does not come.
const Never = int64(math.MaxInt64)

// after is now + d without overflow.
func after(now, d int64) int64 {
	if d > Never-now {
		return Never - 1
	}
	return now + d
}
