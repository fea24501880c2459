package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// failing returns a log on a file system that answers matching operations with err while on.
func failing(t *testing.T, err error, match func(errorfs.Op) bool) (*Log, *errorfs.Toggle, *vfs.MemFS) {
	t.Helper()
	inj := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(o errorfs.Op) error {
		if match(o) {
			return err
		}
		return nil
	})}
	mem := vfs.NewMem()
	cfg := testConfig(errorfs.Wrap(mem, inj))
	cfg.Recycle = 4
	l, openErr := Open(cfg)
	must(t, openErr)
	return l, inj, mem
}

func onFile(suffix string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	return func(o errorfs.Op) bool {
		for _, k := range kinds {
			if o.Kind == k && strings.HasSuffix(o.Path, suffix) {
				return true
			}
		}
		return false
	}
}

func TestIOErrorFailsTheLogForEver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   error
		match func(errorfs.Op) bool
	}{
		"write":                  {syscall.EIO, onFile(segmentSuffix, errorfs.OpFileWriteAt)},
		"sync":                   {syscall.EIO, onFile(segmentSuffix, errorfs.OpFileSyncData)},
		"sync without space":     {syscall.ENOSPC, onFile(segmentSuffix, errorfs.OpFileSyncData)},
		"write, wipe impossible": {syscall.ENOSPC, onFile(segmentSuffix, errorfs.OpFileWriteAt)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, inj, mem := failing(t, tc.err, tc.match)
			must(t, l.Append(run(1, 3, 1)))
			inj.On()
			if err := l.Append(run(4, 4, 1)); !errors.Is(err, ErrFailed) || !errors.Is(err, tc.err) {
				t.Fatalf("append: %v", err)
			}
			inj.Off()
			for what, err := range map[string]error{
				"append": l.Append(run(4, 4, 1)), "vote": l.SetVote(1, nil), "prefix": l.TruncatePrefix(1),
				"suffix": l.TruncateSuffix(2), "reset": l.Reset(), "seal": l.Seal(),
			} {
				if !errors.Is(err, ErrFailed) || !errors.Is(err, tc.err) {
					t.Errorf("%s afterwards: %v", what, err)
				}
			}
			if !errors.Is(l.Stats().Failed, ErrFailed) {
				t.Errorf("stats say %v", l.Stats().Failed)
			}
			var e Entry
			must(t, l.Get(3, &e))
			if l.LastIndex() != 3 {
				t.Errorf("last is %d", l.LastIndex())
			}
			must(t, l.Close())
			l = mustOpen(t, testConfig(mem))
			if last := l.LastIndex(); last != 3 && last != 4 {
				t.Errorf("last is %d after the restart", last)
			}
		})
	}
}

// TestNoSpace: each way to run out of space refuses the append, leaves the log as it was, lets votes and
// truncations through, and is over when space returns.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]func(errorfs.Op) bool{
		"create segment":      onFile(segmentSuffix+tempSuffix, errorfs.OpCreate),
		"preallocate segment": onFile(segmentSuffix+tempSuffix, errorfs.OpFilePreallocate),
		"zero segment":        onFile(segmentSuffix+tempSuffix, errorfs.OpFileWrite),
		"sync segment":        onFile(segmentSuffix+tempSuffix, errorfs.OpFileSync),
		"create list":         onFile(listName+tempSuffix, errorfs.OpCreate),
		"write list":          onFile(listName+tempSuffix, errorfs.OpFileWrite),
		"sync list":           onFile(listName+tempSuffix, errorfs.OpFileSync),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noSpaceHistory(t, match)
		})
	}
}

