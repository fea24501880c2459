package ingress

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// deleteStream marks the row, which carries the request; finishDelete does the
// rest, under this leader or the next.
func (e *engine) deleteStream(st *stream, c *call, ac *api.Call) {
	if bad := ac.Empty(); bad != nil {
		ac.Error(bad)
		return
	}
	size := len(ac.Body) + eventOverhead
	if !e.p.Admit(size) {
		ac.Error(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		return
	}
	ac.Fence = nil
	row, srv, ctx := st.row, e.srv, e.ctx
	st.deleting = append(st.deleting, c)
	st.held += size
	e.tasks.Go(func() {
		err := srv.dir.change(ctx, row, func(r *record.StreamRow) (*record.StreamRow, error) {
			next := *r
			if r.Phase != record.StreamDeleting {
				next.Phase = record.StreamDeleting
				next.Request = &record.Request{
					Subject: c.msg.Subject, Reply: c.msg.Reply,
					Deadline: srv.deadline(time.Now()),
				}
			}
			return &next, nil
		})
		if err == nil || errors.Is(err, record.ErrNotFound) {
			return // answered when it is gone
		}
		e.log.Warn("deleting a stream", zap.String("stream", row.Name), zap.Error(err))
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		e.q.push(event{kind: evRun, fn: func(e *engine) {
			st.deleting = slices.DeleteFunc(st.deleting, func(o *call) bool { return o == c })
			st.held -= size
			e.p.Release(size)
		}})
	})
}

// finishDelete removes a stream whose row is in phase deleting.
func (e *engine) finishDelete(st *stream) {
	if st.busy {
		return
	}
	st.busy = true
	st.unsubscribe()
	st.lastNames = st.consumerNames()
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
	calls, names := slices.Clone(st.deleting), st.lastNames
	e.p.Forget(row.ID)
	e.p.Release(st.held)
	st.held = 0
	e.tasks.Go(func() {
		err := srv.dir.change(ctx, row, func(*record.StreamRow) (*record.StreamRow, error) { return nil, nil })
		if err != nil && !errors.Is(err, record.ErrNotFound) {
			e.failed(st, "removing the row of a deleted stream", err)
			return
		}
		asked := []*api.Call{}
		for _, c := range calls {
			asked = append(asked, srv.apiCall(c))
		}
		if r := row.Request; r != nil && !slices.ContainsFunc(calls, func(c *call) bool {
			return c.msg.Reply == r.Reply
		}) {
			asked = append(asked, srv.rowCall(st.acct, &row, jsapi.VerbStreamDelete))
		}
		for _, ac := range asked {
			ac.Answer(jsapi.SuccessResponse{Response: jsapi.NewResponse(jsapi.VerbStreamDelete), Success: true})
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
