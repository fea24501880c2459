package ingress

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// apiStats counts API requests answered by this node.
type apiStats struct{ total, errors atomic.Uint64 }

// call is an API request on its way to whoever answers it.
type call struct {
	acct *account
	req  jsapi.Request
	msg  *Msg
	at   time.Time
	// group is the one whose leader has to answer, as it was last looked up.
	group uint32
	// spare: another node was known to lead when it came, and may have answered it.
	spare bool
	// mine: this node took it as the leader.
	mine bool
	// void: something that came later makes the answer of a spare one harmful.
	void bool
}

// onAPI receives every API request of an account, on every node; it answers those
// that this node has to, and holds those that nobody can answer yet.
func (s *Server) onAPI(a *account, prefix string, m *Msg, at time.Time) {
	req, ok := jsapi.ParseRequest(prefix, m.Subject)
	if !ok {
		return // like the real server: an unknown subject has no answer
	}
	if changes(req.Verb) {
		s.voidSpares(a, &req)
	}
	s.dispatch(&call{acct: a, req: req, msg: m, at: at})
}

// dispatch hands a call to the one that answers it, or does nothing if that is
// another node.
func (s *Server) dispatch(c *call) {
	if !c.acct.JetStream {
		if s.meta.Leading() {
			c.acct.apiError(&c.req, c.msg, jsapi.NewError(jsapi.CodeNotEnabledForAccount))
		}
		return
	}
	if c.req.Stream == "" {
		s.toMeta(c)
		return
	}
	row, version := s.dir.row(c.acct.Name, c.req.Stream)
	if version == 0 || row.Phase != record.StreamLive {
		s.toMeta(c)
		return
	}
	c.group = row.Group
	if e := s.engine(row.Group); e != nil {
		c.mine = true
		switch e.q.offer(event{kind: evAPI, call: c}, len(c.msg.Data)+eventOverhead) {
		case full:
			s.dropped.Add(1)
			s.apiCall(c).Error(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		case closed:
			s.hold(c)
		case taken:
		}
		return
	}
	s.leave(c)
}

// maxMetaCalls bounds the calls that the leader of group 0 works on at a time.
const maxMetaCalls = 4096

// toMeta answers what the leader of group 0 answers.
func (s *Server) toMeta(c *call) {
	c.group = 0
	if s.meta.Leading() {
		c.mine = true
		s.metaTask(c)
		return
	}
	s.leave(c)
}

// metaTask works on a call of group 0 on its own goroutine: it waits for commits.
func (s *Server) metaTask(c *call) {
	if s.metaCalls.Add(1) > maxMetaCalls {
		s.metaCalls.Add(-1)
		s.dropped.Add(1)
		s.apiCall(c).Error(jsapi.NewError(jsapi.CodeStreamTooManyRequests))
		return
	}
	s.tasks.Go(func() {
		defer s.metaCalls.Add(-1)
		s.metaCall(c)
	})
}
