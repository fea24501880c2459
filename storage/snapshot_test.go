package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// fill commits n entries of 10 messages each.
func fill(tb testing.TB, s *Store, n int) {
	tb.Helper()
	for range n {
		next := s.Applied().Index + 1
		commit(tb, s, func(b *Batch) {
			for k := range uint64(10) {
				must(tb, b.PutMessage(1, next*10+k, serialized(fmt.Sprintf("s.%d", k), 200)))
			}
		})
	}
}

// stream returns a checkpoint's stream and meta.
func stream(tb testing.TB, s *Store) ([]byte, SnapshotMeta) {
	tb.Helper()
	c, err := s.Checkpoint()
	must(tb, err)
	var buf bytes.Buffer
	n, err := c.WriteTo(&buf)
	must(tb, err)
	if n != c.Size() || int64(buf.Len()) != n {
		tb.Errorf("stream of %d bytes, %d written, %d announced", buf.Len(), n, c.Size())
	}
	must(tb, c.Close())
	return buf.Bytes(), c.Meta()
}

func install(tb testing.TB, s *Store, data []byte, meta SnapshotMeta) {
	tb.Helper()
	in, err := s.BeginInstall(meta)
	must(tb, err)
	_, err = in.Write(data)
	must(tb, err)
	must(tb, in.Commit())
	must(tb, s.Activate())
}

func TestAppliedSurvives(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	s := openStore(t, testConfig(fs))
	if diff := cmp.Diff(Applied{}, s.Applied()); diff != "" {
		t.Errorf("a new state: %s", diff)
	}
	b := s.NewBatch()
	b.SetApplied(5, 2, record.Fence{Term: 2, Epoch: 3, Ordinal: 4}, 100)
	b.SetConf(4, []byte("conf"))
	must(t, b.Commit())
	b.SetApplied(6, 3, record.Fence{Term: 3, Epoch: 1, Ordinal: 1}, 50)
	must(t, b.Commit())
	want := Applied{
		Index: 6, Term: 3, Fence: record.Fence{Term: 3, Epoch: 1, Ordinal: 1}, Time: 100,
		ConfIndex: 4, Conf: []byte("conf"),
	}
	if diff := cmp.Diff(want, s.Applied()); diff != "" {
		t.Errorf("applied: %s", diff)
	}
	if got := s.DurableApplied(); got != 0 {
		t.Errorf("durable before a flush: %d", got)
	}
	must(t, s.PublishLocal(SnapshotMeta{Index: 8, Term: 3, ConfIndex: 4, Conf: []byte("conf")}))
	want.Covered = 8
	if diff := cmp.Diff(want, s.Applied()); diff != "" {
		t.Errorf("applied: %s", diff)
	}
	if got := s.DurableApplied(); got != 8 {
		t.Errorf("durable after a snapshot: %d, want its index", got)
	}
	fill(t, s, 1)
	if got := s.DurableApplied(); got != 8 {
		t.Errorf("durable after a commit without flush: %d", got)
	}
	crashed := openStore(t, testConfig(fs.CrashClone(vfs.CrashCloneCfg{})))
	if diff := cmp.Diff(want, crashed.Applied()); diff != "" {
		t.Errorf("after a power cut: %s", diff)
	}
	wantPtr := Pointer{DB: "db-1"}
	wantPtr.Snapshot = SnapshotMeta{Index: 8, Term: 3, ConfIndex: 4, Conf: []byte("conf")}
	if diff := cmp.Diff(wantPtr, crashed.Pointer(), cmp.AllowUnexported(Pointer{})); diff != "" {
		t.Errorf("pointer: %s", diff)
	}
	if got := crashed.DurableApplied(); got != 8 {
		t.Errorf("durable after a power cut: %d", got)
	}
}

// TestDurableByItself: flushes that nobody asked for count too.
func TestDurableByItself(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	for range 1000 {
		fill(t, s, 5)
		if d := s.DurableApplied(); d > 0 {
			if d > s.Applied().Index {
				t.Errorf("durable %d beyond applied %d", d, s.Applied().Index)
			}
			return
		}
	}
	t.Error("5,000 entries and no flush")
}

