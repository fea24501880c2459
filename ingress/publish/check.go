package publish

import (
	"fmt"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// MaxRecord is the largest message a stream stores, headers and subject included.
const MaxRecord = 32 << 20

// checkMessage judges what the message and the configuration alone decide, and
// takes out what is never stored.
func (o *Op) checkMessage() *jsapi.Error {
	cfg := o.target.Config
	if plan.StoredSize(o.subject, o.header, o.payload) > MaxRecord || len(o.subject) > record.MaxSubject {
		return jsapi.ErrStoreFailed(jsapi.TextMsgTooLarge)
	}
	if cfg.Sealed {
		return jsapi.NewError(jsapi.CodeStreamSealed)
	}
	if o.h.RequestInfo {
		o.header = jsapi.HeaderRemove(o.header, jsapi.HdrRequestInfo)
		o.h.RequestInfo = false
	}
	if o.h.Status {
		o.header = jsapi.StripStatus(o.header)
		o.h.Status = false
	}
	if n := int(cfg.MaxMsgSize); n >= 0 && len(o.header)+len(o.payload) > n {
		return jsapi.NewError(jsapi.CodeStreamMessageExceedsMaximum)
	}
	if len(o.h.BatchID) > 0 {
		return jsapi.NewError(jsapi.CodeAtomicPublishDisabled)
	}
	if len(o.header) > jsapi.MaxHeaderLen {
		return jsapi.NewError(jsapi.CodeStreamHeaderExceedsMaximum)
	}
	if len(o.header) == 0 {
		return o.resolve()
	}
	if e := o.checkRare(); e != nil {
		return e
	}
	return o.resolve()
}

// resolve finds the ack level.
func (o *Op) resolve() (err *jsapi.Error) {
	o.level, err = o.target.Levels.Resolve(o.h.HoldfastAck, o.target.Floor, o.h.NeedsQuorum())
	return err
}

// checkRare judges the headers of features that change what is stored.
func (o *Op) checkRare() *jsapi.Error {
	if v := o.h.Incr; len(v) > 0 {
		if !integer(v) {
			return jsapi.NewError(jsapi.CodeMessageIncrInvalid)
		}
		return jsapi.NewError(jsapi.CodeMessageIncrDisabled)
	}
	if v := o.h.ExpectedStream; len(v) > 0 && string(v) != o.target.Config.Name {
		return jsapi.NewError(jsapi.CodeStreamNotMatch)
	}
	// A TTL that is none is found out late, right before the message is stored.
	if ttl, err := jsapi.ParseTTL(o.h.TTL); err == nil && ttl != 0 && !o.target.Config.AllowMsgTTL {
		return jsapi.NewError(jsapi.CodeMessageTTLDisabled)
	}
	return nil
}

// integer reports whether v is a decimal number of any size, with or without a sign.
func integer(v []byte) bool {
	if v[0] == '+' || v[0] == '-' {
		v = v[1:]
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v) > 0
}

// checkSchedule judges the headers of message schedules on a stream without them.
func (o *Op) checkSchedule() *jsapi.Error {
	scheduler := string(o.h.Scheduler)
	switch {
	case len(o.h.Schedule) > 0:
		return jsapi.NewError(jsapi.CodeMessageSchedulesDisabled)
	case len(o.h.ScheduleNext) == 0 && scheduler == "":
		return nil
	case string(o.h.ScheduleNext) != jsapi.ScheduleNextPurge, scheduler == o.subject,
		!jsapi.ValidSubject(scheduler) || jsapi.HasWildcards(scheduler):
		return jsapi.NewError(jsapi.CodeMessageSchedulesSchedulerInvalid)
	}
	return jsapi.NewError(jsapi.CodeMessageSchedulesDisabled)
}

// checkPlan judges on the plan state. stop: o.err or a duplicate is the verdict,
// which rests on the tick returned.
func (o *Op) checkPlan(s *plan.Stream) (rests uint64, stop bool) {
	if len(o.header) > 0 {
		if o.err = o.checkExpected(s); o.err != nil {
			return s.Rests(), true
		}
		if o.err = o.checkSchedule(); o.err != nil {
			return 0, true
		}
		if o.h.StreamSource != nil {
			o.err = jsapi.NewError(jsapi.CodeMessageSourceHdrNotAllowed)
			return 0, true
		}
	}
	if o.duplicate(s) {
		return s.Rests(), true
	}
	if len(o.header) > 0 {
		if o.err = o.checkLate(s); o.err != nil {
			return s.Rests(), true
		}
	}
	if o.target.Full != nil && !o.planned && o.target.Full() {
		o.err = jsapi.NewError(jsapi.CodeInsufficientResources)
		return 0, true
	}
	if o.err = o.checkLimits(s); o.err != nil {
		return s.Rests(), true
	}
	return 0, false
}

func (o *Op) checkExpected(s *plan.Stream) *jsapi.Error {
	if want, ok := o.h.ExpectedLastSubjectSeq(); ok {
		subject := o.subject
		if len(o.h.ExpectedLastSubject) > 0 {
			subject = string(o.h.ExpectedLastSubject)
		}
		if got := lastOf(s, subject); got != want {
			return jsapi.ErrWrongLastSequence(got)
		}
	} else if len(o.h.ExpectedLastSubject) > 0 {
		return jsapi.NewError(jsapi.CodeStreamExpectedLastSeqPerSubjectInvalid)
	}
	if want, ok := o.h.ExpectedLastSeq(); ok && want != s.State().LastSeq {
		return jsapi.ErrWrongLastSequence(s.State().LastSeq)
	}
	return nil
}

// lastOf returns the sequence of the last message whose subject matches filter, 0 if none.
func lastOf(s *plan.Stream, filter string) uint64 {
	if !jsapi.HasWildcards(filter) {
		return s.SubjectStat(filter).Last
	}
	last := uint64(0)
	s.SubjectRows(plan.LiteralPrefix(filter), func(subject string, st record.SubjectStat) bool {
		if st.Last > last && jsapi.SubjectMatches(filter, subject) {
			last = st.Last
		}
		return true
	})
	return last
}

// DedupKey is the message id as dedup rows hold it: itself, or a digest of one
// that is longer than a row can hold.
func DedupKey(id []byte) string {
	if len(id) <= command.MaxMsgID {
		return string(id)
	}
	return digest(id)
}

func (o *Op) duplicate(s *plan.Stream) bool {
	window := int64(o.target.Config.Duplicates)
	if len(o.h.MsgID) == 0 || window <= 0 {
		return false
	}
	seq, at, ok := s.Dedup(DedupKey(o.h.MsgID))
	if !ok || at+window <= s.NextTime() {
		return false
	}
	o.ack.Seq, o.ack.Duplicate = seq, true
	return true
}

func (o *Op) checkLate(s *plan.Stream) *jsapi.Error {
	if want := o.h.ExpectedLastMsgID; len(want) > 0 {
		if got := lastMsgID(s); got != string(want) {
			return jsapi.ErrWrongLastMsgID(got)
		}
	}
	if len(o.h.Rollup) > 0 {
		cfg := o.target.Config
		if !cfg.AllowRollup || cfg.DenyPurge {
			return jsapi.NewError(jsapi.CodeStreamRollupFailed, "rollup not permitted")
		}
		if _, ok := o.h.RollupKind(); !ok {
			value := strings.ToLower(string(o.h.Rollup))
			return jsapi.NewError(jsapi.CodeStreamRollupFailed, fmt.Sprintf("rollup value invalid: %q", value))
		}
	}
	if _, err := jsapi.ParseTTL(o.h.TTL); err != nil {
		return jsapi.NewError(jsapi.CodeMessageTTLInvalid)
	}
	return nil
}

// lastMsgID is the message id of the last stored message.
func lastMsgID(s *plan.Stream) string {
	m := s.Planned(s.State().LastSeq)
	if m == nil {
		return ""
	}
	v, _ := jsapi.HeaderGet(m.Header, jsapi.HdrMsgID)
	return string(v)
}
