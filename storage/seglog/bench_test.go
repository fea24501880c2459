package seglog

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// benchLog is on the real disk: an append is worth what its sync costs.
func benchLog(b *testing.B, fs vfs.FS, tail int64) *Log {
	b.Helper()
	cfg := Config{FS: fs, Dir: b.TempDir() + "/log", TailBytes: tail}
	l, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

func BenchmarkAppend(b *testing.B) {
	for _, disk := range []string{"disk", "memory"} {
		for _, n := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%dx128B", disk, n), func(b *testing.B) {
				fs := vfs.Default
				if disk == "memory" {
					fs = vfs.NewMem()
				}
				l := benchLog(b, fs, 0)
				es := make([]Entry, n)
				data := make([]byte, 128)
				next := uint64(1)
				b.ReportAllocs()
				b.SetBytes(int64(n) * 128)
				for b.Loop() {
					for i := range es {
						es[i] = Entry{Index: next, Term: 1, Data: data}
						next++
					}
					if err := l.Append(es); err != nil {
						b.Fatal(err)
					}
					if l.Bytes() > 200<<20 {
						b.StopTimer()
						must(b, l.TruncatePrefix(next-10))
						b.StartTimer()
					}
				}
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	for name, tail := range map[string]int64{"tail": 1 << 30, "disk": -1} {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b, vfs.Default, tail)
			const count = 10000
			es := make([]Entry, count)
			for i := range es {
				es[i] = Entry{Index: uint64(i + 1), Term: 1, Data: make([]byte, 128)}
			}
			must(b, l.Append(es))
			i := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				var e Entry
				if err := l.Get(1+i%count, &e); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	cfg := Config{FS: vfs.Default, Dir: b.TempDir() + "/log"}
	l, err := Open(cfg)
	must(b, err)
	es := make([]Entry, 1024)
	for i := range es {
		es[i].Data = make([]byte, 1024)
	}
	for next := uint64(1); l.Bytes() < 100<<20; {
		for i := range es {
			es[i].Index = next
			next++
		}
		must(b, l.Append(es))
	}
	b.SetBytes(l.Bytes())
	must(b, l.Close())
	for b.Loop() {
		l, err := Open(cfg)
		must(b, err)
		must(b, l.Close())
	}
}

// TestAppendAllocations keeps the write path from allocating per entry.
func TestAppendAllocations(t *testing.T) {
	l, err := Open(Config{FS: vfs.NewMem(), Dir: "log", SyncPrepare: true, SegmentSize: 16 << 20})
	must(t, err)
	es := make([]Entry, 256)
	data := make([]byte, 64)
	next := uint64(1)
	got := testing.AllocsPerRun(200, func() {
		for i := range es {
			es[i] = Entry{Index: next, Term: 1, Data: data}
			next++
		}
		must(t, l.Append(es))
	})
	if got > 4 {
		t.Errorf("%.1f allocations for %d entries", got, len(es))
	}
	must(t, l.Close())
}
