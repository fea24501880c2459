package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// metaCall answers what belongs to the leader of group 0.
func (s *Server) metaCall(c *call) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HoldFor)
	defer cancel()
	ac := s.apiCall(c)
	if bad := api.Precheck(ac); bad != nil {
		ac.Error(bad)
		return
	}
	switch c.req.Verb {
	case jsapi.VerbInfo:
		s.accountInfo(ctx, c, ac)
	case jsapi.VerbStreamNames:
		s.streamNames(ac, c)
	case jsapi.VerbStreamList:
		s.streamList(ctx, c, ac)
	case jsapi.VerbStreamCreate:
		s.createStream(ctx, c, ac)
	case jsapi.VerbStreamUpdate:
		if _, e := api.PrepareUpdate(ac, nil, s.streamEnv(0)); e != nil {
			ac.Error(e)
		}
	default:
		s.absent(ac)
	}
}

// absent answers a call about a stream that is not there.
func (s *Server) absent(ac *api.Call) {
	switch ac.Req.Verb {
	case jsapi.VerbConsumerReset:
		return // like the real server: no answer about a consumer that is not there
	case jsapi.VerbConsumerCreate, jsapi.VerbConsumerDurableCreate:
		if _, bad := decodeConsumer(ac); bad != nil {
			ac.Error(bad)
			return
		}
	default:
	}
	ac.Error(jsapi.NewError(jsapi.CodeStreamNotFound))
}

// apiCall wraps a call so that its answer is counted and sent.
func (s *Server) apiCall(c *call) *api.Call {
	return &api.Call{Req: c.req, Header: c.msg.Header, Body: c.msg.Data, Reply: func(body []byte) {
		s.stats.total.Add(1)
		c.acct.send(c.msg.Reply, "", nil, body)
	}, Failed: func() { s.stats.errors.Add(1) }}
}

func (s *Server) streamEnv(group uint32) *jsapi.StreamEnv {
	env := &jsapi.StreamEnv{MaxVoters: 1}
	if s.cfg.Voters != nil {
		env.MaxVoters = max(s.cfg.Voters(group), 1)
	}
	return env
}

