package api

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// op is what every operation of a call has.
type op struct {
	plan.OpBase
	call *Call
	err  *jsapi.Error
}

// Base implements plan.Op.
func (o *op) Base() *plan.OpBase { return &o.OpBase }

// Fail implements plan.Op.
func (o *op) Fail(bool) { o.call.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }

// refuse keeps an error whose reason rests on what is planned of s.
func (o *op) refuse(s *plan.Stream, e *jsapi.Error) uint64 {
	o.err = e
	if s == nil {
		return 0
	}
	return s.Rests()
}

// Lookup returns the plan of the stream that an operation is about, and its
// configuration; nil if it is gone.
type Lookup func() (*plan.Stream, *jsapi.StreamConfig)

// MsgDelete is STREAM.MSG.DELETE.
type MsgDelete struct {
	op
	find Lookup
	req  jsapi.MsgDeleteRequest
}

// NewMsgDelete returns the operation of a call, or answers it.
func NewMsgDelete(c *Call, find Lookup) *MsgDelete {
	o := &MsgDelete{op: op{call: c}, find: find}
	if len(c.Body) == 0 {
		c.Error(jsapi.NewError(jsapi.CodeBadRequest))
		return nil
	}
	if e := jsapi.DecodeStrict(c.Body, &o.req); e != nil {
		c.Error(e)
		return nil
	}
	return o
}

// Plan implements plan.Op.
func (o *MsgDelete) Plan(p *plan.Planner) uint64 {
	s, cfg := o.find()
	o.err = nil
	switch {
	case s == nil:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamNotFound))
	case cfg.Sealed:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamSealed))
	case cfg.DenyDelete:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamMsgDeleteFailed, "message delete not permitted"))
	case s.Remove(o.req.Seq):
		return p.Tick()
	case cfg.Storage == jsapi.MemoryStorage:
		return o.refuse(s, jsapi.NewError(jsapi.CodeSequenceNotFound, o.req.Seq))
	case o.req.Seq > s.State().LastSeq:
		return o.refuse(s, jsapi.NewError(jsapi.CodeStreamMsgDeleteFailed, "stream store EOF"))
	}
	return o.refuse(s, jsapi.NewError(jsapi.CodeStreamMsgDeleteFailed, "no message found"))
}

// Done implements plan.Op.
func (o *MsgDelete) Done(*plan.Planner) {
	if o.err != nil {
		o.call.Error(o.err)
		return
	}
	o.call.Answer(jsapi.SuccessResponse{Response: jsapi.NewResponse(o.call.Req.Verb), Success: true})
}
