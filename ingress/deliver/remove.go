package deliver

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Reasons of terminated advisories when a pending message leaves the stream.
const (
	// ReasonDeleted is for one removed by itself: limit, age, TTL, delete.
	ReasonDeleted = "Unacknowledged message was deleted"
	// ReasonLimits is for those found below the first sequence.
	ReasonLimits = "Message deleted by stream limits"
)

// Removed tells that a message has left the stream, and why if that was not the
// consumers' doing; a purge or a settled message has no reason. It is called
// after the removal is applied: Source does not have the message any more. Like an
// ack, the end of a pending message is the time of the ack floor.
func (c *Consumer) Removed(out []Action, seq uint64, subject, reason string, now int64) []Action {
	if c.closed {
		return out
	}
	switch i, s := c.find(seq); {
	case s != nil:
		return c.lose(out, i, reason, now)
	case c.isExhausted(seq):
		c.unexhaust(seq)
	case seq >= c.state.Next && c.cfg.matches(subject):
		c.uncount(seq, subject)
	}
	return out
}

// uncount takes a removed message out of what is to deliver. One settled ahead
// was not counted, and stays known until the cursor gets there. In the history of
// a last_per_subject consumer only the last of a subject counts; an older one takes its place.
func (c *Consumer) uncount(seq uint64, subject string) {
	if seq <= c.state.SkipTo {
		last, ok := c.src.LastOf(subject, c.state.SkipTo)
		switch {
		case ok && last > seq:
			return
		case ok && last >= c.state.Next && !c.isAhead(last):
			c.numPending++
		}
	}
	if !c.isAhead(seq) {
		c.numPending -= min(c.numPending, 1)
	}
}

// lose drops a pending message that left the stream.
func (c *Consumer) lose(out []Action, i int32, reason string, now int64) []Action {
	s := c.t.at(i)
	if reason != "" {
		out = append(out, Action{
			Kind: ActTerminated, Seq: s.seq, ConsumerSeq: s.cseq, Delivered: uint64(s.count), Reason: reason,
		})
	}
	c.drop(i)
	c.state.AckTime = now
	return out
}

// RemovedBelow tells that every message below first has left the stream, as
// Removed does for one. recount: the owner is to call SetNumPending.
func (c *Consumer) RemovedBelow(
	out []Action, first uint64, reason string, now int64,
) (_ []Action, recount bool) {
	if c.closed {
		return out, false
	}
	out = c.below(out, first, reason, now)
	if c.state.Next < first {
		c.advance(first)
		return out, true
	}
	return out, false
}

// below drops what is known of messages below first.
func (c *Consumer) below(out []Action, first uint64, reason string, now int64) []Action {
	for c.t != nil && c.t.n > 0 && c.t.at(c.t.lowest()).seq < first {
		out = c.lose(out, c.t.lowest(), reason, now)
	}
	r := c.rare
	if r == nil {
		return out
	}
	n, _ := slices.BinarySearch(r.exhausted, first)
	for _, seq := range r.exhausted[:n] {
		c.erase(seq)
	}
	r.exhausted = slices.Delete(r.exhausted, 0, n)
	c.state.Redelivered -= min(c.state.Redelivered, uint64(n))
	if r.forgotten > 0 && r.forgotten < first {
		// Nobody knows their sequences any more; the range has them all.
		r.forgotten = 0
		c.state.Redelivered = uint64(len(r.exhausted))
		c.mark()
		c.log.cut = first
	}
	return out
}

// Purged tells that messages have left the stream that nobody names one by one:
// pending ones that Source does not have are dropped. The owner is to call
// SetNumPending afterwards.
func (c *Consumer) Purged(now int64) {
	if c.closed {
		return
	}
	if c.t != nil {
		var gone []int32
		for _, r := range c.t.order[c.t.head:] {
			if r.slot == 0 {
				continue
			}
			if _, ok := c.src.Message(r.seq); !ok {
				gone = append(gone, r.slot)
			}
		}
		for _, i := range gone {
			c.drop(i)
			c.state.AckTime = now
		}
	}
	if c.rare == nil {
		return
	}
	for _, seq := range slices.Clone(c.rare.exhausted) {
		if _, ok := c.src.Message(seq); !ok {
			c.unexhaust(seq)
		}
	}
}

// PurgedTo tells that a purge has left nothing for this consumer below first: the
// cursor moves there, and the positions that are shown move with it.
func (c *Consumer) PurgedTo(first uint64) {
	if c.closed {
		return
	}
	if c.state.Next < first {
		c.advance(first)
	}
	c.state.DeliveredStream = max(c.state.DeliveredStream, c.state.Next-1)
	if c.t == nil || c.t.n == 0 {
		c.raise(c.state.DeliveredConsumer, c.state.Next-1)
	} else {
		c.raise(c.state.AckFloorConsumer, first-1)
	}
	c.mark()
}

// Update takes a changed configuration; that it may be changed so is the caller's
// to judge. What was delivered stays pending. recount: the owner is to call
// SetNumPending.
func (c *Consumer) Update(cfg Config, now int64) (recount bool) {
	old := c.cfg
	c.cfg = cfg
	c.cfg.fill()
	c.configure(now)
	recount = !slices.Equal(old.Filters, c.cfg.Filters)
	if recount {
		c.epoch++
	}
	if old.AckWait != c.cfg.AckWait || !slices.Equal(old.Backoff, c.cfg.Backoff) {
		c.rearm(&old)
	}
	c.ready = true
	return recount
}

// rearm moves the ack waits that run to what the configuration says now.
func (c *Consumer) rearm(old *Config) {
	if c.t == nil {
		return
	}
	for _, r := range c.t.order[c.t.head:] {
		if r.slot == 0 {
			continue
		}
		s := c.t.at(r.slot)
		if s.home != homeWait && s.home != homeHeap {
			continue
		}
		c.t.unlink(r.slot)
		s.due = after(s.due-old.wait(s.count), c.cfg.wait(s.count))
		c.t.arm(r.slot)
		c.touch(s)
	}
}

// Deleted ends the consumer: it, or its stream, is deleted.
func (c *Consumer) Deleted(out []Action) []Action { return c.close(out, jsapi.StatusConsumerDeleted) }

// LeadershipChange ends the consumer here: another node leads.
func (c *Consumer) LeadershipChange(out []Action) []Action {
	return c.close(out, jsapi.StatusLeadershipChange)
}

// Shutdown ends the consumer here: the process stops.
func (c *Consumer) Shutdown(out []Action) []Action { return c.close(out, jsapi.StatusServerShutdown) }

// close tells every waiting request. Afterwards nothing has an effect.
func (c *Consumer) close(out []Action, text string) []Action {
	if c.closed {
		return out
	}
	c.closed, c.ready = true, false
	if c.reqs != nil {
		for i := range c.reqs.n {
			r := c.reqs.at(i)
			if text == jsapi.StatusServerShutdown {
				hdr := jsapi.AppendPendingStatus(nil, text, r.batch, r.bytes)
				out = append(out, Action{Kind: ActStatus, To: r.reply, Header: hdr})
				continue
			}
			out = append(out, status(r.reply, text))
		}
	}
	c.t, c.reqs, c.log, c.rare = nil, nil, nil, nil
	return out
}