func TestCommitMisuse(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	fill(t, s, 3)
	before := hashOf(t, s)
	b := s.NewBatch()
	b.PutStream(1, []byte("x"))
	if err := b.Commit(); err == nil {
		t.Error("a batch without an index was committed")
	}
	b.PutStream(1, []byte("x"))
	b.SetApplied(3, 1, record.Fence{}, 0)
	if err := b.Commit(); err == nil {
		t.Error("entry 3 was committed twice")
	}
	b.DeleteMessages(1, 2, 1)
	b.SetApplied(4, 1, record.Fence{}, 0)
	if err := b.Commit(); err == nil {
		t.Error("a range from 2 to 1 was accepted")
	}
	if err := b.PutMessage(1, 1, []byte("short")); !errors.Is(err, record.ErrFormat) {
		t.Errorf("a malformed message: %v", err)
	}
	if after := hashOf(t, s); after != before {
		t.Errorf("state changed from %v to %v", before, after)
	}
	b.Reset()
	b.SetApplied(4, 1, record.Fence{}, 0)
	if err := b.Commit(); err != nil {
		t.Errorf("the batch is not usable again: %v", err)
	}
}

func TestInstall(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 50)
	b := src.NewBatch()
	b.SetApplied(51, 4, record.Fence{Term: 4, Epoch: 1, Ordinal: 1}, 9)
	b.SetConf(51, []byte("three voters"))
	must(t, b.Commit())
	data, meta := stream(t, src)
	want := SnapshotMeta{Index: 51, Term: 4, ConfIndex: 51, Conf: []byte("three voters")}
	if diff := cmp.Diff(want, meta); diff != "" {
		t.Errorf("meta of the checkpoint: %s", diff)
	}
	fs := vfs.NewCrashableMem()
	dst := openStore(t, testConfig(fs))
	fill(t, dst, 7)
	must(t, dst.PublishLocal(SnapshotMeta{Index: 7, Term: 1}))

	in, err := dst.BeginInstall(meta)
	must(t, err)
	for at := 0; at < len(data); at += 1000 {
		if in.Written() != int64(at) {
			t.Fatalf("written %d of %d", in.Written(), at)
		}
		_, err := in.Write(data[at:min(at+1000, len(data))])
		must(t, err)
	}
	must(t, in.Commit())
	p := dst.Pointer()
	if !dst.NeedsActivate() || dst.Applied().Index != 7 || p.Snapshot.Index != 51 || !p.Installed {
		t.Errorf("between commit and activate: %+v, pointer %+v", dst.Applied(), dst.Pointer())
	}
	if err := dst.PublishLocal(SnapshotMeta{Index: 100}); !errors.Is(err, ErrOvertaken) {
		t.Errorf("a local snapshot of the old state: %v", err)
	}
	if _, err := dst.Checkpoint(); !errors.Is(err, ErrOvertaken) {
		t.Errorf("a checkpoint of the old state: %v", err)
	}
	must(t, dst.Activate())
	must(t, dst.Activate())
	if dst.NeedsActivate() || dst.DurableApplied() != 51 {
		t.Errorf("after activate: durable %d", dst.DurableApplied())
	}
	if diff := cmp.Diff(src.Applied(), dst.Applied()); diff != "" {
		t.Errorf("applied: %s", diff)
	}
	if a, b := hashOf(t, src), hashOf(t, dst); a != b {
		t.Errorf("states differ: %v and %v", a, b)
	}
	if got := filesOf(t, fs); got != "[POINTER db-2]" {
		t.Errorf("files %s", got)
	}
	if err := dst.PublishLocal(SnapshotMeta{Index: 50}); !errors.Is(err, ErrOvertaken) {
		t.Errorf("a local snapshot below the installed one: %v", err)
	}
	if _, err := dst.BeginInstall(SnapshotMeta{Index: 50}); !errors.Is(err, ErrOvertaken) {
		t.Errorf("an install below the installed one: %v", err)
	}
	fill(t, dst, 1)
	must(t, dst.PublishLocal(SnapshotMeta{Index: 52, Term: 4}))
	if dst.Pointer().Installed {
		t.Error("a local snapshot counts as installed")
	}
	crashed := openStore(t, testConfig(fs.CrashClone(vfs.CrashCloneCfg{})))
	if a, b := hashOf(t, dst), hashOf(t, crashed); a != b {
		t.Errorf("after a power cut: %v, was %v", b, a)
	}
}

