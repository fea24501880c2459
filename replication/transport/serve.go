package transport

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// handle serves one frame of a group on a control connection.
func (c *conn) handle(w *worker, f frame) {
	g, st, text := c.t.group(f.group)
	if st == statusOK && !g.enter() {
		st = statusClosing
	}
	if st != statusOK {
		c.answer(f, st, text)
		return
	}
	defer g.leave()
	if f.typ == frameHello {
		w.group, w.from = nil, ""
		if from, ok := c.serveHello(g, f); ok {
			w.group, w.from = g, from
		}
		return
	}
	d := decoder{b: f.payload}
	switch f.typ {
	case frameAppend:
		r, a, b := d.appendEntries()
		if c.routed(w, g, f, &d, r) {
			c.serveAppend(g, f, a, b)
		}
	case frameVote:
		r, v := d.vote()
		if c.routed(w, g, f, &d, r) {
			c.serveVote(g, f, v)
		}
	case framePreVote:
		r, v := d.preVote()
		if c.routed(w, g, f, &d, r) {
			c.servePreVote(g, f, v)
		}
	case frameTimeout:
		r, term := d.timeoutNow()
		if c.routed(w, g, f, &d, r) {
			c.serveTimeoutNow(g, f, r, term)
		}
	default:
		c.answer(f, statusMalformed, "not a frame of a group")
	}
}

// routed checks that a frame was decoded whole, is for this incarnation, and
// comes from whom the hello on this connection named; otherwise it answers why not.
func (c *conn) routed(w *worker, g *GroupTransport, f frame, d *decoder, r route) bool {
	if err := d.end(); err != nil {
		c.answer(f, statusMalformed, err.Error())
		c.close(err)
		return false
	}
	switch {
	case r.to != g.cfg.Local:
		c.t.count.WrongReceiver.Add(1)
		c.answer(f, statusReceiver, string(g.cfg.Local))
	case w.group != g:
		c.answer(f, statusNeedHello, "")
	case string(r.from) != w.from:
		c.t.count.WrongSender.Add(1)
		c.answer(f, statusSender, w.from)
	default:
		return true
	}
	return false
}

// serveHello checks a peer's hello and answers with this replica's. It returns
// the peer's address when hellos were exchanged.
func (c *conn) serveHello(g *GroupTransport, f frame) (string, bool) {
	d := decoder{b: f.payload}
	r, h := d.route(), d.hello()
	if err := d.end(); err != nil {
		c.answer(f, statusMalformed, err.Error())
		c.close(err)
		return "", false
	}
	if r.to != g.cfg.Local {
		c.t.count.WrongReceiver.Add(1)
		c.answer(f, statusReceiver, string(g.cfg.Local))
		return "", false
	}
	if node, err := NodeOf(r.from); err != nil || node != c.peer {
		c.t.count.WrongSender.Add(1)
		c.answer(f, statusSender, c.peer)
		return "", false
	}
	own := g.cfg.Source.LocalHello()
	err := g.judge(r.from, h)
	if err != nil && !errors.Is(err, ErrBelow) {
		c.answer(f, statusHello, err.Error())
		return "", false
	}
	c.reply(f, frameSlack, func(b []byte) []byte { return appendHello(b, own) })
	if err != nil {
		return "", false // it judges the same by this hello; if not, its frames are refused
	}
	return string(r.from), true
}

// hand gives an RPC to Raft and waits for its answer. It must be called with the
// group's gate held.
func (c *conn) hand(g *GroupTransport, cmd any) (any, error) {
	ch := make(chan raft.RPCResponse, 1)
	select {
	case g.consumer <- raft.RPC{Command: cmd, RespChan: ch}:
	case <-g.closed:
		return nil, ErrClosed
	case <-c.done:
		return nil, c.lost()
	}
	select {
	case r := <-ch:
		return r.Response, r.Error
	case <-g.closed:
		return nil, ErrClosed
	case <-c.done:
		return nil, c.lost()
	}
}