func noSpaceHistory(t *testing.T, match func(errorfs.Op) bool) {
	t.Helper()
	l, inj, mem := failing(t, syscall.ENOSPC, match)
	rng := rand.New(rand.NewPCG(6, 6))
	model := &contents{}
	do := func(o op) {
		t.Helper()
		must(t, o.run(l))
		model.apply(o)
	}
	inj.On()
	var refused op
	for {
		refused = op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 0, 3, 500)}
		err := refused.run(l)
		if errors.Is(err, ErrNoSpace) && errors.Is(err, syscall.ENOSPC) && !errors.Is(err, ErrFailed) {
			break
		}
		must(t, err)
		model.apply(refused)
	}
	wantContents(t, l, model)
	large := op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 0, 40, 3000)}
	if err := large.run(l); !errors.Is(err, ErrNoSpace) {
		t.Errorf("append over several segments: %v", err)
	}
	for i := range uint64(8) {
		do(op{kind: opVote, term: i + 1, bytes: []byte("b")})
	}
	do(op{kind: opSuffix, index: model.last()})
	do(op{kind: opPrefix, index: 2})
	wantContents(t, l, model)
	inj.Off()
	large = op{kind: opAppend, entries: randomEntries(rng, model.last()+1, 9, 40, 3000)}
	do(large)
	wantContents(t, l, model)
	must(t, l.Close())
	wantContents(t, mustOpen(t, testConfig(mem)), model)
}

// TestRecycledSegmentNeedsNoSpace: a truncation makes room although the disk is full.
func TestRecycledSegmentNeedsNoSpace(t *testing.T) {
	t.Parallel()
	l, inj, _ := failing(t, syscall.ENOSPC, onFile(segmentSuffix+tempSuffix, errorfs.OpCreate))
	rng := rand.New(rand.NewPCG(6, 6))
	fill := func() error {
		for {
			if err := l.Append(randomEntries(rng, l.LastIndex()+1, 1, 3, 500)); err != nil {
				return err
			}
		}
	}
	must(t, l.Append(randomEntries(rng, 1, 1, 60, 2000)))
	inj.On()
	if err := fill(); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	last := l.LastIndex()
	must(t, l.TruncatePrefix(last))
	if s := l.Stats(); s.Spares < 2 {
		t.Fatalf("stats %+v", s)
	}
	if err := fill(); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	if l.LastIndex() < last+20 {
		t.Errorf("only %d entries went into the spares", l.LastIndex()-last)
	}
	must(t, l.Close())
}

// TestFullDiskWhileWriting: blocks are written ahead, yet some file systems need space to overwrite.
func TestFullDiskWhileWriting(t *testing.T) {
	t.Parallel()
	once := false
	l, inj, mem := failing(t, syscall.ENOSPC, func(o errorfs.Op) bool {
		fail := o.Kind == errorfs.OpFileWriteAt && !once
		once = once || fail
		return fail
	})
	must(t, l.Append(run(1, 3, 1)))
	must(t, l.Seal())
	inj.On()
	if err := l.Append(run(4, 6, 1)); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	wantContents(t, l, &contents{First: 1, Entries: run(1, 3, 1)})
	must(t, l.Append(run(4, 4, 2)))
	must(t, l.Close())
	want := &contents{First: 1, Entries: append(run(1, 3, 1), run(4, 4, 2)...)}
	wantContents(t, mustOpen(t, testConfig(mem)), want)
}

// landFS writes the batch and then says that the disk is full, once.
type landFS struct {
	vfs.FS

	full bool
}

type landFile struct {
	vfs.File

	fs *landFS
}

func (l *landFS) OpenReadWrite(n string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := l.FS.OpenReadWrite(n, c, o...)
	return &landFile{File: f, fs: l}, err
}

func (f *landFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	if err == nil && f.fs.full {
		f.fs.full = false
		return n, syscall.ENOSPC
	}
	return n, err
}

// TestRefusedBatchDoesNotComeBack: the bytes of an append that was refused may all be on the disk.
func TestRefusedBatchDoesNotComeBack(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	fs := &landFS{FS: mem}
	l := mustOpen(t, testConfig(fs))
	must(t, l.Append(run(1, 3, 1)))
	fs.full = true
	if err := l.Append(run(4, 6, 1)); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	again := mustOpen(t, testConfig(mem)) // the process was killed here
	wantContents(t, again, &contents{First: 1, Entries: run(1, 3, 1)})
}

