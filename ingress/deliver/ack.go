package deliver

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Ack takes a message to an ack subject of this consumer.
func (c *Consumer) Ack(out []Action, tok *jsapi.AckReply, payload []byte, reply string, now int64) []Action {
	if c.closed || tok.StreamSeq == 0 {
		return out
	}
	if c.cfg.Ack == jsapi.AckNone {
		return refused(out, reply)
	}
	c.used(now)
	switch a := jsapi.ParseAck(payload); a.Kind {
	case jsapi.AckAck:
		out = c.measure(out, tok, now)
		out, _ = c.acked(out, tok, reply, now)
		c.late(tok)
	case jsapi.AckNext:
		out = c.measure(out, tok, now)
		out, _ = c.acked(out, tok, "", now)
		c.late(tok)
		q, err := jsapi.ParseNextRequest(a.Next)
		out = c.Pull(out, &q, err, reply, now)
	case jsapi.AckTerm:
		out = c.term(out, tok, a.Reason, reply, now)
	case jsapi.AckNak:
		out = c.nak(out, tok, &a, now)
		out = c.reply(out, reply, now)
	case jsapi.AckProgress:
		c.extend(tok, now)
		out = c.reply(out, reply, now)
	default:
		if reply != "" {
			out = append(out, Action{Kind: ActReply, To: reply})
		}
	}
	return out
}

// term settles what a term names, with an advisory if it has an effect.
func (c *Consumer) term(
	out []Action, tok *jsapi.AckReply, reason, reply string, now int64,
) []Action {
	count := tok.Delivered
	if _, s := c.find(tok.StreamSeq); s != nil {
		count = uint64(s.count)
	}
	out, ok := c.acked(out, tok, reply, now)
	if !ok {
		return out
	}
	return append(out, Action{
		Kind: ActTerminated, Seq: tok.StreamSeq, ConsumerSeq: tok.ConsumerSeq,
		Delivered: count, Reason: reason,
	})
}

// acked settles what an ack names and answers it. It says whether the ack had an effect.
func (c *Consumer) acked(out []Action, tok *jsapi.AckReply, reply string, now int64) ([]Action, bool) {
	seq := tok.StreamSeq
	if seq >= c.state.Next {
		return c.ackedAhead(out, seq, reply, now)
	}
	if c.cfg.Ack != jsapi.AckExplicit {
		out, ok := c.ackedUpTo(out, seq, tok.ConsumerSeq, now)
		return c.reply(out, reply, now), ok
	}
	i, s := c.find(seq)
	switch {
	case s == nil && c.isExhausted(seq):
		// The last delivery took too long, and was successful.
		out = c.settle(out, seq)
		c.unexhaust(seq)
		c.state.AckTime = now
	case s == nil:
		return c.reply(out, reply, now), false
	case c.replaced(s, tok):
		return refused(out, reply), false
	default:
		out = c.done(out, i, now)
	}
	return c.reply(out, reply, now), true
}

// replaced says that an ack is of a delivery that another one has replaced, whose
// receiver still has the word.
func (c *Consumer) replaced(s *slot, tok *jsapi.AckReply) bool {
	if s.count < 2 || tok.ConsumerSeq >= s.last || c.cfg.AckAnyDelivery {
		return false
	}
	return s.home != homeQueue || s.kind == record.PendingNak
}

// late remembers the refused ack of a replaced delivery: should the receiver of
// the last one stay silent, it settles the message.
func (c *Consumer) late(tok *jsapi.AckReply) {
	if _, s := c.find(tok.StreamSeq); s != nil && c.cfg.Ack == jsapi.AckExplicit && c.replaced(s, tok) {
		s.late = true
	}
}

// done settles a pending message.
func (c *Consumer) done(out []Action, i int32, now int64) []Action {
	seq := c.t.at(i).seq
	c.drop(i)
	c.state.AckTime = now
	return c.settle(out, seq)
}

