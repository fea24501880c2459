package transport

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// serveSnapshot serves one install on a connection of its own: a hello, the
// request, its bytes.
func (c *conn) serveSnapshot() {
	f, err := c.readSnapshot(c.group, frameHello)
	if err != nil {
		c.close(err)
		return
	}
	g, st, text := c.t.group(c.group)
	if st == statusOK && !g.enter() {
		st = statusClosing
	}
	if st != statusOK {
		c.answer(f, st, text)
		c.linger()
		return
	}
	c.serveInstall(g, f)
	g.leave()
	c.linger()
}

// serveInstall serves the hello in f and what comes after it.
func (c *conn) serveInstall(g *GroupTransport, f frame) {
	from, ok := c.serveHello(g, f)
	if !ok {
		return
	}
	f, err := c.readSnapshot(g.cfg.ID, frameSnapOpen)
	if err != nil {
		c.close(err)
		return
	}
	d := decoder{b: f.payload}
	r, id, req := d.snapOpen()
	if !c.routed(&worker{group: g, from: from}, g, f, &d, r) {
		return
	}
	in := &snapReader{
		c: c, g: g, id: id, size: req.Size,
		chunks: make(chan []byte, c.t.cfg.SnapshotWindow/c.t.cfg.SnapshotChunk+1),
		idle:   time.NewTimer(c.t.cfg.SnapshotIdle),
	}
	defer in.idle.Stop()
	in.begun = make(chan struct{})
	read := make(chan struct{})
	go func() { // ends with the connection, which is closed below
		defer close(read)
		in.fill()
	}()
	c.install(g, f, req, in)
	// The sender closes the connection when it has the answer.
	grace := time.NewTimer(c.t.cfg.HeartbeatTimeout)
	defer grace.Stop()
	select {
	case <-read:
	case <-g.closed:
	case <-grace.C:
	}
	c.close(errors.New("install is over"))
	<-read
}

// readSnapshot reads the next frame of a snapshot connection, answering pings.
func (c *conn) readSnapshot(group uint32, want frameType) (frame, error) {
	for {
		f, err := c.read(c.t.cfg.MaxFrameBytes)
		switch {
		case err != nil:
			return frame{}, err
		case f.typ == framePing:
			c.send(endFrame(beginFrame(c.t.buffer(headerSize), framePong, 0, 0)))
		case f.typ != want || f.group != group:
			return frame{}, fmt.Errorf(
				"%w: frame of type %d for group %d on a snapshot connection, want type %d for group %d",
				ErrProtocol,
				f.typ,
				f.group,
				want,
				group,
			)
		default:
			return f, nil
		}
	}
}

// install hands the request to Raft and answers when Raft does.
func (c *conn) install(g *GroupTransport, f frame, req *raft.InstallSnapshotRequest, in *snapReader) {
	if !g.lock(c.done) {
		return
	}
	defer g.unlock()
	g.newerTerm(req.Term)
	held := g.cfg.Holder.HeldSnapshot(in.id, req.Size)
	if held < 0 || held >= req.Size || in.id == (SnapshotID{}) {
		held = 0
	}
	in.consumed.Store(held)
	close(in.begun)
	c.sendAck(g.cfg.ID, held)
	req.Size -= held // Raft counts what it reads
	ch := make(chan raft.RPCResponse, 1)
	select {
	case g.consumer <- raft.RPC{Command: req, Reader: in, RespChan: ch}:
	case <-g.closed:
		return
	case <-c.done:
		return
	case <-in.idle.C:
		c.close(fmt.Errorf("%w: Raft does not take the snapshot", ErrTimeout))
		return
	}
	defer g.beat(req)
	res, ok := c.working(g, ch, in)
	if !ok {
		return
	}
	resp, ok := res.Response.(*raft.InstallSnapshotResponse)
	if res.Error != nil || !ok {
		c.answer(f, statusRemote, answerText(res.Error))
		return
	}
	if resp.Success {
		c.t.count.SnapshotsReceived.Add(1)
	}
	c.reply(f, frameSlack/64, func(b []byte) []byte { return appendSnapAnswer(b, resp) })
}