// TestHalfWrittenAppendIsTakenBack: the list cannot be replaced for the second segment of one append.
func TestHalfWrittenAppendIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, empty := range []bool{false, true} {
		lists := 0
		l, inj, mem := failing(t, syscall.ENOSPC, func(o errorfs.Op) bool {
			if o.Kind != errorfs.OpCreate || !strings.HasSuffix(o.Path, listName+tempSuffix) {
				return false
			}
			lists++
			return lists == 3
		})
		want := &contents{Term: 5, VotedTerm: 5, Candidate: "a"}
		must(t, l.SetVote(5, []byte("a")))
		if !empty {
			must(t, l.Append(run(1, 3, 1)))
			want.First, want.Entries = 1, run(1, 3, 1)
		}
		inj.On()
		es := randomEntries(rand.New(rand.NewPCG(1, 1)), 4, 5, 40, 6000)
		if err := l.Append(es); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
		if lists != 3 {
			t.Fatalf("%d lists", lists)
		}
		wantContents(t, l, want)
		must(t, l.Append(run(4, 4, 5)))
		want.apply(op{kind: opAppend, entries: run(4, 4, 5)})
		must(t, l.Close())
		wantContents(t, mustOpen(t, testConfig(mem)), want)
	}
}

// TestEveryFailedStep injects one error at each operation of a history in turn. A call that returns nil
// counts; after ErrNoSpace the log is as before; after ErrFailed the restarted log is as before or after.
func TestEveryFailedStep(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			for at := 1; failAt(t, cause, at); at += thin {
				if at > 5000 {
					t.Fatal("the history does not end")
				}
			}
		})
	}
}

// failAt reports whether the history has an operation number at.
func failAt(t *testing.T, cause error, at int) bool {
	t.Helper()
	n := 0
	inj := errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind.ReadOrWrite() == errorfs.OpIsRead || o.Kind == errorfs.OpFileClose {
			return nil
		}
		if n++; n == at {
			return cause
		}
		return nil
	})
	mem := vfs.NewMem()
	l, err := Open(testConfig(errorfs.Wrap(mem, inj)))
	if err != nil {
		if !errors.Is(err, cause) || errors.Is(err, ErrDamaged) {
			t.Fatalf("%v at %d: open: %v", cause, at, err)
		}
		l, err := Open(testConfig(mem))
		must(t, err)
		must(t, l.Close())
		return true
	}
	model, rng := &contents{}, rand.New(rand.NewPCG(11, 11))
	allowed := []*contents{model}
	for range 30 {
		o := randomOp(rng, model)
		allowed = model.after(o)
		err := o.run(l)
		switch {
		case err == nil:
			model.apply(o)
		case errors.Is(err, ErrNoSpace):
		case errors.Is(err, ErrFailed):
		default:
			t.Fatalf("%v at %d: %v: %v", cause, at, o, err)
		}
		if errors.Is(err, ErrFailed) {
			break
		}
		allowed = []*contents{model}
		got, err := read(l)
		must(t, err)
		if d := diff(model, got); d != "" {
			t.Fatalf("%v at %d, after %v: (-want +got)\n%s", cause, at, o, d)
		}
	}
	if err := l.Close(); err != nil && !errors.Is(err, cause) {
		t.Fatalf("%v at %d: close: %v", cause, at, err)
	}
	l, err = Open(testConfig(mem))
	must(t, err)
	got, err := read(l)
	must(t, err)
	must(t, l.Close())
	x := explorer{allowed: allowed}
	if err := x.among(got); err != nil {
		t.Fatal(fmt.Errorf("%w at %d: %w", cause, at, err))
	}
	return n >= at
}