// drop takes a message out of pending. When it was the lowest the ack floor
// moves: to just before the one that is now, to the last delivery when there is
// none. A message that was given up below it holds the floor.
func (c *Consumer) drop(i int32) {
	lowest, cseq := c.t.lowest() == i, c.t.at(i).cseq
	c.forget(i)
	switch next := c.t.lowest(); {
	case next == 0:
		c.raise(c.state.DeliveredConsumer, c.state.DeliveredStream)
	case lowest && cseq <= c.state.AckFloorConsumer+1:
		c.raise(c.t.at(next).cseq-1, c.t.at(next).seq-1)
	}
}

// forget frees the slot of a message, and its row.
func (c *Consumer) forget(i int32) {
	c.mark()
	if s := c.t.at(i); s.stored {
		c.log.dels = append(c.log.dels, s.seq)
	}
	if c.full() {
		c.rouse()
	}
	c.t.remove(i)
}

// raise moves the ack floor, never back.
func (c *Consumer) raise(cseq, seq uint64) {
	c.state.AckFloorConsumer = max(c.state.AckFloorConsumer, cseq)
	c.state.AckFloorStream = max(c.state.AckFloorStream, seq)
}

// ackedUpTo settles the pending messages up to a sequence that match the filters:
// one that the consumer got while it had other filters, or did not get yet, is not meant.
func (c *Consumer) ackedUpTo(out []Action, seq, cseq uint64, now int64) ([]Action, bool) {
	if c.t == nil || seq <= c.state.AckFloorStream {
		return out, false
	}
	if _, s := c.find(seq); s != nil {
		cseq = s.cseq
	}
	meant := c.t.scratch[:0]
	for _, r := range c.t.order[c.t.head:] {
		if r.seq > seq {
			break
		}
		if r.slot != 0 && c.meant(c.t.at(r.slot)) {
			meant = append(meant, r.slot)
		}
	}
	for _, i := range meant {
		out = c.settle(out, c.t.at(i).seq)
		c.forget(i)
	}
	c.t.scratch = meant
	switch i := c.t.lowest(); {
	case i == 0:
		c.raise(c.state.DeliveredConsumer, c.state.DeliveredStream)
	case c.t.at(i).seq <= seq:
		c.raise(c.t.at(i).cseq-1, c.t.at(i).seq-1)
	default:
		c.raise(min(cseq, c.t.at(i).cseq-1), seq)
	}
	c.state.AckTime = now
	c.mark()
	return out, true
}

func (c *Consumer) meant(s *slot) bool {
	if s.home == homeNone || s.count == 0 {
		return false // not sent yet
	}
	if s.epoch == c.epoch || len(c.cfg.Filters) == 0 {
		return true
	}
	m, ok := c.src.Message(s.seq)
	return !ok || c.cfg.matches(m.Subject)
}

// ackedAhead settles a message above the cursor. An earlier term delivered it and
// did not record that; the filter must match and the stream hold it, or there is neither an
// effect nor an answer. Under ack all it stands for what is between, too.
func (c *Consumer) ackedAhead(out []Action, seq uint64, reply string, now int64) ([]Action, bool) {
	if c.isAhead(seq) {
		return c.reply(out, reply, now), false
	}
	if m, ok := c.src.Message(seq); !ok || !c.counts(m) {
		return out, false
	}
	room := c.lim.MaxAhead
	if c.cfg.MaxAckPending > 0 {
		room = c.cfg.MaxAckPending
	}
	room -= len(c.rares().ahead)
	seqs := []uint64{seq}
	if c.cfg.Ack != jsapi.AckExplicit {
		seqs = c.between(seq, room)
	}
	if len(seqs) == 0 || len(seqs) > room {
		return out, false
	}
	if c.cfg.Ack != jsapi.AckExplicit {
		out, _ = c.ackedUpTo(out, c.state.Next-1, c.state.DeliveredConsumer, now)
	}
	for _, s := range seqs {
		at, _ := slices.BinarySearch(c.rare.ahead, s)
		c.rare.ahead = slices.Insert(c.rare.ahead, at, s)
		c.numPending -= min(c.numPending, 1)
		c.write(&record.Pending{Seq: s, Delivered: now, Kind: record.PendingSettled})
		out = c.settle(out, s)
	}
	c.state.AckTime = now
	return c.reply(out, reply, now), true
}

