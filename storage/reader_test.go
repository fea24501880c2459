package storage

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestReaders(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	commit(t, s, func(b *Batch) {
		for seq, subject := range map[uint64]string{1: "a", 2: "a.b", 3: "a", 5: "a\x00", 7: "a"} {
			must(t, b.PutMessage(1, seq, serialized(subject, 3)))
		}
		must(t, b.PutMessage(2, 1, serialized("a", 3)))
		for _, subject := range []string{"a", "a.b", "a.c", "a.c.d", "b"} {
			b.PutSubjectStat(1, subject, record.SubjectStat{Count: uint64(len(subject))})
		}
		b.PutSubjectStat(2, "a.z", record.SubjectStat{Count: 9})
		b.PutDedup(1, "late", 3, 30)
		b.PutDedup(1, "early", 1, -10)
		b.PutDedup(1, "mid", 2, 20)
		b.PutStream(1, []byte("one"))
		b.PutConsumer(1, 4, []byte("four"))
		b.PutConsumerState(1, 4, &record.ConsumerState{Next: 8})
		b.PutPending(1, 4, &record.Pending{Seq: 3, Count: 1})
		b.PutPending(1, 4, &record.Pending{Seq: 5, Count: 2})
		b.PutPending(1, 5, &record.Pending{Seq: 6})
	})

	t.Run("message", func(t *testing.T) {
		m, err := s.Message(1, 5)
		if err != nil || m.Subject != "a\x00" || m.Seq != 5 || m.Time != 7 || len(m.Payload) != 3 {
			t.Errorf("message %+v, %v", m, err)
		}
		if _, err := s.Message(1, 4); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("message 4: %v", err)
		}
	})
	t.Run("scan", func(t *testing.T) {
		var got []uint64
		must(t, s.Scan(1, 2, func(seq uint64, b []byte) bool {
			if _, err := record.ParseMessage(seq, b); err != nil {
				t.Error(err)
			}
			got = append(got, seq)
			return len(got) < 3
		}))
		var keys []uint64
		must(t, s.ScanKeys(1, 0, func(seq uint64) bool { keys = append(keys, seq); return true }))
		if fmt.Sprint(got, keys) != "[2 3 5] [1 2 3 5 7]" {
			t.Errorf("scan %v, keys %v", got, keys)
		}
	})
	t.Run("by subject", func(t *testing.T) {
		for _, c := range []struct {
			subject    string
			next, want uint64
			ok         bool
		}{
			{"a", 0, 1, true},
			{"a", 2, 3, true},
			{"a", 7, 7, true},
			{"a", 8, 0, false},
			{"a\x00", 0, 5, true},
			{"x", 0, 0, false},
		} {
			got, ok, err := s.NextBySubject(1, c.subject, c.next)
			if got != c.want || ok != c.ok || err != nil {
				t.Errorf("next of %q from %d: %d %v %v", c.subject, c.next, got, ok, err)
			}
		}
		for _, c := range []struct {
			subject           string
			floor, upTo, want uint64
			ok                bool
		}{
			{"a", 0, math.MaxUint64, 7, true},
			{"a", 0, 6, 3, true},
			{"a", 3, 6, 3, true},
			{"a", 4, 6, 0, false},
			{"a", 7, 7, 7, true},
			{"a", 8, 7, 0, false},
			{"a\x00", 0, 9, 5, true},
			{"", 0, 9, 0, false},
		} {
			got, ok, err := s.PrevBySubject(1, c.subject, c.floor, c.upTo)
			if got != c.want || ok != c.ok || err != nil {
				t.Errorf("previous of %q in %d to %d: %d %v %v", c.subject, c.floor, c.upTo, got, ok, err)
			}
		}
	})
	t.Run("subject rows", func(t *testing.T) {
		for _, c := range []struct {
			from  subjectRow
			below uint64
			want  string
		}{
			{subjectRow{}, 100, "[{a 1} {a 3} {a 7} {a\x00 5} {a.b 2}]"},
			{subjectRow{}, 0, "[{a 1} {a\x00 5} {a.b 2}]"},
			{subjectRow{}, 3, "[{a 1} {a 3} {a\x00 5} {a.b 2}]"},
			{subjectRow{"a", 4}, 8, "[{a 7} {a\x00 5} {a.b 2}]"},
			{subjectRow{"a", 8}, 8, "[{a\x00 5} {a.b 2}]"},
			{subjectRow{"a.b", 3}, 8, "[]"},
		} {
			if got := fmt.Sprint(subjectRows(t, s, 1, c.from, c.below)); got != c.want {
				t.Errorf("from %v below %d: %q, want %q", c.from, c.below, got, c.want)
			}
		}
	})
	t.Run("subjects", func(t *testing.T) {
		for _, c := range []struct{ prefix, after, want string }{
			{"", "", "[a a.b a.c a.c.d b]"},
			{"a.", "", "[a.b a.c a.c.d]"},
			{"a.", "a.b", "[a.c a.c.d]"},
			{"a.c", "a.b", "[a.c a.c.d]"},
			{"a.", "a.c.d", "[]"},
			{"a.", "b", "[]"},
			{"z", "", "[]"},
		} {
			got := []string{}
			must(t, s.Subjects(1, c.prefix, c.after, func(subject string, stat record.SubjectStat) bool {
				if stat.Count != uint64(len(subject)) {
					t.Errorf("%q has %+v", subject, stat)
				}
				got = append(got, subject)
				return true
			}))
			if fmt.Sprint(got) != c.want {
				t.Errorf("subjects %q after %q: %v, want %s", c.prefix, c.after, got, c.want)
			}
		}
		if stat, ok, err := s.SubjectStat(1, "a.c"); stat.Count != 3 || !ok || err != nil {
			t.Errorf("%+v %v %v", stat, ok, err)
		}
		if _, ok, err := s.SubjectStat(1, "a.z"); ok || err != nil {
			t.Error("a subject of another stream")
		}
	})
	t.Run("dedup", func(t *testing.T) {
		var got []DedupRow
		must(t, s.DedupUntil(1, math.MinInt64, 20, func(row DedupRow) bool {
			got = append(got, row)
			return true
		}))
		want := []DedupRow{{ID: "early", Seq: 1, Time: -10}, {ID: "mid", Seq: 2, Time: 20}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		last := DedupRow{ID: "late", Seq: 3, Time: 30}
		if row, ok, err := s.Dedup(1, "late"); row != last || !ok || err != nil {
			t.Errorf("%+v %v %v", row, ok, err)
		}
		if _, ok, err := s.Dedup(2, "late"); ok || err != nil {
			t.Error("an id of another stream")
		}
		must(t, s.DedupUntil(1, 2, 1, func(row DedupRow) bool {
			t.Errorf("an empty range has %+v", row)
			return true
		}))
	})
	t.Run("stream and consumer", func(t *testing.T) {
		if row, err := s.Stream(1); string(row.Description) != "one" || err != nil {
			t.Errorf("%+v %v", row, err)
		}
		if _, err := s.Stream(2); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("stream without rows: %v", err)
		}
		row, err := s.Consumer(1, 4)
		if string(row.Description) != "four" || row.State.Next != 8 || row.ID != 4 || err != nil {
			t.Errorf("%+v %v", row, err)
		}
		if _, err := s.Consumer(1, 5); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("consumer without rows: %v", err)
		}
		var seqs []uint64
		must(t, s.Pendings(1, 4, 4, func(p record.Pending) bool { seqs = append(seqs, p.Seq); return true }))
		if fmt.Sprint(seqs) != "[5]" {
			t.Errorf("pending from 4: %v", seqs)
		}
		if p, ok, err := s.Pending(1, 4, 5); p.Count != 2 || !ok || err != nil {
			t.Errorf("%+v %v %v", p, ok, err)
		}
		if _, ok, err := s.Pending(1, 4, 4); ok || err != nil {
			t.Error("pending row of another sequence")
		}
	})
}

