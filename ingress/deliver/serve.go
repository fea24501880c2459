package deliver

import (
	"cmp"
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// outcome is how an attempt to deliver one message ended.
type outcome uint8

const (
	delivered  outcome = iota
	noRequest          // nobody waits
	noMessage          // the end of the stream
	windowFull         // max_ack_pending
	unfinished         // the search for the next message goes on another time
)

// Stored tells that a message was stored and applied. The owner calls Matches,
// or knows the answer.
//
//nolint:revive // flag-parameter: a fact about the message.
func (c *Consumer) Stored(seq uint64, matches bool) {
	if !matches || seq < c.state.Next {
		return
	}
	c.numPending++
	c.rouse()
}

// rouse makes the consumer ready if a request waits.
func (c *Consumer) rouse() { c.ready = c.ready || c.reqs != nil && c.reqs.n > 0 }

// SetNumPending sets the number of messages still to deliver, after a call that
// asked for a recount. n is as in Loaded.
func (c *Consumer) SetNumPending(n uint64) {
	if c.rare != nil {
		for _, seq := range c.rare.ahead {
			if m, ok := c.src.Message(seq); ok && c.counts(m) {
				n -= min(n, 1)
			}
		}
	}
	c.numPending = n
}

// counts says that a message at or above the cursor is one to deliver.
func (c *Consumer) counts(m *record.Message) bool {
	return c.cfg.matches(m.Subject) && inHistory(c.src, c.state.SkipTo, m.Seq, m.Subject)
}

// Wake delivers what there is to the requests that wait, at most MaxTurn
// messages; Ready then says whether to go on.
func (c *Consumer) Wake(out []Action, now int64) []Action {
	c.ready = false
	w := c.reqs
	if c.closed || w == nil || w.n == 0 {
		return out
	}
	if c.cfg.PauseUntil > now {
		return c.noMore(out, now)
	}
	scans := MaxScan
	var res outcome
	for range MaxTurn {
		out, res = c.again(out, now)
		if res == noMessage {
			out, res = c.fresh(out, now, &scans)
		}
		switch res {
		case delivered:
			if w.n == 0 {
				return out
			}
		case noMessage:
			return c.noMore(out, now)
		case unfinished:
			c.ready = true
			return out
		default:
			return out
		}
	}
	c.ready = w.n > 0
	return out
}

// again delivers the first message of the redelivery queue; noMessage if there is none.
func (c *Consumer) again(out []Action, now int64) ([]Action, outcome) {
	for c.t != nil && c.t.queue.head != 0 {
		i := c.t.queue.head
		s := c.t.at(i)
		if c.spent(s) {
			out = c.exhaust(out, i)
			continue
		}
		m, ok := c.src.Message(s.seq)
		if !ok {
			// It left the stream, and the leader that heard of it could not record that.
			c.drop(i)
			continue
		}
		l := letter{
			seq: s.seq, cseq: c.state.DeliveredConsumer + 1, count: uint64(s.count) + 1,
			pending: c.numPending, msg: m,
		}
		var r *request
		if out, r = c.take(out, &l, now); r == nil {
			return out, noRequest
		}
		c.track(i, &l, now)
		out = c.send(out, &l, r)
		return c.charge(out, &l, now), delivered
	}
	return out, noMessage
}

// fresh delivers the next message that was not delivered before.
func (c *Consumer) fresh(out []Action, now int64, scans *int) ([]Action, outcome) {
	if c.full() {
		return out, windowFull
	}
	m, res := c.next(scans)
	if m == nil {
		return out, res
	}
	left := c.numPending - min(c.numPending, 1)
	l := letter{seq: m.Seq, cseq: c.state.DeliveredConsumer + 1, count: 1, pending: left, msg: m}
	var r *request
	if out, r = c.take(out, &l, now); r == nil {
		return out, noRequest
	}
	c.numPending = left
	c.advance(m.Seq + 1)
	if c.cfg.Ack == jsapi.AckNone {
		c.delivered(&l, now)
		c.state.AckFloorConsumer, c.state.AckFloorStream = l.cseq, l.seq
		out = c.settle(out, l.seq)
	} else {
		c.track(c.table().add(l.seq), &l, now)
	}
	out = c.send(out, &l, r)
	return c.charge(out, &l, now), delivered
}

// full says that the window of unacked messages is full. Naks that wait for
// their delay count: they are unacked.
func (c *Consumer) full() bool {
	if c.t == nil || c.cfg.Ack == jsapi.AckNone {
		return false
	}
	return c.t.n >= c.window()
}

func (c *Consumer) window() int {
	if c.cfg.MaxAckPending > 0 {
		return c.cfg.MaxAckPending
	}
	return c.lim.MaxUnacked
}

// next finds the next message to deliver for the first time, and moves the
// cursor over what is not.
func (c *Consumer) next(scans *int) (*record.Message, outcome) {
	for last := c.src.Last(); c.state.Next <= last; *scans-- {
		if *scans == 0 {
			return nil, unfinished
		}
		m, next := c.src.Next(c.state.Next, c.cfg.Filters)
		if m != nil && !c.isAhead(m.Seq) && inHistory(c.src, c.state.SkipTo, m.Seq, m.Subject) {
			return m, delivered
		}
		if m != nil {
			next = m.Seq + 1
		}
		c.advance(next)
		if c.state.Next-c.recorded >= RecordSkipped {
			c.mark()
		}
	}
	// A message that left while the cursor went by was counted and is not told of.
	c.numPending = 0
	return nil, noMessage
}

// advance moves the cursor.
func (c *Consumer) advance(next uint64) {
	c.state.Next = max(next, c.state.Next)
	if c.state.Next > c.state.SkipTo {
		c.state.SkipTo = 0
	}
	c.passed()
}

// passed drops the rows of messages settled ahead that the cursor has reached.
func (c *Consumer) passed() {
	if c.rare == nil {
		return
	}
	n := 0
	for _, seq := range c.rare.ahead {
		if seq >= c.state.Next {
			break
		}
		c.erase(seq)
		n++
	}
	c.rare.ahead = slices.Delete(c.rare.ahead, 0, n)
}

// delivered books a delivery in the cursor.
func (c *Consumer) delivered(l *letter, now int64) {
	c.state.DeliveredConsumer = l.cseq
	c.state.DeliveredStream = max(c.state.DeliveredStream, l.seq)
	c.state.DeliveredTime = now
	c.used(now)
	c.mark()
}

// track books a delivery in its slot.
func (c *Consumer) track(i int32, l *letter, now int64) {
	c.delivered(l, now)
	t := c.t
	t.unlink(i)
	s := t.at(i)
	if s.count == 0 && s.cseq == 0 {
		s.cseq = l.cseq
	}
	s.count, s.last, s.kind, s.late = uint32(l.count), l.cseq, record.PendingAck, false
	if s.count == 2 {
		t.redelivered++
	}
	s.epoch = c.epoch
	s.delivered, s.due = now, after(now, c.cfg.wait(s.count))
	if !c.fenced {
		t.arm(i)
	}
	c.touch(s)
}

// send gives a delivery to the owner, or keeps it until its record is applied.
func (c *Consumer) send(out []Action, l *letter, r *request) []Action {
	if c.fenced {
		kept := *l
		kept.to, kept.since, kept.msg = r.reply, r.received, nil
		c.changes().outbox = append(c.changes().outbox, kept)
		return out
	}
	return append(out, Action{
		Kind: ActDeliver, To: r.reply, Message: l.msg,
		Seq: l.seq, ConsumerSeq: l.cseq, Delivered: l.count, Pending: l.pending,
	})
}

// Tick does what is due: ack waits, delays, expiries, heartbeats, inactivity.
func (c *Consumer) Tick(out []Action, now int64) []Action {
	if c.closed {
		return out
	}
	c.dropHeld(now)
	if c.reqs != nil && c.reqs.n > 0 && c.reqs.due <= now {
		out = c.sweep(out, now)
	}
	if c.pauseDue <= now {
		c.pauseDue = Never
		c.ready = true
		out = append(out, Action{Kind: ActResumed})
	}
	out = c.overdue(out, now)
	return c.inactive(out, now)
}

// overdue ends ack waits and delays. What falls due together is redelivered in
// the order of the stream.
func (c *Consumer) overdue(out []Action, now int64) []Action {
	t := c.t
	if t == nil {
		return out
	}
	due := t.scratch[:0]
	for range MaxDue {
		i := t.due()
		if i == 0 || t.at(i).due > now {
			break
		}
		t.unlink(i)
		c.rouse()
		s := t.at(i)
		switch {
		case s.late:
			out = c.done(out, i, now)
		case c.spent(s):
			out = c.exhaust(out, i)
		default:
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b int32) int { return cmp.Compare(t.at(a).seq, t.at(b).seq) })
	for _, i := range due {
		t.requeue(i)
	}
	t.scratch = due
	return out
}

// spent says that a message was delivered as often as it may be.
func (c *Consumer) spent(s *slot) bool {
	return c.cfg.MaxDeliver > 0 && int(s.count) >= c.cfg.MaxDeliver
}

// inactive expires the consumer if nobody used it for its threshold: no request
// waits, and none of its messages is being worked on.
func (c *Consumer) inactive(out []Action, now int64) []Action {
	if now < c.idleDue {
		return out
	}
	limit := int64(c.cfg.InactiveThreshold)
	out = c.sweep(out, now)
	if c.reqs != nil && c.reqs.n > 0 {
		c.idleDue = after(now, limit)
		return out
	}
	last := c.lastUsed
	if c.t != nil {
		for at := c.t.head; at < len(c.t.order); at++ {
			if i := c.t.order[at].slot; i != 0 {
				last = max(last, c.t.at(i).due)
			}
		}
	}
	if due := after(last, limit); due > now {
		c.idleDue = due
		return out
	}
	c.idleDue = after(now, limit) // told again should the owner fail to delete it
	return append(out, Action{Kind: ActExpire})
}
