package ingress

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
)

// limitStep bounds the messages that one step removes when limits were lowered,
// limitRows the subjects that it looks at.
const (
	limitStep = 1024
	limitRows = 8192
)

// limitCursor is how far lowered limits are applied.
type limitCursor struct {
	after    string // subjects up to it are done
	subjects bool   // all subjects are done
}

// shrink plans the removal of what a stream's limits do not allow, at most a step;
// more says that there may be more to do from next on.
func shrink(s *plan.Stream, cfg *jsapi.StreamConfig, at limitCursor) (next limitCursor, more bool) {
	left := limitStep
	if n := cfg.MaxMsgsPer; n > 0 && !at.subjects {
		if at, more = shrinkSubjects(s, uint64(n), at, &left); more {
			return at, true
		}
	}
	at.subjects = true
	if cfg.Discard != jsapi.DiscardOld {
		return at, false // what is there stays; nothing new is taken
	}
	above := func() bool {
		st := s.State()
		return st.Messages > 0 && (cfg.MaxMsgs > 0 && st.Messages > uint64(cfg.MaxMsgs) ||
			cfg.MaxBytes > 0 && st.Bytes > uint64(cfg.MaxBytes))
	}
	for ; above(); left-- {
		if left == 0 {
			return at, true
		}
		if !s.Remove(s.State().FirstSeq) {
			break
		}
	}
	return at, false
}

// shrinkSubjects is shrink for the limit of each subject.
func shrinkSubjects(s *plan.Stream, n uint64, at limitCursor, left *int) (next limitCursor, more bool) {
	over, after, end := s.SubjectsAbove(n, at.after, limitRows)
	for _, subject := range over {
		for st := s.SubjectStat(subject); st.Count > n; st = s.SubjectStat(subject) {
			if *left == 0 {
				return at, true
			}
			if !s.Remove(s.FirstOf(subject, st.First)) {
				break
			}
			*left--
		}
		at.after = subject
	}
	at.after = after
	return at, !end
}

func (c limitCursor) encode() []byte {
	out := plan.SweepCursor{After: c.after}
	if c.subjects {
		out.Seq = 1
	}
	return out.Encode()
}

// limitOp goes on with limits that an update lowered, a bounded step at a time. A
// sweep row stands for it until it is done, so that the next leader goes on. The last
// one that began is the one that counts.
type limitOp struct {
	plan.OpBase
	st   *stream
	run  uint64
	at   limitCursor
	next limitCursor
	more bool
}

// beginLimits makes the limits that are applied from now on the ones that count.
func (st *stream) beginLimits() (run uint64) {
	st.limiting++
	return st.limiting
}

// Base implements plan.Op.
func (o *limitOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *limitOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	o.more = false
	if s == nil || o.st.gone || o.run != o.st.limiting {
		return 0
	}
	if o.next, o.more = shrink(s, o.st.cfg(), o.at); o.more {
		s.PutSweep(plan.SweepLimits, o.next.encode())
	} else {
		s.EndSweep(plan.SweepLimits)
	}
	return p.Tick()
}

// Done implements plan.Op.
func (o *limitOp) Done(*plan.Planner) {
	if o.more {
		o.st.e.yield(&limitOp{st: o.st, run: o.run, at: o.next})
	}
}

// Fail implements plan.Op.
func (o *limitOp) Fail(bool) {}
