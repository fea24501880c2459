package storage

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func benchStore(b *testing.B) *Store {
	b.Helper()
	return openStore(b, Config{FS: vfs.NewMem(), Dir: testDir, MemTableSize: 16 << 20})
}

// BenchmarkApply is an apply of 1,024 messages of 128 bytes on eight subjects,
// with the counters row of each of 16 envelopes; time per message.
func BenchmarkApply(b *testing.B) {
	const n, envelope = 1024, 64
	subjects := make([][]byte, 8)
	for i := range subjects {
		subjects[i] = noiseFor(fmt.Sprintf("orders.%d.created", i))
	}
	for _, dedup := range []bool{false, true} {
		b.Run(fmt.Sprintf("dedup=%v", dedup), func(b *testing.B) {
			s := benchStore(b)
			batch := s.NewBatch()
			index, seq := uint64(0), uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				for k := range n {
					seq++
					must(b, batch.PutMessage(1, seq, subjects[k%len(subjects)]))
					if dedup {
						batch.PutDedup(1, fmt.Sprintf("%016x", seq*0x9e3779b97f4a7c15), seq, int64(seq))
					}
					if k%envelope == 0 {
						batch.PutStreamState(1, &record.StreamState{LastSeq: seq})
					}
				}
				index++
				batch.SetApplied(index, 1, record.Fence{Ordinal: index}, int64(index))
				must(b, batch.Commit())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
		})
	}
}

func noiseFor(subject string) []byte {
	r := newRNG(1)
	p := make([]byte, 128)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return record.AppendMessage(nil, &record.Message{Time: 1, Subject: subject, Payload: p})
}

// BenchmarkNext reads the first message from a cursor when all before it are deleted.
func BenchmarkNext(b *testing.B) {
	for _, deleted := range []uint64{0, 100_000} {
		b.Run(fmt.Sprintf("deleted=%d", deleted), func(b *testing.B) {
			s := benchStore(b)
			msg := noiseFor("a.b")
			for at := uint64(0); at < deleted+10_000; at += 1000 {
				commit(b, s, func(batch *Batch) {
					for k := range uint64(1000) {
						must(b, batch.PutMessage(1, at+k, msg))
					}
				})
			}
			for at := uint64(0); at < deleted; at += 1000 {
				commit(b, s, func(batch *Batch) { batch.DeleteMessages(1, at, at+999) })
			}
			b.Run("scan", func(b *testing.B) {
				for b.Loop() {
					must(b, s.Scan(1, deleted+5, func(uint64, []byte) bool { return false }))
				}
			})
			b.Run("subject", func(b *testing.B) {
				for b.Loop() {
					if _, ok, err := s.NextBySubject(1, "a.b", deleted+5); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
			})
			b.Run("get", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Message(1, deleted+5); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkDedup looks message ids up in 200,000 rows that were compacted down.
func BenchmarkDedup(b *testing.B) {
	s := benchStore(b)
	id := func(n uint64) string { return fmt.Sprintf("%016x", n*0x9e3779b97f4a7c15) }
	for at := uint64(0); at < 200_000; at += 1000 {
		commit(b, s, func(batch *Batch) {
			for k := range uint64(1000) {
				batch.PutDedup(1, id(at+k), at+k, int64(at))
			}
		})
	}
	must(b, s.Flush())
	must(b, s.h.db.Compact(b.Context(), []byte{prefixMeta}, []byte{0xff}, true))
	for name, from := range map[string]uint64{"hit": 0, "miss": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			n := from
			for b.Loop() {
				n++
				_, ok, err := s.Dedup(1, id(from+n%200_000))
				if err != nil || ok != (from == 0) {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
