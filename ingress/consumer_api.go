package ingress

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// consumerCall answers the calls about the consumers of a stream.
func (e *engine) consumerCall(st *stream, ac *api.Call) {
	switch ac.Req.Verb {
	case jsapi.VerbConsumerCreate, jsapi.VerbConsumerDurableCreate:
		e.createConsumer(st, ac)
	case jsapi.VerbConsumerInfo:
		e.consumerInfo(st, ac)
	case jsapi.VerbConsumerNames:
		e.consumerNames(st, ac)
	case jsapi.VerbConsumerList:
		e.consumerList(st, ac)
	case jsapi.VerbConsumerDelete:
		if bad := ac.Empty(); bad != nil {
			ac.Error(bad)
			return
		}
		e.submit(&deleteConsumerOp{st: st, ac: ac})
	case jsapi.VerbConsumerPause:
		e.pauseConsumer(st, ac)
	case jsapi.VerbConsumerReset, jsapi.VerbConsumerUnpin, jsapi.VerbStreamSnapshot, jsapi.VerbStreamRestore:
		ac.Error(jsapi.WithText(jsapi.CodeBadRequest, "this call is not supported by this version of Holdfast"))
	default:
	}
}

// decodeConsumer reads a consumer create call and judges its form.
func decodeConsumer(ac *api.Call) (*jsapi.CreateConsumerRequest, *jsapi.Error) {
	req := new(jsapi.CreateConsumerRequest)
	if bad := jsapi.DecodeStrict(ac.Body, req); bad != nil {
		return nil, bad
	}
	if bad := ac.CheckLevel(); bad != nil {
		return nil, bad
	}
	if bad := jsapi.CheckConsumerRequest(ac.Req, req); bad != nil {
		return nil, bad
	}
	return req, nil
}

// unsupportedConsumer refuses, by name, what this version would accept and not do.
func unsupportedConsumer(cfg *jsapi.ConsumerConfig) *jsapi.Error {
	for _, f := range []struct {
		used bool
		name string
	}{
		{cfg.IsPush(), "deliver_subject (push consumer)"},
		{cfg.PriorityPolicy != jsapi.PriorityNone, "priority_policy"},
		{cfg.ReplayPolicy == jsapi.ReplayOriginal, "replay_policy original"},
		{cfg.Direct || cfg.Sourcing, "direct"},
	} {
		if f.used {
			return jsapi.ErrInvalidConfig(f.name + " is not supported by this version of Holdfast")
		}
	}
	return nil
}

func (e *engine) createConsumer(st *stream, ac *api.Call) {
	req, bad := decodeConsumer(ac)
	if bad != nil {
		ac.Error(bad)
		return
	}
	o := &createConsumerOp{st: st, ac: ac, req: req, created: e.wall(), generated: req.Config.Name == ""}
	if o.generated {
		o.req.Config.Name = nuid.Next()[14:]
	}
	e.submit(o)
}

// createConsumerOp is CONSUMER.CREATE in all its forms.
type createConsumerOp struct {
	plan.OpBase
	st        *stream
	ac        *api.Call
	req       *jsapi.CreateConsumerRequest
	created   time.Time
	generated bool // the server made the name, so the answer does not show it in the configuration
	made      *consumer
	is        *consumer
	err       *jsapi.Error
}

// Base implements plan.Op.
func (o *createConsumerOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *createConsumerOp) Plan(p *plan.Planner) uint64 {
	st := o.st
	o.err, o.is = nil, nil
	s := st.plan()
	if s == nil || st.gone {
		o.err = jsapi.NewError(jsapi.CodeStreamNotFound)
		return 0
	}
	cfg, bad := jsapi.CheckConsumerConfig(&o.req.Config, &jsapi.ConsumerEnv{Stream: st.cfg(), Pedantic: o.req.Pedantic})
	if bad == nil {
		bad = unsupportedConsumer(cfg)
	}
	if bad != nil {
		o.err = bad
		return 0
	}
	old := st.consumers[cfg.Name]
	if o.made != nil && old == o.made { // planned before a rebuild
		old.forget()
		old, o.made = nil, nil
	}
	if old != nil {
		return o.update(p, s, old, cfg)
	}
	if o.err = o.checkNew(cfg); o.err != nil {
		return s.Rests()
	}
	cur := deliver.Begin(source{st}, start(cfg, st.cfg()))
	d := &plan.ConsumerDescription{Config: cfg, Created: o.created}
	id := s.NewConsumer()
	p.Builder().PutConsumer(st.row.ID, id, d.Encode())
	p.Builder().Consumer(&command.ConsumerChange{Stream: st.row.ID, Consumer: id, State: cur})
	c := st.newConsumer(id, d, &deliver.Loaded{
		Cursor: cur, Now: p.Now(), NumPending: st.numPending(&cur, cfg.Filters()),
	})
	o.made, o.is = c, c
	c.after(st.e, nil)
	return p.Tick()
}

