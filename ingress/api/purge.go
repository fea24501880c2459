package api

import (
	"math/bits"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

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

// maxPurgeFilter bounds the filter of a purge, in bytes; no subject is that long.
const maxPurgeFilter = 16 << 10

// Slots gives each purge of a part of one stream that is under way a sweep row of its
// own. The zero Slots are all free.
type Slots struct{ used [plan.SweepPurges / 64]uint64 }

// take returns a kind of sweep that no other purge uses, 0 if there is none.
func (s *Slots) take() uint8 {
	for i, word := range s.used {
		if n := bits.TrailingZeros64(^word); n < 64 {
			s.used[i] |= 1 << n
			return plan.SweepPurge + uint8(i*64+n)
		}
	}
	return 0
}

func (s *Slots) use(kind uint8) {
	n := kind - plan.SweepPurge
	s.used[n/64] |= 1 << (n % 64)
}

func (s *Slots) free(kind uint8) {
	if kind != 0 {
		n := kind - plan.SweepPurge
		s.used[n/64] &^= 1 << (n % 64)
	}
}

// PurgeEnv is what a Purge works with.
type PurgeEnv struct {
	Find Lookup
	// Again submits the next step.
	Again func(plan.Op)
	Hear  Purged
	// Slots are those of the stream.
	Slots *Slots
	// Reply and Deadline say where and until when the call is answered, also by another leader.
	Reply    string
	Deadline int64
}

// Purge is STREAM.PURGE. All of a stream goes at once; a part of it in steps, each an
// operation, the answer after the last. From the first step on that leaves something to
// do a sweep row holds the purge, so that the next leader goes on and answers.
type Purge struct {
	op
	env     PurgeEnv
	subject string
	keep    uint64
	before  uint64 // sequence
	purged  uint64 // by steps that are applied
	step    uint64 // by the step that is planned
	from    uint64 // where the next step begins
	next    uint64
	upTo    uint64 // last sequence to look at; fixed by the first step
	begun   bool   // a step is applied, so upTo is fixed
	looked  int    // messages that did not match, in the step that is planned
	more    bool
	slot    uint8
	marked  bool // the step that is planned wrote the row
	kept    bool // the applied state holds the row
}

// NewPurge returns the operation of a call, or answers it. That a purge of everything
// leaves dead rows is told by plan.Stream.TakeDead.
func NewPurge(c *Call, env PurgeEnv) *Purge {
	var req jsapi.PurgeRequest
	if e := jsapi.DecodeOptional(c.Body, &req); e != nil {
		c.Error(e)
		return nil
	}
	if req.Sequence > 0 && req.Keep > 0 || len(req.Subject) > maxPurgeFilter {
		c.Error(jsapi.NewError(jsapi.CodeBadRequest))
		return nil
	}
	if req.Subject == ">" {
		req.Subject = ""
	}
	return &Purge{op: op{call: c}, env: env, subject: req.Subject, keep: req.Keep, before: req.Sequence}
}

// ResumePurge returns the operation that goes on where the row of a sweep says.
func ResumePurge(c *Call, env PurgeEnv, slot uint8, at *plan.PurgeCursor) *Purge {
	env.Slots.use(slot)
	env.Reply, env.Deadline = at.Reply, at.Deadline
	return &Purge{
		op: op{call: c}, env: env, subject: at.Filter, purged: at.Purged, from: at.From, upTo: at.UpTo,
		begun: true, slot: slot, kept: true,
	}
}

// Plan implements plan.Op.
func (o *Purge) Plan(p *plan.Planner) uint64 {
	o.err, o.step, o.more, o.next, o.looked, o.marked = nil, 0, false, o.from, 0, false
	s, cfg := o.env.Find()
	switch {
	case s == nil:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamNotFound))
	case o.kept: // it was allowed when it began
	case cfg.Sealed:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamSealed))
	case cfg.DenyPurge:
		return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamPurgeFailed, "stream purge not permitted"))
	case o.subject == "" && o.before == 0 && o.keep == 0:
		o.step = s.PurgeAll()
		return p.Tick()
	}
	if o.slot == 0 {
		if o.slot = o.env.Slots.take(); o.slot == 0 {
			return o.refuse(nil, jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		}
	}
	if !o.begun { // after a rebuild on other messages than before
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
		o.env.Hear.Hush(m.Seq)
		o.step++
	}
	o.more = o.step == PurgeStep || o.looked == PurgeLook
	return o.mark(p, s)
}

// mark plans the sweep row of what is left to do. A step that only looked writes none.
func (o *Purge) mark(p *plan.Planner, s *plan.Stream) uint64 {
	switch {
	case o.more && o.step > 0:
		c := plan.PurgeCursor{
			Filter: o.subject, From: o.next, UpTo: o.upTo, Purged: o.purged + o.step,
			Reply: o.env.Reply, Deadline: o.env.Deadline,
		}
		s.PutSweep(o.slot, c.Encode())
		o.marked = true
	case !o.more && o.kept:
		s.EndSweep(o.slot)
	case o.step == 0:
		return s.Rests()
	}
	return p.Tick()
}

// match returns the next message to remove, nil when none is left.
func (o *Purge) match(s *plan.Stream) *record.Message {
	if o.subject != "" && !jsapi.HasWildcards(o.subject) {
		seq := s.FirstOf(o.subject, o.next)
		if seq == 0 || seq > o.upTo {
			return nil
		}
		return s.Planned(seq)
	}
	for m := s.Next(o.next); m != nil && m.Seq <= o.upTo; m = s.Next(m.Seq + 1) {
		if o.subject == "" || jsapi.SubjectMatches(o.subject, m.Subject) {
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
	case o.before > 0:
		return min(o.before-1, s.State().LastSeq)
	case o.keep > 0:
		return s.NthFromEnd(o.subject, o.keep)
	}
	return s.State().LastSeq
}

// Done implements plan.Op.
func (o *Purge) Done(*plan.Planner) {
	if o.err != nil {
		o.env.Slots.free(o.slot)
		o.call.Error(o.err)
		return
	}
	o.purged += o.step
	o.kept = o.kept || o.marked
	o.step, o.from, o.begun = 0, o.next, true
	if o.more {
		o.env.Again(o)
		return
	}
	o.env.Slots.free(o.slot)
	o.env.Hear.Purged(o.subject)
	o.call.Answer(jsapi.PurgeResponse{
		Response: jsapi.NewResponse(o.call.Req.Verb), Success: true, Purged: o.purged,
	})
}

// Fail implements plan.Op. A purge whose row is there, or may be, is answered by
// whoever finishes it.
func (o *Purge) Fail(certain bool) { //nolint:revive // the flag is what is known, not a choice
	if !o.kept && (certain || !o.marked) {
		o.call.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}
