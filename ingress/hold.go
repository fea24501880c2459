package ingress

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// holder keeps requests until it is certain that somebody answers them. Every node
// gets every request, and the one that leads answers; but for a second or two after
// its death a leader is still named as one. So a node that another one has to answer
// for keeps the request, as a spare, until it has heard of that leader long enough
// after the request came: then the leader got it. A node that becomes the leader
// answers what it keeps.
//
// Exactly one answers while leaders live, also over a transfer: the old one can not
// (its lease is void), and the new one has not heard of it since. Only what a leader
// answered in its last sureAfter may be answered twice; that is why nothing is kept
// that destroys data, and why a spare create is void when a change of the same
// stream comes after it. A follower whose log lacks a change is not elected before it
// has heard of who made it.
type holder struct {
	limit int
	mu    sync.Mutex
	calls []*call // by arrival
	// trying are those that are being dispatched again.
	trying []*call
}

// sureAfter is how long after a request its leader has to have been heard of, so that
// it has the request too: far above the way of a message between two servers, and
// above the time that a log entry takes from leader to follower.
const sureAfter = 500 * time.Millisecond

// holdable says that doing a request later, or twice, is harmless: a delete, purge or
// update done twice would destroy newer data.
func holdable(v jsapi.Verb) bool {
	switch v {
	case jsapi.VerbInfo, jsapi.VerbStreamNames, jsapi.VerbStreamList, jsapi.VerbStreamInfo,
		jsapi.VerbConsumerInfo, jsapi.VerbConsumerNames, jsapi.VerbConsumerList:
		return true
	default:
		return creates(v)
	}
}

func creates(v jsapi.Verb) bool {
	switch v {
	case jsapi.VerbStreamCreate, jsapi.VerbConsumerCreate, jsapi.VerbConsumerDurableCreate:
		return true
	default:
		return false
	}
}

// changes says that a request may change what a create of its stream, or of its
// consumer, made.
func changes(v jsapi.Verb) bool {
	switch v {
	case jsapi.VerbStreamDelete, jsapi.VerbStreamUpdate, jsapi.VerbConsumerDelete, jsapi.VerbConsumerPause:
		return true
	default:
		return false
	}
}

// leave leaves a call to the leader of its group, which this node is not.
func (s *Server) leave(c *call) {
	leader, heard := s.meta.GroupLeader(c.group)
	if leader == "" || leader == s.cfg.Node {
		s.hold(c) // nobody leads, or this node begins to
		return
	}
	if c.mine {
		// Its lease ran out before it could answer. The new leader has it as a spare only if it had
		// not heard of this one for long enough after it.
		c.mine = false
		if holdable(c.req.Verb) && time.Since(c.at) > 2*sureAfter {
			s.apiCall(c).Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
			return
		}
	}
	if heard.Sub(c.at) < sureAfter {
		s.held.mu.Lock()
		c.spare = true
		s.held.mu.Unlock()
		s.hold(c)
	}
}

// lose takes a call whose answer was not given since the lease had run out. What
// would have changed something is not answered: another leader may have done it.
func (s *Server) lose(c *call) {
	switch {
	case !holdable(c.req.Verb):
	case time.Since(c.at) < s.cfg.HoldFor:
		s.hold(c)
	default:
		s.apiCall(c).Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}

// successorHas says that whoever leads next has a call as a spare, by its age when the
// term ended that had taken it; it is kept here, too.
func (s *Server) successorHas(c *call) bool {
	if !holdable(c.req.Verb) || time.Since(c.at) >= 2*sureAfter {
		return false
	}
	s.hold(c)
	return true
}

// hold keeps a request if that is harmless. When there is no room the oldest spare goes.
func (s *Server) hold(c *call) {
	if !holdable(c.req.Verb) {
		return
	}
	h := &s.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.void {
		return
	}
	if len(h.calls) >= h.limit {
		i := slices.IndexFunc(h.calls, func(o *call) bool { return o.spare })
		if i < 0 {
			return
		}
		h.calls = slices.Delete(h.calls, i, i+1)
	}
	h.calls = append(h.calls, c)
}

// voidSpares makes the spare creates void whose work a request changes that has come.
func (s *Server) voidSpares(a *account, req *jsapi.Request) {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	for _, calls := range [][]*call{s.held.calls, s.held.trying} {
		for _, c := range calls {
			if c.spare && c.acct == a && c.req.Stream == req.Stream && concerns(req, c) {
				c.void = true
			}
		}
	}
}

// concerns says that a change of a stream may be one of what a create in it made.
func concerns(change *jsapi.Request, c *call) bool {
	if change.Consumer == "" { // a change of the stream
		return creates(c.req.Verb)
	}
	return creates(c.req.Verb) && c.req.Verb != jsapi.VerbStreamCreate &&
		(c.req.Consumer == change.Consumer || c.req.Consumer == "") // whose name is in the body
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
		s.retry()
	}
}

func (s *Server) retry() {
	h := &s.held
	h.mu.Lock()
	calls := h.calls
	h.calls, h.trying = nil, calls
	h.mu.Unlock()
	for _, c := range calls {
		h.mu.Lock()
		void := c.void
		h.mu.Unlock()
		if !void && time.Since(c.at) < s.cfg.HoldFor {
			s.again(c)
		}
	}
	h.mu.Lock()
	h.trying = nil
	h.mu.Unlock()
}

// again looks at a held call: whoever leads the group that had to answer when it came
// answers. Another group that its stream has got to since does not: its leader can not
// know that the first one has not.
func (s *Server) again(c *call) {
	switch leads := s.leads(c.group); {
	case !leads:
		s.leave(c)
	case c.req.Verb == jsapi.VerbStreamCreate && c.group == 0:
		c.mine = true
		s.metaTask(c) // it knows what to do about a stream that lives by now
	default:
		s.dispatch(c)
	}
}

func (s *Server) leads(group uint32) bool {
	if group == 0 {
		return s.meta.Leading()
	}
	return s.engine(group) != nil
}
