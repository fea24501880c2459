package ingress

import (
	"time"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// deleteConsumerOp is CONSUMER.DELETE, or the end of an inactive consumer (no call).
type deleteConsumerOp struct {
	plan.OpBase
	st *stream
	ac *api.Call
	// idle is the consumer that nobody used for its threshold.
	idle *consumer
	// What Plan decided.
	c   *consumer
	err *jsapi.Error
}

// Base implements plan.Op.
func (o *deleteConsumerOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *deleteConsumerOp) Plan(p *plan.Planner) uint64 {
	o.c, o.err = nil, nil
	c := o.idle
	switch {
	case o.st.gone:
		o.err = jsapi.NewError(jsapi.CodeStreamNotFound)
		return 0
	case c == nil:
		c = o.st.consumers[o.ac.Req.Consumer]
	case c.used: // while this waited
		c = nil
	}
	if c == nil || c.gone {
		o.err = jsapi.NewError(jsapi.CodeConsumerNotFound)
		return o.st.rests()
	}
	c.take(o.st.e, p.Tick()) // what it acked is a fact
	o.c, c.gone = c, true    // nothing of it is written any more
	p.Builder().DeleteConsumer(o.st.row.ID, c.id)
	return o.st.changed(p)
}

// Done implements plan.Op.
func (o *deleteConsumerOp) Done(*plan.Planner) {
	if o.c != nil {
		e, st, name := o.st.e, o.st, o.c.cfg.Name
		o.c.deleted(e)
		e.srv.advise(st.acct, jsapi.SubjectConsumerDeleted+st.row.Name+"."+name, &jsapi.ConsumerActionAdvisory{
			Event: e.srv.event(jsapi.AdvisoryConsumerAction), Stream: st.row.Name, Consumer: name,
			Action: jsapi.ActionDeleted,
		})
	}
	switch {
	case o.ac == nil:
	case o.err != nil:
		o.ac.Error(o.err)
	default:
		o.ac.Answer(jsapi.SuccessResponse{Response: jsapi.NewResponse(o.ac.Req.Verb), Success: true})
	}
}

// Fail implements plan.Op.
func (o *deleteConsumerOp) Fail(bool) {
	if o.ac != nil {
		o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}

// pauseConsumer is CONSUMER.PAUSE.
func (e *engine) pauseConsumer(st *stream, ac *api.Call) {
	var req jsapi.PauseRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	e.submitCall(&pauseOp{st: st, ac: ac, until: req.PauseUntil}, ac)
}

type pauseOp struct {
	plan.OpBase
	st    *stream
	ac    *api.Call
	until time.Time
	// What Plan decided; c is nil if there is no such consumer.
	c    *consumer
	cfg  *jsapi.ConsumerConfig
	same bool // it was paused until then
}

// Base implements plan.Op.
func (o *pauseOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *pauseOp) Plan(p *plan.Planner) uint64 {
	o.c = o.st.consumers[o.ac.Req.Consumer]
	if o.st.gone || o.c == nil || o.c.gone {
		o.c = nil
		return o.st.rests()
	}
	cfg := o.c.cfg.Clone()
	before := time.Time{}
	if cfg.PauseUntil != nil {
		before = *cfg.PauseUntil
	}
	o.same = before.Equal(o.until)
	cfg.PauseUntil = nil
	if !o.until.IsZero() {
		until := o.until.UTC()
		cfg.PauseUntil = &until
	}
	o.cfg = cfg.WithStaticMetadata()
	return o.c.describe(p, &plan.ConsumerDescription{
		Config: o.cfg, Created: o.c.created, Nameless: o.c.nameless,
	})
}

// Done implements plan.Op.
func (o *pauseOp) Done(*plan.Planner) {
	c, st := o.c, o.st
	if c == nil {
		o.ac.Error(jsapi.NewError(jsapi.CodeConsumerNotFound))
		return
	}
	c.shown = o.cfg
	in := c.m.Info(st.e.term.Now())
	o.ac.Answer(jsapi.PauseResponse{
		Response: jsapi.NewResponse(o.ac.Req.Verb), Paused: in.Paused, PauseUntil: o.until,
		PauseRemaining: in.PauseRemaining,
	})
	if !o.same {
		c.advisePause(o.until, in.Paused)
	}
}

// advisePause tells that the consumer was paused or goes on.
func (c *consumer) advisePause(until time.Time, paused bool) {
	srv, st := c.st.e.srv, c.st
	srv.advise(st.acct, jsapi.SubjectConsumerPause+st.row.Name+"."+c.cfg.Name, &jsapi.ConsumerPauseAdvisory{
		Event: srv.event(jsapi.AdvisoryConsumerPause), Stream: st.row.Name, Consumer: c.cfg.Name,
		Paused: paused, PauseUntil: until,
	})
}

// Fail implements plan.Op.
func (o *pauseOp) Fail(bool) { o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }
