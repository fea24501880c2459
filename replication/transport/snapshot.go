package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// SnapshotID names the stream of one snapshot: no two have the same. Zero names none.
type SnapshotID [16]byte

// Resumable is what the data given to InstallSnapshot may be beside a reader: a stream
// that does not change and can be read from any offset, so that an install that was cut
// goes on where the receiver says it is.
type Resumable interface {
	io.ReaderAt
	// SnapshotID names the stream.
	SnapshotID() SnapshotID
	// Reached is told how many bytes of the stream a replica holds, first what it held before.
	Reached(to raft.ServerAddress, offset int64)
	// Settled is told that a replica has answered, with success or not: it needs the stream no more.
	Settled(to raft.ServerAddress, success bool)
}

// SnapshotHolder says what a replica holds of a snapshot's stream that was cut.
type SnapshotHolder interface {
	// HeldSnapshot returns how many bytes of a stream of size bytes are held. If that is
	// not 0, Raft is next handed the request, whose Size then is that of the rest. It is
	// called while no other install is in progress, and always before one.
	HeldSnapshot(id SnapshotID, size int64) int64
}

type noHolder struct{}

func (noHolder) HeldSnapshot(SnapshotID, int64) int64 { return 0 }

// InstallSnapshot streams a snapshot to a follower on a connection of its own, so
// that its bytes never stand before a heartbeat. The follower says first how much of
// a Resumable stream it holds already; the stream goes on from there. Chunks are
// acknowledged as the follower's Raft has consumed them; the install ends with ErrTimeout when nothing
// is acknowledged for Config.SnapshotIdle, however large it is. After the last
// byte the follower says that it still works on it, for at most Config.RestoreTimeout.
func (g *GroupTransport) InstallSnapshot(
	id raft.ServerID, addr raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	if err := g.target(id, addr); err != nil {
		return err
	}
	if !g.enter() {
		return ErrClosed
	}
	defer g.leave()
	if reason, ok := g.t.quarantined(g.cfg.ID); ok {
		return fmt.Errorf("%w: group %d: %s", ErrQuarantined, g.cfg.ID, reason)
	}
	c, err := g.dialSnapshot(addr)
	if err != nil {
		return err
	}
	defer c.close(ErrClosed)
	s := snapSender{g: g, c: c, to: addr, acked: -1, idle: time.NewTimer(g.t.cfg.SnapshotIdle)}
	defer s.idle.Stop()
	s.source, _ = data.(Resumable)
	r, err := s.run(addr, args, data)
	if err == nil {
		d := decoder{b: r.payload}
		*resp = d.snapAnswer(addr)
		err = d.end()
	}
	var remote *RemoteError
	if s.source != nil && (err == nil || errors.As(err, &remote)) {
		s.source.Settled(addr, err == nil && resp.Success)
	}
	if err != nil {
		return fmt.Errorf("install snapshot of group %d at %s: %w", g.cfg.ID, addr, err)
	}
	g.installed(addr, args, resp)
	g.t.count.SnapshotsSent.Add(1)
	return nil
}

// dialSnapshot dials on a goroutine of the transport, which then reads the answers.
func (g *GroupTransport) dialSnapshot(addr raft.ServerAddress) (*conn, error) {
	node, err := NodeOf(addr)
	if err != nil {
		return nil, err
	}
	type result struct {
		c   *conn
		err error
	}
	dialled := make(chan result, 1)
	started := g.t.spawn(func(ctx context.Context) {
		c, err := g.t.dial(ctx, node, kindSnapshot, g.cfg.ID)
		dialled <- result{c, err}
		if err == nil {
			c.readReplies(ctx)
		}
	})
	if !started {
		return nil, ErrClosed
	}
	select {
	case r := <-dialled:
		return r.c, r.err
	case <-g.closed:
		g.t.spawn(func(context.Context) { // nobody wants it any more
			if r := <-dialled; r.err == nil {
				r.c.close(ErrClosed)
			}
		})
		return nil, ErrClosed
	}
}

// snapSender is one install in progress on the sending side.
type snapSender struct {
	g     *GroupTransport
	c     *conn
	idle  *time.Timer
	to    raft.ServerAddress
	acked int64 // progress that the idle timer was reset for
	sent  int64 // up to where in the stream
	final chan reply
	data  io.Reader // the stream from sent on
	// source is the stream if it can be gone on with.
	source Resumable
}

