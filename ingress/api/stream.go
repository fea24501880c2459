package api

import (
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// PrepareCreate judges a STREAM.CREATE as far as the request alone decides, and
// returns the configuration to store.
func PrepareCreate(c *Call, env *jsapi.StreamEnv) (*jsapi.StreamConfig, *jsapi.Error) {
	if e := c.CheckLevel(); e != nil {
		return nil, e
	}
	var req jsapi.StreamConfigRequest
	if e := jsapi.DecodeStrict(c.Body, &req); e != nil {
		return nil, e
	}
	if e := jsapi.CheckStreamRequest(c.Req.Stream, &req.StreamConfig); e != nil {
		return nil, e
	}
	env.Pedantic = req.Pedantic
	cfg, e := jsapi.CheckStreamConfig(&req.StreamConfig, env)
	if e != nil {
		return nil, e
	}
	return cfg, unsupported(cfg)
}

// PrepareUpdate judges a STREAM.UPDATE against the stream as it is, and returns
// the configuration to store.
func PrepareUpdate(c *Call, old *jsapi.StreamConfig, env *jsapi.StreamEnv) (*jsapi.StreamConfig, *jsapi.Error) {
	if e := c.CheckLevel(); e != nil {
		return nil, e
	}
	var req jsapi.StreamConfigRequest
	if e := jsapi.DecodeStrict(c.Body, &req); e != nil {
		return nil, e
	}
	env.Pedantic = req.Pedantic
	cfg, e := jsapi.CheckStreamConfig(&req.StreamConfig, env)
	if e != nil {
		return nil, e
	}
	if cfg.Name != c.Req.Stream {
		return nil, jsapi.NewError(jsapi.CodeStreamMismatch)
	}
	if old == nil {
		return nil, jsapi.NewError(jsapi.CodeStreamNotFound)
	}
	cfg, e = jsapi.CheckStreamUpdate(old, cfg, env)
	if e != nil {
		return nil, e
	}
	return cfg, unsupported(cfg)
}

// unsupported refuses, by name, what this version would accept and not do.
func unsupported(cfg *jsapi.StreamConfig) *jsapi.Error {
	for _, f := range []struct {
		used bool
		name string
	}{
		{cfg.Retention == jsapi.InterestPolicy, "interest retention"},
		{cfg.Mirror != nil, "mirror"},
		{len(cfg.Sources) > 0, "sources"},
		{cfg.SubjectTransform != nil, "subject_transform"},
		{cfg.RePublish != nil, "republish"},
		{cfg.DeleteMarkerTTL > 0, "subject_delete_marker_ttl"}, // which turns allow_msg_ttl on
		{cfg.AllowMsgTTL, "allow_msg_ttl"},
		{cfg.AllowMsgCounter, "allow_msg_counter"},
		{cfg.AllowAtomic, "allow_atomic"},
		{cfg.AllowSchedules, "allow_msg_schedules"},
		{cfg.AllowBatched, "allow_batched"},
	} {
		if f.used {
			return jsapi.ErrInvalidConfig(f.name + " is not supported by this version of Holdfast")
		}
	}
	return nil
}

// View is a stream as infos show it.
type View struct {
	Config    *jsapi.StreamConfig
	Created   time.Time
	State     record.StreamState
	Consumers int
	Domain    string
	Cluster   *jsapi.ClusterInfo
	Version   string // "" leaves the dynamic metadata out
}

// Info builds the info of a stream.
func (v *View) Info(now time.Time) *jsapi.StreamInfo {
	cfg := v.Config
	if v.Version != "" {
		cfg = cfg.WithDynamicMetadata(v.Version, Level)
	}
	return &jsapi.StreamInfo{
		Config: *cfg, Created: v.Created, State: State(v.State, v.Consumers),
		Domain: v.Domain, Cluster: v.Cluster, TimeStamp: now,
	}
}

// State converts counters.
func State(st record.StreamState, consumers int) jsapi.StreamState {
	out := jsapi.StreamState{
		Msgs: st.Messages, Bytes: st.Bytes, FirstSeq: st.FirstSeq, LastSeq: st.LastSeq,
		NumSubjects: int(st.Subjects), Consumers: consumers,
	}
	if st.LastSeq == 0 {
		out.FirstSeq = 0 // a stream that never had a message says 0, not 1
	}
	if st.Messages > 0 {
		out.FirstTime = wall(st.FirstTime)
		out.NumDeleted = int(st.LastSeq - st.FirstSeq + 1 - st.Messages)
	}
	if st.LastTime != 0 {
		out.LastTime = wall(st.LastTime)
	}
	return out
}

func wall(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// Details adds to a state what a STREAM.INFO asked for: deleted sequences, and
// the subjects of one page with their counts.
func Details(s *plan.Stream, req *jsapi.StreamInfoRequest, st *jsapi.StreamState) jsapi.Paged {
	if req.DeletedDetails && st.NumDeleted > 0 {
		st.Deleted = s.AppliedGaps()
	}
	if req.SubjectsFilter == "" {
		return jsapi.Paged{}
	}
	subjects := s.AppliedSubjects(req.SubjectsFilter)
	page, from, to := jsapi.Page(len(subjects), req.Offset, jsapi.SubjectsLimit)
	if len(subjects) == 0 {
		return jsapi.Paged{}
	}
	st.Subjects = make(map[string]uint64, to-from)
	size := 0
	for i, row := range subjects[from:to] {
		if size += len(row.Subject) + subjectCost; size > MaxSubjectsBytes && i > 0 {
			break
		}
		st.Subjects[row.Subject] = row.Count
	}
	return page
}

// MaxSubjectsBytes bounds the subjects of one STREAM.INFO answer, so that it fits
// into a message; clients ask for the rest with an offset.
const MaxSubjectsBytes = 640 << 10

const subjectCost = 24

// Get answers STREAM.MSG.GET from the applied state.
func Get(c *Call, s *plan.Stream) {
	var req jsapi.MsgGetRequest
	if len(c.Body) == 0 {
		c.Error(jsapi.NewError(jsapi.CodeBadRequest))
		return
	}
	if e := jsapi.DecodeStrict(c.Body, &req); e != nil {
		c.Error(e)
		return
	}
	if !validGet(&req) {
		c.Error(jsapi.NewError(jsapi.CodeBadRequest))
		return
	}
	m := find(s, &req)
	if m == nil {
		c.Error(jsapi.NewError(jsapi.CodeNoMessageFound))
		return
	}
	out := &jsapi.StoredMsg{Subject: m.Subject, Sequence: m.Seq, Data: m.Payload, Time: wall(m.Time)}
	if !req.NoHeaders {
		out.Header = m.Header
	}
	c.Answer(jsapi.MsgGetResponse{Response: jsapi.NewResponse(c.Req.Verb), Message: out})
}

func validGet(r *jsapi.MsgGetRequest) bool {
	seq, last, next, at := r.Seq > 0, r.LastFor != "", r.NextFor != "", r.StartTime != nil
	switch {
	case !seq && !last && !next && !at,
		seq && last, seq && at, at && last, last && next,
		r.Batch != 0, r.MaxBytes != 0:
		return false
	}
	return true
}

func find(s *plan.Stream, r *jsapi.MsgGetRequest) *record.Message {
	from := r.Seq
	switch {
	case r.LastFor != "":
		seq, ok := s.AppliedLast(r.LastFor)
		if !ok {
			return nil
		}
		return s.Get(seq)
	case r.StartTime != nil:
		seq, ok := s.AppliedAt(jsapi.UnixNano(*r.StartTime))
		if !ok {
			return nil
		}
		from = seq
	case r.NextFor == "":
		return s.Get(r.Seq)
	}
	if r.NextFor == "" {
		return s.Get(from)
	}
	return s.AppliedNext(max(from, 1), r.NextFor)
}
