package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Kinds of transport calls.
const (
	// kindWrite carries a write of group 0 to its leader.
	kindWrite = 1
	// kindApplied asks the leader of a group how far it has applied.
	kindApplied = 2
	// kindReseed asks the leader of a group whether it can do without the caller's replica, and whether it does, of
	// one that the call names.
	kindReseed = 3
	// kindReplica tells the leader of group 0 that the caller has another replica now.
	kindReplica = 4
	// kindPlace asks the leader of group 0 which replica of the caller's node is to be in a group.
	kindPlace = 5
	// FirstFreeKind is the first kind that other parts of the node may use.
	FirstFreeKind = 16
)

const (
	// MaxMetaWrite bounds the serialized form of one write of group 0, in bytes.
	MaxMetaWrite = 1 << 20
	// writeTry is how long one try of a write waits for its outcome.
	writeTry = 5 * time.Second
	// writePause is the first pause between two tries; it doubles up to writePauseMax.
	writePause    = 20 * time.Millisecond
	writePauseMax = 500 * time.Millisecond
)

// Meta is group 0 as a row store that every node holds whole. Reads are of this
// node's replica and may lag behind the leader's. Safe for concurrent use.
type Meta struct {
	h     *Host
	group atomic.Pointer[Group]
	quit  chan struct{}
}

func newMeta(h *Host) *Meta { return &Meta{h: h, quit: make(chan struct{})} }

func (m *Meta) serve() {
	m.h.trans.Handle(kindWrite, m.serveWrite)
	m.h.trans.Handle(kindApplied, m.h.serveApplied)
	m.h.trans.Handle(kindReseed, m.h.serveReseed)
	m.h.trans.Handle(kindReplica, m.h.serveReplica)
	m.h.trans.Handle(kindPlace, m.h.servePlace)
}

func (m *Meta) close() { close(m.quit) }

// Get returns a row; Version 0 = there is none.
func (m *Meta) Get(key string) (record.MetaRow, error) { return m.group.Load().Reader().Meta(key) }

// Scan calls f for the rows whose keys start with prefix, in key order, until it returns false.
func (m *Meta) Scan(prefix string, f func(record.MetaRow) bool) error {
	return m.group.Load().Reader().ScanMeta(prefix, f)
}

// Watch returns a channel on which something arrives after rows changed on this
// replica (several changes may arrive as one, and other news of the group as
// well). stop ends it.
func (m *Meta) Watch() (changes <-chan struct{}, stop func()) { return m.group.Load().Watch() }

// Write changes rows, all of them or none: if every row named by conds has the
// version given there. It may be called on any node; without a leader it tries
// until ctx ends. nil: the rows are written, and this replica has them unless ctx
// ended first. An error that wraps record.ErrConflict: they are not. Any other:
// nobody knows. A write without a condition on the rows it puts may, if its outcome
// was in doubt in between, be applied a second time over a later one.
func (m *Meta) Write(ctx context.Context, conds []record.MetaCond, writes []record.MetaWrite) error {
	entry, err := command.AppendMetaBatch(nil, &command.MetaBatch{
		Proposal: m.h.ids.next(), Conditions: conds, Writes: writes,
	})
	if err != nil {
		return err
	}
	if len(entry) > MaxMetaWrite {
		return fmt.Errorf("%w: write of %d bytes, at most %d", record.ErrFormat, len(entry), MaxMetaWrite)
	}
	// One id for all tries: one that was applied already is recognised by it.
	hint, followed, pause := "", false, writePause
	for {
		r, err := m.try(ctx, hint, entry)
		if err == nil && r.verdict != verdictRetry {
			return m.settle(ctx, r)
		}
		if err == nil {
			err = errors.New(r.text)
		}
		// A hint is followed once: two nodes may each take the other for the leader.
		if !followed && r.hint != "" {
			hint, followed = r.hint, true
			continue
		}
		hint, followed = "", false
		if err := m.pause(ctx, pause, err); err != nil {
			return err
		}
		pause = min(2*pause, writePauseMax)
	}
}

func (m *Meta) pause(ctx context.Context, d time.Duration, why error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.quit:
		return fmt.Errorf("%w: %w: %w", record.ErrUnknownOutcome, record.ErrClosed, why)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w: %w", record.ErrUnknownOutcome, ctx.Err(), why)
	}
}

