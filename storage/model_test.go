package storage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Names that need the escape, the empty one, and ones that only differ in length.
var (
	modelSubjects = []string{"a", "a.b", "a\x00", "a\x00b", "a\x00\xff", "a\x01", "", "\xff\xff", "b"}
	modelIDs      = []string{"", "x", "x\x00", "x\x00\x01", "\xff"}
	modelStreams  = []record.StreamID{0, 1, 2, math.MaxUint32}
	modelSeqs     = []uint64{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, math.MaxUint64 - 1, math.MaxUint64,
	}
)

// model is a deliberately dumb state: text rows in a map, changed in the order
// the changes are made.
type model map[string]string

func (m model) set(key, val string)   { m[key] = val }
func (m model) delete(key string)     { delete(m, key) }
func (m model) lines() (out []string) { return sortedLines(m) }

func sortedLines(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+" = "+v)
	}
	slices.Sort(out)
	return out
}

func keyOfMessage(s record.StreamID, seq uint64) string { return fmt.Sprintf("message %d %d", s, seq) }

func keyOfSubject(s record.StreamID, subject string, seq uint64) string {
	return fmt.Sprintf("subject %d %q %d", s, subject, seq)
}

func keyOfPending(s record.StreamID, c record.ConsumerID, seq uint64) string {
	return fmt.Sprintf("pending %d %d %d", s, c, seq)
}

func keyOfDedupTime(s record.StreamID, t int64, id string) string {
	return fmt.Sprintf("deduptime %d %d %q", s, t, id)
}

