package deliver

import (
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Consumer is the state machine of one pull consumer. Not safe for concurrent
// use. Methods that take out append their actions to it and return it; what the
// actions hold is valid until the owner is done with them.
type Consumer struct {
	cfg      Config
	lim      *Limits
	src      Source
	interest Interest

	state      record.ConsumerState
	numPending uint64
	recorded   uint64 // cursor as it was last handed over

	// Of a consumer that nobody uses these are nil.
	t    *table
	reqs *waiting
	log  *changes
	rare *rare

	lastUsed int64
	idleDue  int64 // when to look whether the consumer is still used
	pauseDue int64 // when the pause ends

	epoch   uint16 // counts changes of the filters
	sampled int
	ready   bool
	fenced  bool // a delivery is recorded before it is sent
	closed  bool
}

// rare holds sequences that are few or none in most consumers, in ascending order.
type rare struct {
	ahead     []uint64 // settled at or above the cursor
	exhausted []uint64 // reached max_deliver
	forgotten uint64   // exhausted sequences up to here may have left memory
}

// Loaded is what a consumer starts from: stored rows, or those of a new one.
type Loaded struct {
	Cursor record.ConsumerState
	// Pending are its rows in ascending sequence.
	Pending []record.Pending
	// NumPending is the number of messages at or above the cursor that it delivers (see
	// CountPending), whether or not they are settled ahead of it.
	NumPending uint64
	// Now is the cluster time in nanoseconds.
	Now int64
}

// New makes a consumer of a valid Config.
func New(cfg Config, src Source, interest Interest, from *Loaded) *Consumer {
	c := &Consumer{
		cfg: cfg, src: src, interest: interest,
		state: from.Cursor, recorded: from.Cursor.Next,
		lastUsed: from.Now, idleDue: Never, pauseDue: Never,
	}
	c.cfg.fill()
	c.state.Next = max(c.state.Next, 1)
	c.configure(from.Now)
	for i := range from.Pending {
		c.load(&from.Pending[i])
	}
	c.passed()
	c.below(nil, src.First(), "", from.Now)
	c.SetNumPending(from.NumPending)
	// Messages delivered before may be outside of filters that changed since.
	if len(from.Pending) > 0 {
		c.epoch = 1
	}
	return c
}

// configure derives what depends on the configuration.
func (c *Consumer) configure(now int64) {
	if c.lim = c.cfg.Limits; c.lim == nil {
		c.lim = Limits{}.WithDefaults()
	}
	c.fenced = c.cfg.MaxDeliver == 1 && c.cfg.Ack != jsapi.AckNone && !c.cfg.Volatile
	c.pauseDue = Never
	if c.cfg.PauseUntil > now {
		c.pauseDue = c.cfg.PauseUntil
	}
	c.idleDue = Never
	if d := int64(c.cfg.InactiveThreshold); d > 0 {
		c.idleDue = after(c.lastUsed, d)
	}
}

func (c *Consumer) load(p *record.Pending) {
	switch p.Kind {
	case record.PendingSettled:
		r := c.rares()
		r.ahead = append(r.ahead, p.Seq)
	case record.PendingExhausted:
		c.remember(p.Seq)
	case record.PendingAck, record.PendingNak:
		t := c.table()
		i := t.add(p.Seq)
		s := t.at(i)
		s.cseq, s.last, s.delivered, s.due = p.ConsumerSeq, p.LastSeq, p.Delivered, p.Due
		s.count, s.kind, s.stored = p.Count, p.Kind, true
		if s.count > 1 {
			t.redelivered++
		}
		t.arm(i)
	}
}

func (c *Consumer) table() *table {
	if c.t == nil {
		c.t = &table{}
	}
	return c.t
}

func (c *Consumer) waiting() *waiting {
	if c.reqs == nil {
		c.reqs = &waiting{due: Never, swept: -SweepEvery}
	}
	return c.reqs
}

func (c *Consumer) rares() *rare {
	if c.rare == nil {
		c.rare = &rare{}
	}
	return c.rare
}

// find returns the slot of a pending message, nil if it is not pending.
func (c *Consumer) find(seq uint64) (int32, *slot) {
	if c.t == nil {
		return 0, nil
	}
	i := c.t.find(seq)
	if i == 0 {
		return 0, nil
	}
	return i, c.t.at(i)
}

// queued is how many messages wait for their redelivery.
func (c *Consumer) queued() uint64 {
	if c.t == nil {
		return 0
	}
	return uint64(c.t.queued)
}

// used notes that somebody uses the consumer.
func (c *Consumer) used(at int64) {
	c.lastUsed = max(c.lastUsed, at)
	if c.idleDue != Never {
		c.idleDue = min(c.idleDue, after(c.lastUsed, int64(c.cfg.InactiveThreshold)))
	}
}

// Ready says that Wake has something to do. The owner keeps a list of the
// consumers that became ready and wakes them in turn.
func (c *Consumer) Ready() bool { return c.ready }

// NextDue is the time at which Tick has something to do, Never if there is none.
// It may be early, never late.
func (c *Consumer) NextDue() int64 {
	if c.closed {
		return Never
	}
	due := min(c.idleDue, c.pauseDue)
	if c.t != nil {
		if i := c.t.due(); i != 0 {
			due = min(due, c.t.at(i).due)
		}
	}
	if c.reqs != nil && c.reqs.n > 0 {
		due = min(due, c.reqs.due)
	}
	if c.log != nil && len(c.log.held) > 0 {
		due = min(due, c.log.held[0].until)
	}
	return due
}

// Matches says whether a message of this subject is for the consumer.
func (c *Consumer) Matches(subject string) bool { return c.cfg.matches(subject) }

// Config returns the configuration in force.
func (c *Consumer) Config() *Config { return &c.cfg }

// Trim gives memory back that a consumer at rest does not need.
func (c *Consumer) Trim() {
	if c.t != nil && c.t.n == 0 {
		c.t = nil
	}
	if c.reqs != nil && c.reqs.n == 0 {
		c.reqs = nil
	}
	if c.log != nil && c.log.idle() {
		c.log = nil
	}
	if r := c.rare; r != nil && len(r.ahead) == 0 && len(r.exhausted) == 0 && r.forgotten == 0 {
		c.rare = nil
	}
}

// Info is what ConsumerInfo shows of the state.
type Info struct {
	// State is the cursor; DeliveredStream, AckFloorStream and the others are what ConsumerInfo shows.
	State          record.ConsumerState
	NumAckPending  int
	NumRedelivered int
	NumWaiting     int
	NumPending     uint64
	Paused         bool
	PauseRemaining time.Duration
}

// Info returns the counts of the consumer as planned. Requests that are over are not counted.
func (c *Consumer) Info(now int64) Info {
	in := Info{State: c.state, NumPending: c.numPending}
	if c.t != nil {
		in.NumAckPending = c.t.n
		in.NumRedelivered = c.t.redelivered
	}
	in.NumRedelivered += int(c.state.Redelivered)
	if c.cfg.MaxDeliver == 1 {
		in.NumRedelivered = 0
	}
	if c.reqs != nil {
		for i := range c.reqs.n {
			if r := c.reqs.at(i); now < r.expires && c.interest(r.reply, r.received) {
				in.NumWaiting++
			}
		}
	}
	if c.cfg.PauseUntil > now {
		in.Paused, in.PauseRemaining = true, time.Duration(c.cfg.PauseUntil-now)
	}
	return in
}

// Need says whether a consumer still needs a message.
type Need uint8

// The answers of Needs.
const (
	NeedNo Need = iota
	NeedYes
	// NeedStored: the stored row of the message says: it is needed if there is
	// one. Only for sequences below the cursor of a consumer that gave up more
	// messages than it keeps in memory.
	NeedStored
)

// Needs says whether the consumer still needs a message that it did not settle:
// it has not delivered it, waits for its ack, or gave it up after max_deliver.
// Interest retention removes a message that no consumer needs.
func (c *Consumer) Needs(seq uint64, subject string) Need {
	_, s := c.find(seq)
	switch {
	case s != nil:
		return NeedYes
	case c.isAhead(seq):
		return NeedNo
	case seq >= c.state.Next && c.Matches(subject) && inHistory(c.src, c.state.SkipTo, seq, subject):
		return NeedYes
	case seq >= c.state.Next:
		return NeedNo
	case c.isExhausted(seq):
		return NeedYes
	case c.rare != nil && seq <= c.rare.forgotten:
		return NeedStored
	}
	return NeedNo
}

func (c *Consumer) isAhead(seq uint64) bool {
	if c.rare == nil {
		return false
	}
	_, ok := slices.BinarySearch(c.rare.ahead, seq)
	return ok
}

func (c *Consumer) isExhausted(seq uint64) bool {
	if c.rare == nil {
		return false
	}
	_, ok := slices.BinarySearch(c.rare.exhausted, seq)
	return ok
}

// remember keeps a sequence that reached max_deliver, forgetting the lowest if there are too many.
func (c *Consumer) remember(seq uint64) {
	r := c.rares()
	if at, ok := slices.BinarySearch(r.exhausted, seq); !ok {
		r.exhausted = slices.Insert(r.exhausted, at, seq)
	}
	if len(r.exhausted) > c.lim.MaxExhausted {
		r.forgotten = max(r.forgotten, r.exhausted[0])
		r.exhausted = slices.Delete(r.exhausted, 0, 1)
	}
}
