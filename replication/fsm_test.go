package replication

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// fsmBench is a state machine on a store in memory.
type fsmBench struct {
	*fsm

	t      *testing.T
	fatals []error
	wrote  int
}

func newFSMBench(t *testing.T) *fsmBench {
	t.Helper()
	store, err := storage.Open(storage.Config{FS: vfs.NewMem(), Dir: "state", MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &fsmBench{t: t}
	snaps := &snapshots{store: store, logged: func() uint64 { return 1 << 60 }}
	b.fsm = newFSM(store, snaps, zap.NewNop(), func(err error) { b.fatals = append(b.fatals, err) })
	b.fsm.wrote = func() { b.wrote++ }
	return b
}

// want applies entries and compares their responses: "" is nil, else the error's sentinel.
func (b *fsmBench) want(logs []*raft.Log, want ...error) {
	b.t.Helper()
	out := b.ApplyBatch(logs)
	if len(out) != len(want) {
		b.t.Fatalf("%d responses, want %d", len(out), len(want))
	}
	for i, w := range want {
		err, _ := out[i].(error)
		if (w == nil && out[i] != nil) || (w != nil && !errors.Is(err, w)) {
			b.t.Errorf("response %d: %v, want %v", i, out[i], w)
		}
	}
}

func (b *fsmBench) at(index uint64, f record.Fence) {
	b.t.Helper()
	a := b.store.Applied()
	if a.Index != index || a.Fence != f || b.position().index != index || b.fence() != f {
		b.t.Errorf("applied %d %v (published %d %v), want %d %v",
			a.Index, a.Fence, b.position().index, b.fence(), index, f)
	}
}

func entry(index, term uint64, f, base record.Fence, seqs ...uint64) *raft.Log {
	b := command.NewBuilder(256)
	for _, seq := range seqs {
		m := record.Message{Time: int64(100 * index), Subject: "s", Payload: []byte{byte(index)}}
		b.Store(testStream, &command.Item{Seq: seq}, &m)
	}
	data := b.Finish(&command.Header{Fence: f, Base: base, Time: int64(100 * index)})
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data}
}

// by is the index of the entry that stored a message, 0 if it is not there.
func (b *fsmBench) by(seq uint64) int {
	b.t.Helper()
	m, err := b.store.Message(testStream, seq)
	if errors.Is(err, record.ErrNotFound) {
		return 0
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return int(m.Payload[0])
}

func TestFSMFence(t *testing.T) {
	t.Parallel()
	b := newFSMBench(t)
	zero := record.Fence{}
	f := func(term, epoch, ordinal uint64) record.Fence {
		return record.Fence{Term: term, Epoch: epoch, Ordinal: ordinal}
	}
	b.want([]*raft.Log{
		entry(3, 2, f(2, 1, 1), zero, 1),
		entry(4, 2, f(2, 1, 3), zero, 2), // 2 was refused
		entry(5, 2, f(2, 1, 4), zero, 3), // and all that was planned upon it
		entry(6, 2, f(2, 2, 1), f(2, 1, 1), 2),
		entry(8, 3, f(2, 2, 2), zero, 3),       // planned in an older term
		entry(9, 3, f(3, 1, 1), f(2, 2, 2), 3), // planned on something that never came
		entry(10, 3, f(3, 2, 1), f(2, 2, 1), 3),
		entry(11, 3, f(3, 2, 2), zero, 4),
	}, nil, record.ErrStalePlan, record.ErrStalePlan, nil, record.ErrStalePlan, record.ErrStalePlan, nil, nil)
	b.at(11, f(3, 2, 2))
	if diff := cmp.Diff([]int{3, 6, 10, 11}, []int{b.by(1), b.by(2), b.by(3), b.by(4)}); diff != "" {
		t.Errorf("stored by entries (-want +got):\n%s", diff)
	}
	if got := b.store.Applied().Time; got != 1100 {
		t.Errorf("cluster time %d, want 1100", got)
	}
	// A replay changes nothing; a batch may begin with what is applied.
	b.want([]*raft.Log{entry(10, 3, f(3, 2, 1), f(2, 2, 1), 9), entry(12, 3, f(3, 2, 3), zero, 5)}, nil, nil)
	if b.by(9) != 0 || b.by(5) != 12 {
		t.Errorf("after a replay: 9 by %d, 5 by %d", b.by(9), b.by(5))
	}
	// An entry without effect moves the index.
	b.want([]*raft.Log{entry(14, 3, f(3, 9, 2), zero, 6)}, record.ErrStalePlan)
	b.at(14, f(3, 2, 3))
	if len(b.fatals) != 0 {
		t.Error(b.fatals)
	}
}

func TestFSMConfiguration(t *testing.T) {
	t.Parallel()
	b := newFSMBench(t)
	var told []raft.Configuration
	b.configured = func(c raft.Configuration) { told = append(told, c) }
	conf := func(ids ...string) raft.Configuration {
		var c raft.Configuration
		for _, id := range ids {
			c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
		}
		return c
	}
	b.want([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf("a/1"))},
		{Index: 2, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf("a/1", "b/1"))},
	}, nil, nil)
	a := b.store.Applied()
	if a.ConfIndex != 2 || b.position().confIndex != 2 {
		t.Errorf("configuration of entry %d, published %d, want 2", a.ConfIndex, b.position().confIndex)
	}
	want := conf("a/1", "b/1")
	if diff := cmp.Diff(want, raft.DecodeConfiguration(a.Conf)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]raft.Configuration{want}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestFSMStops(t *testing.T) {
	t.Parallel()
	first := entry(1, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 1}, record.Fence{}, 1)
	good := func() *raft.Log {
		return entry(2, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 2}, record.Fence{}, 2)
	}
	for _, tc := range []struct {
		name, want string
		bad        func() *raft.Log
	}{
		{"version", "version 9", func() *raft.Log { l := good(); l.Data[0] = 9; return l }},
		{"entry type", "entry type 7", func() *raft.Log { l := good(); l.Data[1] = 7; return l }},
		{
			"command",
			"command type 200", func() *raft.Log { l := good(); l.Data[command.HeaderSize] = 200; return l },
		},
		{"short", "malformed", func() *raft.Log { l := good(); l.Data = l.Data[:len(l.Data)-1]; return l }},
		{"empty", "0 bytes", func() *raft.Log { l := good(); l.Data = nil; return l }},
		{
			"raft type",
			"LogAddPeerDeprecated",
			func() *raft.Log { l := good(); l.Type = raft.LogAddPeerDeprecated; return l },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newFSMBench(t)
			b.want([]*raft.Log{first}, nil)
			b.want([]*raft.Log{tc.bad()}, record.ErrUnknownOutcome)
			if len(b.fatals) != 1 || !strings.Contains(b.fatals[0].Error(), tc.want) {
				t.Fatalf("fatal: %v, want one that names %q", b.fatals, tc.want)
			}
			// Nothing is applied any more, not even what is good.
			b.want([]*raft.Log{entry(3, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 2}, record.Fence{}, 2)},
				record.ErrUnknownOutcome)
			b.at(1, record.Fence{Term: 1, Epoch: 1, Ordinal: 1})
			if _, err := b.Snapshot(); err == nil {
				t.Error("a stopped state machine gives a snapshot")
			}
			if len(b.fatals) != 1 {
				t.Errorf("fatal: %v", b.fatals)
			}
		})
	}
}