// TestInstallTwice: an install that was published but not put in use is replaced by the next.
func TestInstallTwice(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 5)
	data1, meta1 := stream(t, src)
	fill(t, src, 5)
	data2, meta2 := stream(t, src)
	fs := vfs.NewMem()
	dst := openStore(t, testConfig(fs))
	for _, p := range []struct {
		data []byte
		meta SnapshotMeta
	}{{data1, meta1}, {data2, meta2}} {
		in, err := dst.BeginInstall(p.meta)
		must(t, err)
		_, err = in.Write(p.data)
		must(t, err)
		must(t, in.Commit())
	}
	must(t, dst.Activate())
	if a, b := hashOf(t, src), hashOf(t, dst); a != b {
		t.Errorf("states differ: %v and %v", a, b)
	}
	if got := filesOf(t, fs); got != "[POINTER db-3]" {
		t.Errorf("files %s", got)
	}
}

// TestCheckpointReadAt: every offset and length gives the same bytes, so a cut transfer can go on.
func TestCheckpointReadAt(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	fill(t, s, 20)
	c, err := s.Checkpoint()
	must(t, err)
	defer func() { must(t, c.Close()) }()
	whole := make([]byte, c.Size())
	if n, err := c.ReadAt(whole, 0); n != len(whole) || err != nil {
		t.Fatalf("read %d of %d, %v", n, len(whole), err)
	}
	r := newRNG(1)
	for range 500 {
		at := r.Int64N(c.Size() + 1)
		p := make([]byte, r.IntN(3000))
		n, err := c.ReadAt(p, at)
		want := whole[at:min(int(at)+len(p), len(whole))]
		if !bytes.Equal(p[:n], want) {
			t.Fatalf("%d bytes at %d differ", len(p), at)
		}
		if short := n < len(p); short != errors.Is(err, io.EOF) || (err != nil && !short) {
			t.Fatalf("%d of %d bytes at %d: %v", n, len(p), at, err)
		}
	}
	if _, err := c.ReadAt(nil, -1); err == nil {
		t.Error("a negative offset was read")
	}
}

// TestInstallRejects: what is not exactly a checkpoint's stream is refused, and
// nothing of it stays.
func TestInstallRejects(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 20)
	data, meta := stream(t, src)
	fs := vfs.NewMem()
	dst := openStore(t, testConfig(fs))
	fill(t, dst, 3)
	before := hashOf(t, dst)
	edit := func(at int, b ...byte) []byte {
		out := bytes.Clone(data)
		copy(out[at:], b)
		return out
	}
	evil := func(name string) []byte {
		out := append([]byte(nil), data[:streamHeadSize]...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(name)))
		out = binary.BigEndian.AppendUint64(out, 4)
		return append(append(out, name...), "data"...)
	}
	high := meta
	high.Index++
	cases := map[string]struct {
		data []byte
		meta SnapshotMeta
	}{
		"empty":          {nil, meta},
		"magic":          {edit(0, 'X'), meta},
		"version":        {edit(7, 2), meta},
		"no files":       {edit(8, 0, 0, 0, 0), meta},
		"many files":     {edit(8, 0xff, 0, 0, 0), meta},
		"length":         {edit(19, data[19]+1), meta},
		"truncated":      {data[:len(data)-1], meta},
		"half":           {data[:len(data)/2], meta},
		"longer":         {append(bytes.Clone(data), 0), meta},
		"trailer":        {edit(len(data)-1, data[len(data)-1]^1), meta},
		"bit flip":       {edit(len(data)/2, data[len(data)/2]^1), meta},
		"name":           {evil("../x"), meta},
		"absolute name":  {evil("/etc/x"), meta},
		"dots":           {evil(".."), meta},
		"backslash":      {evil(`a\b`), meta},
		"lock":           {evil("LOCK"), meta},
		"empty name":     {evil(""), meta},
		"long name":      {evil(strings.Repeat("a", maxFileName+1)), meta},
		"beyond its end": {data, high},
	}
	for name, c := range cases {
		in, err := dst.BeginInstall(c.meta)
		must(t, err)
		_, werr := in.Write(c.data)
		cerr := in.Commit()
		if !errors.Is(cerr, record.ErrFormat) {
			t.Errorf("%s: write %v, commit %v", name, werr, cerr)
		}
		must(t, in.Abort())
		if _, err := in.Write(data); !errors.Is(err, record.ErrClosed) {
			t.Errorf("%s: write after the end: %v", name, err)
		}
	}
	if _, err := dst.BeginInstall(SnapshotMeta{}); err == nil {
		t.Error("a snapshot without index was accepted")
	}
	if got := filesOf(t, fs); got != "[POINTER db-1]" {
		t.Errorf("files %s", got)
	}
	if after := hashOf(t, dst); after != before {
		t.Errorf("state changed from %v to %v", before, after)
	}
}

