package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/testenv"
)

// filled is the data directory of a node that has stored messages 1 to 20 in a stream,
// of which message 5 was deleted.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	n, err := testenv.NewNode(node.Config{DataDir: dir, SegmentSize: 1 << 20}, &testenv.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream(nats.MaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "KEEP", Subjects: []string{"keep.>"}}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 20; i++ {
		m := nats.NewMsg(fmt.Sprintf("keep.%d", i))
		m.Header.Set("N", fmt.Sprint(i))
		m.Data = []byte(strings.Repeat("x", 100) + fmt.Sprint(i))
		if _, err := js.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := js.DeleteMsg("KEEP", 5); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func salvaged(t *testing.T, file string) (head salvageHead, lines []salvageLine) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for first := true; in.Scan(); first = false {
		if first {
			err = json.Unmarshal(in.Bytes(), &head)
		} else {
			lines = append(lines, salvageLine{})
			err = json.Unmarshal(in.Bytes(), &lines[len(lines)-1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if in.Err() != nil {
		t.Fatal(in.Err())
	}
	return head, lines
}

func reported(t *testing.T, out string) salvageReport {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r salvageReport
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSalvage(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := try(t, "salvage", dir, out)
	if code != exitOK {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	r := reported(t, out)
	if len(r.Sources) != 1 || len(r.Sources[0].Streams) != 1 || len(r.Problems) != 0 {
		t.Fatalf("report %+v", r)
	}
	head, lines := salvaged(t, r.Sources[0].Streams[0].File)
	var row record.StreamRow
	if err := json.Unmarshal(head.Directory, &row); err != nil || row.Name != "KEEP" || head.Group != 1 ||
		!strings.Contains(string(head.Description), "keep.") {
		t.Errorf("head %s %s, %v", head.Directory, head.Description, err)
	}
	check := func(lines []salvageLine, last int) {
		t.Helper()
		at := 0
		for i := 1; i <= last; i++ {
			if i == 5 {
				continue // it was deleted
			}
			if at >= len(lines) {
				t.Fatalf("message %d is missing", i)
			}
			m := lines[at]
			at++
			if m.Seq != uint64(i) || m.Subject != fmt.Sprintf("keep.%d", i) || m.Time == 0 ||
				!strings.Contains(string(m.Header), fmt.Sprintf("N: %d\r\n", i)) ||
				string(m.Payload) != strings.Repeat("x", 100)+fmt.Sprint(i) {
				t.Errorf("message %d: %+v", i, m)
			}
		}
		if at != len(lines) {
			t.Errorf("%d messages, want %d", len(lines), at)
		}
	}
	check(lines, 20)
	if code, _, stderr := try(t, "salvage", dir, out); code != exitUsage || !strings.Contains(stderr, "is not empty") {
		t.Errorf("salvage over an earlier one: %d %s", code, stderr)
	}

	// Damage in the log: what is before it is copied, what does not verify is named.
	segments, err := filepath.Glob(filepath.Join(dir, "groups", "1", "log", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(err)
	}
	slices.Sort(segments)
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), strings.Repeat("x", 100)+"15")
	if at < 0 {
		t.Fatal("message 15 is not in the log")
	}
	b[at] = 'y'
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, _ := try(t, "check", dir); code != exitDamaged || !strings.Contains(stdout, segments[0]) {
		t.Errorf("check of damage: %d %s", code, stdout)
	}
	out = t.TempDir()
	code, stdout, stderr = try(t, "salvage", dir, out)
	if code != exitDamaged || !strings.Contains(stdout, segments[0]) || !strings.Contains(stderr, "report.json") {
		t.Errorf("salvage of damage: %d %s %s", code, stdout, stderr)
	}
	r = reported(t, out)
	if len(r.Problems) == 0 || !strings.Contains(strings.Join(r.Problems, " "), segments[0]) {
		t.Errorf("problems %q", r.Problems)
	}
	_, lines = salvaged(t, r.Sources[0].Streams[0].File)
	// The delete of message 5 is behind the damage.
	seqs := make([]uint64, 0, len(lines))
	for _, l := range lines {
		seqs = append(seqs, l.Seq)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, seqs); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestSalvageOfAState: a table with a damaged block gives the messages of its other blocks.
func TestSalvageOfAState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "groups", "1", "state")
	s, err := storage.Open(storage.Config{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	const messages = 400
	b := s.NewBatch()
	b.PutStream(7, []byte(`{"name":"seven"}`))
	b.PutStreamState(7, &record.StreamState{FirstSeq: 1, LastSeq: messages, Messages: messages})
	for i := 1; i <= messages; i++ {
		// Bytes that do not compress, so that there are many blocks.
		payload := make([]byte, 1000)
		for k := range payload {
			payload[k] = byte((i*7919 + k*k*31 + k*i) >> 3)
		}
		m := record.Message{Seq: uint64(i), Time: int64(i), Subject: "s", Payload: payload}
		if err := b.PutMessage(7, uint64(i), record.AppendMessage(nil, &m)); err != nil {
			t.Fatal(err)
		}
	}
	b.SetApplied(10, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 1}, 1)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.PublishLocal(storage.SnapshotMeta{Index: 10, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(state, "db-1", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	slices.SortFunc(tables, func(a, b string) int { return int(size(t, a) - size(t, b)) })
	table := tables[len(tables)-1]
	raw, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 4
	if err := os.WriteFile(table, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	code, stdout, stderr := try(t, "salvage", dir, out)
	if code != exitDamaged {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	r := reported(t, out)
	if len(r.Sources) != 1 || len(r.Sources[0].Streams) != 1 ||
		!strings.Contains(strings.Join(r.Problems, " "), filepath.Base(table)) {
		t.Fatalf("report %+v", r)
	}
	st := r.Sources[0].Streams[0]
	_, lines := salvaged(t, st.File)
	lost := map[uint64]bool{}
	for _, u := range st.Unreadable {
		for seq := u[0]; seq <= u[1]; seq++ {
			lost[seq] = true
		}
	}
	if len(lost) == 0 || len(lost) > messages/4 {
		t.Errorf("%d unreadable, want those of one block", len(lost))
	}
	// Without a pointer the newest database is read.
	if err := os.Remove(filepath.Join(state, "POINTER")); err != nil {
		t.Fatal(err)
	}
	out = t.TempDir()
	if code, stdout, stderr := try(t, "salvage", dir, out); code != exitDamaged || !strings.Contains(stdout, "POINTER") {
		t.Errorf("without a pointer: %d %s %s", code, stdout, stderr)
	}
	if r := reported(t, out); len(r.Sources[0].Streams) != 1 || r.Sources[0].Streams[0].Messages != uint64(len(lines)) {
		t.Errorf("without a pointer: %+v", r.Sources[0])
	}
	if len(lines)+len(lost) != messages {
		t.Errorf("%d copied and %d unreadable of %d", len(lines), len(lost), messages)
	}
	for _, l := range lines {
		if lost[l.Seq] || l.Time != int64(l.Seq) || len(l.Payload) != 1000 {
			t.Errorf("message %d: unreadable %t, time %d, %d bytes", l.Seq, lost[l.Seq], l.Time, len(l.Payload))
		}
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
