package jepsen

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// writeLog makes a log of some segments, as a process leaves it that was killed: without a seal.
func writeLog(t *testing.T) (dir string, last uint64) {
	t.Helper()
	dir, kept := filepath.Join(t.TempDir(), "kept"), filepath.Join(t.TempDir(), "log")
	log, err := seglog.Open(seglog.Config{Dir: dir, FS: vfs.Default, SegmentSize: 64 << 10, SyncPrepare: true})
	if err != nil {
		t.Fatal(err)
	}
	for last < 700 {
		last++
		e := seglog.Entry{Index: last, Term: 1, Data: make([]byte, last%300)}
		if err := log.Append([]seglog.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.TruncatePrefix(last / 2); err != nil { // leaves a segment that is not used
		t.Fatal(err)
	}
	if err := errors.Join(os.CopyFS(kept, os.DirFS(dir)), log.Close()); err != nil {
		t.Fatal(err)
	}
	return kept, last
}

// TestEffectsOnALog holds what is expected of every byte of a log to what the log itself finds.
func TestEffectsOnALog(t *testing.T) {
	t.Parallel()
	dir, last := writeLog(t)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v, want a list, two segments in use, one that is not", files, err)
	}
	seen := map[effect]int{}
	check := func(file string, before, after []byte, what string, at int) {
		want := effectOf(file, before, after)
		seen[want]++
		if err := os.WriteFile(file, after, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := seglog.Check(vfs.Default, dir)
		found := errors.Is(err, seglog.ErrDamaged)
		whole := err == nil && got.LastIndex == last
		if want == noticed && !found || want == harmless && !whole || want == either && !found && err != nil {
			t.Errorf("%s, %s at %d: effect %d, and the log says %v, last entry %d of %d", filepath.Base(file), what, at,
				want, err, got.LastIndex, last)
		}
	}
	for _, file := range files {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := range before {
			if end := written(before); at > 80 && at%997 > 0 && at < end-128 || at > end && at%4999 > 0 {
				continue // all bytes of the first and last batches, some of the others
			}
			after := append([]byte(nil), before...)
			after[at] ^= 1 << (at % 8)
			check(file, before, after, "a flip", at)
			if at%61 == 0 && at < 2000 && at > 0 {
				check(file, before, before[:at], "a cut", at)
			}
		}
		if err := os.WriteFile(file, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if seen[harmless] == 0 || seen[either] == 0 || seen[noticed] == 0 {
		t.Errorf("effects %v, want all of them", seen)
	}
}

// TestALostTailIsNoticed: with a batch behind it, or because others know of it.
func TestALostTailIsNoticed(t *testing.T) {
	t.Parallel()
	dir, _ := writeLog(t)
	files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(dir, segmentList))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, last := listed(list, filepath.Base(file)); !last {
			continue
		}
		all := batches(before)
		for lost, want := range map[int]effect{1: either, tailBatches: either, tailBatches + 1: noticed} {
			after := append([]byte(nil), before...)
			clear(after[all[len(all)-lost].from:])
			if got := effectOf(file, before, after); got != want {
				t.Errorf("the last %d of %d batches gone: effect %d, want %d", lost, len(all), got, want)
			}
		}
		return
	}
	t.Error("the list names no segment that is there")
}

// TestEffectsOnOtherFiles is a table of what belongs to whom.
func TestEffectsOnOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "groups", "1", "state")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(state, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	pointer := write(pointerFile, "HFPT…db-2crc.")
	write("db-2/marker.manifest.000002.MANIFEST-000006", "")
	a, b := []byte("what it was"), []byte("what it is.")
	for _, tt := range []struct {
		name  string
		after []byte
		want  effect
	}{
		{"POINTER", b, noticed},
		{"POINTER", nil, noticed},
		{"POINTER", a, harmless},
		{"POINTER.tmp", b, harmless},
		{"INCARNATION", b, noticed},
		{"gossip", b, harmless},
		{"db-1/MANIFEST-000006", nil, harmless}, // not the database in force
		{"db-2/MANIFEST-000006", nil, noticed},
		{"db-2/MANIFEST-000006", b, either},
		{"db-2/MANIFEST-000001", nil, harmless}, // not the manifest that counts
		{"db-2/marker.manifest.000001.MANIFEST-000001", nil, harmless},
		{"db-2/OPTIONS-000008", nil, either},
		{"db-2/000007.sst", b, either},
	} {
		if got := effectOf(filepath.Join(state, tt.name), a, tt.after); got != tt.want {
			t.Errorf("%s, now %q: effect %d, want %d", tt.name, tt.after, got, tt.want)
		}
	}
	gone := filepath.Join(state, "db-2", "marker.manifest.000002.MANIFEST-000006")
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if got := effectOf(gone, a, nil); got != noticed {
		t.Errorf("the marker that counts is gone: effect %d", got)
	}
	if err := os.Remove(pointer); err != nil {
		t.Fatal(err)
	}
}