// TestReaderStop: a reader that has enough is not called again.
func TestReaderStop(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	commit(t, s, func(b *Batch) {
		for id := range record.StreamID(3) {
			b.PutStream(id, nil)
			b.PutStreamState(id, &record.StreamState{})
			b.PutConsumer(1, record.ConsumerID(id), nil)
			b.PutDue(uint64(id), 1, 1, 1)
			b.PutSweep(id, 1, nil)
			must(t, b.PutMessage(1, uint64(id)+1, serialized("a", 3)))
			b.PutMeta(record.MetaRow{Key: fmt.Sprint(id), Version: 1})
		}
	})
	calls := 0
	stop := func() bool { calls++; return false }
	for name, read := range map[string]func() error{
		"streams":   func() error { return s.Streams(func(StreamRow) bool { return stop() }) },
		"consumers": func() error { return s.Consumers(1, func(ConsumerRow) bool { return stop() }) },
		"due":       func() error { return s.Due(0, func(DueRow) bool { return stop() }) },
		"sweeps":    func() error { return s.Sweeps(func(SweepRow) bool { return stop() }) },
		"subjects":  func() error { return s.SubjectRows(1, "", 0, 9, func(string, uint64) bool { return stop() }) },
		"rows":      func() error { return s.ScanMeta("", func(record.MetaRow) bool { return stop() }) },
	} {
		calls = 0
		if err := read(); err != nil || calls != 1 {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
}

// TestScanIsConsistent: a scan sees the state as it was when it began.
func TestScanIsConsistent(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	commit(t, s, func(b *Batch) {
		for seq := range uint64(10) {
			must(t, b.PutMessage(1, seq, serialized("a", 1)))
		}
	})
	n := 0
	must(t, s.ScanKeys(1, 0, func(seq uint64) bool {
		if n++; seq == 0 {
			commit(t, s, func(b *Batch) { b.DeleteMessages(1, 0, 100) })
			must(t, s.Flush())
		}
		return true
	}))
	if n != 10 {
		t.Errorf("scan saw %d of 10 messages", n)
	}
	must(t, s.ScanKeys(1, 0, func(uint64) bool { t.Error("a deleted message"); return false }))
}

// TestStartCost: what a reader pays to start at the first live message does not
// grow with what was deleted before it, however it was deleted.
func TestStartCost(t *testing.T) {
	t.Parallel()
	cost := func(n uint64, points bool, from uint64) int {
		s := openStore(t, Config{FS: vfs.NewMem(), Dir: testDir, MemTableSize: 1 << 20})
		const chunk = 1000
		for at := uint64(0); at < n+100; at += chunk {
			commit(t, s, func(b *Batch) {
				for seq := at; seq < at+chunk; seq++ {
					must(t, b.PutMessage(1, seq, serialized("a", 64)))
				}
			})
		}
		for at := uint64(0); at < n; at += chunk {
			commit(t, s, func(b *Batch) {
				if !points {
					b.DeleteMessages(1, at, at+chunk-1)
					return
				}
				for seq := at; seq < at+chunk; seq++ {
					b.DeleteMessage(1, seq)
				}
			})
		}
		steps := 0
		seen := false
		lower, upper := messageKey(nil, 1, from), []byte{prefixMessage + 1}
		must(t, s.scan(lower, upper, func(it *pebble.Iterator) (bool, error) {
			st := it.Stats()
			steps = st.ForwardStepCount[pebble.InternalIterCall]
			steps += st.ForwardSeekCount[pebble.InternalIterCall]
			seen = lastWord(it.Key()) == n
			return false, nil
		}))
		if !seen {
			t.Errorf("the first live message of %d is not found from %d", n, from)
		}
		return steps
	}
	many := uint64(thinned(100_000))
	for _, points := range []bool{false, true} {
		small, large := cost(1_000, points, 1_000), cost(many, points, many)
		if large > small+2 || large > 5 {
			t.Errorf("points %v: %d steps after 1,000 deleted, %d after %d", points, small, large, many)
		}
	}
	// The measure can fail: from the prefix, point tombstones are stepped over.
	if steps := cost(many, true, 0); steps < 1_000 {
		t.Errorf("starting at the prefix took %d steps: the measure is wrong", steps)
	}
}

func TestBatchMeta(t *testing.T) {
	t.Parallel()
	s := openStore(t, testConfig(vfs.NewMem()))
	author := record.NewProposalID(3, 4)
	commit(t, s, func(b *Batch) {
		b.PutMeta(record.MetaRow{Key: "a/1", Value: []byte("x"), Version: 5, Author: author})
		b.PutMeta(record.MetaRow{Key: "a/2", Value: []byte{}, Version: 5})
		b.PutMeta(record.MetaRow{Key: "b", Value: []byte("z"), Version: 5})
	})
	b := s.NewBatch()
	check := func(key string, want record.MetaRow) {
		t.Helper()
		got, err := b.Meta(key)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	check("a/1", record.MetaRow{Key: "a/1", Value: []byte("x"), Version: 5, Author: author})
	check("c", record.MetaRow{Key: "c"})
	b.DeleteMeta("a/1")
	b.PutMeta(record.MetaRow{Key: "c", Value: []byte("new"), Version: 6})
	check("a/1", record.MetaRow{Key: "a/1"})
	check("c", record.MetaRow{Key: "c", Value: []byte("new"), Version: 6})
	b.Reset()
	check("a/1", record.MetaRow{Key: "a/1", Value: []byte("x"), Version: 5, Author: author})
	var got []string
	must(t, s.ScanMeta("a/", func(row record.MetaRow) bool { got = append(got, row.Key); return true }))
	if fmt.Sprint(got) != "[a/1 a/2]" {
		t.Errorf("rows %v", got)
	}
}