// step makes one random change in both.
func step(r *rand.Rand, b *Batch, m model, n int) {
	stream := pick(r, modelStreams)
	consumer := record.ConsumerID(r.IntN(2)) * math.MaxUint32
	subject, seq, id := pick(r, modelSubjects), pick(r, modelSeqs), pick(r, modelIDs)
	first, last := seq, pick(r, modelSeqs)
	if first > last {
		first, last = last, first
	}
	time := int64(r.IntN(5) - 2)
	kind, key := uint8(r.IntN(3)), pick(r, modelIDs)
	switch r.IntN(26) {
	case 0, 1, 2, 3:
		msg := serialized(subject, n%3)
		if err := b.PutMessage(stream, seq, msg); err != nil {
			panic(err)
		}
		m.set(keyOfMessage(stream, seq), string(msg))
		m.set(keyOfSubject(stream, subject, seq), "")
	case 4:
		b.DeleteMessage(stream, seq)
		m.delete(keyOfMessage(stream, seq))
	case 5:
		b.DeleteMessages(stream, first, last)
		for _, q := range modelSeqs {
			if q >= first && q <= last {
				m.delete(keyOfMessage(stream, q))
			}
		}
	case 6, 7:
		b.DeleteSubject(stream, subject, seq)
		m.delete(keyOfSubject(stream, subject, seq))
	case 8:
		stat := record.SubjectStat{Count: uint64(n), First: first, Last: last}
		b.PutSubjectStat(stream, subject, stat)
		m.set(fmt.Sprintf("stat %d %q", stream, subject), fmt.Sprint(stat))
	case 9:
		b.DeleteSubjectStat(stream, subject)
		m.delete(fmt.Sprintf("stat %d %q", stream, subject))
	case 10, 11:
		b.PutDedup(stream, id, seq, time)
		m.set(fmt.Sprintf("dedup %d %q", stream, id), fmt.Sprint(seq, time))
		m.set(keyOfDedupTime(stream, time, id), fmt.Sprint(seq))
	case 12:
		b.DeleteDedup(stream, id, time)
		m.delete(fmt.Sprintf("dedup %d %q", stream, id))
		m.delete(keyOfDedupTime(stream, time, id))
	case 13:
		b.PutDue(uint64(n%7), stream, seq, kind)
		m.set(fmt.Sprintf("due %d %d %d", n%7, stream, seq), fmt.Sprint(kind))
	case 14:
		b.DeleteDue(uint64(n%7), stream, seq)
		m.delete(fmt.Sprintf("due %d %d %d", n%7, stream, seq))
	case 15:
		b.PutStream(stream, []byte(subject))
		m.set(fmt.Sprintf("stream %d description", stream), subject)
	case 16:
		st := record.StreamState{FirstSeq: first, LastSeq: last, Messages: uint64(n)}
		b.PutStreamState(stream, &st)
		m.set(fmt.Sprintf("stream %d state", stream), fmt.Sprint(st))
	case 17:
		if r.IntN(6) == 0 {
			b.DeleteStream(stream)
			m.deleteStream(stream)
		}
	case 18:
		b.PutConsumer(stream, consumer, []byte(id))
		m.set(fmt.Sprintf("consumer %d %d description", stream, consumer), id)
	case 19:
		st := record.ConsumerState{Next: seq, AckTime: int64(n)}
		b.PutConsumerState(stream, consumer, &st)
		m.set(fmt.Sprintf("consumer %d %d state", stream, consumer), fmt.Sprint(st))
	case 20:
		if r.IntN(3) == 0 {
			b.DeleteConsumer(stream, consumer)
			m.deleteConsumer(stream, consumer)
		}
	case 21, 22:
		p := record.Pending{Seq: seq, Count: uint32(n), Kind: record.PendingNak}
		b.PutPending(stream, consumer, &p)
		m.set(keyOfPending(stream, consumer, seq), fmt.Sprint(p))
	case 23:
		b.DeletePending(stream, consumer, seq)
		m.delete(keyOfPending(stream, consumer, seq))
		b.DeletePendings(stream, consumer, first, last)
		for _, q := range modelSeqs {
			if q >= first && q <= last {
				m.delete(keyOfPending(stream, consumer, q))
			}
		}
	case 24:
		if r.IntN(3) == 0 {
			b.DeleteSweep(stream, kind)
			m.delete(fmt.Sprintf("sweep %d %d", stream, kind))
			return
		}
		b.PutSweep(stream, kind, []byte(id))
		m.set(fmt.Sprintf("sweep %d %d", stream, kind), id)
	case 25:
		if r.IntN(3) == 0 {
			b.DeleteMeta(key)
			m.delete(fmt.Sprintf("row %q", key))
			return
		}
		row := record.MetaRow{
			Key: key, Value: []byte(subject), Version: uint64(n + 1), Author: record.NewProposalID(1, seq),
		}
		b.PutMeta(row)
		m.set(fmt.Sprintf("row %q", key), fmt.Sprintf("%q %d %x", row.Value, row.Version, row.Author))
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func (m model) deleteStream(stream record.StreamID) {
	for k := range m {
		var kind string
		var id record.StreamID
		if _, err := fmt.Sscan(k, &kind, &id); err == nil && id == stream && kind != "due" && kind != "row" {
			m.delete(k)
		}
	}
}

func (m model) deleteConsumer(stream record.StreamID, consumer record.ConsumerID) {
	for k := range m {
		var kind string
		var s record.StreamID
		var c record.ConsumerID
		_, err := fmt.Sscan(k, &kind, &s, &c)
		if err == nil && s == stream && c == consumer && (kind == "consumer" || kind == "pending") {
			m.delete(k)
		}
	}
}

// read reads everything back with the readers.
func read(tb testing.TB, s *Store) []string {
	tb.Helper()
	m := model{}
	must(tb, s.Streams(func(row StreamRow) bool {
		if row.Description != nil {
			m.set(fmt.Sprintf("stream %d description", row.ID), string(row.Description))
		}
		if row.State != (record.StreamState{}) {
			m.set(fmt.Sprintf("stream %d state", row.ID), fmt.Sprint(row.State))
		}
		return true
	}))
	for _, stream := range modelStreams {
		readStream(tb, s, m, stream)
	}
	must(tb, s.Due(0, func(d DueRow) bool {
		m.set(fmt.Sprintf("due %d %d %d", d.Bucket, d.Stream, d.Ticket), fmt.Sprint(d.Kind))
		return true
	}))
	must(tb, s.Sweeps(func(w SweepRow) bool {
		m.set(fmt.Sprintf("sweep %d %d", w.Stream, w.Kind), string(w.Cursor))
		return true
	}))
	must(tb, s.ScanMeta("", func(row record.MetaRow) bool {
		m.set(fmt.Sprintf("row %q", row.Key), fmt.Sprintf("%q %d %x", row.Value, row.Version, row.Author))
		return true
	}))
	return m.lines()
}

func readStream(tb testing.TB, s *Store, m model, stream record.StreamID) {
	tb.Helper()
	must(tb, s.Scan(stream, 0, func(seq uint64, b []byte) bool {
		m.set(keyOfMessage(stream, seq), string(b))
		return true
	}))
	var rows []subjectRow
	for _, subject := range slices.Sorted(slices.Values(modelSubjects)) {
		must(tb, s.ScanSubject(stream, subject, 0, func(seq uint64) bool {
			m.set(keyOfSubject(stream, subject, seq), "")
			rows = append(rows, subjectRow{subject, seq})
			return true
		}))
	}
	for _, below := range []uint64{0, 5, math.MaxUint64} {
		for _, from := range []subjectRow{{}, {"a.b", 4}, {"a\x00", 7}} {
			if diff := cmp.Diff(rowsBelow(rows, from, below), subjectRows(tb, s, stream, from, below)); diff != "" {
				tb.Errorf("rows of stream %d from %v below %d (-want +got):\n%s", stream, from, below, diff)
			}
		}
	}
	must(tb, s.Subjects(stream, "", "", func(subject string, stat record.SubjectStat) bool {
		m.set(fmt.Sprintf("stat %d %q", stream, subject), fmt.Sprint(stat))
		return true
	}))
	for _, id := range modelIDs {
		row, ok, err := s.Dedup(stream, id)
		must(tb, err)
		if ok {
			m.set(fmt.Sprintf("dedup %d %q", stream, id), fmt.Sprint(row.Seq, row.Time))
		}
	}
	must(tb, s.DedupUntil(stream, math.MinInt64, math.MaxInt64, func(row DedupRow) bool {
		m.set(keyOfDedupTime(stream, row.Time, row.ID), fmt.Sprint(row.Seq))
		return true
	}))
	must(tb, s.Consumers(stream, func(row ConsumerRow) bool {
		if row.Description != nil {
			m.set(fmt.Sprintf("consumer %d %d description", stream, row.ID), string(row.Description))
		}
		if row.State != (record.ConsumerState{}) {
			m.set(fmt.Sprintf("consumer %d %d state", stream, row.ID), fmt.Sprint(row.State))
		}
		return true
	}))
	for _, consumer := range []record.ConsumerID{0, math.MaxUint32} {
		must(tb, s.Pendings(stream, consumer, 0, func(p record.Pending) bool {
			m.set(keyOfPending(stream, consumer, p.Seq), fmt.Sprint(p))
			return true
		}))
	}
}

type subjectRow struct {
	Subject string
	Seq     uint64
}

// rowsBelow is what Store.SubjectRows gives, of all rows in order.
func rowsBelow(rows []subjectRow, from subjectRow, below uint64) (out []subjectRow) {
	behind := map[string]bool{}
	for _, r := range rows {
		if r.Subject < from.Subject || r.Subject == from.Subject && r.Seq < from.Seq || behind[r.Subject] {
			continue
		}
		out = append(out, r)
		behind[r.Subject] = r.Seq >= below
	}
	return out
}

func subjectRows(tb testing.TB, s *Store, stream record.StreamID, from subjectRow, below uint64) (out []subjectRow) {
	tb.Helper()
	must(tb, s.SubjectRows(stream, from.Subject, from.Seq, below, func(subject string, seq uint64) bool {
		out = append(out, subjectRow{subject, seq})
		return true
	}))
	return out
}

// TestBatchModel: whatever order a batch writes its changes in, the state is the
// one that they give in the order they were made.
func TestBatchModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(thinned(8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := newRNG(seed)
			s := openStore(t, testConfig(vfs.NewMem()))
			m, b := model{}, s.NewBatch()
			n := 0
			for index := uint64(1); index <= 60; index++ {
				for range r.IntN(120) {
					n++
					step(r, b, m, n)
				}
				b.SetApplied(index, 1, record.Fence{}, int64(index))
				must(t, b.Commit())
				if r.IntN(8) == 0 {
					must(t, s.Flush())
				}
				if diff := cmp.Diff(m.lines(), read(t, s)); diff != "" {
					t.Fatalf("after entry %d (-model +store):\n%s", index, diff)
				}
			}
		})
	}
}
