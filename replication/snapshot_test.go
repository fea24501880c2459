package replication

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// crashBench is a replica without Raft, on a disk that is copied, as a power cut
// would leave it, before each of its changes.
type crashBench struct {
	t     *testing.T
	disk  *vfs.MemFS
	fs    vfs.FS
	log   *seglog.Log
	logs  *logStore
	store *storage.Store
	snaps *snapshots
	fsm   *fsm
	// stored is the last entry that was acknowledged.
	stored atomic.Uint64
	mu     struct {
		lock sync.Mutex

		watch  bool
		rng    *rand.Rand
		copies []diskCopy
	}
}

// diskCopy is what a power cut would have left, and the last entry that must be on it.
type diskCopy struct {
	disk   *vfs.MemFS
	stored uint64
}

// copy takes the copies before a change of the disk; the database makes some by itself.
func (b *crashBench) copy() {
	b.mu.lock.Lock()
	defer b.mu.lock.Unlock()
	if !b.mu.watch {
		return
	}
	for _, cfg := range []vfs.CrashCloneCfg{{}, {UnsyncedDataPercent: 50, RNG: b.mu.rng}} {
		stored := b.stored.Load()
		b.mu.copies = append(b.mu.copies, diskCopy{disk: b.disk.CrashClone(cfg), stored: stored})
	}
}

func (b *crashBench) watch(on bool) []diskCopy {
	b.mu.lock.Lock()
	defer b.mu.lock.Unlock()
	b.mu.watch = on
	return b.mu.copies
}

func newCrashBench(t *testing.T, disk *vfs.MemFS) *crashBench {
	t.Helper()
	b := &crashBench{t: t, disk: disk}
	b.mu.rng = rand.New(rand.NewPCG(1, 2))
	b.fs = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			b.copy()
		}
		return nil
	}))
	var err error
	if b.log, err = seglog.Open(
		seglog.Config{FS: b.fs, Dir: "log", SegmentSize: 16 << 10, SyncPrepare: true},
	); err != nil {
		t.Fatal(err)
	}
	if b.store, err = storage.Open(
		storage.Config{FS: b.fs, Dir: "state", MemTableSize: 16 << 10},
	); err != nil {
		t.Fatal(err)
	}
	fatal := func(err error) { t.Errorf("fatal: %v", err) }
	b.logs = newLogStore(b.log, testBoot, zap.NewNop(), fatal)
	b.logs.reach = func() uint64 { a := b.store.Applied(); return a.Reach() }
	b.logs.durable = b.store.DurableApplied
	b.logs.installed = func() (index, term uint64) {
		snap := b.store.Pointer().Snapshot
		return snap.Index, snap.Term
	}
	b.snaps = &snapshots{
		store: b.store, logged: b.log.LastIndex, offers: newOffers(b.store, b.logs, testRetention(), zap.NewNop()),
	}
	b.fsm = newFSM(b.store, b.snaps, zap.NewNop(), fatal)
	return b
}

func (b *crashBench) close() {
	if err := errors.Join(b.store.Close(), b.log.Close()); err != nil {
		b.t.Error(err)
	}
}

// testLog is entry index of a group whose every entry is of term 2.
func testLog(index uint64) *raft.Log {
	if index == 1 {
		c := raft.Configuration{Servers: []raft.Server{{ID: "a/1", Address: "a/1"}}}
		return &raft.Log{Index: 1, Term: 2, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}
	}
	b := command.NewBuilder(1024)
	m := record.Message{Time: int64(index), Subject: "s", Payload: bytes.Repeat([]byte{byte(index)}, 300)}
	b.Store(testStream, &command.Item{Seq: index}, &m)
	if index > 20 {
		b.Delete(
			&command.Deletes{
				Ranges: []command.Range{{Stream: testStream, First: index - 20, Last: index - 19}},
			},
		)
	}
	f := record.Fence{Term: 2, Epoch: 1, Ordinal: index - 1}
	return &raft.Log{Index: index, Term: 2, Type: raft.LogCommand, Data: b.Finish(&command.Header{Fence: f})}
}