func start(cfg *jsapi.ConsumerConfig, sc *jsapi.StreamConfig) deliver.Start {
	s := deliver.Start{
		Policy: cfg.DeliverPolicy, Seq: cfg.OptStartSeq, Filters: cfg.Filters(), OnePerSubject: sc.MaxMsgsPer == 1,
	}
	if cfg.OptStartTime != nil {
		s.Time = cfg.OptStartTime.UnixNano()
	}
	return s
}

// checkNew judges a consumer that is not there yet against the others.
func (o *createConsumerOp) checkNew(cfg *jsapi.ConsumerConfig) *jsapi.Error {
	st := o.st
	if o.req.Action == jsapi.ActionUpdate {
		return jsapi.NewError(jsapi.CodeConsumerDoesNotExist)
	}
	if n := st.cfg().MaxConsumers; n > 0 && st.visibleConsumers() >= n {
		return jsapi.NewError(jsapi.CodeMaximumConsumersLimit)
	}
	if st.cfg().Retention == jsapi.WorkQueuePolicy {
		if bad := jsapi.CheckWorkQueue(cfg, st.configs(nil), false); bad != nil {
			return bad
		}
	}
	return jsapi.CheckDurableLen(cfg)
}

// update changes an existing consumer, or finds nothing to change.
func (o *createConsumerOp) update(p *plan.Planner, s *plan.Stream, old *consumer, cfg *jsapi.ConsumerConfig) uint64 {
	cfg.PauseUntil = old.cfg.PauseUntil
	same := jsapi.ConsumerConfigEqual(old.cfg, cfg)
	switch {
	case o.req.Action == jsapi.ActionCreate && !same:
		o.err = jsapi.NewError(jsapi.CodeConsumerAlreadyExists)
	case !same:
		o.err = jsapi.CheckConsumerUpdate(old.cfg, cfg, false)
		if o.err == nil && o.st.cfg().Retention == jsapi.WorkQueuePolicy {
			o.err = jsapi.CheckWorkQueue(cfg, o.st.configs(old), true)
		}
	}
	o.is = old
	if same || o.err != nil {
		return s.Rests()
	}
	old.describe(p, cfg)
	return p.Tick()
}

// describe plans a changed configuration of c.
func (c *consumer) describe(p *plan.Planner, cfg *jsapi.ConsumerConfig) {
	st := c.st
	d := plan.ConsumerDescription{Config: cfg, Created: c.created}
	p.Builder().PutConsumer(st.row.ID, c.id, d.Encode())
	st.match.remove(c)
	c.cfg = cfg
	st.match.add(c)
	if c.m.Update(c.config(), p.Now()) {
		cur := c.m.Info(p.Now()).State
		c.m.SetNumPending(st.numPending(&cur, cfg.Filters()))
	}
	c.after(st.e, nil)
}

// forget takes a consumer that was never applied out of its stream.
func (c *consumer) forget() {
	c.gone = true
	c.st.e.timers.set(c, 0)
	delete(c.st.consumers, c.cfg.Name)
	c.st.match.remove(c)
}

// Done implements plan.Op.
func (o *createConsumerOp) Done(*plan.Planner) {
	if o.err != nil {
		o.ac.Error(o.err)
		return
	}
	e, st := o.st.e, o.st
	if o.made != nil {
		o.made.watchInactive(e)
		name := o.made.cfg.Name
		e.srv.advise(st.acct, jsapi.SubjectConsumerCreated+st.row.Name+"."+name, &jsapi.ConsumerActionAdvisory{
			Event: e.srv.event(jsapi.AdvisoryConsumerAction), Stream: st.row.Name, Consumer: name,
			Action: jsapi.ActionCreated,
		})
	}
	info := o.is.info(e)
	if o.generated {
		cfg := *info.Config
		cfg.Name = ""
		info.Config = &cfg
	}
	o.ac.Answer(jsapi.ConsumerResponse{Response: jsapi.NewResponse(o.ac.Req.Verb), ConsumerInfo: info})
}

