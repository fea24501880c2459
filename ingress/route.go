package ingress

import (
	"sync"
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
}

// onAPI receives every API request of an account, on every node; it answers those
// that this node has to, and holds those that nobody can answer yet.
func (s *Server) onAPI(a *account, prefix string, m *Msg, at time.Time) {
	req, ok := jsapi.ParseRequest(prefix, m.Subject)
	if !ok {
		return // like the real server: an unknown subject has no answer
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
	if e := s.engine(row.Group); e != nil {
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
	if l := s.meta.GroupLeader(row.Group); l == "" || l == s.cfg.Node {
		s.hold(c) // nobody leads, or this node begins to
	}
}

// maxMetaCalls bounds the calls that the leader of group 0 works on at a time.
const maxMetaCalls = 4096

// toMeta answers what the leader of group 0 answers.
func (s *Server) toMeta(c *call) {
	switch {
	case s.meta.Leading():
		s.metaTask(c)
	default:
		if l := s.meta.GroupLeader(0); l == "" || l == s.cfg.Node {
			s.hold(c)
		}
	}
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

// holder keeps requests until a leader is known.
type holder struct {
	limit int
	mu    sync.Mutex
	calls []*call
}

// hold keeps a request that nobody can answer yet, if doing it later is harmless:
// a delete, purge or update done twice would destroy newer data.
func (s *Server) hold(c *call) {
	switch c.req.Verb {
	case jsapi.VerbInfo, jsapi.VerbStreamNames, jsapi.VerbStreamList, jsapi.VerbStreamInfo,
		jsapi.VerbConsumerInfo, jsapi.VerbConsumerNames, jsapi.VerbConsumerList,
		jsapi.VerbStreamCreate, jsapi.VerbConsumerCreate, jsapi.VerbConsumerDurableCreate:
	default:
		return
	}
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	if len(s.held.calls) < s.held.limit {
		s.held.calls = append(s.held.calls, c)
	}
}

// retryEvery is the pause between two looks at the held requests.
const retryEvery = 50 * time.Millisecond

// retryHeld dispatches held requests again until their time is over.
func (s *Server) retryHeld() {
	t := time.NewTicker(retryEvery)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		s.held.mu.Lock()
		calls := s.held.calls
		s.held.calls = nil
		s.held.mu.Unlock()
		for _, c := range calls {
			if time.Since(c.at) < s.cfg.HoldFor {
				s.dispatch(c)
			}
		}
	}
}
