package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestAnswersWaitForTheirEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	op, seq := w.store("a", "x", "")
	w.p.Flush()
	if op.done != 0 {
		t.Fatal("answered before the envelope is applied")
	}
	rests := w.do(func(p *Planner) uint64 { // a verdict on what is in flight
		s, _ := p.Open(1)
		return s.Rests()
	})
	if rests.done != 0 {
		t.Fatal("a verdict on a change in flight is answered before it is applied")
	}
	if told := w.p.Durable(w.p.Tick() - 1); len(told) != 2 || op.done != 0 || rests.done != 0 {
		t.Fatalf("told %d operations, done %d and %d: answered when the leader alone has it",
			len(told), op.done, rests.done)
	}
	w.commit()
	if op.done != 1 || rests.done != 1 || *seq != 1 {
		t.Fatalf("done %d and %d times, sequence %d; want 1, 1, 1", op.done, rests.done, *seq)
	}
	if late := w.do(func(p *Planner) uint64 {
		s, _ := p.Open(1)
		return s.Rests()
	}); late.done != 1 {
		t.Fatal("a verdict on applied state waits for something")
	}
	if w.p.Held() != 0 {
		t.Fatalf("%d bytes are held with nothing to answer", w.p.Held())
	}
}

func TestEnvelopesFormWhileOthersAreInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{InFlight: 2})
	w.create()
	for i := range 3 {
		w.store("a", fmt.Sprint(i), "")
		w.p.Flush()
	}
	if len(w.queue) != 2 {
		t.Fatalf("%d envelopes in flight, want 2", len(w.queue))
	}
	w.store("a", "3", "")
	w.commit()
	if len(w.queue) != 2 {
		t.Fatalf("%d envelopes in flight after one ended, want 2", len(w.queue))
	}
	w.commitAll()
	if got := w.states[1]; got.Messages != 4 || got.LastSeq != 4 {
		t.Fatalf("stored %+v, want 4 messages", got)
	}
}

func TestCapsOfAnEnvelope(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"messages": {InFlight: 1, MaxMessages: 3},
		"bytes":    {InFlight: 1, MaxBytes: 700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, cfg)
			w.create()
			for range 10 {
				w.store("a", string(make([]byte, 100)), "")
			}
			w.p.Flush()
			sizes := []int{}
			for len(w.queue) > 0 {
				before := len(w.msgs[1])
				w.commit()
				sizes = append(sizes, len(w.msgs[1])-before)
			}
			if slices.Max(sizes) > 5 || len(w.msgs[1]) != 10 || len(sizes) < 2 {
				t.Fatalf("envelopes of %v messages, want several of at most 5, 10 in all", sizes)
			}
		})
	}
}

func TestBudgetIsRefusedPastItsEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Budget: 100})
	if !w.p.Admit(100) {
		t.Fatal("the budget itself is refused")
	}
	if w.p.Admit(1) {
		t.Fatal("one byte past the budget is admitted")
	}
}

func TestRefusalThenAcceptanceCanNotPoison(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	a, seqA := w.store("a", "one", "")
	w.p.Flush()
	b, seqB := w.store("a", "two", "")
	w.p.Flush()
	w.refuse(fmt.Errorf("a transfer: %w", record.ErrRefused)) // the first is refused …
	c, seqC := w.store("a", "three", "")
	w.commit() // … and the second, planned on it, is committed: a no-op
	if w.barriers != 1 {
		t.Fatalf("%d barriers, want 1 after everything in flight ended", w.barriers)
	}
	if a.done+b.done+c.done != 0 {
		t.Fatal("something is answered although nothing was applied")
	}
	w.p.BarrierDone(nil)
	w.p.Flush()
	w.commitAll()
	if a.done != 1 || b.done != 1 || c.done != 1 {
		t.Fatalf("answers %d %d %d, want one each", a.done, b.done, c.done)
	}
	if *seqA != 1 || *seqB != 2 || *seqC != 3 {
		t.Fatalf("sequences %d %d %d, want arrival order 1 2 3", *seqA, *seqB, *seqC)
	}
	if w.fence.Epoch != 2 {
		t.Fatalf("epoch %d after a rebuild, want 2", w.fence.Epoch)
	}
	if len(w.failed) == 0 {
		t.Fatal("the listener was not told that envelopes failed")
	}
}

func TestBarrierFailureEndsThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	a, _ := w.store("a", "one", "")
	w.p.Flush()
	w.refuse(record.ErrRefused)
	w.p.BarrierDone(record.ErrNotLeader)
	if !errors.Is(w.p.Err(), record.ErrNotLeader) {
		t.Fatalf("Err = %v, want not leader", w.p.Err())
	}
	w.p.Stop()
	if fmt.Sprint(a.fails) != "[true]" {
		t.Fatalf("told %v, want one certain failure", a.fails)
	}
}

func TestStopTellsWhatIsCertain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{InFlight: 1})
	w.create()
	inFlight, _ := w.store("a", "one", "")
	w.p.Flush()
	forming, _ := w.store("a", "two", "")
	w.p.Stop()
	if fmt.Sprint(inFlight.fails, forming.fails) != "[false] [true]" {
		t.Fatalf("told %v and %v, want [false] (in flight) and [true] (never proposed)", inFlight.fails, forming.fails)
	}
	if w.p.Held() != 0 {
		t.Fatalf("%d bytes still held", w.p.Held())
	}
}

func TestUnknownOutcomeIsNeverPlannedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	a, _ := w.store("a", "one", "")
	w.p.Flush()
	w.refuse(record.ErrUnknownOutcome)
	if w.p.Err() == nil || fmt.Sprint(a.fails) != "[false]" || a.plans != 1 {
		t.Fatalf("Err %v, told %v, planned %d times", w.p.Err(), a.fails, a.plans)
	}
	w.p.Stop()
	if len(a.fails) != 1 {
		t.Fatalf("told %v, want once", a.fails)
	}
}

func TestExpiredOperationGetsOneAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	a, _ := w.store("a", "one", "")
	a.Arrived = 100
	w.p.Flush()
	w.p.Expire(100)
	if len(a.fails) != 0 {
		t.Fatal("expired at the edge: it arrived at, not before, the time")
	}
	w.p.Expire(101)
	w.p.Expire(102)
	if fmt.Sprint(a.fails) != "[false]" {
		t.Fatalf("told %v, want [false] once", a.fails)
	}
	w.commit()
	w.p.Stop()
	if len(a.fails) != 1 {
		t.Fatalf("told %v after it was applied, want nothing more", a.fails)
	}
}

// TestPlanAgainstADumbStream runs random changes, refusals and rebuilds, and
// compares the plan with a list of messages and the applied rows with the plan.
func TestPlanAgainstADumbStream(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t, Config{InFlight: 3, TailBytes: 2000})
	w.create()
	for step := range 4000 {
		w.now += int64(rng.IntN(1000))
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			w.store(string(rune('a'+rng.IntN(4))), fmt.Sprint(step), "")
		case 4, 5, 6:
			w.do(func(p *Planner) uint64 {
				s, _ := p.Open(1)
				st := s.State()
				if st.LastSeq == 0 || !s.Remove(st.FirstSeq+uint64(rng.IntN(int(st.LastSeq-st.FirstSeq+2)))) {
					return s.Rests()
				}
				return p.Tick()
			})
		case 7:
			if rng.IntN(40) == 0 {
				w.do(func(p *Planner) uint64 {
					s, _ := p.Open(1)
					s.PurgeAll()
					return p.Tick()
				})
			}
		case 8, 9:
			w.p.Flush()
		default:
			w.end(rng)
		}
		if w.p.Planning() {
			w.checkPlan(seed, step)
		}
	}
	w.p.Flush()
	for len(w.queue) > 0 || !w.p.Planning() {
		w.end(rng)
	}
	w.checkApplied(seed)
}

func (w *world) end(rng *rand.Rand) {
	w.t.Helper()
	if len(w.queue) > 0 {
		if rng.IntN(12) == 0 {
			w.refuse(record.ErrRefused)
		} else {
			w.commit()
		}
	}
	if w.barriers > 0 && len(w.queue) == 0 {
		w.barriers = 0
		w.p.BarrierDone(nil)
		w.p.Flush()
	}
}