// Fail implements plan.Op.
func (o *createConsumerOp) Fail(bool) { o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }

// info builds ConsumerInfo.
func (c *consumer) info(e *engine) *jsapi.ConsumerInfo {
	in := c.m.Info(e.term.Now())
	out := &jsapi.ConsumerInfo{
		Stream: c.st.row.Name, Name: c.cfg.Name, Created: c.created,
		Config:        c.cfg.WithDynamicMetadata(e.srv.cfg.Version, api.Level),
		Delivered:     sequence(in.State.DeliveredConsumer, in.State.DeliveredStream, in.State.DeliveredTime),
		AckFloor:      sequence(in.State.AckFloorConsumer, in.State.AckFloorStream, in.State.AckTime),
		NumAckPending: in.NumAckPending, NumRedelivered: in.NumRedelivered, NumWaiting: in.NumWaiting,
		NumPending: in.NumPending, Paused: in.Paused, PauseRemaining: in.PauseRemaining,
		Cluster: e.srv.consumerCluster(e.group), TimeStamp: e.wall(),
	}
	return out
}

// consumerCluster describes a consumer's group; a node alone shows none, as a
// single JetStream server does.
func (s *Server) consumerCluster(group uint32) *jsapi.ClusterInfo {
	if s.cfg.Cluster == nil {
		return nil
	}
	return s.cfg.Cluster(group)
}

func sequence(consumer, stream uint64, at int64) jsapi.SequenceInfo {
	out := jsapi.SequenceInfo{Consumer: consumer, Stream: stream}
	if at != 0 {
		t := time.Unix(0, at).UTC()
		out.Last = &t
	}
	return out
}

// lookupConsumer returns the consumer that a call names, or answers 10014.
func (st *stream) lookupConsumer(ac *api.Call) *consumer {
	c := st.consumers[ac.Req.Consumer]
	if c == nil || c.gone {
		ac.Error(jsapi.NewError(jsapi.CodeConsumerNotFound))
		return nil
	}
	return c
}

func (e *engine) consumerInfo(st *stream, ac *api.Call) {
	if bad := ac.Empty(); bad != nil {
		ac.Error(bad)
		return
	}
	if c := st.lookupConsumer(ac); c != nil {
		ac.Answer(jsapi.ConsumerResponse{Response: jsapi.NewResponse(ac.Req.Verb), ConsumerInfo: c.info(e)})
	}
}

// sorted returns the consumers that lists show, by name.
func (st *stream) sorted() []*consumer {
	var out []*consumer
	for _, c := range st.consumers {
		if !c.cfg.Direct && !c.gone {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *consumer) int { return cmp.Compare(a.cfg.Name, b.cfg.Name) })
	return out
}

func (e *engine) consumerNames(st *stream, ac *api.Call) {
	var req jsapi.PagedRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	all := st.sorted()
	page, from, to := jsapi.Page(len(all), req.Offset, jsapi.NamesLimit)
	names := []string{}
	for _, c := range all[from:to] {
		names = append(names, c.cfg.Name)
	}
	ac.Answer(jsapi.ConsumerNamesResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Consumers: names})
}

func (e *engine) consumerList(st *stream, ac *api.Call) {
	var req jsapi.PagedRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	all := st.sorted()
	page, from, to := jsapi.Page(len(all), req.Offset, jsapi.ListLimit)
	infos := []*jsapi.ConsumerInfo{}
	for _, c := range all[from:to] {
		info := c.info(e)
		info.Config = c.cfg // lists show no dynamic metadata
		infos = append(infos, info)
	}
	ac.Answer(jsapi.ConsumerListResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Consumers: infos})
}

// deleteConsumerOp is CONSUMER.DELETE, or the end of an inactive consumer (no call).
type deleteConsumerOp struct {
	plan.OpBase
	st *stream
	ac *api.Call
	c  *consumer
	// mine: this operation marked the consumer gone.
	mine bool
	err  *jsapi.Error
}