// createStream reserves name and subjects; the leader of the group stores the
// stream and answers. A stream that lives by then is answered by its group.
func (s *Server) createStream(ctx context.Context, c *call, ac *api.Call) {
	group := s.placeStream()
	cfg, e := api.PrepareCreate(ac, s.streamEnv(group))
	if e != nil {
		ac.Error(e)
		return
	}
	if s.cfg.Open != nil && !s.cfg.Open() {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	row := record.StreamRow{
		Group: group, Account: c.acct.Name, Name: cfg.Name, Subjects: cfg.Subjects,
		Request: &record.Request{
			Subject: c.msg.Subject, Reply: c.msg.Reply, Body: encodeConfig(cfg),
			Deadline: time.Now().Add(s.cfg.HoldFor).UnixNano(),
		},
	}
	err := s.dir.reserve(ctx, row)
	switch {
	case err == nil:
		return // the group's leader answers
	case errors.Is(err, errNameTaken):
		s.waitSettled(ctx, c, ac)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	default:
		var je *jsapi.Error
		if !errors.As(err, &je) {
			s.log.Error("reserving a stream", zap.String("stream", cfg.Name), zap.Error(err))
			je = jsapi.NewError(jsapi.CodeClusterNotAvail)
		}
		ac.Error(je)
	}
}

// waitSettled waits until the row of a name is live or gone, then dispatches the
// create again.
func (s *Server) waitSettled(ctx context.Context, c *call, ac *api.Call) {
	for {
		changed := s.meta.Changed()
		row, version := s.dir.row(c.acct.Name, c.req.Stream)
		if version == 0 || row.Phase == record.StreamLive {
			s.dispatch(c)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
			return
		}
	}
}

// placeStream chooses the group of a new stream: the one with the fewest.
func (s *Server) placeStream() uint32 {
	if s.cfg.Groups == 1 {
		return 1
	}
	counts := make([]int, s.cfg.Groups+1)
	s.dir.rows("", func(r record.StreamRow) bool {
		if r.Group <= s.cfg.Groups {
			counts[r.Group]++
		}
		return true
	})
	best := uint32(1)
	for g := uint32(2); g <= s.cfg.Groups; g++ {
		if counts[g] < counts[best] {
			best = g
		}
	}
	return best
}

func encodeConfig(cfg *jsapi.StreamConfig) []byte {
	b, err := json.Marshal(cfg)
	if err != nil {
		panic("validated stream configuration: " + err.Error())
	}
	return b
}

// finishCreate brings a reserved stream to life: stored, applied, subscribed,
// live in the directory, answered. Whoever leads the group goes on where the last
// leader stopped.
func (e *engine) finishCreate(st *stream) {
	if st.busy {
		return
	}
	st.busy = true
	var cfg jsapi.StreamConfig
	if st.row.Request == nil || json.Unmarshal(st.row.Request.Body, &cfg) != nil {
		e.log.Error("reservation without a configuration", zap.String("stream", st.row.Name))
		e.removeRow(st)
		return
	}
	if e.load(st) { // a leader before this one stored it
		e.goLive(st)
		return
	}
	e.submit(&createOp{st: st, cfg: &cfg, created: time.Unix(0, e.term.Now()).UTC()})
}

// createOp stores a stream.
type createOp struct {
	plan.OpBase
	st      *stream
	cfg     *jsapi.StreamConfig
	created time.Time
}

// Base implements plan.Op.
func (o *createOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *createOp) Plan(p *plan.Planner) uint64 {
	if s, err := p.Open(o.st.row.ID); err == nil && s != nil {
		return s.Rests()
	}
	d := plan.StreamDescription{Account: o.st.row.Account, Config: o.cfg, Created: o.created}
	p.Create(o.st.row.ID, d.Encode(), max(o.cfg.FirstSeq, 1))
	return p.Tick()
}

// Done implements plan.Op.
func (o *createOp) Done(*plan.Planner) {
	if o.st.e.load(o.st) {
		o.st.e.goLive(o.st)
	}
}

// Fail implements plan.Op.
func (o *createOp) Fail(bool) {} // the next leader finds the reservation

// goLive subscribes a stored stream, makes its row live and answers its creation.
func (e *engine) goLive(st *stream) {
	row := st.row
	if err := st.subscribe(); err != nil {
		e.log.Error("subscribing a new stream", zap.String("stream", row.Name), zap.Error(err))
		return
	}
	srv, acct := e.srv, st.acct
	info := e.view(st).Info(time.Unix(0, e.term.Now()).UTC())
	info.Domain, info.Cluster = "", nil
	ctx := e.ctx
	srv.tasks.Go(func() {
		if err := acct.conn.Flush(ctx); err != nil {
			e.failed(st, "flushing the subscriptions of a new stream", err)
			return
		}
		err := srv.dir.change(ctx, row, func(r *record.StreamRow) (*record.StreamRow, error) {
			next := *r
			next.Phase, next.Request = record.StreamLive, nil
			return &next, nil
		})
		if err != nil {
			e.failed(st, "making a new stream live", err)
			return
		}
		if row.Request != nil && time.Now().UnixNano() < row.Request.Deadline {
			req := jsapi.Request{Verb: jsapi.VerbStreamCreate, Stream: row.Name}
			ac := srv.apiCall(&call{acct: acct, req: req, msg: &Msg{Reply: row.Request.Reply}})
			ac.Answer(jsapi.StreamCreateResponse{
				Response: jsapi.NewResponse(req.Verb), StreamInfo: info, DidCreate: true,
			})
			srv.advise(acct, jsapi.SubjectStreamCreated+row.Name, &jsapi.StreamActionAdvisory{
				Event: srv.event(jsapi.AdvisoryStreamAction), Stream: row.Name, Action: jsapi.ActionCreated,
			})
		}
		e.q.push(event{kind: evRun, fn: func(*engine) { st.busy = false }})
	})
}

// retryStep is the pause before a step of a stream's life is tried again.
const retryStep = time.Second

// failed says that a step of a stream's life was not done; it is tried again, by
// this leader or the next, as the directory row still asks for it.
func (e *engine) failed(st *stream, what string, err error) {
	if e.ctx.Err() != nil {
		return
	}
	e.log.Warn(what, zap.String("stream", st.row.Name), zap.Error(err))
	e.q.push(event{kind: evRun, fn: func(e *engine) {
		e.later(retryStep, func(e *engine) {
			st.busy = false
			e.syncDirectory()
		})
	}})
}

// updateStream is STREAM.UPDATE of a live stream: reserve what is new, apply in
// the group, release what is old, subscribe, answer.
func (e *engine) updateStream(st *stream, ac *api.Call) {
	cfg, bad := api.PrepareUpdate(ac, st.cfg(), e.srv.streamEnv(e.group))
	if bad == nil {
		bad = jsapi.CheckConsumerLimits(st.cfg(), cfg, st.configs(nil))
	}
	if bad != nil {
		ac.Error(bad)
		return
	}
	row, srv, ctx := st.row, e.srv, e.ctx
	next := func() {
		e.submit(&updateOp{st: st, cfg: cfg, ac: ac})
	}
	if sameSubjects(row.Subjects, cfg.Subjects) {
		next()
		return
	}
	srv.tasks.Go(func() {
		err := srv.dir.change(ctx, row, func(r *record.StreamRow) (*record.StreamRow, error) {
			if srv.dir.overlap(row.Account, row.Name, cfg.Subjects) != "" {
				return nil, jsapi.NewError(jsapi.CodeStreamSubjectOverlap)
			}
			out := *r
			out.Subjects = cfg.Subjects
			return &out, nil
		})
		e.q.push(event{kind: evRun, fn: func(e *engine) {
			var je *jsapi.Error
			switch {
			case errors.As(err, &je):
				ac.Error(je)
			case err != nil:
				ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
			default:
				e.syncDirectory()
				next()
			}
		}})
	})
}

// updateOp stores a new configuration and applies what it lowers.
type updateOp struct {
	plan.OpBase
	st  *stream
	cfg *jsapi.StreamConfig
	ac  *api.Call
	d   *plan.StreamDescription // as planned
	err *jsapi.Error
}

// Base implements plan.Op.
func (o *updateOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *updateOp) Plan(p *plan.Planner) uint64 {
	s := o.st.plan()
	if s == nil || o.st.gone {
		o.err = jsapi.NewError(jsapi.CodeStreamNotFound)
		return 0
	}
	o.err = nil
	o.d = &plan.StreamDescription{Account: o.st.row.Account, Config: o.cfg, Created: o.st.created}
	o.st.use(o.d)
	s.Describe(o.d.Encode())
	enforceAll(s, o.cfg)
	return o.st.changed(p)
}

// Done implements plan.Op.
func (o *updateOp) Done(*plan.Planner) {
	if o.err != nil {
		o.ac.Error(o.err)
		return
	}
	e, st := o.st.e, o.st
	st.shown = o.d
	info := e.view(st).Info(time.Unix(0, e.term.Now()).UTC())
	info.Cluster = nil
	e.watchAge(st)
	srv, ctx := e.srv, e.ctx
	srv.tasks.Go(func() {
		if err := st.acct.conn.Flush(ctx); err != nil {
			o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
			return
		}
		o.ac.Answer(jsapi.StreamUpdateResponse{Response: jsapi.NewResponse(o.ac.Req.Verb), StreamInfo: info})
		srv.advise(st.acct, jsapi.SubjectStreamUpdated+st.row.Name, &jsapi.StreamActionAdvisory{
			Event: srv.event(jsapi.AdvisoryStreamAction), Stream: st.row.Name, Action: jsapi.ActionModified,
		})
	})
}

// Fail implements plan.Op.
func (o *updateOp) Fail(bool) { o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }

// deleteStream marks the row; finishDelete does the rest, under this leader or the next.
func (e *engine) deleteStream(st *stream, ac *api.Call) {
	if bad := ac.Empty(); bad != nil {
		ac.Error(bad)
		return
	}
	row, srv, ctx := st.row, e.srv, e.ctx
	st.deleting = append(st.deleting, ac)
	srv.tasks.Go(func() {
		err := srv.dir.change(ctx, row, func(r *record.StreamRow) (*record.StreamRow, error) {
			next := *r
			next.Phase, next.Request = record.StreamDeleting, nil
			return &next, nil
		})
		if err != nil {
			e.log.Warn("deleting a stream", zap.String("stream", row.Name), zap.Error(err))
			ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		}
	})
}

// finishDelete removes a stream whose row is in phase deleting.
func (e *engine) finishDelete(st *stream) {
	if st.busy {
		return
	}
	st.busy = true
	st.unsubscribe()
	for _, c := range st.consumers {
		c.deleted(e)
	}
	e.submit(&deleteOp{st: st})
}

// deleteOp removes a stream from its group.
type deleteOp struct {
	plan.OpBase
	st *stream
}

// Base implements plan.Op.
func (o *deleteOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *deleteOp) Plan(p *plan.Planner) uint64 {
	o.st.gone = true
	s := o.st.plan()
	if s == nil {
		return 0
	}
	s.Delete()
	return p.Tick()
}

// Done implements plan.Op.
func (o *deleteOp) Done(*plan.Planner) { o.st.e.removeRow(o.st) }

// Fail implements plan.Op.
func (o *deleteOp) Fail(bool) {} // the next leader finds the row

// removeRow removes the row of a stream that its group does not hold any more, and answers.
func (e *engine) removeRow(st *stream) {
	row, srv, ctx := st.row, e.srv, e.ctx
	calls := st.deleting
	names := st.consumerNames()
	e.p.Forget(row.ID)
	srv.tasks.Go(func() {
		err := srv.dir.change(ctx, row, func(*record.StreamRow) (*record.StreamRow, error) { return nil, nil })
		for _, ac := range calls {
			if err != nil {
				ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
				continue
			}
			ac.Answer(jsapi.SuccessResponse{Response: jsapi.NewResponse(ac.Req.Verb), Success: true})
		}
		if err != nil {
			e.failed(st, "removing the row of a deleted stream", err)
			return
		}
		for _, name := range names {
			srv.advise(st.acct, jsapi.SubjectConsumerDeleted+row.Name+"."+name, &jsapi.ConsumerActionAdvisory{
				Event: srv.event(jsapi.AdvisoryConsumerAction), Stream: row.Name, Consumer: name,
				Action: jsapi.ActionDeleted,
			})
		}
		srv.advise(st.acct, jsapi.SubjectStreamDeleted+row.Name, &jsapi.StreamActionAdvisory{
			Event: srv.event(jsapi.AdvisoryStreamAction), Stream: row.Name, Action: jsapi.ActionDeleted,
		})
	})
}
