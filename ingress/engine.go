package ingress

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

type eventKind uint8

const (
	evPublish eventKind = iota
	evAck
	evNext
	evAPI // call
	evRun // fn
	evEnded
	evDurable
)

// event is one thing for an engine to handle.
type event struct {
	kind   eventKind
	stream *stream
	msg    *Msg
	at     time.Time // of arrival
	call   *call
	fn     func(*engine)
	result plan.Result
}

// engine is one leadership term of one group on this node, or a part of it: see Server.Lead. All fields but the
// queue belong to the goroutine of run.
type engine struct {
	srv   *Server
	log   *zap.Logger
	group uint32
	term  Term
	clock *turnClock // term, for what happens in a turn
	store Store
	ctx   context.Context //nolint:containedctx // the engine's scope; cancel ends it
	q     *queue
	tasks sync.WaitGroup // work of the term on other goroutines; it ends with ctx

	cancel context.CancelFunc

	p         *plan.Planner
	began     time.Time     // arrivals are told from then on: see arrived
	expired   time.Time     // when waiting operations were last checked for their timeout
	blocked   bool          // something is ready, and the lease is not valid
	muted     bool          // publishes are not taken in any more
	quiet     chan struct{} // closed when no operation is open; nil while nobody waits
	directory int           // where to go on with the changes of the directory
	// unfinished is the long work that earlier leaders left, of streams not seen yet.
	unfinished map[record.StreamID][]SweepRow
	streams    map[record.StreamID]*stream
	byName     map[nameKey]*stream
	dirty      []*consumer
	// gathered: the consumers with changes in each envelope in flight, by tick.
	gathered map[uint64][]*consumer
	ready    []*consumer // have something to deliver
	timers   *deadlines[timed]
	due      []timed // scratch space of tick
	// Scratch space of the calls into consumers.
	actions []deliver.Action
	change  command.ConsumerChange
	ackBuf  []byte
}

type nameKey struct{ account, name string }

// timed is something with a deadline in cluster time.
type timed interface{ due(e *engine, now int64) }

// checkEvery is how often waiting operations are checked for their timeout.
const checkEvery = 250 * time.Millisecond

func newEngine(ctx context.Context, srv *Server, group uint32, term Term, store Store) *engine {
	ctx, cancel := context.WithCancel(ctx)
	e := &engine{
		began: time.Now(), cancel: cancel,
		srv: srv, log: srv.log.With(zap.Uint32("group", group), zap.Uint64("term", term.Number())),
		group: group, term: term, clock: &turnClock{Term: term}, store: store, ctx: ctx, q: newQueue(srv.cfg.QueueBytes),
		streams: make(map[record.StreamID]*stream), byName: make(map[nameKey]*stream),
		timers: newDeadlines[timed](), gathered: make(map[uint64][]*consumer),
		unfinished: make(map[record.StreamID][]SweepRow),
	}
	e.p = plan.New(srv.cfg.Plan, e.clock, store, e, plan.Notify{
		Ended:   func(r plan.Result) { e.q.push(event{kind: evEnded, result: r}) },
		Durable: func(tick uint64) { e.q.push(event{kind: evDurable, result: plan.Result{Tick: tick}}) },
		Barrier: func() {
			e.tasks.Go(func() {
				err := term.Barrier(ctx)
				e.q.push(event{kind: evRun, fn: func(e *engine) { e.p.BarrierDone(err) }})
			})
		},
	})
	return e
}

// run handles events until the term ends, or until it can not go on: then it returns why. Everything it started has
// ended when it returns, and has been answered.
func (e *engine) run() error {
	defer e.stop()
	e.scheduleDue()
	timer := time.NewTimer(0)
	defer timer.Stop()
	changed := e.srv.meta.Changed()
	e.syncDirectory()
	var evs []event
	for {
		select {
		case <-e.ctx.Done():
			return nil
		case <-changed:
			changed = e.srv.meta.Changed()
			e.syncDirectory()
		case <-e.q.wake:
		case <-timer.C:
		}
		evs = e.q.take(evs)
		e.clock.turn()
		e.handle(evs)
		e.tick()
		e.wakeReady()
		e.p.Flush()
		e.lookQuiet()
		if err := e.p.Err(); err != nil {
			return err
		}
		timer.Reset(e.sleep())
	}
}

func (e *engine) handle(evs []event) {
	leading := e.term.Check() == nil
	for i := range evs {
		ev := &evs[i]
		switch ev.kind {
		case evPublish:
			e.publish(ev, leading)
		case evAck:
			e.ack(ev)
		case evNext:
			e.next(ev)
		case evAPI:
			e.api(ev.call)
		case evRun:
			ev.fn(e)
		case evEnded:
			e.p.Ended(ev.result)
		case evDurable:
			for _, op := range e.p.Durable(ev.result.Tick) {
				if d, ok := op.(interface{ Durable() }); ok {
					d.Durable()
				}
			}
		}
	}
}

