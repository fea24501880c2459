package replication

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// fsm applies the committed entries of one group to its store. Raft calls it from
// one goroutine; reads of its position are safe from any.
//
// What it does depends on the entries and the applied state alone. A failure that
// could be different on another replica stops the node through fatal, and nothing
// is applied any more.
type fsm struct {
	store *storage.Store
	snaps *snapshots
	log   *zap.Logger
	fatal func(error)
	// damaged is told of damaged local files, which take this replica alone out of service.
	damaged func(error)
	// configured is told the configuration of a group when the entry that holds it is
	// applied, wrote that rows of group 0 changed. Both run on Raft's goroutine and must not block.
	configured func(raft.Configuration)
	wrote      func()

	batch *storage.Batch
	now   position // as of the open batch

	mu      sync.Mutex    // guards what follows
	applied position      // as of the last commit
	moved   chan struct{} // closed at the next commit; nil while nobody waits
	failed  error
}

// position is how far a state has come.
type position struct {
	index, term uint64
	fence       record.Fence
	confIndex   uint64 // the entry that holds the group's configuration
}

func newFSM(store *storage.Store, snaps *snapshots, log *zap.Logger, fatal func(error)) *fsm {
	f := &fsm{
		store: store, snaps: snaps, log: log, fatal: fatal, batch: store.NewBatch(),
		configured: func(raft.Configuration) {}, wrote: func() {}, damaged: fatal,
	}
	f.reload()
	return f
}

// reload takes the position from the store: at open, and when another state was installed.
func (f *fsm) reload() {
	a := f.store.Applied()
	f.now = position{index: a.Index, term: a.Term, fence: a.Fence, confIndex: a.ConfIndex}
	f.publish()
}

func (f *fsm) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = f.now
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

func (f *fsm) position() position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applied
}

func (f *fsm) fence() record.Fence { return f.position().fence }

