package api

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
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

// Purged hears what a purge does, for the consumers of the stream.
type Purged interface {
	// Hush is told of each message that goes, when that is planned.
	Hush(seq uint64)
	// Purged is told of the subject that was purged ("" for all) when that is applied.
	Purged(subject string)
}

// PurgeStep bounds the messages that one step of a purge removes, PurgeLook those
// that it looks at without removing them.
const (
	PurgeStep = 1024
	PurgeLook = 4096
)

// Purge is STREAM.PURGE. All of a stream goes at once; a part of it in steps,
// each an operation, the answer after the last.
type Purge struct {
	op
	find   Lookup
	again  func(plan.Op)
	hear   Purged
	req    jsapi.PurgeRequest
	purged uint64 // by steps that are applied
	step   uint64 // by the step that is planned
	from   uint64 // where the next step begins
	next   uint64
	upTo   uint64 // last sequence to look at; fixed by the first step
	looked int    // messages that did not match, in the step that is planned
	more   bool
}

// NewPurge returns the operation of a call, or answers it. again submits the next
// step. That a purge of everything leaves dead rows is told by plan.Stream.TakeDead.
func NewPurge(c *Call, find Lookup, again func(plan.Op), hear Purged) *Purge {
	o := &Purge{op: op{call: c}, find: find, again: again, hear: hear}
	if e := jsapi.DecodeOptional(c.Body, &o.req); e != nil {
		c.Error(e)
		return nil
	}
	if o.req.Sequence > 0 && o.req.Keep > 0 {
		c.Error(jsapi.NewError(jsapi.CodeBadRequest))
		return nil
	}
	if o.req.Subject == ">" {
		o.req.Subject = ""
	}
	return o
}

// Plan implements plan.Op.
func (o *Purge) Plan(p *plan.Planner) uint64 {
	o.err, o.step, o.more, o.next, o.looked = nil, 0, false, o.from, 0
	s, cfg := o.find()
	switch {
	case s == nil:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamNotFound))
	case cfg.Sealed:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamSealed))
	case cfg.DenyPurge:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamPurgeFailed, "stream purge not permitted"))
	}
	if o.req.Subject == "" && o.req.Sequence == 0 && o.req.Keep == 0 {
		o.step = s.PurgeAll()
		return p.Tick()
	}
	if o.upTo == 0 {
		o.upTo = o.end(s)
	}
	for o.step < PurgeStep {
		m := o.match(s)
		if m == nil {
			break
		}
		o.next = m.Seq + 1
		if !s.Remove(m.Seq) {
			return o.refuse(s, jsapi.NewError(jsapi.CodeStreamPurgeFailed, "purge failed"))
		}
		o.hear.Hush(m.Seq)
		o.step++
	}
	o.more = o.step == PurgeStep || o.looked == PurgeLook
	if o.step == 0 {
		return s.Rests()
	}
	return p.Tick()
}

// match returns the next message to remove, nil when none is left.
func (o *Purge) match(s *plan.Stream) *record.Message {
	if o.req.Subject != "" && !jsapi.HasWildcards(o.req.Subject) {
		seq := s.FirstOf(o.req.Subject, o.next)
		if seq == 0 || seq > o.upTo {
			return nil
		}
		return s.Planned(seq)
	}
	for m := s.Next(o.next); m != nil && m.Seq <= o.upTo; m = s.Next(m.Seq + 1) {
		if o.req.Subject == "" || jsapi.SubjectMatches(o.req.Subject, m.Subject) {
			return m
		}
		if o.looked++; o.looked == PurgeLook {
			o.next = m.Seq + 1
			return nil
		}
	}
	return nil
}

// end returns the last sequence that may go: 0 means none.
func (o *Purge) end(s *plan.Stream) uint64 {
	switch {
	case o.req.Sequence > 0:
		return min(o.req.Sequence-1, s.State().LastSeq)
	case o.req.Keep > 0:
		return s.NthFromEnd(o.req.Subject, o.req.Keep)
	}
	return s.State().LastSeq
}

// Done implements plan.Op.
func (o *Purge) Done(*plan.Planner) {
	if o.err != nil {
		o.call.Error(o.err)
		return
	}
	o.purged += o.step
	o.step, o.from = 0, o.next
	if o.more {
		o.again(o)
		return
	}
	o.hear.Purged(o.req.Subject)
	o.call.Answer(jsapi.PurgeResponse{
		Response: jsapi.NewResponse(o.call.Req.Verb), Success: true, Purged: o.purged,
	})
}
