package deliver

import "github.com/holdfast-mq/holdfast/ingress/jsapi"

// request is a waiting pull request.
type request struct {
	reply     string
	batch     int   // messages left
	bytes     int   // budget left; 0 = none was given
	expires   int64 // Never = for ever
	received  int64
	heartbeat int64 // 0 = none
	beat      int64 // when the next heartbeat is due
	served    int   // messages delivered
	noWait    bool
}

// waiting is the queue of pull requests: a ring, oldest turn first.
type waiting struct {
	ring  []request
	head  int
	n     int
	due   int64 // nothing falls due before
	swept int64 // when dead requests were last looked for
	shots int   // requests that do not wait
}

func (w *waiting) at(i int) *request { return &w.ring[(w.head+i)&(len(w.ring)-1)] }

func (w *waiting) push(r *request) {
	if w.n == len(w.ring) {
		ring := make([]request, max(4, 2*w.n))
		for i := range w.n {
			ring[i] = *w.at(i)
		}
		w.ring, w.head = ring, 0
	}
	w.n++
	*w.at(w.n - 1) = *r
	if r.noWait {
		w.shots++
	}
}

func (w *waiting) pop() {
	if w.at(0).noWait {
		w.shots--
	}
	*w.at(0) = request{}
	w.head = (w.head + 1) & (len(w.ring) - 1)
	w.n--
}

// turn moves the head to the tail.
func (w *waiting) turn() {
	r := *w.at(0)
	w.pop()
	w.push(&r)
}

// keep keeps the requests for which f says so.
func (w *waiting) keep(f func(*request) bool) {
	n := 0
	for i := range w.n {
		r := w.at(i)
		if !f(r) {
			if r.noWait {
				w.shots--
			}
			continue
		}
		if n != i {
			*w.at(n) = *r
		}
		n++
	}
	for i := n; i < w.n; i++ {
		*w.at(i) = request{}
	}
	w.n = n
}

// wanted is how many messages the waiting requests ask for.
func (w *waiting) wanted() uint64 {
	n := 0
	for i := range w.n {
		n += w.at(i).batch
	}
	return uint64(max(n, 0))
}

// Pull takes a pull request. err is that of jsapi.ParseNextRequest; a required
// API level (412) is the caller's to judge. A request that waits is served by Wake.
func (c *Consumer) Pull(out []Action, q *jsapi.NextRequest, err error, reply string, now int64) []Action {
	if c.closed || reply == "" {
		return out
	}
	if text := c.refuse(q, err); text != "" {
		return append(out, status(reply, text))
	}
	c.used(now)
	w := c.waiting()
	if w.n >= c.cfg.MaxWaiting && now-w.swept > SweepEvery {
		out = c.sweep(out, now)
	}
	if q.NoWait {
		left := c.numPending + c.queued()
		if left == 0 && q.Expires == 0 {
			return append(out, status(reply, jsapi.StatusNoMessages))
		}
		if left > 0 {
			out = c.sweep(out, now)
			if left < w.wanted() {
				return append(out, status(reply, jsapi.StatusRequestsPending))
			}
		}
	}
	if w.n >= c.cfg.MaxWaiting {
		// A client that expects heartbeats misses them; told at once it would ask again at once.
		if q.Heartbeat > 0 {
			return out
		}
		return append(out, status(reply, jsapi.StatusMaxWaiting))
	}
	r := request{
		reply: reply, batch: q.Batch, bytes: max(q.MaxBytes, 0), expires: Never,
		received: now, noWait: q.NoWait,
	}
	if q.Expires != 0 {
		r.expires = after(now, int64(q.Expires))
	}
	w.due = min(w.due, r.expires)
	if q.Heartbeat > 0 {
		r.heartbeat = int64(q.Heartbeat)
		r.beat = after(now, r.heartbeat)
		w.due = min(w.due, r.beat)
	}
	w.push(&r)
	c.ready = true
	return out
}

