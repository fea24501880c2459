package transport

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/lease"
)

// helloState is the exchange of hellos for one group on one dialled connection.
type helloState struct {
	g      *GroupTransport
	target raft.ServerAddress
	done   chan struct{}
	err    error // valid after done
}

// greet returns a connection to the peer on which hellos were exchanged.
func (g *GroupTransport) greet(target raft.ServerAddress, w *wait) (*conn, error) {
	node, err := NodeOf(target)
	if err != nil {
		return nil, err
	}
	c, err := g.t.link(node).acquire(w)
	if err != nil {
		return nil, err
	}
	err = c.hello(g, target, w)
	return c, err
}

// hello exchanges hellos once per connection, group and incarnations.
func (c *conn) hello(g *GroupTransport, target raft.ServerAddress, w *wait) error {
	c.mu.Lock()
	h := c.st.hellos[g.cfg.ID]
	if h != nil && h.g == g && h.target == target && !h.failed() {
		c.mu.Unlock()
		select {
		case <-h.done:
			return h.err
		case <-c.done:
			return c.lost()
		case <-w.expired:
			return w.timedOut(c)
		case <-w.quit:
			return ErrClosed
		}
	}
	h = &helloState{g: g, target: target, done: make(chan struct{})}
	c.st.hellos[g.cfg.ID] = h
	c.mu.Unlock()
	h.err = c.askHello(g, target, w)
	close(h.done)
	return h.err
}

func (h *helloState) failed() bool {
	select {
	case <-h.done:
		return h.err != nil
	default:
		return false
	}
}

func (c *conn) askHello(g *GroupTransport, target raft.ServerAddress, w *wait) error {
	own := g.cfg.Source.LocalHello()
	r, err := c.roundTrip(frameHello, g.cfg.ID, frameSlack/64+len(own.Beat.Marks), w, func(b []byte) []byte {
		return appendHello(
			appendRoute(b, route{version: raft.ProtocolVersionMax, from: g.cfg.Local, to: target}),
			own,
		)
	})
	if err != nil {
		return err
	}
	if err := r.failure(c.peer); err != nil {
		if r.status == statusHello {
			c.t.count.HelloRefused.Add(1)
		}
		return err
	}
	d := decoder{b: r.payload}
	h := d.hello()
	if err := d.end(); err != nil {
		c.close(err)
		return err
	}
	return g.judge(target, h)
}

// unhello forgets an exchange that the peer does not know of any more.
func (c *conn) unhello(g *GroupTransport, target raft.ServerAddress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.st.hellos[g.cfg.ID]
	if h != nil && h.g == g && h.target == target && !h.failed() {
		delete(c.st.hellos, g.cfg.ID)
	}
}

// call is one request of a group to a peer.
type call struct {
	typ    frameType
	target raft.ServerAddress
	size   int
	fill   func([]byte) []byte
	// before is called with the connection, right before the frame is queued.
	before func(*conn)
}

// send greets the peer, sends the request and returns its answer's payload, with
// the connection it came by. A peer that asks for a hello first gets it, once.
func (g *GroupTransport) send(q call, w *wait) ([]byte, *conn, error) {
	for again := false; ; again = true {
		c, err := g.greet(q.target, w)
		if err != nil {
			return nil, nil, err
		}
		if reason, ok := g.t.quarantined(g.cfg.ID); ok {
			return nil, nil, fmt.Errorf("%w: group %d: %s", ErrQuarantined, g.cfg.ID, reason)
		}
		if q.before != nil {
			q.before(c)
		}
		r, err := c.roundTrip(q.typ, g.cfg.ID, q.size, w, q.fill)
		if err != nil {
			return nil, c, err
		}
		if r.status == statusNeedHello {
			c.unhello(g, q.target)
			if !again {
				continue
			}
		}
		return r.payload, c, r.failure(c.peer)
	}
}

// target checks that Raft names a peer the way this transport does.
func (g *GroupTransport) target(id raft.ServerID, addr raft.ServerAddress) error {
	if string(id) != string(addr) {
		return fmt.Errorf("transport: server id %q is not its address %q", id, addr)
	}
	return nil
}

