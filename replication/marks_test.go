package replication

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/replication/marks"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

func openMarked(t *testing.T, fs vfs.FS) (*seglog.Log, *markBook) {
	t.Helper()
	log, err := seglog.Open(seglog.Config{FS: fs, Dir: "log", SegmentSize: 64 << 10, SyncPrepare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	kept, vector, err := splitSealed(log.SealPayload())
	if err != nil {
		t.Fatal(err)
	}
	b, err := newMarkBook("a/1", &sealed{log: log, clock: kept, marks: vector}, vector)
	if err != nil {
		t.Fatal(err)
	}
	return log, b
}

func TestMarksAreKeptWithTheLog(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	log, b := openMarked(t, fs)
	if b.tend() || b.vector() != nil {
		t.Error("a new replica has marks")
	}
	b.setVoters([]string{"a/1", "b/1", "c/1"})
	b.raise("b/1", marks.Mark{Term: 2, Index: 7})
	b.raise("d/1", marks.Mark{Term: 2, Index: 9}) // no voter: it is not asked for votes
	if err := b.merge(marks.Append(nil, marks.Vector{"c/1": {Term: 2, Index: 5}, "a/1": {Term: 2, Index: 8}})); err != nil {
		t.Fatal(err)
	}
	want := marks.Vector{"a/1": {Term: 2, Index: 8}, "b/1": {Term: 2, Index: 7}, "c/1": {Term: 2, Index: 5}}
	if diff := cmp.Diff(want, b.v); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	if !b.tend() || b.tend() {
		t.Error("changed marks are not handed over once")
	}
	if err := b.kept.keepClock([]byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := log.Append([]seglog.Entry{{Index: 1, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	_, again := openMarked(t, fs)
	if diff := cmp.Diff(want, again.v); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if !bytes.Equal(again.kept.clock, []byte{1, 2, 3}) {
		t.Errorf("the clock is % x", again.kept.clock)
	}
	again.setVoters([]string{"b/1", "e/1"})
	delete(want, "c/1")
	if diff := cmp.Diff(want, again.v); diff != "" {
		t.Errorf("without c (-want +got):\n%s", diff)
	}
	if err := again.merge([]byte("nonsense")); !errors.Is(err, marks.ErrFormat) {
		t.Errorf("merge of nonsense: %v", err)
	}
}

func TestSplitSealed(t *testing.T) {
	t.Parallel()
	clock, vector := []byte{1, 0, 9}, []byte{1, 0, 1}
	for _, tt := range []struct {
		name              string
		in, clock, vector []byte
		damaged           bool
	}{
		{"nothing", nil, nil, nil, false},
		{"a clock alone, as version 1 wrote it", clock, clock, nil, false},
		{"both", joinSealed(clock, vector), clock, vector, false},
		{"no clock", joinSealed(nil, vector), []byte{}, vector, false},
		{"no marks", joinSealed(clock, nil), clock, []byte{}, false},
		{"cut in the length", []byte{2, 0}, nil, nil, true},
		{"cut in the clock", joinSealed(clock, nil)[:5], nil, nil, true},
	} {
		c, v, err := splitSealed(tt.in)
		if tt.damaged != errors.Is(err, record.ErrFormat) || !bytes.Equal(c, tt.clock) || !bytes.Equal(v, tt.vector) {
			t.Errorf("%s: % x, % x, %v", tt.name, c, v, err)
		}
	}
}

func FuzzSplitSealed(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(joinSealed([]byte{1, 0, 9}, marks.Append(nil, marks.Vector{"a/1": {Term: 1, Index: 2}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		clock, vector, err := splitSealed(b)
		if err == nil && len(b) > 0 && b[0] == sealedVersion && !bytes.Equal(joinSealed(clock, vector), b) {
			t.Errorf("% x is taken apart as % x and % x", b, clock, vector)
		}
	})
}

func TestMarkerOfDamage(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	if d, err := markedDamage(fs, 1, "data/groups/1"); d != nil || err != nil {
		t.Errorf("no marker: %+v, %v", d, err)
	}
	d := newDamage(1, "data/groups/1", "a/1", record.Damaged("data/groups/1/state/x.sst", "rotten"))
	if err := d.mark(fs, "data/groups/1"); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(crashAll)
	got, err := markedDamage(after, 1, "data/groups/1")
	if diff := cmp.Diff(d, got); diff != "" || err != nil {
		t.Errorf("after a power cut, %v (-want +got):\n%s", err, diff)
	}
	for content, want := range map[string]string{`{"version":2}`: "version 2", `{"vers`: ""} {
		if err := replaceFile(after, "data/groups/1/DAMAGED", []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := markedDamage(after, 1, "data/groups/1")
		if want == "" {
			if err != nil || got == nil || got.File != "data/groups/1/DAMAGED" {
				t.Errorf("an unreadable marker marks all the same: %+v, %v", got, err)
			}
		} else if !errors.Is(err, record.ErrFormat) {
			t.Errorf("a marker of another build: %+v, %v", got, err)
		}
	}
}

// TestSetAsideOverCrashes: whenever the power goes, every file is in one of two places,
// and the marker goes last.
func TestSetAsideOverCrashes(t *testing.T) {
	t.Parallel()
	dir := "data/groups/1"
	files := []string{"INCARNATION", "log/1.seg", "log/SEGMENTS", "state/POINTER", damageFile}
	fs := vfs.NewCrashableMem()
	for _, sub := range []string{dir, dir + "/log", dir + "/state"} {
		if err := makeDirs(fs, sub); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		if err := replaceFile(fs, dir+"/"+name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	var clones []*vfs.MemFS
	watched := &crashPoints{FS: fs, at: func() { clones = append(clones, fs.CrashClone(crashAll)) }}
	d := newDamage(1, dir, "a/1", record.Damaged(dir, "x"))
	aside, err := setAside(watched, dir, d.Found)
	if err != nil {
		t.Fatal(err)
	}
	clones = append(clones, fs.CrashClone(crashAll))
	for i, clone := range clones {
		e := func(path string) bool {
			there, err := exists(clone, path)
			return err == nil && there
		}
		for _, name := range files {
			if !e(dir+"/"+name) && !e(aside+"/"+name) {
				t.Errorf("crash %d of %d: %s is lost", i, len(clones), name)
			}
		}
		gone := !e(dir + "/" + damageFile)
		for _, name := range files {
			if gone && !e(aside+"/"+name) {
				t.Errorf("crash %d: the marker is gone before %s is set aside", i, name)
			}
		}
	}
	if names, err := fs.List(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
	if len(clones) < 6 {
		t.Errorf("%d crashes", len(clones))
	}
	// A second replica may be damaged within the same second.
	if err := d.mark(fs, dir); err != nil {
		t.Fatal(err)
	}
	if again, err := setAside(fs, dir, d.Found); err != nil || again != aside+"-2" {
		t.Errorf("the second is in %s, %v", again, err)
	}
}

// crashPoints calls at before each change of a name.
type crashPoints struct {
	vfs.FS
	at func()
}

func (c *crashPoints) Rename(from, to string) error {
	c.at()
	defer c.at()
	return c.FS.Rename(from, to)
}