// try sends the write to the node that is said to lead.
func (m *Meta) try(ctx context.Context, node string, entry []byte) (writeReply, error) {
	if node == "" {
		if node = m.group.Load().Status().Leader; node == "" {
			return writeReply{}, fmt.Errorf("%w: the metadata group has no leader", record.ErrNotLeader)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTry)
	defer cancel()
	b, err := m.h.trans.Call(ctx, node, Metadata, kindWrite, entry)
	if err != nil {
		return writeReply{}, err
	}
	return parseWriteReply(b)
}

// settle waits until this replica shows what the leader's verdict rests on.
func (m *Meta) settle(ctx context.Context, r writeReply) error {
	err := m.group.Load().WaitApplied(ctx, r.applied)
	switch {
	case r.verdict == verdictConflict:
		return fmt.Errorf("%w: %s", record.ErrConflict, r.text)
	case r.verdict == verdictBad:
		return fmt.Errorf("%w: %s", record.ErrFormat, r.text)
	case err != nil && ctx.Err() == nil:
		return err
	default:
		return nil
	}
}

// serveWrite proposes a write that another node sent here.
func (m *Meta) serveWrite(ctx context.Context, _ string, _ uint32, entry []byte) ([]byte, error) {
	g := m.group.Load()
	batch, err := command.ParseMetaBatch(entry)
	if err != nil {
		r := writeReply{verdict: verdictBad, text: err.Error()}
		return r.encode(), nil //nolint:nilerr // the answer says it
	}
	t := g.Term()
	if t == nil {
		r := writeReply{verdict: verdictRetry, hint: g.Status().Leader, text: errTermOver.Error()}
		return r.encode(), nil
	}
	done := make(chan error, 1)
	t.Propose(&record.Proposal{ID: batch.Proposal, Entry: entry, Done: func(err error) { done <- err }})
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", record.ErrUnknownOutcome, ctx.Err())
	}
	r := writeReply{applied: g.rep.Load().applied().index}
	switch {
	case err == nil:
		r.verdict = verdictWritten
	case errors.Is(err, record.ErrConflict):
		r.verdict, r.text = verdictConflict, err.Error()
	default:
		r.verdict, r.text, r.hint = verdictRetry, err.Error(), g.Status().Leader
	}
	return r.encode(), nil
}

// raftAddress looks a node's transport address up in its row. It never blocks on the network.
func (m *Meta) raftAddress(node string) (string, bool) {
	if m.group.Load() == nil {
		return "", false
	}
	row, _, err := Row[NodeRow](m, NodeKey(node))
	return row.Raft, err == nil && row.Raft != ""
}

type verdict uint8

const (
	verdictWritten  verdict = 0
	verdictConflict verdict = 1
	verdictBad      verdict = 2
	verdictRetry    verdict = 3
)

// writeReply is the answer to a write: verdict u8, applied u64, hint length u8,
// hint, text.
type writeReply struct {
	verdict verdict
	applied uint64 // what the verdict rests on is applied at this index
	hint    string // node id of who may lead
	text    string
}

func (r writeReply) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{byte(r.verdict)}, r.applied)
	b = append(b, byte(len(r.hint))) // a node id has at most 127 bytes
	return append(append(b, r.hint...), r.text...)
}

func parseWriteReply(b []byte) (writeReply, error) {
	const fixed = 1 + 8 + 1
	if len(b) < fixed || len(b) < fixed+int(b[9]) || verdict(b[0]) > verdictRetry {
		return writeReply{}, fmt.Errorf("%w: answer of %d bytes to a write", record.ErrFormat, len(b))
	}
	n := fixed + int(b[9])
	return writeReply{
		verdict: verdict(
			b[0],
		),
		applied: binary.BigEndian.Uint64(b[1:]),
		hint:    string(b[fixed:n]),
		text:    string(b[n:]),
	}, nil
}

// LeaderApplied asks the leader of a group, under its lease, how far it has
// applied: a replica that has applied this much shows all that was acknowledged
// before the call. Errors: record.ErrNotLeader, those of transport.Call.
func (h *Host) LeaderApplied(ctx context.Context, group uint32) (uint64, error) {
	g := h.Group(group)
	if g == nil {
		return 0, fmt.Errorf("%w: group %d", record.ErrNotFound, group)
	}
	leader := g.Status().Leader
	if leader == "" {
		return 0, fmt.Errorf("%w: group %d has no leader", record.ErrNotLeader, group)
	}
	b, err := h.trans.Call(ctx, leader, group, kindApplied, nil)
	if _, ok := errors.AsType[*transport.RemoteError](err); ok {
		return 0, fmt.Errorf("%w: %w", record.ErrNotLeader, err)
	}
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: applied index of %d bytes", record.ErrFormat, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

func (h *Host) serveApplied(_ context.Context, _ string, group uint32, _ []byte) ([]byte, error) {
	g := h.Group(group)
	if g == nil {
		return nil, fmt.Errorf("%w: group %d", record.ErrNotFound, group)
	}
	t := g.Term()
	if t == nil {
		return nil, errTermOver
	}
	index := g.rep.Load().applied().index
	if err := t.Check(); err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(nil, index), nil
}
