package ingress

import (
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

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
		e.submit(&deleteOp{st: st})
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
		e.failed(st, "subscribing a new stream", err)
		return
	}
	srv, acct, ctx := e.srv, st.acct, e.ctx
	info := e.view(st).Info(e.wall())
	info.Domain, info.Cluster = "", nil
	e.tasks.Go(func() {
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
		srv.rowCall(acct, &row, jsapi.VerbStreamCreate).Answer(jsapi.StreamCreateResponse{
			Response: jsapi.NewResponse(jsapi.VerbStreamCreate), StreamInfo: info, DidCreate: true,
		})
		srv.advise(acct, jsapi.SubjectStreamCreated+row.Name, &jsapi.StreamActionAdvisory{
			Event: srv.event(jsapi.AdvisoryStreamAction), Stream: row.Name, Action: jsapi.ActionCreated,
		})
		e.q.push(event{kind: evRun, fn: func(e *engine) { e.settled(st) }})
	})
}

// lateAnswer is how long after its deadline the request of a row is still answered: a late
// answer harms nobody.
const lateAnswer = time.Minute

// rowCall is the request that a row carries, for its answer.
func (s *Server) rowCall(a *account, row *record.StreamRow, verb jsapi.Verb) *api.Call {
	return s.lateCall(a, row.Name, verb, row.Request)
}

// lateCall is a request that came to another leader, or to another term, for its answer.
func (s *Server) lateCall(a *account, stream string, verb jsapi.Verb, r *record.Request) *api.Call {
	reply := ""
	if r != nil && s.now() < r.Deadline+int64(lateAnswer) {
		reply = r.Reply
	}
	return s.apiCall(&call{acct: a, req: jsapi.Request{Verb: verb, Stream: stream}, msg: &Msg{Reply: reply}})
}
