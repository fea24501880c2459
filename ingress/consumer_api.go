package ingress

import (
	"time"

	"github.com/nats-io/nuid"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/replication/command"
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
		e.submitCall(&deleteConsumerOp{st: st, ac: ac}, ac)
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
	e.submitCall(o, ac)
}

// createConsumerOp is CONSUMER.CREATE in all its forms.
type createConsumerOp struct {
	plan.OpBase
	st        *stream
	ac        *api.Call
	req       *jsapi.CreateConsumerRequest
	created   time.Time
	generated bool // the server made the name
	// What Plan decided: the consumer, whether it is new, its configuration if that changes.
	is   *consumer
	made bool
	cfg  *jsapi.ConsumerConfig
	err  *jsapi.Error
}

// Base implements plan.Op.
func (o *createConsumerOp) Base() *plan.OpBase { return &o.OpBase }

// Plan implements plan.Op.
func (o *createConsumerOp) Plan(p *plan.Planner) uint64 {
	st := o.st
	o.err, o.is, o.made, o.cfg = nil, nil, false, nil
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
		return st.rests()
	}
	old := st.consumers[cfg.Name]
	if old != nil && !old.gone {
		return o.update(p, old, cfg)
	}
	if o.err = o.checkNew(cfg); o.err != nil {
		return st.rests()
	}
	cur := deliver.Begin(source{st}, start(cfg, st.cfg()))
	d := &plan.ConsumerDescription{Config: cfg, Created: o.created, Nameless: o.generated}
	id := s.NewConsumer()
	p.Builder().PutConsumer(st.row.ID, id, d.Encode())
	p.Builder().Consumer(&command.ConsumerChange{Stream: st.row.ID, Consumer: id, State: cur})
	c := st.newConsumer(id, d, &deliver.Loaded{
		Cursor: cur, Now: p.Now(), NumPending: st.numPending(&cur, cfg.Filters()),
	})
	c.before = old
	o.made, o.is, o.cfg = true, c, cfg
	c.after(st.e, nil)
	return st.changed(p)
}

func start(cfg *jsapi.ConsumerConfig, sc *jsapi.StreamConfig) deliver.Start {
	s := deliver.Start{
		Policy: cfg.DeliverPolicy, Seq: cfg.OptStartSeq, Filters: cfg.Filters(), OnePerSubject: sc.MaxMsgsPer == 1,
	}
	if cfg.OptStartTime != nil {
		s.Time = jsapi.UnixNano(*cfg.OptStartTime)
	}
	return s
}

// checkNew judges a consumer that is not there yet against the others.
func (o *createConsumerOp) checkNew(cfg *jsapi.ConsumerConfig) *jsapi.Error {
	st := o.st
	if o.req.Action == jsapi.ActionUpdate {
		return jsapi.NewError(jsapi.CodeConsumerDoesNotExist)
	}
	if n := st.cfg().MaxConsumers; n > 0 && st.plannedConsumers() >= n {
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
func (o *createConsumerOp) update(p *plan.Planner, old *consumer, cfg *jsapi.ConsumerConfig) uint64 {
	cfg.PauseUntil = old.cfg.PauseUntil
	cfg = cfg.WithStaticMetadata()
	if !old.cfg.IsDurable() && cfg.InactiveThreshold == 0 {
		cfg.InactiveThreshold = jsapi.DefaultInactiveThreshold // an update does not make it live for ever
	}
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
		return o.st.rests()
	}
	o.cfg = cfg
	return old.describe(p, &plan.ConsumerDescription{Config: cfg, Created: old.created})
}

// describe plans a changed description of c.
func (c *consumer) describe(p *plan.Planner, d *plan.ConsumerDescription) uint64 {
	p.Builder().PutConsumer(c.st.row.ID, c.id, d.Encode())
	c.use(p, d.Config)
	return c.st.changed(p)
}

// Done implements plan.Op.
func (o *createConsumerOp) Done(*plan.Planner) {
	if o.err != nil {
		o.ac.Error(o.err)
		return
	}
	e, st := o.st.e, o.st
	if o.cfg != nil {
		o.is.shown = o.cfg
		o.is.nameless = o.made && o.generated // whoever changes it names it
		o.is.watchInactive(e)
	}
	if o.made {
		o.is.before = nil
		o.is.after(e, nil) // it may deliver from now on
		name := o.cfg.Name
		e.srv.advise(st.acct, jsapi.SubjectConsumerCreated+st.row.Name+"."+name, &jsapi.ConsumerActionAdvisory{
			Event: e.srv.event(jsapi.AdvisoryConsumerAction), Stream: st.row.Name, Consumer: name,
			Action: jsapi.ActionCreated,
		})
	}
	info := o.is.info(e)
	if until := info.Config.PauseUntil; until != nil && info.Paused { // JetStream repeats it after every such request
		o.is.advisePause(*until, true)
	}
	o.ac.Answer(jsapi.ConsumerResponse{Response: jsapi.NewResponse(o.ac.Req.Verb), ConsumerInfo: info})
}

// Fail implements plan.Op.
func (o *createConsumerOp) Fail(bool) { o.ac.Abandon() }
