package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// sent is a checkpoint's stream and what the sender says of it.
type sent struct {
	id   CheckpointID
	meta SnapshotMeta
	data []byte
	hash StateHash
}

func offered(tb testing.TB, s *Store) sent {
	tb.Helper()
	c, err := s.Checkpoint()
	must(tb, err)
	var buf bytes.Buffer
	_, err = c.WriteTo(&buf)
	must(tb, errors.Join(err, c.Close()))
	return sent{id: c.ID(), meta: c.Meta(), data: buf.Bytes(), hash: hashOf(tb, s)}
}

// finish installs the rest of a stream and checks the state.
func (o *sent) finish(tb testing.TB, s *Store) error {
	tb.Helper()
	from := s.Held(o.id)
	in, err := s.ContinueInstall(o.id, o.meta)
	if err != nil {
		return err
	}
	if in.Written() != from {
		return fmt.Errorf("goes on at %d, held are %d", in.Written(), from)
	}
	_, err = in.Write(o.data[from:])
	if err := errors.Join(err, in.Commit(), s.Activate()); err != nil {
		return err
	}
	if h := hashOf(tb, s); h != o.hash {
		return fmt.Errorf("state %v, want %v", h, o.hash)
	}
	return nil
}

func resumable(fs FS) Config {
	c := testConfig(fs)
	c.InstallSync = 4096
	return c
}

// TestInstallGoesOn cuts an install at random offsets, by a stream that ends and by power
// cuts, and counts what has to be sent again.
func TestInstallGoesOn(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 60)
	o := offered(t, src)
	for seed := range uint64(thinned(30)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		fs := vfs.NewCrashableMem()
		s, err := Open(resumable(fs))
		must(t, err)
		total, again, cuts := 0, 0, 0
		for s.Held(o.id) < int64(len(o.data)) {
			from := int(s.Held(o.id))
			in, err := s.ContinueInstall(o.id, o.meta)
			must(t, err)
			if in.Written() != int64(from) {
				t.Fatalf("seed %d: goes on at %d, held are %d", seed, in.Written(), from)
			}
			to := min(len(o.data), from+rng.IntN(len(o.data)/4))
			for at := from; at < to; {
				n := min(to-at, 1+rng.IntN(900))
				_, err := in.Write(o.data[at : at+n])
				must(t, err)
				at += n
			}
			total += to - from
			if to == len(o.data) {
				must(t, in.Commit())
				break
			}
			cuts++
			if rng.IntN(2) == 0 {
				must(t, in.Suspend())
				if s.Held(o.id) != int64(to) && to >= streamHeadSize {
					t.Errorf("seed %d: %d held of %d received", seed, s.Held(o.id), to)
				}
				if to < streamHeadSize {
					again += to
				}
				continue
			}
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			_ = in.Abort()
			closeStore(t, s)
			fs = clone
			s, err = Open(resumable(fs))
			must(t, err)
			lost := to - int(s.Held(o.id))
			if lost < 0 || lost > 4096+900 {
				t.Errorf("seed %d: a power cut at %d lost %d bytes", seed, to, lost)
			}
			again += lost
		}
		if total != len(o.data)+again {
			t.Errorf("seed %d: %d bytes were sent for %d, %d of them again", seed, total, len(o.data), again)
		}
		must(t, s.Activate())
		if h := hashOf(t, s); h != o.hash {
			t.Errorf("seed %d, %d cuts: state %v, want %v", seed, cuts, h, o.hash)
		}
		if exists(fs, testDir+"/"+incomingFile) {
			t.Errorf("seed %d: the record is still there", seed)
		}
		closeStore(t, s)
	}
}

// TestCrashInAnInstallThatGoesOn cuts the power before every change of the file system in
// an install that is interrupted twice: each copy opens, and goes on to the right state.
func TestCrashInAnInstallThatGoesOn(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 40)
	o := offered(t, src)
	mem := vfs.NewCrashableMem()
	var mu sync.Mutex
	var clones []*vfs.MemFS
	watch, rng := false, rand.New(rand.NewPCG(3, 4))
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose && watch {
			for _, percent := range []int{0, 50} {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
			}
		}
		return nil
	}))
	s := openStore(t, resumable(fs))
	fill(t, s, 3)
	must(t, s.PublishLocal(SnapshotMeta{Index: 3, Term: 1}))
	old := hashOf(t, s)
	watch = true
	for _, to := range []int{len(o.data) / 3, len(o.data) * 2 / 3} {
		in, err := s.ContinueInstall(o.id, o.meta)
		must(t, err)
		for at := int(in.Written()); at < to; at += 1500 {
			_, err := in.Write(o.data[at:min(to, at+1500)])
			must(t, err)
		}
		must(t, in.Suspend())
	}
	must(t, o.finish(t, s))
	mu.Lock()
	watch = false
	mu.Unlock()
	held := map[int64]bool{}
	for n, clone := range clones {
		c, err := Open(resumable(clone))
		if err != nil {
			t.Fatalf("copy %d of %d: %v", n, len(clones), err)
		}
		held[c.Held(o.id)] = true
		if p := c.Pointer(); p.Installed {
			must(t, c.Activate())
			if h := hashOf(t, c); h != o.hash {
				t.Errorf("copy %d: state %v, want %v", n, h, o.hash)
			}
		} else {
			if h := hashOf(t, c); h != old {
				t.Errorf("copy %d: state %v, want %v", n, h, old)
			}
			if err := o.finish(t, c); err != nil {
				t.Errorf("copy %d: %v", n, err)
			}
		}
		names, err := clone.List(testDir)
		must(t, err)
		if slices.Contains(names, incomingFile) || len(names) != 2 {
			t.Errorf("copy %d: files %s", n, names)
		}
		closeStore(t, c)
	}
	if len(held) < 5 || len(clones) < 60 {
		t.Errorf("%d copies with %d offsets: the run does too little", len(clones), len(held))
	}
}

