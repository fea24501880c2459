package ingress

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// event starts an advisory.
func (s *Server) event(kind string) jsapi.Event {
	return jsapi.NewEvent(kind, nuid.Next(), time.Now().UTC())
}

// advise publishes an advisory in the account, if anybody may listen.
func (s *Server) advise(a *account, subject string, v any) {
	if !a.link.Interest(subject, time.Time{}) {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.log.Error("encoding an advisory", zap.Error(err))
		return
	}
	a.send(subject, nil, b)
}

// advise publishes the advisory of a consumer's action.
func (c *consumer) advise(e *engine, act *deliver.Action) {
	srv, a, s, n := e.srv, c.st.acct, c.st.row.Name, c.cfg.Name
	at := s + "." + n
	switch act.Kind {
	case deliver.ActMaxDeliver:
		srv.advise(a, jsapi.SubjectMaxDeliveries+at, &jsapi.MaxDeliverAdvisory{
			Event: srv.event(jsapi.AdvisoryMaxDeliver), Stream: s, Consumer: n,
			StreamSeq: act.Seq, Deliveries: act.Delivered,
		})
	case deliver.ActNaked:
		srv.advise(a, jsapi.SubjectMsgNaked+at, &jsapi.NakAdvisory{
			Event: srv.event(jsapi.AdvisoryNak), Stream: s, Consumer: n,
			ConsumerSeq: act.ConsumerSeq, StreamSeq: act.Seq, Deliveries: act.Delivered,
		})
	case deliver.ActTerminated:
		srv.advise(a, jsapi.SubjectMsgTerminated+at, &jsapi.TerminatedAdvisory{
			Event: srv.event(jsapi.AdvisoryTerminated), Stream: s, Consumer: n,
			ConsumerSeq: act.ConsumerSeq, StreamSeq: act.Seq, Deliveries: act.Delivered, Reason: act.Reason,
		})
	case deliver.ActSampled:
		srv.advise(a, jsapi.SubjectMetricAck+at, &jsapi.AckMetric{
			Event: srv.event(jsapi.MetricConsumerAck), Stream: s, Consumer: n,
			ConsumerSeq: act.ConsumerSeq, StreamSeq: act.Seq, Delay: act.Elapsed, Deliveries: act.Delivered,
		})
	case deliver.ActResumed:
		if until := c.cfg.PauseUntil; until != nil {
			c.advisePause(*until, false)
		}
	default:
	}
}
