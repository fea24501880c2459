package ingress

import (
	"time"

	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// Work that a leader does by itself: message ids that left their window, and rows
// that a purge left dead.
const (
	trimEvery = int64(time.Second)
	trimStep  = 4096
	sweepStep = 1024
)

// trimmer removes the message ids of a stream that are past its window.
type trimmer struct{ st *stream }

// due implements timed.
func (t *trimmer) due(e *engine, now int64) {
	if t.st.gone {
		return
	}
	window := int64(t.st.cfg().Duplicates)
	if window > 0 {
		e.submit(&trimOp{st: t.st, until: now - window})
	}
	e.timers.set(t, now+trimEvery)
}

type trimOp struct {
	plan.OpBase
	st    *stream
	until int64
}

// Base implements plan.Op.
func (o *trimOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *trimOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	if s == nil || o.st.gone || s.TrimDedup(o.until, trimStep) == 0 {
		return 0
	}
	return p.Tick()
}

// Done implements plan.Op.
func (o *trimOp) Done(*plan.Planner) {}

// Fail implements plan.Op.
func (o *trimOp) Fail(bool) {}

// sweepOp removes a bounded number of dead rows, and the next ones after it. Its
// cursor is a row, so that the next leader goes on.
type sweepOp struct {
	plan.OpBase
	st    *stream
	after string
	next  string
	more  bool
}

// Base implements plan.Op.
func (o *sweepOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *sweepOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	if s == nil || o.st.gone {
		o.more = false
		return 0
	}
	o.next, o.more = s.Sweep(o.after, sweepStep)
	return p.Tick()
}

// Done implements plan.Op.
func (o *sweepOp) Done(*plan.Planner) {
	if o.more {
		o.st.e.submit(&sweepOp{st: o.st, after: o.next})
	}
}

// Fail implements plan.Op.
func (o *sweepOp) Fail(bool) {}
