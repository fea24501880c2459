package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// replicaFiles are a log and a state, as a start finds them.
type replicaFiles struct {
	t     *testing.T
	log   *seglog.Log
	store *storage.Store
}

func newReplicaFiles(t *testing.T) *replicaFiles {
	t.Helper()
	fs := vfs.NewMem()
	log, err := seglog.Open(seglog.Config{FS: fs, Dir: "log", SegmentSize: 64 << 10, SyncPrepare: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.Config{FS: fs, Dir: "state", MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = log.Close(), store.Close() })
	return &replicaFiles{t: t, log: log, store: store}
}

// logged appends the entries from to to of a term.
func (r *replicaFiles) logged(from, to, term uint64) *replicaFiles {
	r.t.Helper()
	if err := r.log.SetTerm(term); err != nil {
		r.t.Fatal(err)
	}
	for i := from; i <= to; i++ {
		if err := r.log.Append([]seglog.Entry{{Index: i, Term: term}}); err != nil {
			r.t.Fatal(err)
		}
	}
	return r
}

func (r *replicaFiles) applied(index, term uint64) *replicaFiles {
	r.t.Helper()
	b := r.store.NewBatch()
	b.SetApplied(index, term, record.Fence{}, 0)
	if err := b.Commit(); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// snapshot publishes a snapshot taken here.
func (r *replicaFiles) snapshot(index, term uint64) *replicaFiles {
	r.t.Helper()
	if err := r.store.PublishLocal(storage.SnapshotMeta{Index: index, Term: term}); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// installed publishes and activates the snapshot of another replica that has applied this.
func (r *replicaFiles) installed(index, term uint64) *replicaFiles {
	r.t.Helper()
	other := newReplicaFiles(r.t).applied(index, term)
	c, err := other.store.Checkpoint()
	if err != nil {
		r.t.Fatal(err)
	}
	in, err := r.store.BeginInstall(c.Meta())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := c.WriteTo(in); err != nil {
		r.t.Fatal(err)
	}
	if err := errors.Join(in.Commit(), r.store.Activate(), c.Close()); err != nil {
		r.t.Fatal(err)
	}
	return r
}

func TestCheck(t *testing.T) {
	t.Parallel()
	type files = replicaFiles
	for _, tc := range []struct {
		name        string
		make        func(*files)
		damage      string // what the error names; "" = none
		first, last uint64 // of the log afterwards
	}{
		{"empty", func(*files) {}, "", 0, 0},
		{"fresh log", func(f *files) { f.logged(1, 3, 1) }, "", 1, 3},
		{"state behind the log", func(f *files) { f.logged(1, 9, 1).applied(5, 1) }, "", 1, 9},
		{"state at the end of the log", func(f *files) { f.logged(1, 9, 1).applied(9, 1) }, "", 1, 9},
		{
			"log lost its tail", func(f *files) { f.logged(1, 8, 1).applied(9, 1) },
			"log ends at 8, the state has applied 9", 1, 8,
		},
		{"log lost", func(f *files) { f.applied(9, 1) }, "log ends at 0, the state has applied 9", 0, 0},
		{
			"snapshot within the log",
			func(f *files) { f.logged(1, 9, 1).applied(7, 1).snapshot(8, 1) }, "", 1, 9,
		},
		{
			"log lost behind a snapshot of its own",
			func(f *files) { f.logged(1, 7, 1).applied(7, 1).snapshot(8, 1) },
			"log ends at 7", 1, 7,
		},
		{
			"whole log lost behind a snapshot of its own", func(f *files) { f.applied(7, 1).snapshot(8, 1) },
			"log ends at 0", 0, 0,
		},
		{
			"log disagrees with a snapshot of its own",
			func(f *files) { f.logged(1, 9, 2).applied(7, 2).snapshot(8, 1) },
			"disagrees with the snapshot", 1, 9,
		},
		{
			"log starts behind the snapshot",
			func(f *files) { f.logged(5, 9, 1).applied(7, 1).snapshot(3, 1) }, "log starts at 5", 5, 9,
		},
		{
			"log starts at the snapshot",
			func(f *files) { f.logged(5, 9, 1).applied(7, 1).snapshot(4, 1) }, "", 5, 9,
		},
		{"log starts late", func(f *files) { f.logged(2, 9, 1) }, "log starts at 2", 2, 9},
		{
			"state applied another entry", func(f *files) { f.logged(1, 9, 2).applied(7, 1) },
			"applied entry 7 of term 1", 1, 9,
		},
		{"install over a shorter log", func(f *files) { f.logged(1, 5, 1).installed(9, 2) }, "", 0, 0},
		{"install over nothing", func(f *files) { f.installed(9, 2) }, "", 0, 0},
		{
			"install over a log that disagrees",
			func(f *files) { f.logged(1, 12, 1).installed(9, 2) }, "", 0, 0,
		},
		{"install over a log that agrees", func(f *files) { f.logged(1, 12, 2).installed(9, 2) }, "", 1, 12},
		{
			"log goes on behind an install",
			func(f *files) { f.installed(9, 2).logged(10, 12, 2).applied(11, 2) }, "", 10, 12,
		},
		{
			"log lost behind an install", func(f *files) { f.installed(9, 2).applied(11, 2) },
			"reaches entry 11", 0, 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newReplicaFiles(t)
			tc.make(f)
			err := check(f.log, f.store, zap.NewNop())
			switch {
			case tc.damage == "" && err != nil:
				t.Errorf("check: %v", err)
			case tc.damage == "":
			case !errors.Is(err, record.ErrDamaged), !strings.Contains(err.Error(), tc.damage):
				t.Errorf("check: %v, want damage that names %q", err, tc.damage)
			}
			if f.log.FirstIndex() != tc.first || f.log.LastIndex() != tc.last {
				t.Errorf(
					"log holds %d to %d, want %d to %d",
					f.log.FirstIndex(),
					f.log.LastIndex(),
					tc.first,
					tc.last,
				)
			}
		})
	}
}

func TestLocalSnapshotNeedsItsLog(t *testing.T) {
	t.Parallel()
	f := newReplicaFiles(t).installed(9, 2)
	s := &snapshots{store: f.store, logged: f.log.LastIndex}
	k, err := s.Create(raft.SnapshotVersionMax, 9, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := (localSnapshot{s}).Persist(k); err == nil {
		t.Fatal("a local snapshot on an empty log was published")
	}
	if err := k.Close(); err == nil {
		t.Error("a snapshot without content was closed")
	}
	if p := f.store.Pointer(); !p.Installed {
		t.Errorf("pointer is %+v, want the installed one", p)
	}
	if err := check(f.log, f.store, zap.NewNop()); err != nil {
		t.Error(err)
	}
}
