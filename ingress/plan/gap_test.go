package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestTailDropsEmptyEntries: at most so many entries for each message, but none that is
// not applied.
func TestTailDropsEmptyEntries(t *testing.T) {
	t.Parallel()
	const n = 2 * gapSlack
	for _, c := range []struct {
		applied, between, base uint64 // between: a message that stays beside the oldest and the newest
	}{
		{applied: n, between: gapSlack + gapFactor, base: gapSlack + gapFactor},
		{applied: n, between: 2, base: n},
		{applied: 700, between: 2, base: 701},
		{applied: 0, between: 2, base: 1},
	} {
		var tail Tail
		tail.Start(1)
		for seq := range uint64(n) {
			tail.Append(message(seq+1, 1))
		}
		for seq := uint64(2); seq < n; seq++ {
			if seq != c.between {
				tail.Drop(seq)
			}
		}
		before := tail.Bytes()
		freed := tail.Evict(before, c.applied)
		if tail.Base() != c.base || len(tail.msgs) != int(n+1-c.base) {
			t.Errorf("applied up to %d: %d entries from %d, want those from %d",
				c.applied, len(tail.msgs), tail.Base(), c.base)
		}
		if freed != before-tail.Bytes() {
			t.Errorf("freed %d bytes of %d, holds %d", freed, before, tail.Bytes())
		}
		if m, known := tail.Get(n); m == nil || !known {
			t.Error("the newest message is gone")
		}
	}
}

// TestTailCountsItsMessages: whatever leaves it, and however.
func TestTailCountsItsMessages(t *testing.T) {
	t.Parallel()
	var tail Tail
	tail.Start(1)
	for seq := range uint64(8) {
		tail.Append(message(seq+1, 1))
		tail.Append(nil)
	}
	for _, c := range []struct {
		what string
		do   func()
		live int
	}{
		{"as appended", func() {}, 8},
		{"one dropped, twice", func() { tail.Drop(3); tail.Drop(3); tail.Drop(4) }, 7},
		{"the end is cut", func() { tail.Cut(12) }, 5},
		{"one evicted", func() { tail.Evict(tail.Bytes()-1, 1) }, 4},
		{"started anew", func() { tail.Start(20) }, 0},
	} {
		if c.do(); tail.live != c.live {
			t.Errorf("%s: %d messages, want %d", c.what, tail.live, c.live)
		}
	}
}

// TestOldMessageDoesNotMakeJobsDearer: while a message stays, jobs of its subject come
// and go. Neither what is kept for it nor what an ack looks at grows with them.
func TestOldMessageDoesNotMakeJobsDearer(t *testing.T) {
	t.Parallel()
	const most = gapSlack + 4*gapFactor // at most four messages are there
	for _, under := range []uint64{1, 3} {
		w := newWorld(t, Config{})
		s := w.create()
		w.store("jobs", "old", "")
		for i := range uint64(10 * gapSlack) {
			w.store("jobs", "x", "")
			if seq := i + 2; seq%under == 0 { // what came since the last time goes, newest first
				w.do(func(p *Planner) uint64 {
					for n := range under {
						s.Remove(s.state.LastSeq - n)
					}
					return p.Tick()
				})
			}
			before := w.passed
			w.p.Flush()
			w.commitAll()
			if got := w.passed - before; got > most {
				t.Fatalf("up to %d, %d rows of the index were passed", s.state.LastSeq, got)
			}
			if n := len(s.tail.msgs); n > most {
				t.Fatalf("%d entries for %d messages at %d", n, s.applied.Messages, s.state.LastSeq)
			}
		}
	}
}

// TestGapEndsWithTheRebuild: a removal that came to nothing leaves no gap behind.
func TestGapEndsWithTheRebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := w.create()
	for range 3 {
		w.store("jobs", "x", "")
	}
	w.p.Flush()
	w.commitAll()
	s.tail.Evict(0, 3)
	remove := func(seqs ...uint64) {
		w.do(func(p *Planner) uint64 {
			for _, seq := range seqs {
				if w.rebuilt == 0 || len(seqs) == 1 {
					s.Remove(seq)
				}
			}
			return p.Tick()
		})
		w.p.Flush()
	}
	remove(2, 3) // not again after the rebuild
	if st := s.SubjectStat("jobs"); st.Last != 1 || s.passed.low != 1 {
		t.Fatalf("the last of the subject is %d, above it a gap from %d, want 1 twice", st.Last, s.passed.low)
	}
	w.refuse(record.ErrRefused)
	w.p.BarrierDone(nil)
	remove(3)
	if st := s.SubjectStat("jobs"); st.Count != 2 || st.Last != 2 {
		t.Errorf("the subject has %+v, want 2 messages, the last one 2", st)
	}
}

// TestPrevIsRight: however the newest and others of two subjects go, with and without
// the tail, the row of a subject names its last message.
func TestPrevIsRight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, Config{})
		s := w.create()
		live := map[uint64]string{}
		for range 300 {
			subject := []string{"a", "b"}[r.IntN(2)]
			if r.IntN(2) == 0 {
				_, seq := w.store(subject, "x", "")
				live[*seq] = subject
			} else if seq := 1 + r.Uint64N(s.state.LastSeq+1); live[seq] != "" {
				if r.IntN(2) == 0 {
					seq = s.SubjectStat(live[seq]).Last
				}
				w.do(func(p *Planner) uint64 { s.Remove(seq); return p.Tick() })
				delete(live, seq)
			}
			if r.IntN(4) == 0 {
				w.p.Flush()
				w.commitAll()
			}
			if r.IntN(8) == 0 {
				s.tail.Evict(0, s.applied.LastSeq)
			}
			want := map[string]uint64{}
			for seq, subject := range live {
				want[subject] = max(want[subject], seq)
			}
			for _, subject := range []string{"a", "b"} {
				if got := s.SubjectStat(subject).Last; got != want[subject] {
					t.Fatalf("seed %d: the last of %s is %d, want %d", seed, subject, got, want[subject])
				}
			}
		}
	}
}
