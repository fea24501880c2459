package deliver

import (
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// RangeFrom is from how many rows on a prefix of settled messages is deleted by
// one range instead of one by one.
const RangeFrom = 8

// changes is what is not applied yet: facts to hand over, those in flight, and
// what waits for them.
type changes struct {
	dirty   bool             // the cursor row differs
	puts    []uint64         // pending messages whose rows differ
	dels    []uint64         // rows to delete
	settled []uint64         // messages whose settling is not applied
	rows    []record.Pending // rows of messages that have no slot
	cut     uint64           // all rows below go
	flight  []batch          // handed over, oldest first
	spare   []batch

	held   []answer
	outbox []letter
	lost   uint64 // answers not given: too many, or too late
}

// batch is what one envelope carries.
type batch struct {
	tag                 uint64
	puts, dels, settled []uint64
	rows                []record.Pending
	cut                 uint64
}

// answer is the reply to a double ack that waits until what it rests on is applied.
type answer struct {
	to    string
	tag   uint64 // 0 = not handed over yet
	until int64
}

// letter is a delivery; in the outbox it waits for its record, and statuses
// behind it for their turn.
type letter struct {
	seq, cseq, count, pending uint64
	msg                       *record.Message
	to                        string
	since                     int64 // when its request came
	tag                       uint64
	status                    []byte // not a delivery but a status
}

func (g *changes) idle() bool {
	return !g.dirty && len(g.flight) == 0 && len(g.held) == 0 && len(g.outbox) == 0
}

func (c *Consumer) changes() *changes {
	if c.log == nil {
		c.log = &changes{}
	}
	return c.log
}

// mark notes that the cursor row differs from what was handed over.
func (c *Consumer) mark() {
	if !c.cfg.Volatile {
		c.changes().dirty = true
	}
}

// touch notes that the row of a pending message differs.
func (c *Consumer) touch(s *slot) {
	c.mark()
	if !s.dirty {
		s.dirty = true
		c.log.puts = append(c.log.puts, s.seq)
	}
}

// erase notes that the row of a sequence goes.
func (c *Consumer) erase(seq uint64) {
	c.mark()
	c.log.dels = append(c.log.dels, seq)
}

// write notes the row of a message without a slot.
func (c *Consumer) write(row *record.Pending) {
	c.mark()
	c.log.rows = append(c.log.rows, *row)
}

// settle tells the owner that this consumer does not need a message any more.
func (c *Consumer) settle(out []Action, seq uint64) []Action {
	if !c.cfg.Settles {
		return out
	}
	if !c.cfg.Volatile {
		c.changes().settled = append(c.changes().settled, seq)
	}
	return append(out, Action{Kind: ActSettle, Seq: seq})
}

// TakeChange fills dst with everything that changed since the last call, as
// absolute rows, for the envelope named by tag; false if nothing did. Tags rise.
// Every tag ends in Applied or Failed.
func (c *Consumer) TakeChange(dst *command.ConsumerChange, tag uint64) bool {
	g := c.log
	if g == nil || !g.dirty {
		return false
	}
	var b batch
	if n := len(g.spare); n > 0 {
		b, g.spare = g.spare[n-1], g.spare[:n-1]
	}
	// The lists change hands: what was in the spare batch gathers from now on.
	b, g.puts, g.dels, g.settled, g.rows = batch{tag, g.puts, g.dels, g.settled, g.rows, g.cut},
		b.puts[:0], b.dels[:0], b.settled[:0], b.rows[:0]
	g.cut = 0
	g.flight = append(g.flight, b)
	g.dirty = false
	c.recorded = c.state.Next

	dst.Stream, dst.Consumer, dst.State = c.cfg.StreamID, c.cfg.ID, c.state
	dst.Puts, dst.Deletes, dst.Ranges = dst.Puts[:0], dst.Deletes[:0], dst.Ranges[:0]
	for _, seq := range b.puts {
		if _, s := c.find(seq); s != nil {
			s.dirty, s.stored = false, true
			dst.Puts = append(dst.Puts, s.row())
		}
	}
	for _, row := range b.rows {
		if c.keeps(&row) {
			dst.Puts = append(dst.Puts, row)
		}
	}
	if b.cut > 1 {
		dst.Ranges = append(dst.Ranges, [2]uint64{1, b.cut - 1})
	}
	c.takeDeletes(dst, b.dels)
	for i := range g.held {
		if g.held[i].tag == 0 {
			g.held[i].tag = tag
		}
	}
	for i := range g.outbox {
		if g.outbox[i].tag == 0 {
			g.outbox[i].tag = tag
		}
	}
	return true
}

// takeDeletes names the rows to delete: those below every row that stays as one range.
func (c *Consumer) takeDeletes(dst *command.ConsumerChange, dels []uint64) {
	slices.Sort(dels)
	n, _ := slices.BinarySearch(dels, c.lowestRow())
	if n < RangeFrom {
		n = 0
	} else {
		dst.Ranges = append(dst.Ranges, [2]uint64{dels[0], dels[n-1]})
	}
	dst.Deletes = append(dst.Deletes, dels[n:]...)
}

// lowestRow is a sequence that no row of the consumer is below.
func (c *Consumer) lowestRow() uint64 {
	low := c.state.Next
	if c.t != nil && c.t.n > 0 {
		low = min(low, c.t.at(c.t.lowest()).seq)
	}
	if r := c.rare; r != nil {
		if len(r.exhausted) > 0 {
			low = min(low, r.exhausted[0])
		}
		if r.forgotten > 0 {
			low = 0
		}
	}
	return low
}

// keeps says that the row of a message without a slot is still wanted.
func (c *Consumer) keeps(row *record.Pending) bool {
	if row.Kind == record.PendingSettled {
		return c.isAhead(row.Seq)
	}
	return c.isExhausted(row.Seq) || c.rare != nil && row.Seq <= c.rare.forgotten
}

func (s *slot) row() record.Pending {
	return record.Pending{
		Seq: s.seq, ConsumerSeq: s.cseq, Delivered: s.delivered, Due: s.due,
		LastSeq: s.last, Count: s.count, Kind: s.kind,
	}
}

// Applied tells that the envelope of a tag, and so all before it, is applied
// here: what rests on it is released.
func (c *Consumer) Applied(out []Action, tag uint64, now int64) []Action {
	g := c.log
	if g == nil || c.closed {
		return out
	}
	n := 0
	for ; n < len(g.flight) && g.flight[n].tag <= tag; n++ {
		if len(g.spare) < cap(g.flight) {
			g.spare = append(g.spare, g.flight[n])
		}
	}
	if n == 0 {
		return out
	}
	g.flight = slices.Delete(g.flight, 0, n)
	n = 0
	for ; n < len(g.held) && g.held[n].tag != 0 && g.held[n].tag <= tag; n++ {
		out = append(out, Action{Kind: ActReply, To: g.held[n].to})
	}
	g.held = slices.Delete(g.held, 0, n)
	return c.release(out, tag, now)
}

// Failed tells that the envelope of a tag, and so all after it, is and stays a
// no-op: what it carried is handed over again, and settled messages are told again.
func (c *Consumer) Failed(out []Action, tag uint64) []Action {
	g := c.log
	if g == nil || c.closed {
		return out
	}
	at := slices.IndexFunc(g.flight, func(b batch) bool { return b.tag >= tag })
	if at < 0 {
		return out
	}
	g.dirty = true
	for _, b := range g.flight[at:] {
		for _, seq := range b.puts {
			if _, s := c.find(seq); s != nil {
				c.touch(s)
			}
		}
		g.dels = append(g.dels, b.dels...)
		g.rows = append(g.rows, b.rows...)
		g.cut = max(g.cut, b.cut)
		g.settled = append(g.settled, b.settled...)
		for _, seq := range b.settled {
			out = append(out, Action{Kind: ActSettle, Seq: seq})
		}
		g.spare = append(g.spare, b)
	}
	g.flight = slices.Delete(g.flight, at, len(g.flight))
	// What waits keeps its tag: the next one applied is above it, and carries it all.
	return out
}

// reply answers a double ack: at once if everything this consumer knows is
// applied, otherwise when the last change of it is.
func (c *Consumer) reply(out []Action, to string, now int64) []Action {
	if to == "" {
		return out
	}
	g := c.log
	if g == nil || !g.dirty && len(g.flight) == 0 {
		return append(out, Action{Kind: ActReply, To: to})
	}
	if len(g.held) >= c.lim.MaxHeld {
		g.lost++
		return out
	}
	a := answer{to: to, until: after(now, c.lim.HoldTimeout)}
	if !g.dirty {
		a.tag = g.flight[len(g.flight)-1].tag
	}
	g.held = append(g.held, a)
	return out
}

// dropHeld gives up on answers that waited too long; whoever asked has, too.
func (c *Consumer) dropHeld(now int64) {
	g := c.log
	if g == nil {
		return
	}
	n := 0
	for n < len(g.held) && g.held[n].until <= now {
		n++
	}
	g.held = slices.Delete(g.held, 0, n)
	g.lost += uint64(n)
}

// Held is how many answers wait for a change to be applied.
func (c *Consumer) Held() int {
	if c.log == nil {
		return 0
	}
	return len(c.log.held)
}

// Unanswered is how many double acks got no answer because too many waited, or
// because it would have come too late.
func (c *Consumer) Unanswered() uint64 {
	if c.log == nil {
		return 0
	}
	return c.log.lost
}

// behind sends a status to a request, after the deliveries that wait for their record.
func (c *Consumer) behind(out []Action, a Action) []Action {
	if c.log == nil || len(c.log.outbox) == 0 {
		return append(out, a)
	}
	g := c.log
	g.outbox = append(g.outbox, letter{to: a.To, status: a.Header, tag: g.outbox[len(g.outbox)-1].tag})
	return out
}

// release sends what waited in the outbox for a tag.
func (c *Consumer) release(out []Action, tag uint64, now int64) []Action {
	g := c.log
	n := 0
	for ; n < len(g.outbox) && g.outbox[n].tag != 0 && g.outbox[n].tag <= tag; n++ {
		l := &g.outbox[n]
		if l.status != nil {
			out = append(out, Action{Kind: ActStatus, To: l.to, Header: l.status})
			continue
		}
		i, s := c.find(l.seq)
		if s == nil || s.last != l.cseq {
			c.credit(l.to)
			continue
		}
		m, ok := c.src.Message(l.seq)
		if !ok {
			c.drop(i)
			c.credit(l.to)
			continue
		}
		s.due = after(now, c.cfg.wait(s.count)) // not worth another record
		if !c.interest(l.to, l.since) {
			c.takeBack(s, now) // for the next who asks
			c.t.requeue(i)
			c.ready = true
			continue
		}
		c.t.arm(i)
		out = append(out, Action{
			Kind: ActDeliver, To: l.to, Message: m,
			Seq: l.seq, ConsumerSeq: l.cseq, Delivered: l.count, Pending: l.pending,
		})
	}
	g.outbox = slices.Delete(g.outbox, 0, n)
	return out
}

// takeBack records that a delivery that was recorded was not sent.
func (c *Consumer) takeBack(s *slot, due int64) {
	s.count--
	s.kind, s.due = record.PendingNak, due
	c.touch(s)
}

// unsentPause is how long a message waits that could not be sent: the link may be down for long.
const unsentPause = 100 * time.Millisecond

// Unsent tells that nothing was sent for an ActDeliver. A message that is recorded
// before it is sent, since it may be delivered only once, would never come again: it is
// recorded back. Any other comes again by itself.
func (c *Consumer) Unsent(a *Action, now int64) {
	if c.closed || !c.fenced {
		return
	}
	i, s := c.find(a.Seq)
	if s == nil || s.last != a.ConsumerSeq || s.kind != record.PendingAck {
		return
	}
	c.takeBack(s, after(now, int64(unsentPause)))
	c.t.arm(i)
	c.credit(a.To)
}

// credit gives a request back the message that it did not get after all, if it still waits.
func (c *Consumer) credit(to string) {
	if c.reqs == nil {
		return
	}
	for i := range c.reqs.n {
		if r := c.reqs.at(i); r.reply == to {
			r.batch++
			r.served--
			c.ready = true
			return
		}
	}
}

// refused tells who acked a delivery that another one has replaced that it is not his any more.
func refused(out []Action, to string) []Action {
	if to == "" {
		return out
	}
	return append(out, status(to, jsapi.StatusNoResponders))
}