// beat hands Raft a heartbeat of the leader that a snapshot came from. In hashicorp/raft 1.8.0 a candidate that is sent a
// snapshot in its own term notes the leader, and stays a candidate. Should nothing more come from that leader, the
// candidate would know it for ever, and for its sake refuse its vote to everybody: of three nodes, the other two
// would have no leader until one of them is restarted. A follower forgets a leader that it does not hear.
func (g *GroupTransport) beat(req *raft.InstallSnapshotRequest) {
	ch := make(chan raft.RPCResponse, 1)
	beat := &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
	select {
	case g.consumer <- raft.RPC{Command: beat, RespChan: ch}:
	case <-g.closed:
		return
	}
	select {
	case <-ch:
	case <-g.closed:
	}
}

// working waits for Raft's answer. Once all bytes are consumed it tells the sender
// regularly that the install goes on, for RestoreTimeout. It does not return before Raft
// is done, also if nobody waits for the answer any more: what an install leaves is there
// when the next one asks for it.
func (c *conn) working(g *GroupTransport, ch chan raft.RPCResponse, in *snapReader) (raft.RPCResponse, bool) {
	tick := time.NewTicker(c.t.cfg.SnapshotIdle / 4)
	defer tick.Stop()
	var since time.Time
	done := c.done
	for {
		select {
		case r := <-ch:
			return r, done != nil
		case <-g.closed:
			return raft.RPCResponse{}, false
		case <-done:
			done = nil
		case now := <-tick.C:
			if done == nil || in.consumed.Load() < in.size {
				continue
			}
			if since.IsZero() {
				since = now
			}
			if now.Sub(since) > c.t.cfg.RestoreTimeout {
				c.close(fmt.Errorf("%w: restore takes more than %v", ErrTimeout, c.t.cfg.RestoreTimeout))
				done = nil
				continue
			}
			c.sendAck(g.cfg.ID, in.size)
		}
	}
}

// snapReader is what Raft reads a snapshot from, or the rest of one: chunks as they
// arrive, then EOF at the announced size. Only Raft's goroutine calls Read.
type snapReader struct {
	c        *conn
	g        *GroupTransport
	id       SnapshotID
	size     int64         // of the whole stream
	begun    chan struct{} // closed when consumed says where it begins
	chunks   chan []byte
	rest     []byte
	idle     *time.Timer
	consumed atomic.Int64 // of the whole stream
}

var errInstallEnded = errors.New("install ended before its last byte")

// Read fails when the connection or the group ends or no byte comes for SnapshotIdle.
func (r *snapReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.consumed.Load() >= r.size {
		return 0, io.EOF
	}
	for len(r.rest) == 0 {
		r.idle.Reset(r.c.t.cfg.SnapshotIdle)
		select {
		case r.rest = <-r.chunks:
		case <-r.c.done:
			select { // what came before the end is not sent again
			case r.rest = <-r.chunks:
				continue
			default:
			}
			return 0, errInstallEnded
		case <-r.g.closed:
			return 0, errInstallEnded
		case <-r.idle.C:
			err := fmt.Errorf("%w: %w: nothing for %v", errInstallEnded, ErrTimeout, r.c.t.cfg.SnapshotIdle)
			r.c.close(err)
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	done := r.consumed.Add(int64(n))
	r.c.t.count.SnapshotBytesReceived.Add(uint64(n))
	if len(r.rest) == 0 {
		r.c.sendAck(r.g.cfg.ID, done)
	}
	return n, nil
}

// fill reads chunks off the connection until it ends.
func (r *snapReader) fill() {
	got := int64(-1)
	for {
		f, err := r.c.readSnapshot(r.g.cfg.ID, frameSnapChunk)
		if err != nil {
			r.c.close(err)
			return
		}
		if got < 0 {
			select {
			case <-r.begun:
				got = r.consumed.Load()
			default:
				r.c.close(fmt.Errorf("%w: a chunk before it was asked for", ErrProtocol))
				return
			}
		}
		got += int64(len(f.payload))
		if len(f.payload) == 0 || got > r.size {
			r.c.close(fmt.Errorf("%w: chunk ends at %d of %d bytes", ErrProtocol, got, r.size))
			return
		}
		select {
		case r.chunks <- f.payload:
		case <-r.c.done:
			return
		}
	}
}
