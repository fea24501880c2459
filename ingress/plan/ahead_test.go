package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// reads counts how often the store is asked.
type reads struct {
	Store
	scans, gets int
}

func (r *reads) Scan(id record.StreamID, from uint64, f func(uint64, []byte) bool) error {
	r.scans++
	return r.Store.Scan(id, from, f)
}

func (r *reads) ScanSubject(id record.StreamID, subject string, from uint64, f func(uint64) bool) error {
	r.scans++
	return r.Store.ScanSubject(id, subject, from, f)
}

func (r *reads) Message(id record.StreamID, seq uint64) (record.Message, error) {
	r.gets++
	return r.Store.Message(id, seq)
}

// belowTail returns a stream of n messages of subjects a, b, c in turn, all of them below its tail.
func belowTail(t *testing.T, n int, cfg Config) (*world, *Stream, *reads) {
	t.Helper()
	cfg.TailBytes = 1
	w := newWorld(t, cfg)
	w.create()
	w.commitAll()
	for i := range n {
		w.store(string(rune('a'+i%3)), fmt.Sprint(i), "")
	}
	w.p.Flush()
	w.commitAll()
	s, err := w.p.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	if s.tail.Base() <= uint64(n)-1 {
		t.Fatalf("the tail begins at %d: nothing is read from the store", s.tail.Base())
	}
	count := &reads{Store: w}
	w.p.store = count
	return w, s, count
}

func TestReadingInOrderReadsAhead(t *testing.T) {
	t.Parallel()
	const n = 3000
	for _, c := range []struct {
		name    string
		filters []string
		want    int
	}{
		{"everything", nil, n},
		{"a wildcard", []string{"*"}, n},
		{"two subjects", []string{"a", "c"}, n * 2 / 3},
		{"one subject", []string{"b"}, n / 3},
		{"no message", []string{"x.>"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, s, count := belowTail(t, n, Config{})
			got := 0
			for from := uint64(1); from <= n; {
				m, next := s.Search(from, c.filters, 4096)
				if m != nil {
					got++
				}
				from = next
			}
			if got != c.want {
				t.Errorf("found %d messages, want %d", got, c.want)
			}
			if limit := 6 + c.want/maxStretch; count.scans > limit {
				t.Errorf("%d scans for %d messages, want at most %d", count.scans, c.want, limit)
			}
			count.gets = 0
			for seq := uint64(n - 100); seq < n; seq++ {
				s.Get(seq)
			}
			if c.want == n && count.gets != 0 {
				t.Errorf("%d reads for messages that were read ahead, want none", count.gets)
			}
		})
	}
}

func TestOneReadCostsOneMessage(t *testing.T) {
	t.Parallel()
	_, s, _ := belowTail(t, 1000, Config{})
	if m, _ := s.Search(500, nil, 4096); m == nil || m.Seq != 500 {
		t.Fatalf("found %v at 500", m)
	}
	if len(s.ahead) != 1 || len(s.ahead[0].msgs) != 1 {
		t.Errorf("one search keeps %d messages, want 1", len(s.ahead[0].msgs))
	}
}

func TestReadAheadIsBounded(t *testing.T) {
	t.Parallel()
	w, s, _ := belowTail(t, 3000, Config{AheadBytes: 40_000})
	check := func() {
		t.Helper()
		if w.p.aheadBytes > 40_000 {
			t.Fatalf("%d bytes are read ahead, the limit is 40000", w.p.aheadBytes)
		}
		sum := 0
		for _, r := range s.ahead {
			for _, m := range r.msgs {
				sum += tailSize(m)
			}
		}
		if sum != w.p.aheadBytes || w.p.ahead.Len() != len(s.ahead) {
			t.Fatalf("counted %d bytes in %d stretches, there are %d in %d",
				w.p.aheadBytes, w.p.ahead.Len(), sum, len(s.ahead))
		}
	}
	for from := uint64(1); from < 3000; {
		_, from = s.Search(from, nil, 4096)
		check()
	}
	for seq := uint64(1); seq < 3000; seq += 40 {
		s.Search(seq, nil, 4096)
		check()
		if len(s.ahead) > maxStretches {
			t.Fatalf("%d stretches, the limit is %d", len(s.ahead), maxStretches)
		}
	}
	w.p.Forget(1)
	if w.p.aheadBytes != 0 || w.p.ahead.Len() != 0 {
		t.Errorf("a forgotten stream keeps %d bytes in %d stretches", w.p.aheadBytes, w.p.ahead.Len())
	}
}

// Several readers go through a stream that loses messages at random: each search
// finds what is in the applied state at that moment.
func TestReadAheadAgainstADumbStream(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	const n = 1500
	w, s, _ := belowTail(t, n, Config{AheadBytes: 60_000})
	filters := [][]string{nil, {"a"}, {"b", "c"}, {">"}, {"x"}}
	cursors := make([]uint64, len(filters))
	for step := range 6_000 {
		switch rng.IntN(20) {
		case 0:
			w.do(func(p *Planner) uint64 {
				if !s.Remove(1 + rng.Uint64N(n)) {
					return s.Rests()
				}
				return p.Tick()
			})
		case 1:
			w.p.Flush()
			w.end(rng)
		case 2:
			cursors[rng.IntN(len(cursors))] = rng.Uint64N(n)
		default:
			i := rng.IntN(len(filters))
			m, next := s.Search(cursors[i], filters[i], 4096)
			want := w.search(max(cursors[i], s.applied.FirstSeq), filters[i])
			if got := seqOf(m); got != want {
				t.Fatalf("seed %d, step %d: the next of %q from %d is %d, want %d", seed, step, filters[i], cursors[i], got, want)
			}
			if got := s.Get(want); want != 0 && seqOf(got) != want {
				t.Fatalf("seed %d, step %d: message %d is not there", seed, step, want)
			}
			cursors[i] = next
			if next > n {
				cursors[i] = 0
			}
		}
	}
}

func seqOf(m *record.Message) uint64 {
	if m == nil {
		return 0
	}
	return m.Seq
}

// search is the first sequence of the store that matches, 0 if there is none.
func (w *world) search(from uint64, filters []string) uint64 {
	for _, seq := range w.sorted(1, from) {
		subject, _ := record.MessageSubject(w.msgs[1][seq])
		if len(filters) == 0 {
			return seq
		}
		for _, f := range filters {
			if jsapi.SubjectMatches(f, string(subject)) {
				return seq
			}
		}
	}
	return 0
}