// Base implements plan.Op.
func (o *deleteConsumerOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *deleteConsumerOp) Plan(p *plan.Planner) uint64 {
	o.err = nil
	if o.c == nil {
		if o.c = o.st.consumers[o.ac.Req.Consumer]; o.c == nil || o.c.gone {
			o.c, o.err = nil, jsapi.NewError(jsapi.CodeConsumerNotFound)
			return o.st.plan().Rests()
		}
	}
	if o.c.st.gone || o.c.gone && !o.mine {
		return 0
	}
	o.mine, o.c.gone = true, true // nothing of it is written any more
	p.Builder().DeleteConsumer(o.c.st.row.ID, o.c.id)
	return p.Tick()
}

// Done implements plan.Op.
func (o *deleteConsumerOp) Done(*plan.Planner) {
	if o.c != nil && o.err == nil {
		e, st, name := o.c.st.e, o.c.st, o.c.cfg.Name
		o.c.deleted(e)
		e.srv.advise(st.acct, jsapi.SubjectConsumerDeleted+st.row.Name+"."+name, &jsapi.ConsumerActionAdvisory{
			Event: e.srv.event(jsapi.AdvisoryConsumerAction), Stream: st.row.Name, Consumer: name,
			Action: jsapi.ActionDeleted,
		})
	}
	switch {
	case o.ac == nil:
	case o.err != nil:
		o.ac.Error(o.err)
	default:
		o.ac.Answer(jsapi.SuccessResponse{Response: jsapi.NewResponse(o.ac.Req.Verb), Success: true})
	}
}

// Fail implements plan.Op.
func (o *deleteConsumerOp) Fail(bool) {
	if o.ac != nil {
		o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}

// pauseConsumer is CONSUMER.PAUSE.
func (e *engine) pauseConsumer(st *stream, ac *api.Call) {
	var req jsapi.PauseRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	if c := st.lookupConsumer(ac); c != nil {
		e.submit(&pauseOp{c: c, ac: ac, until: req.PauseUntil})
	}
}

type pauseOp struct {
	plan.OpBase
	c     *consumer
	ac    *api.Call
	until time.Time
}

// Base implements plan.Op.
func (o *pauseOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *pauseOp) Plan(p *plan.Planner) uint64 {
	if o.c.gone {
		return 0
	}
	cfg := o.c.cfg.Clone()
	cfg.PauseUntil = nil
	if !o.until.IsZero() {
		until := o.until.UTC()
		cfg.PauseUntil = &until
	}
	o.c.describe(p, cfg.WithStaticMetadata())
	return p.Tick()
}

// Done implements plan.Op.
func (o *pauseOp) Done(*plan.Planner) {
	c := o.c
	if c.gone {
		o.ac.Error(jsapi.NewError(jsapi.CodeConsumerNotFound))
		return
	}
	e, in := c.st.e, c.m.Info(c.st.e.term.Now())
	o.ac.Answer(jsapi.PauseResponse{
		Response: jsapi.NewResponse(o.ac.Req.Verb), Paused: in.Paused, PauseUntil: o.until,
		PauseRemaining: in.PauseRemaining,
	})
	e.srv.advise(c.st.acct, jsapi.SubjectConsumerPause+c.st.row.Name+"."+c.cfg.Name, &jsapi.ConsumerPauseAdvisory{
		Event: e.srv.event(jsapi.AdvisoryConsumerPause), Stream: c.st.row.Name, Consumer: c.cfg.Name,
		Paused: in.Paused, PauseUntil: o.until,
	})
}

// Fail implements plan.Op.
func (o *pauseOp) Fail(bool) { o.ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail)) }

// enforceAll removes what a stream's limits, lowered, do not allow any more.
func enforceAll(s *plan.Stream, cfg *jsapi.StreamConfig) {
	if n := cfg.MaxMsgsPer; n > 0 {
		var over []string
		s.SubjectRows("", func(subject string, st record.SubjectStat) bool {
			if st.Count > uint64(n) {
				over = append(over, subject)
			}
			return true
		})
		for _, subject := range over {
			for st := s.SubjectStat(subject); st.Count > uint64(n); st = s.SubjectStat(subject) {
				if !s.Remove(s.FirstOf(subject, st.First)) {
					break
				}
			}
		}
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
