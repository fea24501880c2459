package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// updateStream is STREAM.UPDATE of a live stream. A change of the subjects goes
// through the directory: the row takes the old and the new ones and carries the
// request, the group's leader applies it, then the row gives up the old ones. Whoever
// leads the group finishes what a crash left in between.
func (e *engine) updateStream(st *stream, c *call, ac *api.Call) {
	cfg, bad := api.PrepareUpdate(ac, st.cfg(), e.srv.streamEnv(e.group))
	if bad == nil {
		bad = jsapi.CheckConsumerLimits(st.cfg(), cfg, st.configs(nil))
	}
	switch {
	case bad != nil:
		e.submitCall(&refuseOp{st: st, ac: ac, err: bad}, ac)
	case st.row.Request == nil && slices.Equal(st.row.Subjects, cfg.Subjects):
		e.submitCall(&updateOp{st: st, cfg: cfg, ac: ac}, ac)
	default:
		row := st.row
		e.callTask(ac, func() { e.srv.reserveUpdate(e.ctx, row, cfg, c, ac) })
	}
}

// errUpdating: another update of the stream's subjects is not finished.
var errUpdating = errors.New("subjects are being updated")

// reserveUpdate puts the request of an update and its subjects into the stream's row.
func (s *Server) reserveUpdate(
	ctx context.Context, row record.StreamRow, cfg *jsapi.StreamConfig, c *call, ac *api.Call,
) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HoldFor)
	defer cancel()
	row.Request = &record.Request{
		Subject: c.msg.Subject, Reply: c.msg.Reply, Body: encodeConfig(cfg),
		Deadline: s.deadline(time.Now()),
	}
	reserve := func(r *record.StreamRow) (*record.StreamRow, error) {
		switch {
		case r.Phase != record.StreamLive:
			return nil, jsapi.NewError(jsapi.CodeStreamNotFound)
		case r.Request != nil:
			return nil, errUpdating
		case s.dir.overlap(row.Account, row.Name, cfg.Subjects) != "":
			return nil, jsapi.NewError(jsapi.CodeStreamSubjectOverlap)
		}
		next := *r
		next.Request = row.Request
		next.Subjects = slices.Clone(r.Subjects)
		for _, subject := range cfg.Subjects {
			if !slices.Contains(next.Subjects, subject) {
				next.Subjects = append(next.Subjects, subject)
			}
		}
		return &next, nil
	}
	for {
		changed := s.meta.Changed()
		err := s.dir.changeAlone(ctx, row, reserve)
		var je *jsapi.Error
		switch {
		case err == nil:
			return // the group's leader goes on
		case errors.As(err, &je):
			ac.Error(je)
			return
		case !errors.Is(err, errUpdating):
			if !s.reserved(&row) {
				ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
			}
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

// refuseOp answers a call with an error that rests on what is planned.
type refuseOp struct {
	plan.OpBase
	st  *stream
	ac  *api.Call
	err *jsapi.Error
}

// Base implements plan.Op.
func (o *refuseOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *refuseOp) Plan(*plan.Planner) uint64 { return o.st.rests() }

// Done implements plan.Op.
func (o *refuseOp) Done(*plan.Planner) { o.ac.Error(o.err) }

// Fail implements plan.Op.
func (o *refuseOp) Fail(bool) { o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }

// finishUpdate applies the update that a row carries.
func (e *engine) finishUpdate(st *stream) {
	if st.busy {
		return
	}
	st.busy = true
	var cfg jsapi.StreamConfig
	if err := json.Unmarshal(st.row.Request.Body, &cfg); err != nil {
		e.failed(st, "reading an update from the directory", err)
		return
	}
	ac := e.srv.rowCall(st.acct, &st.row, jsapi.VerbStreamUpdate)
	e.submit(&updateOp{st: st, cfg: &cfg, ac: ac, reserved: true})
}

// updateOp stores a new configuration and begins to apply what it lowers.
type updateOp struct {
	plan.OpBase
	st       *stream
	cfg      *jsapi.StreamConfig
	ac       *api.Call
	reserved bool // the row carries it, and is to be changed afterwards
	// What Plan decided.
	d    *plan.StreamDescription
	next limitCursor
	more bool   // limits are left to apply
	run  uint64 // by whom
	err  *jsapi.Error
}

// Base implements plan.Op.
func (o *updateOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *updateOp) Plan(*plan.Planner) uint64 {
	st := o.st
	s := st.plan()
	o.err, o.more = nil, false
	if s == nil || st.gone {
		o.err = jsapi.NewError(jsapi.CodeStreamNotFound)
		return 0
	}
	o.d = &plan.StreamDescription{Account: st.row.Account, Config: o.cfg, Created: st.created}
	st.use(o.d)
	s.Describe(o.d.Encode())
	if o.next, o.more = shrink(s, o.cfg, limitCursor{}); o.more {
		o.run = st.beginLimits()
		s.PutSweep(plan.SweepLimits, o.next.encode())
	}
	return st.changed(st.e.p)
}

// Done implements plan.Op.
func (o *updateOp) Done(*plan.Planner) {
	e, st := o.st.e, o.st
	if o.err != nil {
		o.ac.Error(o.err)
		return
	}
	st.shown = o.d
	e.watchAge(st)
	if o.more {
		e.yield(&limitOp{st: st, run: o.run, at: o.next})
	}
	info := e.view(st).Info(e.wall())
	info.Cluster = nil
	if !o.reserved {
		e.srv.updated(st.acct, o.ac, info)
		return
	}
	if err := e.resubscribe(st); err != nil {
		e.failed(st, "subscribing an updated stream's subjects", err)
		return
	}
	row := st.row
	e.tasks.Go(func() { e.releaseUpdate(st, row, o.ac, info) })
}

// Fail implements plan.Op.
func (o *updateOp) Fail(bool) {
	if !o.reserved { // else the row's request is answered by whoever finishes it
		o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}

// resubscribe brings the subscriptions of a stream to the subjects of an applied update.
func (e *engine) resubscribe(st *stream) error {
	if e.streams[st.row.ID] != st || st.row.Phase != record.StreamLive {
		return nil // it is on its way out, or is
	}
	return st.subscribe()
}

// releaseUpdate gives up the subjects that an applied update does not name any more, and
// answers. Another stream may take them from then on, so their messages do not come here
// any more: two streams would store and acknowledge them.
func (e *engine) releaseUpdate(st *stream, row record.StreamRow, ac *api.Call, info *jsapi.StreamInfo) {
	srv, ctx := e.srv, e.ctx
	if err := st.acct.conn.Flush(ctx); err != nil {
		e.failed(st, "flushing the subscriptions of an updated stream", err)
		return
	}
	err := srv.dir.change(ctx, row, func(r *record.StreamRow) (*record.StreamRow, error) {
		next := *r
		if next.Phase == record.StreamLive {
			next.Subjects, next.Request = info.Config.Subjects, nil
		}
		return &next, nil
	})
	if err != nil {
		e.failed(st, "releasing the subjects of an updated stream", err)
		return
	}
	e.q.push(event{kind: evRun, fn: func(e *engine) { e.settled(st) }})
	srv.updated(st.acct, ac, info)
}

func (s *Server) updated(a *account, ac *api.Call, info *jsapi.StreamInfo) {
	ac.Answer(jsapi.StreamUpdateResponse{Response: jsapi.NewResponse(ac.Req.Verb), StreamInfo: info})
	name := info.Config.Name
	s.advise(a, jsapi.SubjectStreamUpdated+name, &jsapi.StreamActionAdvisory{
		Event: s.event(jsapi.AdvisoryStreamAction), Stream: name, Action: jsapi.ActionModified,
	})
}