// between returns what the consumer would deliver up to a sequence and has not
// settled, one more than room at most; nothing if that takes too long to find out.
func (c *Consumer) between(seq uint64, room int) []uint64 {
	var seqs []uint64
	from := c.state.Next
	for range room + MaxScan {
		m, next := c.src.Next(from, c.cfg.Filters)
		switch {
		case m == nil && next > seq, m != nil && m.Seq > seq:
			return seqs
		case m == nil:
			from = next
		default:
			if !c.isAhead(m.Seq) && c.counts(m) {
				seqs = append(seqs, m.Seq)
			}
			from = m.Seq + 1
		}
		if len(seqs) > room {
			return seqs
		}
	}
	return nil
}

// nak gives a message back, if the delivery is its last one.
func (c *Consumer) nak(out []Action, tok *jsapi.AckReply, a *jsapi.Ack, now int64) []Action {
	i, s := c.find(tok.StreamSeq)
	if s == nil || s.last != tok.ConsumerSeq || s.count == 0 {
		return out
	}
	out = append(out, Action{Kind: ActNaked, Seq: s.seq, ConsumerSeq: s.last, Delivered: uint64(s.count)})
	delay := int64(0)
	if a.HasDelay {
		delay = max(int64(a.Delay), 0)
	}
	queued := s.home == homeQueue
	if delay == 0 && queued {
		return out
	}
	c.t.unlink(i)
	s.kind, s.due, s.late = record.PendingNak, after(now, delay), false
	c.touch(s)
	switch {
	case delay > 0:
		c.t.arm(i)
	case c.spent(s):
		out = c.exhaust(out, i)
	default:
		c.t.requeue(i)
	}
	c.rouse()
	return out
}

// extend restarts the ack wait, if the delivery is the message's last one and was not given back.
func (c *Consumer) extend(tok *jsapi.AckReply, now int64) {
	i, s := c.find(tok.StreamSeq)
	if s == nil || s.last != tok.ConsumerSeq || s.kind != record.PendingAck || s.home == homeNone {
		return
	}
	c.t.unlink(i)
	s.due = after(now, c.cfg.wait(s.count))
	c.t.arm(i)
	c.touch(s)
}

// exhaust gives up a message that was delivered as often as it may be. It stays in the stream.
func (c *Consumer) exhaust(out []Action, i int32) []Action {
	s := c.t.at(i)
	row := s.row()
	row.Kind = record.PendingExhausted
	c.write(&row)
	s.stored = false // the row stays, as another kind
	c.forget(i)      // it was not acked, so the floor stays
	c.remember(row.Seq)
	c.state.Redelivered++
	return append(out, Action{
		Kind: ActMaxDeliver, Seq: row.Seq, ConsumerSeq: row.LastSeq, Delivered: uint64(row.Count),
	})
}

// unexhaust forgets a message that was given up.
func (c *Consumer) unexhaust(seq uint64) {
	at, ok := slices.BinarySearch(c.rare.exhausted, seq)
	if !ok {
		return
	}
	c.rare.exhausted = slices.Delete(c.rare.exhausted, at, at+1)
	c.state.Redelivered -= min(c.state.Redelivered, 1)
	c.erase(seq)
}

// measure reports some of the acks that are about to settle a message; a term is none.
func (c *Consumer) measure(out []Action, tok *jsapi.AckReply, now int64) []Action {
	if c.cfg.SampleFreq == 0 || c.cfg.Ack != jsapi.AckExplicit || tok.StreamSeq >= c.state.Next {
		return out
	}
	_, s := c.find(tok.StreamSeq)
	if s == nil || c.replaced(s, tok) || !c.sample() {
		return out
	}
	return append(out, Action{
		Kind: ActSampled, Seq: tok.StreamSeq, ConsumerSeq: s.last,
		Delivered: uint64(s.count), Elapsed: now - s.delivered,
	})
}

// sample picks SampleFreq of every hundred acks.
func (c *Consumer) sample() bool {
	c.sampled += c.cfg.SampleFreq
	if c.sampled < 100 {
		return false
	}
	c.sampled -= 100
	return true
}