func (g *GroupTransport) route(h raft.RPCHeader, to raft.ServerAddress) route {
	return route{version: h.ProtocolVersion, from: g.cfg.Local, to: to}
}

// isHeartbeat tells Raft's heartbeats, which succeed against any log, from appends.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// AppendEntries sends a heartbeat or entries. Raft reads args.Entries again after
// the call, so entries beyond Config.AppendBytes are cut off args.Entries and come
// with its next request. One request with a log position and one heartbeat per
// peer are in flight at most.
func (g *GroupTransport) AppendEntries(
	id raft.ServerID,
	addr raft.ServerAddress,
	args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	if err := g.target(id, addr); err != nil {
		return err
	}
	if !g.enter() {
		return ErrClosed
	}
	defer g.leave()
	if err := g.stalled(); err != nil {
		return err
	}
	g.mu.Lock()
	p := g.peer(addr)
	g.enterTerm(args.Term)
	g.mu.Unlock()
	slot, timeout := p.append, g.t.cfg.AppendTimeout
	if isHeartbeat(args) {
		slot, timeout = p.heartbeat, g.t.cfg.HeartbeatTimeout
	}
	w, stop := newWait(timeout, g.closed)
	defer stop()
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-w.expired:
		return fmt.Errorf("%w: %s: an earlier append is in flight", ErrTimeout, addr)
	case <-g.closed:
		return ErrClosed
	}
	return g.append(addr, args, resp, w)
}

func (g *GroupTransport) append(
	addr raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, w *wait,
) error {
	n, size := trimEntries(args.Entries, g.t.cfg.AppendBytes)
	args.Entries = args.Entries[:n]
	beat := g.cfg.Source.LocalBeat()
	size += frameSlack/64 + beatSize(beat)
	if size > g.t.cfg.MaxFrameBytes {
		return fmt.Errorf("%w: append of %d bytes, the limit is %d", ErrTooLarge, size, g.t.cfg.MaxFrameBytes)
	}
	r := g.route(args.RPCHeader, addr)
	var sent time.Duration
	var after []lease.Token
	body, c, err := g.send(call{
		typ: frameAppend, target: addr, size: size,
		fill: func(b []byte) []byte { return appendAppend(b, r, args, beat) },
		before: func(c *conn) {
			sent = g.cfg.Boottime()
			after = g.transfersBefore(addr, c)
		},
	}, w)
	if err != nil {
		g.refused(addr, err)
		return err
	}
	d := decoder{b: body}
	answer, theirs := d.appendAnswer(addr)
	if err := d.end(); err != nil {
		c.close(err)
		return err
	}
	*resp = answer
	if g.acknowledged(addr, args, resp, sent, after) && !isHeartbeat(args) {
		g.cfg.Source.ObserveMatch(addr, args.Term, lastOf(args))
	}
	g.cfg.Source.ObserveBeat(addr, false, theirs)
	return nil
}

// stalled is the dead-man switch: a leader whose log does not get written must not
// keep its followers from electing another.
func (g *GroupTransport) stalled() error {
	since, inFlight := g.cfg.Stall()
	if !inFlight {
		return nil
	}
	if d := time.Since(since); d > g.t.cfg.HeartbeatTimeout/2 {
		g.t.count.Stalled.Add(1)
		return fmt.Errorf("%w: for %v", ErrStalled, d)
	}
	return nil
}

// RequestVote asks for a vote, unless the embargo forbids it (ErrEmbargo).
func (g *GroupTransport) RequestVote(
	id raft.ServerID, addr raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse,
) error {
	r := g.route(args.RPCHeader, addr)
	b, err := g.ballot(id, call{
		typ: frameVote, target: addr, size: frameSlack / 64,
		fill: func(dst []byte) []byte { return appendVote(dst, r, args) },
	})
	if err != nil {
		return err
	}
	h := route{version: b.version, from: addr}.header()
	*resp = raft.RequestVoteResponse{RPCHeader: h, Term: b.term, Granted: b.granted}
	return nil
}