// TestInstallOfDamage: a sender whose table is damaged does not pass that on.
func TestInstallOfDamage(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	src := openStore(t, testConfig(fs))
	fill(t, src, 30)
	c, err := src.Checkpoint()
	must(t, err)
	defer func() { must(t, c.Close()) }()
	largest := c.Files()[0]
	for _, f := range c.Files() {
		if f.Size > largest.Size {
			largest = f
		}
	}
	path := fs.PathJoin(testDir, c.name, largest.Name)
	must(t, flipBit(fs, path, 100))
	dst := openStore(t, Config{FS: vfs.NewMem(), Dir: testDir, Damaged: func(error) {}})
	in, err := dst.BeginInstall(c.Meta())
	must(t, err)
	_, err = c.WriteTo(in)
	must(t, err)
	if err := in.Commit(); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a damaged table was installed: %v", err)
	}
}

// flipBit changes one bit of a file in place, hard links included.
func flipBit(fs *vfs.MemFS, path string, at int64) error {
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil || errors.Is(err, io.EOF) {
		b[0] ^= 4
		_, err = f.WriteAt(b, at)
	}
	return errors.Join(err, f.Close())
}

// TestReadersDuringSwap: readers that began on the old state finish on it; its
// files go when the last is done.
func TestReadersDuringSwap(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 30)
	data, meta := stream(t, src)
	fs := vfs.NewMem()
	dst := openStore(t, testConfig(fs))
	fill(t, dst, 10)
	must(t, dst.Flush())
	n := 0
	must(t, dst.ScanKeys(1, 0, func(uint64) bool {
		if n++; n == 1 {
			install(t, dst, data, meta)
			fill(t, dst, 1)
			if !exists(fs, testDir+"/db-1") {
				t.Error("the old database went under a reader")
			}
		}
		return true
	}))
	if n != 100 {
		t.Errorf("the reader saw %d of the 100 messages of the old state", n)
	}
	if exists(fs, testDir+"/db-1") {
		t.Error("the old database is still there")
	}
	n = 0
	must(t, dst.ScanKeys(1, 0, func(uint64) bool { n++; return true }))
	if n != 310 {
		t.Errorf("a new reader sees %d messages, want 310", n)
	}
}

// TestConcurrent runs readers, commits, snapshots, checkpoints and installs at
// the same time; the race detector and the final state judge.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	src := openStore(t, testConfig(vfs.NewMem()))
	fill(t, src, 100)
	data, meta := stream(t, src)
	s := openStore(t, testConfig(vfs.NewMem()))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil && !errors.Is(err, ErrOvertaken) {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error { return s.Scan(1, 0, func(uint64, []byte) bool { return true }) })
	loop(func() error {
		_, err := s.StateHash(t.Context())
		return err
	})
	loop(func() error {
		s.DurableApplied()
		return s.PublishLocal(SnapshotMeta{Index: s.Applied().Index, Term: 1})
	})
	loop(func() error {
		c, err := s.Checkpoint()
		if err != nil {
			return err
		}
		_, err = c.WriteTo(io.Discard)
		return errors.Join(err, c.Close())
	})
	fill(t, s, 50)
	in, err := s.BeginInstall(meta)
	must(t, err)
	_, err = in.Write(data)
	must(t, err)
	must(t, in.Commit())
	fill(t, s, 5) // raft's state machine may still be at work on the old state
	must(t, s.Activate())
	fill(t, s, 50)
	close(stop)
	wg.Wait()
	fill(t, src, 50)
	if a, b := hashOf(t, src), hashOf(t, s); a != b {
		t.Errorf("states differ: %v and %v", a, b)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	fill(t, s, 1)
	closeStore(t, s)
	for name, f := range map[string]func() error{
		"scan":       func() error { return s.Scan(1, 0, nil) },
		"message":    func() error { _, err := s.Message(1, 1); return err },
		"flush":      s.Flush,
		"publish":    func() error { return s.PublishLocal(SnapshotMeta{Index: 1}) },
		"checkpoint": func() error { _, err := s.Checkpoint(); return err },
		"install":    func() error { _, err := s.BeginInstall(SnapshotMeta{Index: 1}); return err },
		"activate":   s.Activate,
		"commit": func() error {
			b := s.NewBatch()
			b.SetApplied(9, 1, record.Fence{}, 0)
			return b.Commit()
		},
	} {
		if err := f(); !errors.Is(err, record.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	if s.DurableApplied() != 0 {
		t.Error("a closed store knows a durable index")
	}
}
