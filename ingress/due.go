package ingress

import (
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Kinds of due rows.
const (
	// dueAge: a stream's oldest message may have reached max_age. A lower bound: it
	// is written again for a later time when it was too early.
	dueAge uint8 = 1
	// dueConsumer: a consumer may have been inactive for its threshold; a lower bound too.
	dueConsumer uint8 = 2
)

// minAgeDue bounds how often the due row of a stream is written anew.
const minAgeDue = int64(time.Second)

// watchAge keeps the timer of max_age on the oldest message, and a due row behind
// it so that the next leader comes back to a stream that nobody touches.
func (e *engine) watchAge(st *stream) {
	age := int64(st.cfg().MaxAge)
	s := st.plan()
	if s == nil || age <= 0 {
		e.timers.set(st, 0)
		return
	}
	state := s.Applied()
	if state.Messages == 0 {
		e.timers.set(st, 0)
		return
	}
	if !st.expiring {
		e.timers.set(st, state.FirstTime+age)
	}
	due := max(state.FirstTime+age, e.term.Now()+minAgeDue)
	if (st.ageDue == 0 || due < st.ageDue) && e.p.Planning() { // earlier: max_age was lowered
		st.ageDue = due
		e.submit(&dueOp{st: st, kind: dueAge, bucket: st.ageDue})
	}
}

// due implements timed: the oldest message may have expired.
func (st *stream) due(e *engine, now int64) {
	switch {
	case st.gone, st.expiring, !e.load(st):
	case !e.srv.agesTrusted(e.group):
		e.timers.set(st, now+untrustedWait)
	default:
		st.expiring = true
		e.submit(&expireOp{st: st})
	}
}

// untrustedWait is the pause between two looks at messages past max_age while the
// clock is not believed.
const untrustedWait = int64(time.Second)

// dueOp writes a due row.
type dueOp struct {
	plan.OpBase
	st     *stream
	kind   uint8
	bucket int64
	ticket uint64
}

// Base implements plan.Op.
func (o *dueOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *dueOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	if s == nil || o.st.gone {
		return 0
	}
	s.Due(o.kind, o.bucket, o.ticket)
	return p.Tick()
}

// Done implements plan.Op.
func (o *dueOp) Done(*plan.Planner) {}

// Fail implements plan.Op.
func (o *dueOp) Fail(bool) {}

// expireStep bounds the messages that one step of expiry removes.
const expireStep = 1024

// expireOp removes messages past max_age, a bounded step at a time.
type expireOp struct {
	plan.OpBase
	st   *stream
	more bool
}

// Base implements plan.Op.
func (o *expireOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *expireOp) Plan(p *plan.Planner) uint64 {
	s, age := o.st.plan(), int64(o.st.cfg().MaxAge)
	if s == nil || o.st.gone || age <= 0 || !o.st.e.srv.agesTrusted(o.st.e.group) {
		return 0
	}
	n, now := 0, p.Now()
	for ; n < expireStep; n++ {
		st := s.State()
		if st.Messages == 0 || st.FirstTime+age > now || !s.Remove(st.FirstSeq) {
			break
		}
	}
	o.more = n == expireStep
	if n == 0 {
		return s.Rests() // what would have gone is on its way out
	}
	return p.Tick()
}

// Done implements plan.Op.
func (o *expireOp) Done(*plan.Planner) {
	if o.more {
		o.st.e.submit(&expireOp{st: o.st})
		return
	}
	o.st.expiring = false
	o.st.e.watchAge(o.st)
}

// Fail implements plan.Op.
func (o *expireOp) Fail(bool) {}

// scheduleDue sets the timer for the due rows that the applied state holds, and reads
// what long work the leaders before this one did not finish.
func (e *engine) scheduleDue() {
	e.timers.set(&dueScan{}, e.term.Now())
	err := e.store.Sweeps(func(r SweepRow) bool {
		e.unfinished[r.Stream] = append(e.unfinished[r.Stream], r)
		return true
	})
	if err != nil {
		e.p.Fatal(err)
	}
}

// resume goes on with the long work of a stream that earlier leaders left.
func (e *engine) resume(st *stream) {
	rows := e.unfinished[st.row.ID]
	if len(rows) == 0 || !e.load(st) {
		return
	}
	delete(e.unfinished, st.row.ID)
	for i := range rows {
		if err := e.resumeWork(st, &rows[i]); err != nil {
			e.log.Error("long work that can not be read is left", zap.String("stream", st.row.Name),
				zap.Uint8("kind", rows[i].Kind), zap.Error(err))
		}
	}
}

func (e *engine) resumeWork(st *stream, r *SweepRow) error {
	if r.Kind >= plan.SweepPurge && int(r.Kind) < int(plan.SweepPurge)+plan.SweepPurges {
		c, err := plan.ParsePurgeCursor(r.Cursor)
		if err != nil {
			return err
		}
		from := &record.Request{Reply: c.Reply, Deadline: c.Deadline}
		ac := e.srv.lateCall(st.acct, st.row.Name, jsapi.VerbStreamPurge, from)
		e.submit(api.ResumePurge(ac, st.purgeEnv(), r.Kind, &c))
		return nil
	}
	at, err := plan.ParseSweepCursor(r.Cursor)
	switch {
	case err != nil:
		return err
	case r.Kind == plan.SweepDead:
		st.sweep(at)
	case r.Kind == plan.SweepLimits:
		e.submit(&limitOp{st: st, run: st.beginLimits(), at: limitCursor{after: at.After, subjects: at.Seq == 1}})
	default:
		return fmt.Errorf("%w: sweep of kind %d", record.ErrFormat, r.Kind)
	}
	return nil
}

// dueScan looks at the due rows again and again: at the time of the earliest one
// ahead, after a minute at the latest.
type dueScan struct {
	open int // rows of the last look whose removal is not applied
}

const (
	dueScanEvery = int64(time.Minute)
	dueScanPause = int64(checkEvery)
)

func (d *dueScan) due(e *engine, now int64) {
	next := now + dueScanEvery
	if d.open > 0 {
		e.timers.set(d, now+dueScanPause)
		return
	}
	var rows []DueRow
	err := e.store.Due(math.MaxInt64, func(r DueRow) bool {
		if r.Bucket > now || len(rows) == expireStep {
			next = min(next, max(r.Bucket, now+dueScanPause))
			return false
		}
		rows = append(rows, r)
		return true
	})
	if err != nil {
		e.p.Fatal(err)
		return
	}
	e.timers.set(d, next)
	d.open = len(rows)
	for _, r := range rows {
		e.submit(&dropDueOp{e: e, scan: d, row: r})
	}
}

// dropDueOp removes a due row whose time has come and does what is due.
type dropDueOp struct {
	plan.OpBase
	e    *engine
	scan *dueScan
	row  DueRow
}

// Base implements plan.Op.
func (o *dropDueOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *dropDueOp) Plan(p *plan.Planner) uint64 {
	p.DropDue(o.row.Stream, o.row.Bucket, o.row.Ticket)
	return p.Tick()
}

// Done implements plan.Op.
func (o *dropDueOp) Done(*plan.Planner) {
	o.scan.open--
	st := o.e.streams[o.row.Stream]
	if st == nil || !o.e.load(st) {
		return
	}
	switch o.row.Kind {
	case dueAge:
		if st.ageDue == o.row.Bucket {
			st.ageDue = 0
		}
		o.e.watchAge(st)
	case dueConsumer:
		for _, c := range st.consumers {
			if uint64(c.id) != o.row.Ticket {
				continue
			}
			if c.dueAt == o.row.Bucket {
				c.dueAt = 0
			}
			c.watchInactive(o.e)
		}
	}
}

// Fail implements plan.Op.
func (o *dropDueOp) Fail(bool) {}

// later runs f on the engine's goroutine after a while of cluster time.
func (e *engine) later(d time.Duration, f func(*engine)) {
	e.timers.set(&delayed{f}, e.term.Now()+int64(d))
}

type delayed struct{ f func(*engine) }

func (d *delayed) due(e *engine, _ int64) { d.f(e) }