// grow stores and applies the entries up to last.
func (b *crashBench) grow(last uint64) {
	b.t.Helper()
	if err := b.logs.SetUint64([]byte(keyCurrentTerm), 2); err != nil {
		b.t.Fatal(err)
	}
	for i := max(b.log.LastIndex(), b.store.Pointer().Snapshot.Index) + 1; i <= last; i++ {
		l := testLog(i)
		if err := b.logs.StoreLog(l); err != nil {
			b.t.Fatal(err)
		}
		b.stored.Store(i)
		if r := b.fsm.ApplyBatch([]*raft.Log{l})[0]; r != nil {
			b.t.Fatal(r)
		}
	}
}

// replay does at a start what Raft does: from the snapshot to the end of the log.
func (b *crashBench) replay() {
	b.t.Helper()
	if err := check(b.log, b.store, zap.NewNop()); err != nil {
		b.t.Fatal(err)
	}
	for i := b.store.Pointer().Snapshot.Index + 1; i <= b.log.LastIndex(); i++ {
		var l raft.Log
		if err := b.logs.GetLog(i, &l); err != nil {
			b.t.Fatalf("entry %d: %v", i, err)
		}
		if r := b.fsm.ApplyBatch([]*raft.Log{&l})[0]; r != nil {
			b.t.Fatal(r)
		}
	}
}

