package ingress

import (
	"time"

	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// Work that a leader does by itself: message ids that left their window, and rows
// that a purge left dead.
const (
	// trimEvery is the pause between two trims of one stream: ids that leave their
	// window meanwhile go together.
	trimEvery = int64(time.Second)
	trimStep  = 4096
	// sweepStep bounds the dead rows that one step of a sweep removes, sweepLook the
	// subjects that it looks at without removing anything of them.
	sweepStep = 1024
	sweepLook = 4096
)

// trimmer removes the message ids of a stream that are past its window. It has a
// timer, or an operation on its way, only while the stream has message ids.
type trimmer struct {
	st     *stream
	active bool
}

// watchIDs begins to trim if the stream has message ids.
func (e *engine) watchIDs(st *stream, s *plan.Stream) {
	if window := int64(st.cfg().Duplicates); window > 0 && s.HasIDs() && !st.ids.active {
		st.ids.active = true
		e.timers.set(&st.ids, e.term.Now()+window)
	}
}

// due implements timed.
func (t *trimmer) due(e *engine, now int64) {
	window := int64(t.st.cfg().Duplicates)
	if t.st.gone || window <= 0 {
		t.active = false
		return
	}
	e.submit(&trimOp{st: t.st, until: now - window})
}

type trimOp struct {
	plan.OpBase
	st    *stream
	until int64
	n     int
	next  int64
}

// Base implements plan.Op.
func (o *trimOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *trimOp) Plan(p *plan.Planner) uint64 {
	o.n, o.next = 0, 0
	s := o.st.plan()
	if s == nil || o.st.gone {
		return 0
	}
	if o.n, o.next = s.TrimDedup(o.until, trimStep); o.n == 0 {
		return 0
	}
	return p.Tick()
}

// Done implements plan.Op.
func (o *trimOp) Done(*plan.Planner) {
	e, st := o.st.e, o.st
	s := st.plan()
	switch {
	case s == nil || st.gone || !s.HasIDs():
		st.ids.active = false
	case o.n == trimStep:
		e.submit(&trimOp{st: st, until: o.until})
	default:
		e.timers.set(&st.ids, max(o.next+int64(st.cfg().Duplicates), e.term.Now()+trimEvery))
	}
}

// Fail implements plan.Op.
func (o *trimOp) Fail(bool) {}

// sweepOp removes a bounded number of dead rows, and the next ones after it. Its
// cursor is a row, so that the next leader goes on. The last one that began is the one
// that counts: it begins where the rows of a later purge do.
type sweepOp struct {
	plan.OpBase
	st   *stream
	run  uint64
	at   plan.SweepCursor
	next plan.SweepCursor
	more bool
}

// sweep begins to remove dead rows from a cursor on.
func (st *stream) sweep(at plan.SweepCursor) {
	st.sweeping++
	st.e.submit(&sweepOp{st: st, run: st.sweeping, at: at})
}

// Base implements plan.Op.
func (o *sweepOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *sweepOp) Plan(*plan.Planner) uint64 {
	s := o.st.plan()
	o.more = false
	if s == nil || o.st.gone || o.run != o.st.sweeping {
		return 0
	}
	o.next, o.more = s.Sweep(o.at, plan.SweepLimit{Rows: sweepStep, Subjects: sweepLook})
	return s.Rests()
}

// Done implements plan.Op.
func (o *sweepOp) Done(*plan.Planner) {
	if o.more {
		o.st.e.yield(&sweepOp{st: o.st, run: o.run, at: o.next})
	}
}

// Fail implements plan.Op.
func (o *sweepOp) Fail(bool) {}