// TestInstallStartsAnew: what is left of another stream, of damaged files, or of a stream
// that the own state has overtaken, is dropped.
func TestInstallStartsAnew(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 30)
	o := offered(t, src)
	other := offered(t, src)
	if o.id == other.id || o.id == (CheckpointID{}) {
		t.Fatalf("two checkpoints have the ids %x and %x", o.id, other.id)
	}
	for name, c := range map[string]struct {
		edit func(fs *vfs.MemFS, s *Store) error
		held bool // after an open
		file string
	}{
		"as it was": {held: true, edit: func(*vfs.MemFS, *Store) error { return nil }, file: "[INCOMING POINTER db-1 db-2]"},
		"another stream": {edit: func(_ *vfs.MemFS, s *Store) error {
			if s.Held(other.id) != 0 || s.Held(CheckpointID{}) != 0 {
				t.Error("an install of another stream is held")
			}
			in, err := s.ContinueInstall(other.id, other.meta)
			if err == nil && in.Written() != 0 {
				t.Errorf("another stream goes on at %d", in.Written())
			}
			return errors.Join(err, in.Abort())
		}, file: "[POINTER db-1]"},
		"caught up": {edit: func(_ *vfs.MemFS, s *Store) error {
			fill(t, s, int(o.meta.Index))
			return s.PublishLocal(SnapshotMeta{Index: o.meta.Index, Term: 1})
		}, file: "[POINTER db-1]"},
		"record flipped": {edit: func(fs *vfs.MemFS, _ *Store) error {
			return flipBit(fs, testDir+"/INCOMING", 40)
		}, file: "[POINTER db-1]"},
		"record of another version": {edit: func(fs *vfs.MemFS, _ *Store) error {
			return flipBit(fs, testDir+"/INCOMING", 7)
		}, file: "[POINTER db-1]"},
		"file gone": {edit: func(fs *vfs.MemFS, s *Store) error {
			return fs.Remove(testDir + "/db-2/" + s.in.held.have[0].name)
		}, file: "[POINTER db-1]"},
		"directory gone": {edit: func(fs *vfs.MemFS, _ *Store) error {
			return fs.RemoveAll(testDir + "/db-2")
		}, file: "[POINTER db-1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			s, err := Open(resumable(fs))
			must(t, err)
			in, err := s.ContinueInstall(o.id, o.meta)
			must(t, err)
			_, err = in.Write(o.data[:len(o.data)/2])
			must(t, errors.Join(err, in.Suspend(), in.Suspend()))
			must(t, c.edit(fs, s))
			closeStore(t, s)
			s = openStore(t, resumable(fs))
			if got := s.Held(o.id) == int64(len(o.data)/2); got != c.held {
				t.Errorf("%d held, want it: %t", s.Held(o.id), c.held)
			}
			if got := filesOf(t, fs); got != c.file {
				t.Errorf("files %s, want %s", got, c.file)
			}
			if s.Applied().Index < o.meta.Index {
				must(t, o.finish(t, s))
			}
		})
	}
}

// TestHeldPartIsChecked: bytes that went bad while they were waiting fail the checksum of
// their file, and the next attempt starts anew.
func TestHeldPartIsChecked(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 30)
	o := offered(t, src)
	fs := vfs.NewMem()
	s := openStore(t, resumable(fs))
	in, err := s.ContinueInstall(o.id, o.meta)
	must(t, err)
	to := 0
	for in.step != stepFileData || in.at < 500 { // within a file
		_, err = in.Write(o.data[to : to+100])
		must(t, err)
		to += 100
	}
	name, at := in.have[len(in.have)-1].name, in.at
	must(t, in.Suspend())
	must(t, flipBit(fs, testDir+"/db-2/"+name, at/2))
	if err := o.finish(t, s); !errors.Is(err, record.ErrFormat) {
		t.Errorf("installed: %v", err)
	}
	if s.Held(o.id) != 0 {
		t.Errorf("%d held after a checksum did not fit", s.Held(o.id))
	}
	must(t, o.finish(t, s))
}

func FuzzParseIncoming(f *testing.F) {
	for _, r := range []incoming{
		{
			id: CheckpointID{1}, meta: SnapshotMeta{Index: 5, Term: 2, Conf: []byte("c")}, db: "db-2", files: 1, length: 1000,
			written: streamHeadSize + fileHeadSize + 1 + 7, step: stepFileData, left: 3, have: []heldFile{{name: "a", size: 10}},
		},
		{
			id: CheckpointID{1}, meta: SnapshotMeta{Index: 5}, db: "db-2", files: 2, length: 1000,
			written: streamHeadSize + 3, step: stepFileHead, need: fileHeadSize, buf: []byte{1, 2, 3},
		},
	} {
		if err := r.check(); err != nil {
			f.Fatal(err)
		}
		f.Add(r.marshal())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 {
			body := b[:len(b)-4]
			b = append(bytes.Clone(body), 0, 0, 0, 0)
			sum := castagnoliSum(body)
			b[len(b)-4], b[len(b)-3], b[len(b)-2], b[len(b)-1] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		r, err := parseIncoming(b)
		if err != nil {
			if !errors.Is(err, record.ErrDamaged) && !errors.Is(err, record.ErrFormat) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := parseIncoming(r.marshal())
		if err != nil || !bytes.Equal(again.marshal(), r.marshal()) {
			t.Errorf("does not come back: %v", err)
		}
	})
}
