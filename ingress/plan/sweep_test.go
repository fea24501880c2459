package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestCursors(t *testing.T) {
	t.Parallel()
	for _, c := range []SweepCursor{{}, {After: "a.b"}, {After: "a", Subject: "\xff.x", Seq: 1 << 63}} {
		got, err := ParseSweepCursor(c.Encode())
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", c, err, diff)
		}
	}
	if c, err := ParseSweepCursor(nil); err != nil || c != (SweepCursor{}) {
		t.Errorf("an empty one is %+v, %v, want the begin", c, err)
	}
	p := PurgeCursor{Filter: "a.*", From: 7, UpTo: 9, Purged: 3, Reply: "_INBOX.1", Deadline: 1 << 62}
	b := p.Encode()
	got, err := ParsePurgeCursor(b)
	if diff := cmp.Diff(p, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range b {
		if _, err := ParsePurgeCursor(b[:n]); !errors.Is(err, record.ErrFormat) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, err := ParsePurgeCursor(append(b, 0)); !errors.Is(err, record.ErrFormat) {
		t.Errorf("one byte more: %v", err)
	}
}

// TestLongCursorIsLeftOut: the row stands for the work all the same.
func TestLongCursorIsLeftOut(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{maxCursor: maxCursor, maxCursor + 1: 0} {
		w := newWorld(t, Config{})
		s := w.p.Create(1, []byte("{}"), 1)
		before := w.p.Builder().Size()
		s.PutSweep(SweepDead, []byte(strings.Repeat("x", size)))
		if got := w.p.Builder().Size() - before; got < want || got > want+64 {
			t.Errorf("a cursor of %d bytes takes %d", size, got)
		}
	}
}

func FuzzCursors(f *testing.F) {
	f.Add(SweepCursor{After: "a", Subject: "b", Seq: 3}.Encode())
	p := PurgeCursor{Filter: "a.*", From: 7, UpTo: 9, Purged: 3, Reply: "_INBOX.1", Deadline: 1}
	f.Add(p.Encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseSweepCursor(b); err == nil {
			if again, err := ParseSweepCursor(c.Encode()); err != nil || again != c {
				t.Fatalf("%+v is read as %+v, %v", c, again, err)
			}
		}
		if c, err := ParsePurgeCursor(b); err == nil {
			if again, err := ParsePurgeCursor(c.Encode()); err != nil || again != c {
				t.Fatalf("%+v is read as %+v, %v", c, again, err)
			}
		}
	})
}

func (w *world) stream() *Stream {
	w.t.Helper()
	s, err := w.p.Open(1)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) purge() *testOp {
	return w.do(func(p *Planner) uint64 {
		w.stream().PurgeAll()
		return p.Tick()
	})
}

func (w *world) remove(seq uint64) *testOp {
	return w.do(func(p *Planner) uint64 {
		w.stream().Remove(seq)
		return p.Tick()
	})
}

func (w *world) settle() {
	w.t.Helper()
	w.p.Flush()
	w.commitAll()
}

// wantNoDeadRows fails if the index has a row, or a subject counters, without a message.
func (w *world) wantNoDeadRows() {
	w.t.Helper()
	left := map[string]uint64{}
	for r := range w.index[1] {
		if w.msgs[1][r.seq] == nil {
			w.t.Errorf("%s has a row of %d, which is gone", r.subject, r.seq)
		}
		left[r.subject]++
	}
	counted := map[string]uint64{}
	for subject, st := range w.stats[1] {
		counted[subject] = st.Count
	}
	if diff := cmp.Diff(left, counted); diff != "" || len(w.index[1]) != len(w.msgs[1]) || len(w.sweeps) != 0 {
		w.t.Errorf("%d rows of %d messages, sweeps %v, counters (-rows +counted):\n%s",
			len(w.index[1]), len(w.msgs[1]), w.sweeps, diff)
	}
}

// sweeper goes on with sweeps in the way of their owner: the last one that began counts.
type sweeper struct {
	w     *world
	limit SweepLimit
	run   int
	steps int
}

type sweepOp struct {
	OpBase
	z    *sweeper
	run  int
	at   SweepCursor
	next SweepCursor
	more bool
}

func (z *sweeper) begin(at SweepCursor) {
	z.run++
	z.w.p.Submit(&sweepOp{z: z, run: z.run, at: at})
}

func (z *sweeper) look(s *Stream) {
	if s.TakeDead() {
		z.begin(SweepCursor{})
	}
}

func (o *sweepOp) Base() *OpBase { return &o.OpBase }

func (o *sweepOp) Plan(*Planner) uint64 {
	if o.more = false; o.run != o.z.run {
		return 0
	}
	s := o.z.w.stream()
	o.next, o.more = s.Sweep(o.at, o.z.limit)
	o.z.steps++
	return s.Rests()
}

