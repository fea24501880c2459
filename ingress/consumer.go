package ingress

import (
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/link"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// consumer binds a state machine of package deliver to its engine.
type consumer struct {
	st *stream
	id record.ConsumerID
	// cfg is the configuration as planned; shown the one that is applied, nil until
	// the consumer itself is: before that it delivers nothing and no answer shows it.
	cfg, shown *jsapi.ConsumerConfig
	nameless   bool // the server made the name, so the configuration that is shown has none
	created    time.Time
	// before is the consumer of the same name whose removal is planned, until this one is applied.
	before   *consumer
	m        *deliver.Consumer
	settling []uint64 // to be removed from the stream with the next change
	dirty    bool     // in engine.dirty
	queued   bool     // in engine.ready
	gone     bool     // its removal is planned, or done
	used     bool     // since it was found inactive
	dueAt    int64    // time of a due row that this engine wrote
	first    uint64   // first sequence of the stream as the machine knows it
	found    uint64   // round of the matcher that found it last
}

func (c *consumer) config() deliver.Config {
	cfg := deliver.ConfigOf(c.cfg)
	cfg.StreamID, cfg.ID, cfg.Stream = c.st.row.ID, c.id, c.st.row.Name
	cfg.Settles = c.st.cfg().Retention == jsapi.WorkQueuePolicy
	cfg.InactiveThreshold = c.inactive()
	cfg.AckAnyDelivery = true
	if n, err := jsapi.ParseSampleFrequency(c.cfg.SampleFrequency); err == nil {
		cfg.SampleFreq = n
	}
	return cfg
}

// inactive is how long a consumer may be unused: an ephemeral one always has a bound.
func (c *consumer) inactive() time.Duration {
	if c.cfg.InactiveThreshold == 0 && !c.cfg.IsDurable() {
		return jsapi.DefaultInactiveThreshold
	}
	return c.cfg.InactiveThreshold
}

// interest implements deliver.Interest.
func (st *stream) interest(reply string, since int64) bool {
	age := time.Duration(st.e.clock.Now() - since)
	return st.acct.link.Interest(reply, time.Now().Add(-age))
}

// minInactiveDue bounds how often a consumer's due row is written anew.
const minInactiveDue = int64(time.Minute)

// watchInactive keeps a due row behind the inactivity of a consumer, so that the
// next leader comes back to one that nobody touches.
func (c *consumer) watchInactive(e *engine) {
	d := c.inactive()
	due := e.clock.Now() + max(int64(d), minInactiveDue)
	if d <= 0 || c.gone || c.dueAt != 0 && c.dueAt <= due { // later: the threshold was lowered
		return
	}
	c.dueAt = due
	e.submit(&dueOp{st: c.st, kind: dueConsumer, bucket: c.dueAt, ticket: uint64(c.id)})
}

// due implements timed.
func (c *consumer) due(e *engine, now int64) {
	c.sync(e)
	c.after(e, c.m.Tick(e.actions[:0], now))
}

// sync tells the machine of the stream's first sequence, if that moved. It is told
// when the consumer has something to do, not when the sequence moves: that would
// cost a step for every consumer of the stream.
func (c *consumer) sync(e *engine) {
	s := c.st.plan()
	if s == nil || s.Applied().FirstSeq <= c.first {
		return
	}
	c.first = s.Applied().FirstSeq
	out, recount := c.m.RemovedBelow(e.actions[:0], c.first, "", e.clock.Now())
	if recount {
		c.recount(e)
	}
	c.after(e, out)
}

// recount counts what the consumer has still to deliver.
func (c *consumer) recount(e *engine) {
	cur := c.m.Info(e.clock.Now()).State
	c.m.SetNumPending(c.st.numPending(&cur, c.cfg.Filters()))
}

// use puts a configuration in force.
func (c *consumer) use(p *plan.Planner, cfg *jsapi.ConsumerConfig) {
	st := c.st
	st.match.remove(c)
	c.cfg = cfg
	st.match.add(c)
	if c.m.Update(c.config(), p.Now()) {
		c.recount(st.e)
	}
	c.after(st.e, nil)
}

// restore takes back what was planned and not applied: everything is planned again.
func (st *stream) restore() {
	e := st.e
	st.use(st.shown)
	for _, c := range st.consumers {
		if c.shown == nil {
			c.forget()
			continue
		}
		c.gone = false
		if c.cfg != c.shown {
			c.use(e.p, c.shown)
		}
		c.after(e, nil)
	}
}

// forget takes a consumer that was never applied out of its stream.
func (c *consumer) forget() {
	e := c.st.e
	c.after(e, c.m.LeadershipChange(e.actions[:0])) // its requests come again
	c.gone = true
	e.timers.set(c, 0)
	c.st.match.remove(c)
	delete(c.st.consumers, c.cfg.Name)
	if c.before != nil {
		c.st.consumers[c.cfg.Name] = c.before
		c.before.gone = false
		c.before.after(e, nil)
	}
}

// after carries out the actions of a call and notes what the machine wants next.
func (c *consumer) after(e *engine, actions []deliver.Action) {
	if actions != nil {
		e.actions = nil // an action may lead to others; these are still being read
		c.act(e, actions)
		clear(actions)
		e.actions = actions[:0]
	}
	if c.gone {
		return
	}
	due := c.m.NextDue()
	if due == deliver.Never {
		due = 0
	}
	e.timers.set(c, due)
	if !c.dirty {
		c.dirty = true
		e.dirty = append(e.dirty, c)
	}
	c.enqueue(e)
}

// enqueue lines the consumer up for a turn if it has something to deliver, and may.
func (c *consumer) enqueue(e *engine) {
	if c.m.Ready() && !c.queued && c.shown != nil {
		c.queued = true
		e.ready = append(e.ready, c)
	}
}

// wakeReady gives every consumer that is ready one turn. Without a valid lease
// nothing may be delivered, so nothing is booked as delivered.
func (e *engine) wakeReady() {
	e.blocked = len(e.ready) > 0 && e.term.Check() != nil
	if e.blocked {
		return
	}
	turn := e.ready
	e.ready = nil
	for _, c := range turn {
		c.queued = false
		if c.gone {
			continue
		}
		c.sync(e)
		c.after(e, c.m.Wake(e.actions[:0], e.clock.Now()))
	}
}

func (c *consumer) act(e *engine, actions []deliver.Action) {
	a := c.st.acct
	for i := range actions {
		act := &actions[i]
		switch act.Kind {
		case deliver.ActDeliver:
			c.deliver(e, act)
		case deliver.ActStatus:
			if e.term.Check() == nil {
				a.sendFenced(act.To, act.Header, nil)
			}
		case deliver.ActReply:
			a.send(act.To, nil, nil)
		case deliver.ActSettle:
			c.settling = append(c.settling, act.Seq)
		case deliver.ActExpire:
			c.used = false
			e.submit(&deleteConsumerOp{st: c.st, idle: c})
		default:
			c.advise(e, act)
		}
	}
}

func (c *consumer) deliver(e *engine, act *deliver.Action) {
	if e.term.Check() != nil { // the lease may be valid again before the term is over
		c.m.Unsent(act, e.clock.Now())
		return
	}
	m := act.Message
	reply := c.m.AckReply(act)
	e.ackBuf = jsapi.AppendAckReply(e.ackBuf[:0], &reply)
	header, body := m.Header, m.Payload
	if c.cfg.HeadersOnly {
		header, body = deliver.AppendHeadersOnly(nil, m), nil
	}
	e.srv.counts.deliveries.Add(1)
	if err := c.st.acct.link.Deliver(act.To, e.ackBuf, m.Subject, header, body); err != nil {
		e.log.Warn("message not delivered", zap.String("stream", c.st.row.Name),
			zap.Uint64("seq", m.Seq), zap.Error(err))
		if errors.Is(err, link.ErrDown) || errors.Is(err, link.ErrOverflow) {
			c.m.Unsent(act, e.clock.Now())
		}
	}
}

// take writes what changed into the envelope of tick and has its fate told.
func (c *consumer) take(e *engine, tick uint64) {
	if c.gather(e, tick) {
		e.gathered[tick] = append(e.gathered[tick], c)
	}
}

// gather writes what changed into the envelope of tick; false if nothing did. Nothing is
// written behind the removal of the consumer or of its stream: nobody would remove it.
func (c *consumer) gather(e *engine, tick uint64) bool {
	if c.gone || c.st.gone {
		return false
	}
	settled := len(c.settling) > 0
	if settled {
		s := c.st.plan()
		for _, seq := range c.settling {
			s.Remove(seq)
		}
		c.settling = c.settling[:0]
	}
	if !c.m.TakeChange(&e.change, tick) {
		return settled
	}
	e.p.Builder().Consumer(&e.change)
	return true
}

func (c *consumer) applied(e *engine, tick uint64) {
	c.after(e, c.m.Applied(e.actions[:0], tick, e.clock.Now()))
}

func (c *consumer) failed(e *engine, tick uint64) { c.after(e, c.m.Failed(e.actions[:0], tick)) }

func (c *consumer) stored(e *engine, seq uint64) {
	c.m.Stored(seq, true)
	c.enqueue(e)
}

func (c *consumer) removed(e *engine, seq uint64, subject, reason string) {
	c.after(e, c.m.Removed(e.actions[:0], seq, subject, reason, e.clock.Now()))
}

// leave ends the consumer with the term.
func (c *consumer) leave(e *engine) {
	status := c.m.LeadershipChange
	if e.srv.closing.Load() {
		status = c.m.Shutdown
	}
	for _, act := range status(nil) {
		if act.Kind == deliver.ActStatus {
			c.st.acct.send(act.To, act.Header, nil)
		}
	}
}

// deleted ends the consumer for good.
func (c *consumer) deleted(e *engine) {
	if c.m == nil {
		return
	}
	c.gone = true
	c.after(e, c.m.Deleted(e.actions[:0]))
	e.timers.set(c, 0)
	if c.st.consumers[c.cfg.Name] == c {
		delete(c.st.consumers, c.cfg.Name)
	}
	c.st.match.remove(c)
}

// turnAway tells a pull request that came after the end of the term that it has ended.
func (st *stream) turnAway(m *Msg) {
	st.acct.send(m.Reply, jsapi.AppendStatus(nil, jsapi.StatusLeadershipChange), nil)
}

// next handles a pull request.
func (e *engine) next(ev *event) {
	st, m := ev.stream, ev.msg
	e.srv.counts.pulls.Add(1)
	// Without a lease, too: it waits, and is told of the end of the term.
	if m.Reply == "" || st.gone || !e.load(st) {
		return
	}
	name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	c := st.consumers[name]
	if c == nil || c.gone {
		if e.term.Check() == nil {
			st.acct.noResponders(m)
		}
		return
	}
	if v, _ := jsapi.HeaderGet(m.Header, jsapi.HdrRequiredLevel); !jsapi.APILevelSupported(v, api.Level) {
		st.acct.send(m.Reply, jsapi.AppendStatus(nil, jsapi.StatusRequiredLevel), nil) // whoever leads says so
		return
	}
	c.used = true
	c.sync(e)
	q, err := jsapi.ParseNextRequest(m.Data)
	c.after(e, c.m.Pull(e.actions[:0], &q, err, m.Reply, e.clock.Now()))
}

// ack handles an acknowledgement.
func (e *engine) ack(ev *event) {
	st, m := ev.stream, ev.msg
	e.srv.counts.acks.Add(1)
	// Without a lease, too: an ack is a fact, and its answer waits for the commit.
	if st.gone || !e.load(st) {
		return // not acknowledged: the client asks again, or the message comes again
	}
	tok, ok := jsapi.ParseAckReply(m.Subject)
	if !ok {
		if e.term.Check() == nil {
			st.acct.noResponders(m)
		}
		return
	}
	c := st.consumers[tok.Consumer]
	if c == nil || c.gone || c.cfg.AckPolicy == jsapi.AckNone {
		if e.term.Check() == nil {
			st.acct.noResponders(m)
		}
		return
	}
	c.used = true
	c.sync(e)
	c.after(e, c.m.Ack(e.actions[:0], &tok, m.Data, m.Reply, e.clock.Now()))
}