// checkPlan compares the counters of the plan with its messages, one by one.
func (w *world) checkPlan(seed uint64, step int) {
	w.t.Helper()
	s, err := w.p.Open(1)
	if err != nil {
		w.t.Fatal(err)
	}
	st := s.State()
	var n, bytes, first uint64
	counts, last := map[string]uint64{}, map[string]uint64{}
	for seq := st.FirstSeq; seq <= st.LastSeq; seq++ {
		m := s.Planned(seq)
		if m == nil {
			continue
		}
		if first == 0 {
			first = seq
		}
		n++
		bytes += StoredSize(m.Subject, m.Header, m.Payload)
		counts[m.Subject]++
		last[m.Subject] = seq
	}
	if n == 0 {
		first = st.LastSeq + 1
	}
	if n != st.Messages || bytes != st.Bytes || first != st.FirstSeq || uint64(len(counts)) != st.Subjects {
		w.t.Fatalf("seed %d step %d: counters %+v, counted %d messages, %d bytes, first %d, %d subjects",
			seed, step, st, n, bytes, first, len(counts))
	}
	for _, subject := range []string{"a", "b", "c", "d"} {
		got := s.SubjectStat(subject)
		if got.Count != counts[subject] || got.Count > 0 && got.Last != last[subject] {
			w.t.Fatalf("seed %d step %d: %s is %+v, counted %d, last %d",
				seed, step, subject, got, counts[subject], last[subject])
		}
		firstOf := uint64(0)
		if got.Count > 0 {
			firstOf = s.FirstOf(subject, got.First)
		}
		if got.Count > 0 && (firstOf == 0 || s.Planned(firstOf).Subject != subject) {
			w.t.Fatalf("seed %d step %d: first of %s is %d", seed, step, subject, firstOf)
		}
	}
	if m := s.Next(1); (m == nil) != (n == 0) || m != nil && m.Seq != st.FirstSeq {
		w.t.Fatalf("seed %d step %d: Next(1) = %v, first is %d", seed, step, m, st.FirstSeq)
	}
}

func (w *world) checkApplied(seed uint64) {
	w.t.Helper()
	s, err := w.p.Open(1)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.State() != s.Applied() || s.Applied() != w.states[1] {
		w.t.Fatalf("seed %d: plan %+v, applied %+v, stored %+v", seed, s.State(), s.Applied(), w.states[1])
	}
	if got := uint64(len(w.msgs[1])); got != w.states[1].Messages {
		w.t.Fatalf("seed %d: %d message rows, counters say %d", seed, got, w.states[1].Messages)
	}
	if s.AppliedCount(1, nil) != w.states[1].Messages {
		w.t.Fatalf("seed %d: AppliedCount %d, want %d", seed, s.AppliedCount(1, nil), w.states[1].Messages)
	}
	for _, row := range s.AppliedSubjects(">") {
		n := uint64(0)
		for seq := range w.msgs[1] {
			if m, _ := w.Message(1, seq); m.Subject == row.Subject {
				n++
			}
		}
		if n != row.Count || s.AppliedCount(1, []string{row.Subject}) != n {
			w.t.Fatalf("seed %d: subject %s counts %d, has %d", seed, row.Subject, row.Count, n)
		}
	}
}

func TestDedupIsPlannedAndTrimmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := w.create()
	w.store("a", "x", "id1")
	if seq, _, ok := s.Dedup("id1"); !ok || seq != 1 {
		t.Fatalf("id in flight: %d, %v, want 1", seq, ok)
	}
	w.p.Flush()
	w.commitAll()
	w.now += 100
	w.store("a", "y", "id2")
	w.p.Flush()
	w.commitAll()
	_, at, _ := s.Dedup("id1")
	w.do(func(p *Planner) uint64 {
		if n, next := s.TrimDedup(at, 10); n != 1 || next <= at {
			t.Errorf("trimmed %d and %d is next, want 1 and the time of id2", n, next)
		}
		return p.Tick()
	})
	if _, _, ok := s.Dedup("id1"); ok {
		t.Fatal("a trimmed id is still a duplicate")
	}
	w.p.Flush()
	w.commitAll()
	if _, _, ok := s.Dedup("id1"); ok || len(w.ids2[1]) != 1 {
		t.Fatalf("id1 known: %v, %d rows left, want id2 alone", ok, len(w.ids2[1]))
	}
}

func TestAMessageIDCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := w.create()
	w.store("a", "x", "id")
	w.p.Flush()
	w.commitAll()
	_, first, _ := s.Dedup("id")
	w.now += 1000
	w.do(func(p *Planner) uint64 {
		s.Store("a", nil, []byte("y"), "id")
		return p.Tick()
	})
	w.p.Flush()
	w.commitAll()
	seq, at, ok := s.Dedup("id")
	if !ok || seq != 2 || at == first {
		t.Fatalf("the id is %d at %d, known: %v; want the second message", seq, at, ok)
	}
	w.do(func(p *Planner) uint64 { // the first use leaves its window: the second must stay
		s.TrimDedup(first, 10)
		return p.Tick()
	})
	w.p.Flush()
	w.commitAll()
	if _, _, ok := s.Dedup("id"); !ok {
		t.Fatal("trimming the first use forgot the second")
	}
}