func (o *sweepOp) Done(p *Planner) {
	if o.more {
		p.Submit(&sweepOp{z: o.z, run: o.run, at: o.next})
	}
}

func (o *sweepOp) Fail(bool) {}

// TestSweepOfASubjectThatIsEmpty: it has no counters any more by which it would be found.
func TestSweepOfASubjectThatIsEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	for _, subject := range []string{"a", "b", "a", "c"} {
		w.store(subject, "x", "")
	}
	w.settle()
	w.purge()
	_, seq := w.store("a", "x", "")
	w.settle()
	w.remove(*seq)
	w.settle()
	z := &sweeper{w: w, limit: SweepLimit{100, 100}}
	z.look(w.stream())
	w.settle()
	w.wantNoDeadRows()
}

// TestSweepIsBounded: each step removes no more than it may, and looks at no more
// subjects that have nothing to remove.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dead, live     int
		limit          SweepLimit
		steps, entries int
	}{
		"dead rows and counters": {dead: 30, limit: SweepLimit{10, 100}, steps: 6, entries: 6},
		// A live subject is looked at twice: in the index, and its counters. A step that only looks is no entry.
		"live subjects": {dead: 1, live: 30, limit: SweepLimit{100, 10}, steps: 6, entries: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Config{})
			w.create()
			for i := range tc.dead {
				w.store(fmt.Sprintf("k.%03d", i), "x", "")
			}
			w.purge()
			for i := range tc.live {
				for range 3 {
					w.store(fmt.Sprintf("l.%03d", i), "x", "")
				}
			}
			w.settle()
			before := len(w.appliedT)
			z := &sweeper{w: w, limit: tc.limit}
			z.look(w.stream())
			w.settle()
			w.wantNoDeadRows()
			if got := len(w.appliedT) - before; z.steps != tc.steps || got != tc.entries {
				t.Errorf("%d steps in %d entries, want %d in %d", z.steps, got, tc.steps, tc.entries)
			}
		})
	}
}

// TestSweepOfAPurgeBeforeARebuild: the purge after it, which comes to nothing, does not
// take its sweep along.
func TestSweepOfAPurgeBeforeARebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	w.store("a", "x", "")
	w.settle()
	w.purge()
	w.p.Flush()
	taken := w.do(func(p *Planner) uint64 {
		if w.barriers == 0 {
			w.stream().Store("a", nil, nil, "")
		}
		return p.Tick()
	})
	w.purge()
	w.p.Flush()
	w.commit() // the first purge
	w.refuse(record.ErrRefused)
	w.p.BarrierDone(nil)
	w.settle()
	if taken.plans != 2 {
		t.Fatalf("planned %d times, want again after the rebuild", taken.plans)
	}
	z := &sweeper{w: w, limit: SweepLimit{100, 100}}
	z.look(w.stream())
	w.settle()
	w.wantNoDeadRows()
}

// TestSweepsAtRandom: whatever becomes of subjects, purges, plans and terms meanwhile,
// nothing of what was purged is left.
func TestSweepsAtRandom(t *testing.T) {
	t.Parallel()
	for range 200 {
		seed := rand.Uint64()
		w := newWorld(t, Config{})
		w.create()
		z := &sweeper{w: w}
		w.stored = z.look
		r := rand.New(rand.NewPCG(seed, 1))
		for range 150 {
			z.limit = SweepLimit{1 + r.IntN(3), 1 + r.IntN(3)}
			z.step(r)
		}
		for !w.p.Idle() {
			z.settle()
		}
		if z.w.wantNoDeadRows(); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (z *sweeper) step(r *rand.Rand) {
	w := z.w
	switch n := r.IntN(24); {
	case n < 8:
		w.store(string(rune('a'+r.IntN(5))), "x", "")
	case n < 13:
		if m := w.stream().Next(1 + r.Uint64N(w.stream().State().LastSeq+1)); m != nil {
			w.remove(m.Seq)
		}
	case n < 15:
		w.purge()
	case n < 19:
		w.p.Flush()
	case n < 22:
		w.p.Flush()
		if len(w.queue) > 0 {
			w.commit()
		}
	case n < 23 && len(w.queue) > 0:
		w.refuse(record.ErrRefused)
	case n == 23:
		w.queue, w.ended = nil, nil
		w.term++
		w.lead(Config{})
		if row, ok := w.sweeps[SweepDead]; ok {
			at, err := ParseSweepCursor(row)
			if err != nil {
				w.t.Fatal(err)
			}
			z.begin(at)
		}
	}
	z.rebuild()
}

// settle commits what is there, through a rebuild if one is under way.
func (z *sweeper) settle() {
	z.w.settle()
	z.rebuild()
	z.w.settle()
}

func (z *sweeper) rebuild() {
	if z.w.p.phase == barrier {
		z.w.p.BarrierDone(nil)
		z.look(z.w.stream())
	}
}