func (b *crashBench) hash() storage.StateHash {
	b.t.Helper()
	h, err := b.store.StateHash(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// hashes are the state hashes of a replica after each entry up to last.
func hashes(t *testing.T, last uint64) map[uint64]storage.StateHash {
	t.Helper()
	b := newCrashBench(t, vfs.NewCrashableMem())
	defer b.close()
	out := map[uint64]storage.StateHash{0: b.hash()}
	for i := range last {
		b.grow(i + 1)
		out[i+1] = b.hash()
	}
	return out
}

// snapshot does what Raft's takeSnapshot does, with trailing entries kept.
func (b *crashBench) snapshot(trailing uint64) {
	b.t.Helper()
	last := b.log.LastIndex()
	s, err := b.fsm.Snapshot()
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.store.Applied()
	k, err := b.snaps.Create(
		raft.SnapshotVersionMax,
		last,
		2,
		raft.DecodeConfiguration(a.Conf),
		a.ConfIndex,
		nil,
	)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(s.Persist(k), k.Close()); err != nil {
		b.t.Fatal(err)
	}
	s.Release()
	if err := b.logs.DeleteRange(b.log.FirstIndex(), last-trailing); err != nil {
		b.t.Fatal(err)
	}
}

// restart opens each copy and replays it: everything that was stored is there, and
// the state is that of some entry.
func (b *crashBench) restart(want map[uint64]storage.StateHash) {
	b.t.Helper()
	copies := b.watch(false)
	if len(copies) < 20 {
		b.t.Errorf("%d copies only", len(copies))
	}
	seen := map[uint64]int{}
	for i, from := range copies {
		c := newCrashBench(b.t, from.disk)
		c.replay()
		h := c.hash()
		if h.Index < from.stored || h != want[h.Index] {
			b.t.Errorf("copy %d: state %v, want %v, at least %d", i, h, want[h.Index], from.stored)
		}
		seen[h.Index]++
		c.grow(h.Index + 3) // it goes on from there
		if got := c.hash(); got != want[h.Index+3] {
			b.t.Errorf("copy %d, gone on: state %v, want %v", i, got, want[h.Index+3])
		}
		c.close()
	}
	b.t.Logf("%d copies, indexes %v", len(copies), seen)
}

func TestCrashInALocalSnapshot(t *testing.T) {
	t.Parallel()
	want := hashes(t, 130)
	for _, flushed := range []bool{false, true} {
		t.Run(fmt.Sprint("flushed ", flushed), func(t *testing.T) {
			t.Parallel()
			b := newCrashBench(t, vfs.NewCrashableMem())
			defer b.close()
			b.grow(60)
			if flushed {
				b.snapshot(20)
			}
			b.grow(100)
			b.watch(true)
			b.snapshot(8)
			b.grow(104)
			b.snapshot(4)
			b.restart(want)
		})
	}
}

func TestCrashInAnInstall(t *testing.T) {
	t.Parallel()
	want := hashes(t, 140)
	leader := newCrashBench(t, vfs.NewCrashableMem())
	defer leader.close()
	leader.grow(90)
	leader.snapshot(4)
	leader.grow(120)
	for _, has := range []uint64{0, 1, 50} {
		t.Run(fmt.Sprint("follower at ", has), func(t *testing.T) {
			b := newCrashBench(t, vfs.NewCrashableMem())
			defer b.close()
			b.grow(has)
			if has > 10 {
				b.snapshot(8)
				b.grow(has + 2)
			}
			meta, r, err := leader.snaps.Open("")
			if err != nil {
				t.Fatal(err)
			}
			if meta.Index != 120 || meta.Term != 2 || meta.ConfigurationIndex != 1 ||
				len(meta.Configuration.Servers) != 1 {
				t.Errorf("the snapshot sent is %+v, want one of the newest state", meta)
			}
			b.watch(true)
			b.install(meta, r)
			b.grow(125)
			b.restart(want)
		})
	}
}

// install does what Raft's installSnapshot does.
func (b *crashBench) install(meta *raft.SnapshotMeta, r io.ReadCloser) {
	b.t.Helper()
	if err := b.logs.SetUint64([]byte(keyCurrentTerm), 2); err != nil {
		b.t.Fatal(err)
	}
	k, err := b.snaps.Create(
		meta.Version,
		meta.Index,
		meta.Term,
		meta.Configuration,
		meta.ConfigurationIndex,
		nil,
	)
	if err != nil {
		b.t.Fatal(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{k}, struct{ io.Reader }{r}, make([]byte, 8<<10))
	if err = errors.Join(err, r.Close(), k.Close()); err != nil {
		b.t.Fatal(err)
	}
	if n != meta.Size {
		b.t.Errorf("%d bytes came, %d were announced", n, meta.Size)
	}
	own, restored, err := b.snaps.Open(k.ID())
	if err != nil || own.Index != meta.Index || own.ID != k.ID() {
		b.t.Fatalf("opened %+v, %v", own, err)
	}
	if err := errors.Join(b.fsm.Restore(restored), restored.Close()); err != nil {
		b.t.Fatal(err)
	}
	if first, last := b.log.FirstIndex(), b.log.LastIndex(); last > 0 {
		if err := b.logs.DeleteRange(first, last); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestInstallThatFails(t *testing.T) {
	t.Parallel()
	leader := newCrashBench(t, vfs.NewCrashableMem())
	defer leader.close()
	leader.grow(40)
	leader.snapshot(4)
	b := newCrashBench(t, vfs.NewCrashableMem())
	defer b.close()
	b.grow(10)
	before := b.hash()
	for _, tc := range []struct {
		name string
		edit func([]byte) []byte
	}{
		{"cut short", func(p []byte) []byte { return p[:len(p)-1] }},
		{"flipped", func(p []byte) []byte { p[len(p)/2] ^= 1; return p }},
	} {
		meta, r, err := leader.snaps.Open("")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		k, err := b.snaps.Create(
			meta.Version,
			meta.Index,
			meta.Term,
			meta.Configuration,
			meta.ConfigurationIndex,
			nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		_, err = k.Write(tc.edit(stream))
		if err == nil {
			err = k.Close()
		}
		if err == nil {
			t.Errorf("%s: installed", tc.name)
		}
		if err := k.Cancel(); err != nil {
			t.Errorf("%s: cancel: %v", tc.name, err)
		}
		if h := b.hash(); h != before || b.store.NeedsActivate() {
			t.Errorf("%s: state %v, want %v", tc.name, h, before)
		}
	}
	if _, err := b.snaps.Create(0, 1, 1, raft.Configuration{}, 1, nil); err == nil {
		t.Error("a snapshot of version 0 was begun")
	}
	if err := b.fsm.snaps.activate(io.NopCloser(bytes.NewReader(nil))); err == nil {
		t.Error("restored from something else")
	}
}