// RequestPreVote asks whether a vote would be given, unless the embargo forbids it.
func (g *GroupTransport) RequestPreVote(
	id raft.ServerID, addr raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse,
) error {
	r := g.route(args.RPCHeader, addr)
	b, err := g.ballot(id, call{
		typ: framePreVote, target: addr, size: frameSlack / 64,
		fill: func(dst []byte) []byte { return appendPreVote(dst, r, args) },
	})
	if err != nil {
		return notGranted(err)
	}
	h := route{version: b.version, from: addr}.header()
	*resp = raft.RequestPreVoteResponse{RPCHeader: h, Term: b.term, Granted: b.granted}
	return nil
}

// unknownCommand is what Raft looks for in the error of a pre-vote: a peer that
// does not know the request counts as one that grants it.
const unknownCommand = "unexpected command"

// notGranted keeps a peer's text from being taken for a granted pre-vote.
func notGranted(err error) error {
	if strings.Contains(err.Error(), unknownCommand) {
		return fmt.Errorf("%w: pre-vote failed", ErrRefused)
	}
	return err
}

func (g *GroupTransport) ballot(id raft.ServerID, q call) (ballot, error) {
	if err := g.target(id, q.target); err != nil {
		return ballot{}, err
	}
	if !g.enter() {
		return ballot{}, ErrClosed
	}
	defer g.leave()
	g.campaign()
	if !g.mayVote() {
		g.t.count.VotesEmbargoed.Add(1)
		return ballot{}, fmt.Errorf("%w: this replica asks nobody yet", ErrEmbargo)
	}
	w, stop := newWait(g.t.cfg.HeartbeatTimeout, g.closed)
	defer stop()
	body, c, err := g.send(q, w)
	if err != nil {
		return ballot{}, err
	}
	d := decoder{b: body}
	b := d.ballot()
	if err := d.end(); err != nil {
		c.close(err)
		return ballot{}, err
	}
	return b, nil
}

// TimeoutNow tells a follower to take over. The lease is void from before the
// request is written until the follower has acknowledged an append that was sent
// after it, or the request was certainly not written.
func (g *GroupTransport) TimeoutNow(
	id raft.ServerID, addr raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse,
) error {
	if err := g.target(id, addr); err != nil {
		return err
	}
	if !g.enter() {
		return ErrClosed
	}
	defer g.leave()
	w, stop := newWait(g.t.cfg.HeartbeatTimeout, g.closed)
	defer stop()
	c, err := g.greet(addr, w)
	if err != nil {
		return err
	}
	g.mu.Lock()
	term := g.st.term
	token := g.st.lease.Void(string(addr), g.cfg.Boottime())
	g.publish()
	g.mu.Unlock()
	r, err := g.timeoutNow(
		c,
		token,
		route{version: args.ProtocolVersion, from: g.cfg.Local, to: addr},
		term,
		w,
	)
	if err != nil {
		return err
	}
	if err := r.failure(c.peer); err != nil {
		return err
	}
	d := decoder{b: r.payload}
	resp.RPCHeader = d.answerHeader(addr)
	return d.end()
}

func (g *GroupTransport) timeoutNow(
	c *conn,
	token lease.Token,
	r route,
	term uint64,
	w *wait,
) (reply, error) {
	req := g.t.requests.Add(1)
	ch, err := c.expect(req)
	if err == nil {
		b := beginFrame(g.t.buffer(headerSize+frameSlack/64), frameTimeout, g.cfg.ID, req)
		err = c.queue(endFrame(appendTimeoutNow(b, r, term)), w)
	}
	g.mu.Lock()
	if err != nil {
		g.st.lease.Settle(token) // not queued, so never written
	} else {
		g.st.written[token] = c.serial
	}
	g.publish()
	g.mu.Unlock()
	if err != nil {
		c.forget(req)
		return reply{}, err
	}
	return c.await(req, ch, w)
}