func TestFSMStopsWithItsStore(t *testing.T) {
	t.Parallel()
	b := newFSMBench(t)
	_ = b.store.Close()
	b.want(
		[]*raft.Log{entry(1, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 1}, record.Fence{}, 1)},
		record.ErrUnknownOutcome,
	)
	if len(b.fatals) != 1 {
		t.Errorf("fatal: %v", b.fatals)
	}
}

func TestFSMWait(t *testing.T) {
	t.Parallel()
	b := newFSMBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- b.wait(t.Context(), 2) }()
	go func() { done <- b.wait(ctx, 99) }()
	f := record.Fence{Term: 1, Epoch: 1, Ordinal: 1}
	b.want([]*raft.Log{entry(1, 1, f, record.Fence{})}, nil)
	f.Ordinal = 2
	b.want([]*raft.Log{entry(2, 1, f, record.Fence{})}, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
}

func metaLog(
	t *testing.T,
	index uint64,
	id record.ProposalID,
	conds []record.MetaCond,
	writes ...record.MetaWrite,
) *raft.Log {
	t.Helper()
	data, err := command.AppendMetaBatch(
		nil,
		&command.MetaBatch{Proposal: id, Conditions: conds, Writes: writes},
	)
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
}

func TestFSMMeta(t *testing.T) {
	t.Parallel()
	b := newFSMBench(t)
	id := func(n uint64) record.ProposalID { return record.NewProposalID(1, n) }
	cond := func(key string, v uint64) []record.MetaCond { return []record.MetaCond{{Key: key, Version: v}} }
	put := func(key, value string) record.MetaWrite {
		return record.MetaWrite{Key: key, Value: []byte(value)}
	}
	del := func(key string) record.MetaWrite { return record.MetaWrite{Key: key} }

	b.want([]*raft.Log{
		metaLog(t, 1, id(1), cond("x", 0), put("x", "one"), put("y", "one")),
		metaLog(
			t,
			2,
			id(2),
			cond("x", 0),
			put("x", "two"),
		), // sees entry 1
		metaLog(
			t,
			3,
			id(1),
			cond("x", 0),
			put("x", "one"),
			put("y", "one"),
		), // entry 1 again
		metaLog(
			t,
			4,
			id(4),
			append(cond("x", 1), cond("y", 9)...),
			put("x", "4"),
			put("z", ""),
		), // all or nothing
		metaLog(t, 5, id(5), cond("x", 1), put("x", "five"), del("y")),
		metaLog(t, 6, id(5), cond("x", 1), put("x", "five"), del("y")),
	}, nil, record.ErrConflict, nil, record.ErrConflict, nil, nil)
	row := func(key string) record.MetaRow {
		t.Helper()
		r, err := b.store.Meta(key)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := record.MetaRow{Key: "x", Value: []byte("five"), Version: 5, Author: id(5)}
	if diff := cmp.Diff(want, row("x")); diff != "" {
		t.Errorf("x (-want +got):\n%s", diff)
	}
	if y, z := row("y"), row("z"); y.Version != 0 || z.Version != 0 {
		t.Errorf("y has version %d, z %d, want none", y.Version, z.Version)
	}
	b.want([]*raft.Log{
		metaLog(t, 7, id(7), cond("x", 5), del("x")),
		metaLog(t, 8, id(7), cond("x", 5), del("x")),            // again: it is gone
		metaLog(t, 9, id(9), cond("x", 5), del("x")),            // another one's: gone as well
		metaLog(t, 10, id(10), nil, put("empty", "")),           // no condition, no value
		metaLog(t, 11, id(11), cond("x", 0)),                    // only a question
		metaLog(t, 12, id(12), cond("x", 5)),                    // answered no
		metaLog(t, 13, id(13), cond("empty", 10), put("v", "")), // an empty row is a row
	}, nil, nil, nil, nil, nil, record.ErrConflict, nil)
	if row("empty").Version != 10 || row("v").Version != 13 {
		t.Errorf("empty has version %d, v %d", row("empty").Version, row("v").Version)
	}
	if b.wrote != 2 {
		t.Errorf("told %d times, want once a batch", b.wrote)
	}
}
