package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// metaCall answers what belongs to the leader of group 0.
func (s *Server) metaCall(c *call) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HoldFor)
	defer cancel()
	ac := s.fencedCall(c, s.leadsMeta)
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
		c.acct.send(c.msg.Reply, nil, body)
	}, Failed: func() { s.stats.errors.Add(1) }}
}

// fencedCall is apiCall for what is answered from the state as it is: only while this
// node leads. Whoever leads next answers what could not be, if that is harmless.
func (s *Server) fencedCall(c *call, leads func() error) *api.Call {
	ac := s.apiCall(c)
	ac.Fence, ac.Lost = leads, func() { s.lose(c) }
	ac.Reply = func(body []byte) {
		s.stats.total.Add(1)
		if ac.Fence != nil {
			c.acct.sendFenced(c.msg.Reply, nil, body)
		} else {
			c.acct.send(c.msg.Reply, nil, body)
		}
	}
	return ac
}

func (s *Server) leadsMeta() error {
	if !s.meta.Leading() {
		return record.ErrNotLeader
	}
	return nil
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
	group := s.dir.emptiest(s.cfg.Groups)
	cfg, e := api.PrepareCreate(ac, s.streamEnv(group))
	if e != nil {
		ac.Error(e)
		return
	}
	if s.cfg.Open != nil && !s.cfg.Open() {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	if s.cfg.Full != nil && s.cfg.Full() {
		ac.Error(jsapi.NewError(jsapi.CodeInsufficientResources))
		return
	}
	row := record.StreamRow{
		Group: group, Account: c.acct.Name, Name: cfg.Name, Subjects: cfg.Subjects,
		Request: &record.Request{
			Subject: c.msg.Subject, Reply: c.msg.Reply, Body: encodeConfig(cfg),
			Deadline: s.deadline(time.Now()),
		},
	}
	err := s.dir.reserve(ctx, row)
	switch {
	case err == nil:
		return // the group's leader answers
	case errors.Is(err, errNameTaken):
		s.waitSettled(ctx, c, ac)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if !s.reserved(&row) {
			ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		}
	default:
		var je *jsapi.Error
		if !errors.As(err, &je) {
			s.log.Error("reserving a stream", zap.String("stream", cfg.Name), zap.Error(err))
			je = jsapi.NewError(jsapi.CodeClusterNotAvail)
		}
		ac.Error(je)
	}
}

// reserved says that a row holds the request of want: whoever leads its group answers.
func (s *Server) reserved(want *record.StreamRow) bool {
	row, version := s.dir.row(want.Account, want.Name)
	return version != 0 && row.Request != nil && row.Request.Reply == want.Request.Reply
}

// waitSettled waits until the row of a name is live or gone, then judges the create
// again. The group's leader, which may be another node, was not asked: the answer
// comes from this node's replica.
func (s *Server) waitSettled(ctx context.Context, c *call, ac *api.Call) {
	for {
		changed := s.meta.Changed()
		row, version := s.dir.row(c.acct.Name, c.req.Stream)
		switch {
		case version == 0:
			s.createStream(ctx, c, ac)
			return
		case row.Phase == record.StreamLive:
			s.createdBefore(ctx, ac, row)
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

// createdBefore answers a create of a stream that lives, from this node's replica of its group.
func (s *Server) createdBefore(ctx context.Context, ac *api.Call, row record.StreamRow) {
	err := s.caughtUp(ctx, []record.StreamRow{row})
	var v *api.View
	if err == nil {
		v, err = s.stored(row)
	}
	if err != nil {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	s.answerCreate(ac, v, row.Group, time.Now().UTC())
}

// answerCreate answers a STREAM.CREATE of a name that lives: the same configuration
// is a success, another one is not.
func (s *Server) answerCreate(ac *api.Call, v *api.View, group uint32, now time.Time) {
	cfg, bad := api.PrepareCreate(ac, s.streamEnv(group))
	if bad == nil && !jsapi.StreamConfigEqual(cfg, v.Config) {
		bad = jsapi.NewError(jsapi.CodeStreamNameExist)
	}
	if bad != nil {
		ac.Error(bad)
		return
	}
	info := v.Info(now)
	info.Domain, info.Cluster = "", nil
	ac.Answer(jsapi.StreamCreateResponse{
		Response: jsapi.NewResponse(ac.Req.Verb), StreamInfo: info, DidCreate: true,
	})
}

func encodeConfig(cfg *jsapi.StreamConfig) []byte {
	b, err := json.Marshal(cfg)
	if err != nil {
		panic("validated stream configuration: " + err.Error())
	}
	return b
}
