package replication

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

const testBoot = 7

// logBench is a log store on a disk in memory, with what it reports.
type logBench struct {
	*logStore

	t       *testing.T
	fs      *vfs.MemFS
	reached uint64
	flushed uint64
	snap    [2]uint64 // index and term of the snapshot
	fatals  []error
	astray  []string
	confs   []raft.Configuration
}

func newLogBench(t *testing.T) *logBench {
	t.Helper()
	b := &logBench{t: t, fs: vfs.NewCrashableMem()}
	b.open(b.fs)
	t.Cleanup(func() { _ = b.log.Close() })
	return b
}

func (b *logBench) open(fs vfs.FS) {
	b.t.Helper()
	log, err := seglog.Open(seglog.Config{FS: fs, Dir: "log", SegmentSize: 64 << 10, SyncPrepare: true})
	if err != nil {
		b.t.Fatal(err)
	}
	b.logStore = newLogStore(
		log,
		testBoot,
		zap.NewNop(),
		func(err error) { b.fatals = append(b.fatals, err) },
	)
	b.reach = func() uint64 { return b.reached }
	b.durable = func() uint64 { return b.flushed }
	b.installed = func() (index, term uint64) { return b.snap[0], b.snap[1] }
	b.logStore.astray = func(reason string) { b.astray = append(b.astray, reason) }
	b.stored = func(c raft.Configuration) { b.confs = append(b.confs, c) }
}

// crash loses what was not synced.
func (b *logBench) crash() {
	b.t.Helper()
	fs := b.fs.CrashClone(vfs.CrashCloneCfg{})
	_ = b.log.Close()
	b.fs = fs
	b.open(fs)
}

func entries(from, to, term uint64) []*raft.Log {
	var out []*raft.Log
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{
			Index: i, Term: term, Type: raft.LogCommand, Data: []byte{byte(i)}, Extensions: []byte{9},
			AppendedAt: time.Unix(0, int64(i)),
		})
	}
	return out
}

func (b *logBench) store(logs ...*raft.Log) {
	b.t.Helper()
	if err := b.StoreLogs(logs); err != nil {
		b.t.Fatal(err)
	}
}

func (b *logBench) want(first, last uint64) {
	b.t.Helper()
	f, err1 := b.FirstIndex()
	l, err2 := b.LastIndex()
	if f != first || l != last || err1 != nil || err2 != nil {
		b.t.Errorf("log holds %d to %d (%v, %v), want %d to %d", f, l, err1, err2, first, last)
	}
}

func TestLogStoreKeepsEntries(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	b.want(0, 0)
	if !b.IsMonotonic() {
		t.Error("not monotonic")
	}
	b.store(entries(1, 3, 1)...)
	conf := raft.Configuration{Servers: []raft.Server{{ID: "a/1", Address: "a/1"}}}
	four := &raft.Log{Index: 4, Term: 2, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)}
	if err := b.StoreLog(four); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]raft.Configuration{conf}, b.confs); diff != "" {
		t.Errorf("configurations told (-want +got):\n%s", diff)
	}
	b.crash()
	b.want(1, 4)
	for _, want := range append(entries(1, 3, 1), four) {
		var got raft.Log
		if err := b.GetLog(want.Index, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Extensions) == 0 {
			got.Extensions = nil
		}
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Errorf("entry %d (-want +got):\n%s", want.Index, diff)
		}
	}
	for _, i := range []uint64{0, 5} {
		var got raft.Log
		if err := b.GetLog(
			i,
			&got,
		); err != raft.ErrLogNotFound { //nolint:errorlint // Raft compares like this
			t.Errorf("entry %d: %v, want raft.ErrLogNotFound itself", i, err)
		}
	}
}

func TestLogStoreVotes(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	for _, key := range []string{keyCurrentTerm, keyLastVoteTerm, "other"} {
		if v, err := b.GetUint64([]byte(key)); v != 0 || err == nil || err.Error() != "not found" {
			t.Errorf("absent %s: %d, %v", key, v, err)
		}
	}
	for _, key := range []string{keyLastVoteCand, "other"} {
		if v, err := b.Get([]byte(key)); v != nil || err == nil || err.Error() != "not found" {
			t.Errorf("absent %s: %q, %v", key, v, err)
		}
	}
	set := func(key string, v uint64) {
		t.Helper()
		if err := b.SetUint64([]byte(key), v); err != nil {
			t.Fatal(err)
		}
	}
	want := func(term, voted uint64, candidate string) {
		t.Helper()
		gotTerm, _ := b.GetUint64([]byte(keyCurrentTerm))
		gotVoted, _ := b.GetUint64([]byte(keyLastVoteTerm))
		got, _ := b.Get([]byte(keyLastVoteCand))
		if gotTerm != term || gotVoted != voted || string(got) != candidate {
			t.Errorf(
				"term %d, voted in %d for %q; want %d, %d, %q",
				gotTerm,
				gotVoted,
				got,
				term,
				voted,
				candidate,
			)
		}
	}
	set(keyCurrentTerm, 5)
	b.crash()
	want(5, 0, "")
	set(keyLastVoteTerm, 5)
	b.crash()
	want(5, 0, "") // half a vote is none
	set(keyLastVoteTerm, 5)
	if err := b.Set([]byte(keyLastVoteCand), []byte("b/1")); err != nil {
		t.Fatal(err)
	}
	set(keyCurrentTerm, 5) // Raft repeats its term; the vote stays
	b.crash()
	want(5, 5, "b/1")
	set(keyCurrentTerm, 6)
	b.crash()
	want(6, 5, "b/1")
	if err := b.Set([]byte("other"), nil); !errors.Is(err, record.ErrFormat) {
		t.Errorf("unknown key: %v", err)
	}
	if err := b.SetUint64([]byte("other"), 1); !errors.Is(err, record.ErrFormat) {
		t.Errorf("unknown key: %v", err)
	}
}