func (e *engine) publish(ev *event, leading bool) { //nolint:revive // flag-parameter: asked once a batch
	st := ev.stream
	m := ev.msg
	e.srv.counts.publishes.Add(1)
	if !leading {
		e.srv.unplanned(ev)
		return
	}
	if st.gone || !e.load(st) {
		e.refuse(st, m.Reply)
		return
	}
	op := publish.New(&st.target, st.out(e), &record.Message{
		Subject: m.Subject, Header: m.Header, Payload: m.Data,
	}, m.Reply)
	op.Arrived = e.arrived(ev.at)
	if !e.p.Admit(op.Size) {
		op.Refuse(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		return
	}
	e.p.Submit(op)
}

// refuse answers a publish to a stream that is being deleted, or can not be read.
func (e *engine) refuse(st *stream, reply string) {
	err := jsapi.NewError(jsapi.CodeStreamNotFound)
	if e.p.Err() != nil {
		err = jsapi.WithText(jsapi.CodeClusterNotAvail, publish.TextNotStored)
	}
	st.acct.send(reply, nil, jsapi.AppendPubError(nil, st.row.Name, err))
}

// arrived is a time as operations keep it: since the engine began, so that a wall clock
// that is set makes nobody wait shorter or longer.
func (e *engine) arrived(at time.Time) int64 { return int64(at.Sub(e.began)) }

// expire answers what has waited for too long, now and then.
func (e *engine) expire(now time.Time) {
	if now.Sub(e.expired) < checkEvery {
		return
	}
	e.expired = now
	e.p.Expire(e.arrived(now.Add(-time.Duration(e.p.Config().Timeout))))
}

// submit plans an operation of the engine's own.
func (e *engine) submit(op plan.Op) {
	op.Base().Arrived = e.arrived(time.Now())
	e.p.Submit(op)
}

// submitCall plans the operation of an API call. It counts in the group's budget
// until it is done: what waits for a commit is bounded.
func (e *engine) submitCall(op plan.Op, ac *api.Call) {
	size := len(ac.Body) + eventOverhead
	if !e.p.Admit(size) {
		ac.Error(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		return
	}
	op.Base().Size = size
	ac.Fence = nil // the answer rests on what is applied, and stays true
	e.submit(op)
}

// callTask works on an API call on another goroutine. It counts in the group's budget
// until that has ended. It is false, and the call is answered, if there is no room.
func (e *engine) callTask(ac *api.Call, f func()) bool {
	size := len(ac.Body) + eventOverhead
	if !e.p.Admit(size) {
		ac.Error(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		return false
	}
	ac.Fence = nil // what it says of group 0 rests on what is applied
	e.tasks.Go(func() {
		f()
		e.q.push(event{kind: evRun, fn: func(e *engine) { e.p.Release(size) }})
	})
	return true
}

// yield plans an operation after the events that wait now, so that long work in
// steps lets others in between.
func (e *engine) yield(op plan.Op) {
	e.q.push(event{kind: evRun, fn: func(e *engine) { e.submit(op) }})
}

// sleep is how long the loop may wait for an event.
func (e *engine) sleep() time.Duration {
	switch {
	case e.blocked:
		return blockedWait
	case len(e.ready) > 0:
		return 0
	}
	d := time.Hour
	if e.p.Held() > 0 || !e.p.Idle() {
		d = checkEvery
	}
	if next := e.timers.next(); next != 0 {
		d = min(d, max(time.Duration(next-e.term.Now()), 0))
	}
	return d
}

// blockedWait is how long deliveries wait for a lease that is not valid.
const blockedWait = 10 * time.Millisecond

// tick runs what fell due: each thing once, so that one that falls due again at
// once lets others in between.
func (e *engine) tick() {
	e.expire(time.Now())
	now := e.term.Now()
	due := e.due[:0]
	for {
		item, ok := e.timers.pop(now)
		if !ok {
			break
		}
		due = append(due, item)
	}
	for _, item := range due {
		item.due(e, now)
	}
	clear(due)
	e.due = due
}

// stop ends what the term began: subscriptions first, so that no request reaches
// an engine that can not answer, then the answers that are still owed.
func (e *engine) stop() {
	for _, st := range e.streams {
		st.unsubscribe()
	}
	for _, ev := range e.q.close() {
		switch ev.kind {
		case evEnded:
			e.p.Ended(ev.result) // what is known is told
		case evPublish:
			e.srv.unplanned(&ev)
		case evAPI:
			e.srv.hold(ev.call)
		case evNext:
			ev.stream.turnAway(ev.msg)
		default: // for a term that is over
		}
	}
	for _, st := range e.streams {
		for _, c := range st.consumers {
			c.leave(e)
		}
	}
	e.p.Stop()
	e.cancel()
	e.tasks.Wait()
}

// Gather implements plan.Listener.
func (e *engine) Gather(tick uint64) {
	n := 0
	for ; n < len(e.dirty) && !e.p.Full(); n++ {
		c := e.dirty[n]
		e.dirty[n] = nil
		c.dirty = false
		if c.gather(e, tick) {
			e.gathered[tick] = append(e.gathered[tick], c)
		}
	}
	e.dirty = e.dirty[n:]
}

// Applied implements plan.Listener.
func (e *engine) Applied(tick uint64) { e.eachGathered(tick, (*consumer).applied) }

// Failed implements plan.Listener.
func (e *engine) Failed(tick uint64) { e.eachGathered(tick, (*consumer).failed) }

func (e *engine) eachGathered(tick uint64, f func(*consumer, *engine, uint64)) {
	consumers := e.gathered[tick]
	delete(e.gathered, tick)
	for _, c := range consumers {
		f(c, e, tick)
	}
}

// Rebuilt implements plan.Listener.
func (e *engine) Rebuilt() {
	for _, st := range e.streams {
		clear(st.hushed)
		if st.loaded && st.changedAt > e.p.AppliedTick() {
			st.changedAt = 0
			st.restore()
		}
	}
}

// Stored implements plan.Listener.
func (e *engine) Stored(s *plan.Stream) {
	if st := e.streams[s.ID]; st != nil {
		st.stored(e, s)
	}
}

// Removed implements plan.Listener.
func (e *engine) Removed(s *plan.Stream, seq uint64, subject string) {
	if st := e.streams[s.ID]; st != nil {
		st.removed(e, seq, subject)
	}
}