func (c *conn) serveAppend(g *GroupTransport, f frame, a *raft.AppendEntriesRequest, b Beat) {
	if !g.lock(c.done) {
		return
	}
	defer g.unlock()
	leader := raft.ServerAddress(a.Addr)
	g.newerTerm(a.Term)
	out, err := c.hand(g, a)
	resp, ok := out.(*raft.AppendEntriesResponse)
	if err != nil || !ok {
		c.answer(f, statusRemote, answerText(err))
		return
	}
	if resp.Term == a.Term {
		g.accepted(c, leader, a.Term)
		g.cfg.Source.ObserveBeat(leader, true, b)
	}
	if resp.Success && g.fenced(a.Term) {
		// This replica was told to take over from that term's leader and may still do
		// it: an acknowledgement would let the leader trust its lease again.
		c.answer(f, statusRemote, "taking over the leadership")
		return
	}
	own := Beat{Wall: g.cfg.Source.LocalBeat().Wall}
	c.reply(f, frameSlack/64, func(b []byte) []byte { return appendAppendAnswer(b, resp, own) })
}

// answerText is what the peer is told of a request that Raft did not answer. It
// must not contain Raft's text for an unknown command, which a candidate counts
// as a granted pre-vote.
func answerText(err error) string {
	if err == nil {
		return "no usable answer from Raft"
	}
	return "Raft answered: " + err.Error()
}

// embargoed answers a request for a vote that may not be answered yet.
func (c *conn) embargoed(g *GroupTransport, f frame) bool {
	if g.mayVote() {
		return false
	}
	c.t.count.VotesEmbargoed.Add(1)
	c.answer(f, statusEmbargo, "")
	return true
}

func (c *conn) serveVote(g *GroupTransport, f frame, v *raft.RequestVoteRequest) {
	if c.embargoed(g, f) || !g.lock(c.done) {
		return
	}
	defer g.unlock()
	g.newerTerm(v.Term)
	out, err := c.hand(g, v)
	resp, ok := out.(*raft.RequestVoteResponse)
	if err != nil || !ok {
		c.answer(f, statusRemote, answerText(err))
		return
	}
	b := ballot{version: resp.ProtocolVersion, term: resp.Term, granted: resp.Granted}
	c.reply(f, frameSlack/64, func(dst []byte) []byte { return appendBallot(dst, b) })
}

func (c *conn) servePreVote(g *GroupTransport, f frame, v *raft.RequestPreVoteRequest) {
	if c.embargoed(g, f) || !g.lock(c.done) {
		return
	}
	defer g.unlock()
	out, err := c.hand(g, v)
	resp, ok := out.(*raft.RequestPreVoteResponse)
	if err != nil || !ok {
		c.answer(f, statusRemote, "pre-vote failed")
		return
	}
	b := ballot{version: resp.ProtocolVersion, term: resp.Term, granted: resp.Granted}
	c.reply(f, frameSlack/64, func(dst []byte) []byte { return appendBallot(dst, b) })
}

// serveTimeoutNow starts a take-over, if the current leader asks for it on the
// connection that its appends come by and in the term they came in.
func (c *conn) serveTimeoutNow(g *GroupTransport, f frame, r route, term uint64) {
	if c.embargoed(g, f) || !g.lock(c.done) {
		return
	}
	defer g.unlock()
	if !g.ledBy(c, r.from, term) {
		c.t.count.TransfersRefused.Add(1)
		c.answer(f, statusNotLeader, "")
		return
	}
	g.fence(term)
	_, err := c.hand(g, &raft.TimeoutNowRequest{RPCHeader: r.header()})
	if err != nil {
		c.answer(f, statusRemote, answerText(err))
		return
	}
	c.reply(f, 1, func(b []byte) []byte { return append(b, byte(r.version)) })
}

// linger gives a refusal the time to be read before the connection is closed.
func (c *conn) linger() {
	deadline := time.Now().Add(c.t.cfg.HeartbeatTimeout)
	if c.nc.SetReadDeadline(deadline) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.br) // until the dialer closes, or the deadline
}