// refuse returns the status that refuses a request by the configuration, in the
// order of the checks, or "".
func (c *Consumer) refuse(q *jsapi.NextRequest, err error) string {
	cfg := &c.cfg
	switch p := &q.Priority; {
	case cfg.Push:
		return jsapi.StatusPushBased
	case err != nil:
		return jsapi.StatusBadRequest(err.Error())
	case cfg.MaxBatch > 0 && q.Batch > cfg.MaxBatch:
		return jsapi.StatusMaxRequestBatch(cfg.MaxBatch)
	case cfg.MaxExpires > 0 && q.Expires > cfg.MaxExpires:
		return jsapi.StatusMaxRequestExpires(cfg.MaxExpires)
	case cfg.MaxBytes > 0 && q.MaxBytes > cfg.MaxBytes:
		return jsapi.StatusMaxRequestMaxBytes(cfg.MaxBytes)
	case !q.HasPriority:
	case p.MinPending != 0 || p.MinAckPending != 0:
		return jsapi.StatusBadRequest(jsapi.TextNotOverflow)
	case p.ID != "":
		return jsapi.StatusBadRequest(jsapi.TextNotPinned)
	case p.Priority < 0 || p.Priority > jsapi.MaxRequestPriority:
		return jsapi.StatusBadRequest(jsapi.TextPriorityRange)
	}
	return ""
}

// sweep ends the requests that expired, drops those whose client is gone, and
// sends the heartbeats that are due.
func (c *Consumer) sweep(out []Action, now int64) []Action {
	w := c.reqs
	if w == nil || w.n == 0 {
		return out
	}
	w.swept, w.due = now, Never
	w.keep(func(r *request) bool {
		if now >= r.expires {
			out = c.timeout(out, r)
			return false
		}
		if !c.interest(r.reply, r.received) {
			return false
		}
		if r.heartbeat > 0 {
			if now >= r.beat {
				out = c.heartbeat(out, r.reply)
				r.beat = after(now, r.heartbeat)
			}
			w.due = min(w.due, r.beat)
		}
		w.due = min(w.due, r.expires)
		return true
	})
	return out
}

func (c *Consumer) heartbeat(out []Action, to string) []Action {
	hdr := jsapi.AppendHeartbeat(nil, c.state.DeliveredConsumer, c.state.Next-1, "")
	return append(out, Action{Kind: ActStatus, To: to, Header: hdr})
}

// timeout ends an expired request.
func (c *Consumer) timeout(out []Action, r *request) []Action {
	c.used(r.expires)
	return c.end(out, r, jsapi.StatusRequestTimeout)
}

// end sends the status that ends a request, with what is left of it.
func (c *Consumer) end(out []Action, r *request, text string) []Action {
	hdr := jsapi.AppendPendingStatus(nil, text, r.batch, r.bytes)
	return c.behind(out, Action{Kind: ActStatus, To: r.reply, Header: hdr})
}

// noMore ends the one-shot requests: there are no more messages.
func (c *Consumer) noMore(out []Action, now int64) []Action {
	if c.reqs.shots == 0 {
		return out
	}
	c.reqs.keep(func(r *request) bool {
		if !r.noWait || (r.expires != Never && r.served == 0) {
			return true
		}
		if now >= r.expires {
			out = c.timeout(out, r)
			return false
		}
		out = c.behind(out, status(r.reply, jsapi.StatusNoMessages))
		return false
	})
	return out
}

// take returns the request that a delivery goes to, nil if none
// waits. Requests that can not take it end on the way; only the one that gets
// the message pays for it.
func (c *Consumer) take(out []Action, l *letter, now int64) ([]Action, *request) {
	w := c.reqs
	for w.n > 0 {
		r := w.at(0)
		switch {
		case now >= r.expires:
			out = c.timeout(out, r)
		case !c.interest(r.reply, r.received):
		case r.bytes > 0 && c.size(l) > r.bytes:
			out = c.end(out, r, jsapi.StatusMaxBytes)
		default:
			return out, r
		}
		w.pop()
	}
	return out, nil
}

// charge books a delivery to the head request, which moves to the tail or ends.
func (c *Consumer) charge(out []Action, l *letter, now int64) []Action {
	w := c.reqs
	r := w.at(0)
	if r.bytes > 0 {
		if r.bytes -= c.size(l); r.bytes == 0 {
			r.batch = 1
		}
	}
	r.batch--
	r.served++
	if r.batch > 0 {
		if r.heartbeat > 0 {
			r.beat = after(now, r.heartbeat)
		}
		w.turn()
		return out
	}
	if r.bytes > 0 {
		out = c.end(out, r, jsapi.StatusBatchCompleted)
	}
	w.pop()
	return out
}
