package ingress

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// api answers an API request about a live stream of this group.
func (e *engine) api(c *call) {
	if e.term.Check() != nil {
		e.srv.hold(c)
		return
	}
	ac := e.srv.fencedCall(c, e.term.Check)
	ac.Resubmit = func() bool { return e.ctx.Err() != nil && e.srv.successorHas(c) }
	if bad := api.Precheck(ac); bad != nil {
		ac.Error(bad)
		return
	}
	st := e.live(c)
	switch {
	case st != nil:
	case e.p.Err() != nil: // it can not be read here; the next leader can
		e.srv.hold(c)
		return
	case c.req.Verb == jsapi.VerbStreamCreate:
		e.srv.metaTask(c) // it is being deleted, and the leader of group 0 took it for live, too
		return
	default:
		e.srv.absent(ac)
		return
	}
	switch c.req.Verb {
	case jsapi.VerbStreamCreate:
		e.srv.answerCreate(ac, e.view(st), e.group, e.wall())
	case jsapi.VerbStreamUpdate:
		e.updateStream(st, c, ac)
	case jsapi.VerbStreamDelete:
		e.deleteStream(st, c, ac)
	case jsapi.VerbStreamInfo:
		e.streamInfo(st, ac)
	case jsapi.VerbStreamMsgGet:
		api.Get(ac, st.plan())
	case jsapi.VerbStreamMsgDelete:
		if op := api.NewMsgDelete(ac, st.lookup); op != nil {
			e.submitCall(op, ac)
		}
	case jsapi.VerbStreamPurge:
		e.purge(st, c, ac)
	default:
		e.consumerCall(st, ac)
	}
}

func (e *engine) purge(st *stream, c *call, ac *api.Call) {
	env := st.purgeEnv()
	env.Reply, env.Deadline = c.msg.Reply, e.srv.deadline(c.at)
	if op := api.NewPurge(ac, env); op != nil {
		e.submitCall(op, ac)
	}
}

// live returns the stream that a call names, nil if it does not live. The directory
// may know it before this engine has looked.
func (e *engine) live(c *call) *stream {
	for range 2 {
		st := e.byName[nameKey{c.acct.Name, c.req.Stream}]
		if st != nil && !st.gone && st.row.Phase == record.StreamLive && e.load(st) {
			return st
		}
		e.syncDirectory()
	}
	return nil
}

// lookup implements api.Lookup.
func (st *stream) lookup() (*plan.Stream, *jsapi.StreamConfig) {
	if st.gone {
		return nil, nil
	}
	return st.plan(), st.cfg()
}

// purgeEnv is what the purges of the stream share.
func (st *stream) purgeEnv() api.PurgeEnv {
	return api.PurgeEnv{Find: st.lookup, Again: st.e.yield, Hear: st, Slots: &st.purges}
}

func (e *engine) wall() time.Time { return time.Unix(0, e.term.Now()).UTC() }

func (e *engine) view(st *stream) *api.View {
	v := &api.View{
		Config: st.shown.Config, Created: st.created, State: st.plan().Applied(), Consumers: st.shownConsumers(),
		Domain: e.srv.cfg.Domain, Version: e.srv.cfg.Version, Cluster: e.srv.cluster(e.group),
	}
	return v
}

// cluster describes who holds a group.
func (s *Server) cluster(group uint32) *jsapi.ClusterInfo {
	if s.cfg.Cluster != nil {
		return s.cfg.Cluster(group)
	}
	return &jsapi.ClusterInfo{Leader: s.cfg.Node}
}

func (e *engine) streamInfo(st *stream, ac *api.Call) {
	var req jsapi.StreamInfoRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	info := e.view(st).Info(e.wall())
	page := api.Details(st.plan(), &req, &info.State)
	ac.Answer(jsapi.StreamInfoResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, StreamInfo: info})
}

// streamNames answers STREAM.NAMES from the directory.
func (s *Server) streamNames(ac *api.Call, c *call) {
	rows, page, ok := s.listed(ac, c, jsapi.NamesLimit)
	if !ok {
		return
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	ac.Answer(jsapi.StreamNamesResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Streams: names})
}

// listed returns a page of the live streams of an account that a list request selects.
func (s *Server) listed(ac *api.Call, c *call, limit int) ([]record.StreamRow, jsapi.Paged, bool) {
	req := new(jsapi.StreamListRequest)
	if bad := jsapi.DecodeOptional(ac.Body, req); bad != nil {
		ac.Error(bad)
		return nil, jsapi.Paged{}, false
	}
	var keep func(*record.StreamRow) bool
	if req.Subject != "" {
		keep = func(r *record.StreamRow) bool {
			return slices.ContainsFunc(r.Subjects, func(s string) bool { return jsapi.SubjectsOverlap(s, req.Subject) })
		}
	}
	rows, total := s.dir.page(c.acct.Name, keep, max(req.Offset, 0), limit)
	page, _, _ := jsapi.Page(total, req.Offset, limit)
	return rows, page, true
}

// caughtUp waits until this replica shows what each group of the rows has applied.
func (s *Server) caughtUp(ctx context.Context, rows []record.StreamRow) error {
	if s.cfg.ReadIndex == nil {
		return nil
	}
	seen := make(map[uint32]bool)
	for _, r := range rows {
		if seen[r.Group] {
			continue
		}
		seen[r.Group] = true
		if err := s.cfg.ReadIndex(ctx, r.Group); err != nil {
			return err
		}
	}
	return nil
}

// streamList answers STREAM.LIST from this node's replicas.
func (s *Server) streamList(ctx context.Context, c *call, ac *api.Call) {
	rows, page, ok := s.listed(ac, c, jsapi.ListLimit)
	if !ok {
		return
	}
	if err := s.caughtUp(ctx, rows); err != nil {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	resp := jsapi.StreamListResponse{
		Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Streams: []*jsapi.StreamInfo{},
	}
	size := 0
	for _, r := range rows {
		v, err := s.stored(r)
		if err != nil {
			resp.Missing = append(resp.Missing, r.Name)
			continue
		}
		info := v.Info(time.Now().UTC())
		if size += len(encodeConfig(&info.Config)) + listCost; size > api.MaxSubjectsBytes && len(resp.Streams) > 0 {
			break // the rest is asked for with an offset
		}
		resp.Streams = append(resp.Streams, info)
	}
	ac.Answer(resp)
}

const listCost = 512

// stored is a stream as this node's replica of its group has it.
func (s *Server) stored(r record.StreamRow) (*api.View, error) {
	store := s.read(r.Group)
	b, state, err := store.Stream(r.ID)
	if err != nil {
		return nil, err
	}
	d, err := plan.ParseStreamDescription(b)
	if err != nil {
		return nil, err
	}
	v := &api.View{Config: d.Config, Created: d.Created, State: state, Domain: s.cfg.Domain}
	err = store.Consumers(r.ID, func(_ record.ConsumerID, b []byte, _ record.ConsumerState) bool {
		if cd, err := plan.ParseConsumerDescription(b); err == nil && !cd.Config.Direct {
			v.Consumers++
		}
		return true
	})
	return v, err
}