// wait returns when the entry index is applied; index is one of a command or a configuration.
func (f *fsm) wait(ctx context.Context, index uint64) error {
	for {
		f.mu.Lock()
		if f.applied.index >= index {
			f.mu.Unlock()
			return nil
		}
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fail stops the node; the state stays as the last commit left it.
func (f *fsm) fail(err error) error {
	f.mu.Lock()
	first := f.failed == nil
	if first {
		f.failed = err
	}
	f.mu.Unlock()
	if first {
		f.log.Error("the state machine stops", zap.Error(err))
		if isDamage(err) {
			f.damaged(err)
		} else {
			f.fatal(err)
		}
	}
	return err
}

// stop makes the state stay as the last commit left it.
func (f *fsm) stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

func (f *fsm) broken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Apply implements raft.FSM; Raft uses ApplyBatch.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM: the entries become one batch of the
// store, with the position in it. Entries that the state holds already are skipped.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	err := f.broken()
	if err == nil {
		err = f.apply(logs, out)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", record.ErrUnknownOutcome, err)
		for i := range out {
			out[i] = err
		}
	}
	return out
}

func (f *fsm) apply(logs []*raft.Log, out []any) error {
	start := f.now.index
	var rows bool
	var conf *raft.Log
	var clock int64
	for i, l := range logs {
		if l.Index <= f.now.index {
			continue
		}
		var err error
		switch l.Type {
		case raft.LogConfiguration:
			conf = l
			f.batch.SetConf(l.Index, l.Data)
			f.now.confIndex = l.Index
		case raft.LogCommand:
			var e applied
			e, err = f.command(l)
			out[i] = e.response
			clock = max(clock, e.time)
			rows = rows || e.rows
		default:
			err = fmt.Errorf("%w: Raft entry of type %v", record.ErrFormat, l.Type)
		}
		if err != nil {
			f.batch.Reset()
			return f.fail(fmt.Errorf("entry %d of term %d: %w", l.Index, l.Term, err))
		}
		f.now.index, f.now.term = l.Index, l.Term
	}
	if f.now.index == start {
		return nil
	}
	f.batch.SetApplied(f.now.index, f.now.term, f.now.fence, clock)
	if err := f.batch.Commit(); err != nil {
		return f.fail(fmt.Errorf("commit of entry %d: %w", f.now.index, err))
	}
	f.publish()
	if conf != nil {
		f.configured(raft.DecodeConfiguration(conf.Data))
	}
	if rows {
		f.wrote()
	}
	return nil
}

// applied is what became of one entry.
type applied struct {
	response any   // nil or an error, the same on every replica
	time     int64 // cluster time of an envelope
	rows     bool  // rows of group 0 changed
}

func (f *fsm) command(l *raft.Log) (applied, error) {
	t, err := command.TypeOf(l.Data)
	if err != nil {
		return applied{}, err
	}
	if t == command.EntryMeta {
		return f.meta(l)
	}
	e, err := command.ParseEnvelope(l.Data)
	if err != nil {
		return applied{}, err
	}
	if !plantedNoFence && !f.now.fence.Admits(e.Fence, e.Base, l.Term) {
		return applied{response: stale(f.now.fence, &e, l.Term)}, nil
	}
	f.now.fence = e.Fence
	err = e.Each(func(t command.Type, body []byte) error { return write(f.batch, t, body) })
	return applied{time: e.Time}, err
}

func stale(at record.Fence, e *command.Envelope, term uint64) error {
	return fmt.Errorf("%w: envelope %v on %v in term %d, applied last %v",
		record.ErrStalePlan, e.Fence, e.Base, term, at)
}

// meta applies a write of group 0: all of it if every row it names has the version
// it was planned on, or nothing. The version of a row is the index of the entry
// that wrote it. Whoever repeats a write that was applied already has won.
func (f *fsm) meta(l *raft.Log) (applied, error) {
	m, err := command.ParseMetaBatch(l.Data)
	if err != nil {
		return applied{}, err
	}
	won, err := f.won(&m)
	if won || err != nil {
		return applied{}, err
	}
	for _, c := range m.Conditions {
		row, err := f.batch.Meta(c.Key)
		if err != nil {
			return applied{}, err
		}
		if row.Version != c.Version {
			return applied{response: fmt.Errorf("%w: row %q has version %d, not %d",
				record.ErrConflict, c.Key, row.Version, c.Version)}, nil
		}
	}
	for _, w := range m.Writes {
		if w.Value == nil {
			f.batch.DeleteMeta(w.Key)
			continue
		}
		f.batch.PutMeta(record.MetaRow{Key: w.Key, Value: w.Value, Version: l.Index, Author: m.Proposal})
	}
	return applied{rows: len(m.Writes) > 0}, nil
}

// won says that m was applied before: a row that it puts carries its id. A deleted
// row carries nothing: a write that only deletes has won when they all are gone.
func (f *fsm) won(m *command.MetaBatch) (bool, error) {
	gone := len(m.Writes) > 0
	for _, w := range m.Writes {
		row, err := f.batch.Meta(w.Key)
		if err != nil {
			return false, err
		}
		if w.Value != nil && row.Version != 0 && row.Author == m.Proposal {
			return true, nil
		}
		gone = gone && w.Value == nil && row.Version == 0
	}
	return gone, nil
}

// Snapshot implements raft.FSM: the state database is its own snapshot.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.broken(); err != nil {
		return nil, err
	}
	return localSnapshot{f.snaps}, nil
}

// Restore implements raft.FSM: the snapshot that the store was just given comes
// into force. Raft calls it on the goroutine that applies.
func (f *fsm) Restore(rc io.ReadCloser) error {
	if err := f.broken(); err != nil {
		return err
	}
	if err := f.snaps.activate(rc); err != nil {
		return f.fail(fmt.Errorf("activate an installed snapshot: %w", err))
	}
	f.batch = f.store.NewBatch()
	f.reload()
	if a := f.store.Applied(); a.Conf != nil {
		f.configured(raft.DecodeConfiguration(a.Conf))
	}
	f.wrote()
	f.log.Info("installed a snapshot", zap.Uint64("applied", f.now.index), zap.Time("at", time.Now()))
	return nil
}
