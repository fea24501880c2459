package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// contents are the files of a directory; the lock that salvage holds names its process.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == filepath.Join(dir, "LOCK") {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSalvageOfTables: a state whose manifest does not verify is put together from its
// tables; what was deleted stays deleted, and the log goes on behind it.
func TestSalvageOfTables(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	state := filepath.Join(dir, "groups", "1", "state")
	s, err := storage.Open(storage.Config{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(state, "db-*", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, m := range manifests {
		flip(t, m, size(t, m)/2)
	}
	before := contents(t, dir)
	out := t.TempDir()
	code, stdout, stderr := try(t, "salvage", dir, out)
	if code != exitDamaged || !strings.Contains(stdout, "MANIFEST") || !strings.Contains(stdout, "put together") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("the source was changed: %s", diff)
	}
	r := reported(t, out)
	if len(r.Sources) != 1 || len(r.Sources[0].Streams) != 1 {
		t.Fatalf("report %+v", r)
	}
	head, lines := salvaged(t, r.Sources[0].Streams[0].File)
	if !strings.Contains(string(head.Description), "keep.") {
		t.Errorf("head %s", head.Description)
	}
	seqs := map[uint64]int{}
	for _, l := range lines {
		seqs[l.Seq]++
	}
	for i := uint64(1); i <= 20; i++ {
		want := 1
		if i == 5 {
			want = 0
		}
		if seqs[i] != want {
			t.Errorf("message %d comes %d times, want %d", i, seqs[i], want)
		}
	}
	if _, err := os.Stat(filepath.Join(out, scratchDir)); err == nil {
		t.Error("the scratch directory is still there")
	}
}

// TestSalvageOfAGap: behind a damaged segment the log is read on, and what comes of it is marked.
func TestSalvageOfAGap(t *testing.T) {
	t.Parallel()
	dir := filledLog(t)
	segments, err := filepath.Glob(filepath.Join(dir, "groups", "1", "log", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(segments)
	if len(segments) < 3 {
		t.Fatalf("%d segments", len(segments))
	}
	flip(t, segments[1], 5000)
	before := contents(t, dir)
	out := t.TempDir()
	code, stdout, stderr := try(t, "salvage", dir, out)
	if code != exitDamaged || !strings.Contains(stdout, segments[1]) {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("the source was changed: %s", diff)
	}
	r := reported(t, out)
	if len(r.Sources) != 1 || len(r.Sources[0].Streams) != 1 || len(r.Sources[0].Gaps) != 1 {
		t.Fatalf("report %+v", r)
	}
	gap := r.Sources[0].Gaps[0]
	_, lines := salvaged(t, r.Sources[0].Streams[0].File)
	var marked uint64
	for _, l := range lines {
		if l.BehindGap != (l.Entry >= gap.Next) || l.Entry > gap.After && l.Entry < gap.Next {
			t.Errorf("message %d of entry %d: behind a gap %t, which is %+v", l.Seq, l.Entry, l.BehindGap, gap)
		}
		if l.BehindGap {
			marked++
		}
	}
	last := lines[len(lines)-1]
	if marked == 0 || marked != r.Sources[0].Streams[0].BehindGap || last.Seq != logMessages {
		t.Errorf("%d messages behind the gap, the report says %d, the last is %d", marked,
			r.Sources[0].Streams[0].BehindGap, last.Seq)
	}
}

// logMessages are in a log of small segments, one envelope each.
const logMessages = 300

// filledLog is a data directory whose group 1 has them in its log, and an empty state.
func filledLog(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	log, err := seglog.Open(seglog.Config{
		FS: storage.DefaultFS(), Dir: filepath.Join(dir, "groups", "1", "log"), SegmentSize: 64 << 10, SyncPrepare: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= logMessages; i++ {
		b := command.NewBuilder(2048)
		m := record.Message{Time: int64(i), Subject: "s", Payload: bytes.Repeat([]byte{byte(i)}, 1000)}
		b.Store(3, &command.Item{Seq: i}, &m)
		data := b.Finish(&command.Header{Fence: record.Fence{Term: 2, Epoch: 1, Ordinal: i}})
		if err := log.Append([]seglog.Entry{{Index: i, Term: 2, Data: data}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := storage.Open(storage.Config{Dir: filepath.Join(dir, "groups", "1", "state")})
	if err := errors.Join(err, log.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}