func TestLogStoreDeletes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		lo, hi           uint64
		reached, flushed uint64
		term             uint64 // of the snapshot, which reaches as far as the state; 0: another one than the log's
		first, last      uint64 // afterwards; the log holds 11 to 20 of term 3 before
		astray           bool
		damaged, refused bool
	}{
		{name: "prefix", lo: 11, hi: 15, reached: 18, flushed: 16, first: 16, last: 20},
		{
			name: "prefix, clipped to what is durable", lo: 11, hi: 18,
			reached: 18, flushed: 13, first: 14, last: 20,
		},
		{name: "prefix, nothing durable", lo: 11, hi: 18, reached: 18, flushed: 10, first: 11, last: 20},
		{name: "suffix", lo: 16, hi: 20, reached: 15, flushed: 12, first: 11, last: 15},
		{
			name: "suffix that is applied", lo: 16, hi: 20,
			reached: 16, flushed: 12, first: 11, last: 20, damaged: true,
		},
		{name: "all, in conflict", lo: 11, hi: 20, reached: 10, flushed: 10, first: 0, last: 0},
		{name: "all, installed beyond", lo: 11, hi: 20, reached: 25, flushed: 25, first: 0, last: 0},
		{
			name: "all, installed at the end", lo: 11, hi: 20,
			reached: 20, flushed: 20, first: 0, last: 0, astray: true,
		},
		{
			name: "all, installed within", lo: 11, hi: 20,
			reached: 15, flushed: 15, first: 0, last: 0, astray: true,
		},
		{
			name: "all, installed within, and the log goes on behind it", lo: 11, hi: 20,
			reached: 15, flushed: 15, term: 3, first: 16, last: 20, astray: true,
		},
		{
			name: "all, installed at the end of such a log", lo: 11, hi: 20,
			reached: 20, flushed: 20, term: 3, first: 0, last: 0, astray: true,
		},
		{
			name: "all, installed beyond, in the same term", lo: 11, hi: 20,
			reached: 25, flushed: 25, term: 3, first: 0, last: 0,
		},
		{
			name: "all, applied and not durable", lo: 11, hi: 20,
			reached: 15, flushed: 10, first: 11, last: 20, refused: true, astray: true,
		},
		{name: "gap", lo: 13, hi: 15, reached: 18, flushed: 18, first: 11, last: 20, refused: true},
		{name: "before the log", lo: 1, hi: 10, reached: 18, flushed: 18, first: 11, last: 20},
		{name: "behind the log", lo: 21, hi: 30, reached: 18, flushed: 18, first: 11, last: 20},
		{name: "prefix from before the log", lo: 1, hi: 12, reached: 18, flushed: 18, first: 13, last: 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newLogBench(t)
			if err := b.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
				t.Fatal(err)
			}
			b.store(entries(11, 20, 3)...)
			b.reached, b.flushed, b.snap = tc.reached, tc.flushed, [2]uint64{tc.reached, tc.term}
			err := b.DeleteRange(tc.lo, tc.hi)
			if got := errors.Is(
				err,
				record.ErrDamaged,
			); got != tc.damaged ||
				(err != nil) != (tc.damaged || tc.refused) {
				t.Errorf("delete: %v", err)
			}
			if (len(b.fatals) != 0) != tc.damaged {
				t.Errorf("fatal: %v", b.fatals)
			}
			if (len(b.astray) != 0) != tc.astray {
				t.Errorf("astray: %q", b.astray)
			}
			b.want(tc.first, tc.last)
			b.crash()
			b.want(tc.first, tc.last)
			if tc.last == 0 {
				b.store(entries(26, 27, 4)...) // any index may follow
				b.want(26, 27)
			}
		})
	}
}

