package publish

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
)

func digest(id []byte) string {
	sum := sha256.Sum256(id)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// checkLimits refuses what a stream with discard new has no room for. A message
// that replaces one of its subject needs no room but for what it is larger.
func (o *Op) checkLimits(s *plan.Stream) *jsapi.Error {
	cfg := o.target.Config
	if cfg.Discard != jsapi.DiscardNew {
		return nil
	}
	size, st := plan.StoredSize(o.subject, o.header, o.payload), s.State()
	room, replaces := o.replaces(s)
	if replaces && cfg.DiscardNewPer && len(o.h.Rollup) == 0 {
		return jsapi.ErrStoreFailed(jsapi.TextMaxMsgsPerSubject)
	}
	if n := cfg.MaxMsgs; n > 0 && st.Messages >= uint64(n) && !replaces {
		return jsapi.ErrStoreFailed(jsapi.TextMaxMsgs)
	}
	if n := cfg.MaxBytes; n > 0 && st.Bytes+size > uint64(n) && (!replaces || room < size) {
		return jsapi.ErrStoreFailed(jsapi.TextMaxBytes)
	}
	return nil
}

// replaces says whether the message pushes one of its subject out, and what that one takes.
func (o *Op) replaces(s *plan.Stream) (room uint64, ok bool) {
	n := o.target.Config.MaxMsgsPer
	if n <= 0 {
		return 0, false
	}
	st := s.SubjectStat(o.subject)
	if st.Count < uint64(n) {
		return 0, false
	}
	if m := s.Planned(s.FirstOf(o.subject, st.First)); m != nil {
		room = plan.StoredSize(m.Subject, m.Header, m.Payload)
	}
	return room, true
}

// store plans the message and what its rollup and the stream's limits remove.
func (o *Op) store(s *plan.Stream) {
	kind := ""
	if len(o.h.Rollup) > 0 {
		kind, _ = o.h.RollupKind()
	}
	if kind == jsapi.RollupAll {
		s.PurgeAll()
	}
	id := ""
	if len(o.h.MsgID) > 0 && o.target.Config.Duplicates > 0 {
		id = DedupKey(o.h.MsgID)
	}
	m := s.Store(o.subject, o.header, o.payload, id)
	o.ack.Seq = m.Seq
	if kind == jsapi.RollupSubject {
		keepOf(s, o.subject, 1, o.target.Hear)
	}
	Enforce(s, o.target.Config, o.subject)
}

// Enforce plans the removals that a stream's limits demand after a change;
// subject names the subject whose own limit is looked at, "" for none.
func Enforce(s *plan.Stream, cfg *jsapi.StreamConfig, subject string) {
	if n := cfg.MaxMsgsPer; n > 0 && subject != "" {
		keepOf(s, subject, uint64(n), nil)
	}
	if cfg.Discard != jsapi.DiscardOld {
		return
	}
	for n := cfg.MaxMsgs; n > 0 && s.State().Messages > uint64(n); {
		if !s.Remove(s.State().FirstSeq) {
			return
		}
	}
	for n := cfg.MaxBytes; n > 0 && s.State().Bytes > uint64(n) && s.State().Messages > 0; {
		if !s.Remove(s.State().FirstSeq) {
			return
		}
	}
}

func keepOf(s *plan.Stream, subject string, keep uint64, hear Purged) {
	for {
		st := s.SubjectStat(subject)
		if st.Count <= keep {
			return
		}
		seq := s.FirstOf(subject, st.First)
		if !s.Remove(seq) {
			return
		}
		if hear != nil {
			hear.Hush(seq)
		}
	}
}