func (s *snapSender) run(
	addr raft.ServerAddress,
	args *raft.InstallSnapshotRequest,
	data io.Reader,
) (reply, error) {
	w, stop := newWait(s.g.t.cfg.HeartbeatTimeout, s.g.closed)
	defer stop()
	if err := s.c.hello(s.g, addr, w); err != nil {
		return reply{}, err
	}
	req := s.g.t.requests.Add(1)
	var err error
	if s.final, err = s.c.expect(req); err != nil {
		return reply{}, err
	}
	r := s.g.route(args.RPCHeader, addr)
	var id SnapshotID
	if s.source != nil {
		id = s.source.SnapshotID()
	}
	b := beginFrame(s.g.t.buffer(frameSlack/64+len(args.Configuration)), frameSnapOpen, s.g.cfg.ID, req)
	if err := s.c.queue(endFrame(appendSnapOpen(b, r, id, args)), w); err != nil {
		return reply{}, err
	}
	s.data = data
	if early, done, err := s.start(args.Size); err != nil || done {
		return early, err
	}
	for s.sent < args.Size {
		early, done, err := s.chunk(req, args.Size)
		if err != nil || done {
			return early, err
		}
	}
	limit := time.NewTimer(s.g.t.cfg.RestoreTimeout + s.g.t.cfg.SnapshotIdle)
	defer limit.Stop()
	for {
		final, done, err := s.step(limit.C)
		if err != nil || done {
			return final, err
		}
	}
}

// start waits for the offset that the follower wants the stream from. done: the peer has
// answered already.
func (s *snapSender) start(size int64) (r reply, done bool, err error) {
	for s.c.acked.Load() < 0 {
		if r, done, err = s.step(nil); err != nil || done {
			return r, done, err
		}
	}
	s.sent = s.c.acked.Load()
	switch {
	case s.sent == 0:
		return reply{}, false, nil
	case s.source == nil || s.sent > size:
		return reply{}, false, fmt.Errorf("%w: %s wants a snapshot of %d bytes from %d on",
			ErrProtocol, s.to, size, s.sent)
	}
	s.g.t.count.SnapshotsResumed.Add(1)
	s.data = io.NewSectionReader(s.source, s.sent, size-s.sent)
	return reply{}, false, nil
}

// chunk sends the next bytes when the window has room for them. done: the peer has
// answered already.
func (s *snapSender) chunk(req uint64, size int64) (r reply, done bool, err error) {
	n := min(int64(s.g.t.cfg.SnapshotChunk), size-s.sent)
	b := beginFrame(s.g.t.buffer(headerSize+int(n)), frameSnapChunk, s.g.cfg.ID, req)
	b = append(b, make([]byte, n)...)
	if _, err := io.ReadFull(s.data, b[headerSize:]); err != nil {
		return reply{}, false, fmt.Errorf(
			"read snapshot at %d of %d bytes: %w",
			s.sent,
			size,
			unexpected(err),
		)
	}
	for s.sent+n-s.c.acked.Load() > int64(s.g.t.cfg.SnapshotWindow) {
		if r, done, err = s.step(nil); err != nil || done {
			return r, done, err
		}
	}
	if err := s.c.queue(
		endFrame(b),
		&wait{timeout: s.g.t.cfg.SnapshotIdle, expired: s.idle.C, quit: s.g.closed},
	); err != nil {
		return reply{}, false, err
	}
	s.sent += n
	s.g.t.count.SnapshotBytesSent.Add(uint64(n))
	return reply{}, false, nil
}

// step waits for one event: an acknowledgement, the answer, or that nothing comes.
func (s *snapSender) step(limit <-chan time.Time) (r reply, done bool, err error) {
	select {
	case r := <-s.final:
		if r.err != nil {
			return reply{}, false, r.err
		}
		return r, true, r.failure(s.c.peer)
	case <-s.c.acks:
		// While bytes are missing only progress counts; after the last one the
		// follower repeats its acknowledgement to say that it is at work.
		if acked := s.c.acked.Load(); acked > s.acked || limit != nil {
			s.acked = acked
			s.idle.Reset(s.g.t.cfg.SnapshotIdle)
			if s.source != nil {
				s.source.Reached(s.to, acked)
			}
		}
		return reply{}, false, nil
	case <-s.idle.C:
		s.g.t.count.Timeouts.Add(1)
		return reply{}, false, fmt.Errorf("%w: no progress for %v at %d bytes",
			ErrTimeout, s.g.t.cfg.SnapshotIdle, max(0, s.c.acked.Load()))
	case <-limit:
		s.g.t.count.Timeouts.Add(1)
		return reply{}, false, fmt.Errorf(
			"%w: restore takes more than %v",
			ErrTimeout,
			s.g.t.cfg.RestoreTimeout,
		)
	case <-s.g.closed:
		return reply{}, false, ErrClosed
	}
}

func (c *conn) sendAck(group uint32, consumed int64) {
	b := beginFrame(c.t.buffer(headerSize+8), frameSnapAck, group, 0)
	c.send(endFrame(binary.BigEndian.AppendUint64(b, uint64(consumed))))
}