func TestLogStoreReportsDurable(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	var got []uint64
	await := func(id record.ProposalID, n uint64) {
		b.await(id, func() {
			last, _ := b.LastIndex()
			got = append(got, n*100+last) // it is in the log when it is told
		})
	}
	mine, gone, foreign := record.NewProposalID(
		testBoot,
		1,
	), record.NewProposalID(
		testBoot,
		2,
	), record.NewProposalID(
		8,
		1,
	)
	await(mine, 1)
	await(gone, 2)
	await(foreign, 3)
	b.forget(gone)
	b.store(
		&raft.Log{Index: 1, Term: 1, Extensions: mine[:]},
		&raft.Log{Index: 2, Term: 1, Extensions: gone[:]},
		&raft.Log{Index: 3, Term: 1, Extensions: foreign[:]},
		&raft.Log{Index: 4, Term: 1, Extensions: mine[:8]},
		&raft.Log{Index: 5, Term: 1},
	)
	b.store(&raft.Log{Index: 6, Term: 1, Extensions: mine[:]}) // told once
	if diff := cmp.Diff([]uint64{105}, got); diff != "" {
		t.Errorf("durable (-want +got):\n%s", diff)
	}
}

func TestLogStoreFailure(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	b.store(entries(1, 2, 1)...)
	_ = b.log.Close()
	var broken bool
	b.open(errorfs.Wrap(b.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken && op.Kind == errorfs.OpFileSyncData {
			return errors.New("disk on fire")
		}
		return nil
	})))
	told := false
	id := record.NewProposalID(testBoot, 1)
	b.await(id, func() { told = true })
	broken = true
	err := b.StoreLogs([]*raft.Log{{Index: 3, Term: 1, Extensions: id[:]}})
	if !errors.Is(err, seglog.ErrFailed) || len(b.fatals) != 1 {
		t.Errorf("store: %v, fatal %v", err, b.fatals)
	}
	if told {
		t.Error("told durable what failed")
	}
}

func TestLogStoreDamage(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	b.store(entries(1, 2, 1)...)
	_ = b.log.Close()
	b.open(errorfs.Wrap(b.fs, errorfs.InjectorFunc(func(errorfs.Op) error { return nil })))
	names, err := b.fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if f, err := b.fs.OpenReadWrite("log/"+name, "unspecified"); err == nil {
			_, _ = f.WriteAt([]byte("rotten"), 200)
			_ = f.Close()
		}
	}
	var hurt []error
	b.damaged = func(err error) { hurt = append(hurt, err) }
	for _, i := range []uint64{1, 2} {
		found := len(hurt)
		var l raft.Log
		if err := b.GetLog(i, &l); err != nil {
			t.Errorf("read of entry %d: %v, on which Raft panics", i, err)
		}
		// Raft gets something of the right place that does nothing.
		if len(hurt) > found && (l.Index != i || l.Term != 1 || l.Type != raft.LogNoop || l.Data != nil) {
			t.Errorf("in place of entry %d: %+v", i, l)
		}
	}
	if len(hurt) == 0 || !errors.Is(hurt[0], record.ErrDamaged) || !errors.Is(hurt[0], seglog.ErrDamaged) {
		t.Errorf("reads of a damaged log: %v", hurt)
	}
	if len(b.fatals) > 0 {
		t.Errorf("damage of one group is fatal for the node: %v", b.fatals)
	}
}

// TestRaftReadsTheLogAgain: when a cut succeeded and the append that was to follow it did not, and only then.
func TestRaftReadsTheLogAgain(t *testing.T) {
	t.Parallel()
	b := newLogBench(t)
	b.reached, b.flushed = 12, 12
	if err := b.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
		t.Fatal(err)
	}
	b.store(entries(11, 20, 3)...)
	var full atomic.Bool
	_ = b.log.Close()
	b.open(errorfs.Wrap(b.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})))
	large := func(i, term uint64) *raft.Log {
		return &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: make([]byte, 40<<10)}
	}
	b.store(large(21, 3)) // the rest of the segment is too small for another one
	full.Store(true)
	fails := func(what string, l *raft.Log, astray int) {
		t.Helper()
		if err := b.StoreLog(l); err == nil || len(b.astray) != astray {
			t.Fatalf("%s: %v, astray: %q, want %d", what, err, b.astray, astray)
		}
	}
	fails("an append to a full disk", large(22, 3), 0)
	if err := b.DeleteRange(16, 21); err != nil {
		t.Fatal(err)
	}
	fails("an append behind a cut", large(16, 4), 1)
	fails("that of one who knows the end", large(16, 4), 1)
	full.Store(false)
	b.store(large(16, 4))
	if err := b.DeleteRange(16, 16); err != nil {
		t.Fatal(err)
	}
	b.store(entries(16, 16, 5)...)
	fails("an append with a gap", entries(18, 18, 5)[0], 2)
	b.want(11, 16)
}
