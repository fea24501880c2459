package plan

import (
	"testing"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func message(seq uint64, size int) *record.Message {
	return &record.Message{Seq: seq, Subject: "s", Payload: make([]byte, size)}
}

func TestTailKnowsWhatItHolds(t *testing.T) {
	t.Parallel()
	var tail Tail
	tail.Start(10)
	tail.Append(message(10, 100))
	tail.Append(nil)
	tail.Append(message(12, 100))
	for _, c := range []struct {
		seq       uint64
		has, know bool
	}{{9, false, false}, {10, true, true}, {11, false, true}, {12, true, true}, {13, false, false}} {
		m, known := tail.Get(c.seq)
		if (m != nil) != c.has || known != c.know {
			t.Errorf("Get(%d) = %v, %v, want a message: %v, known: %v", c.seq, m, known, c.has, c.know)
		}
	}
	want := 2 * tailSize(message(0, 100))
	if tail.Bytes() != want {
		t.Errorf("holds %d bytes, want %d", tail.Bytes(), want)
	}
	tail.Drop(10)
	tail.Drop(10)
	if m, known := tail.Get(10); m != nil || !known || tail.Bytes() != want/2 {
		t.Errorf("after Drop: %v, %v, %d bytes", m, known, tail.Bytes())
	}
}

func TestTailCutsTheEnd(t *testing.T) {
	t.Parallel()
	var tail Tail
	tail.Start(1)
	for seq := range uint64(5) {
		tail.Append(message(seq+1, 1))
	}
	tail.Cut(3)
	if _, known := tail.Get(4); known {
		t.Error("4 is known after a cut above 3")
	}
	if m, _ := tail.Get(3); m == nil {
		t.Error("3 is gone after a cut above 3")
	}
	tail.Append(message(4, 1))
	if m, _ := tail.Get(4); m == nil {
		t.Error("4 can not be appended after the cut")
	}
	tail.Cut(0)
	if tail.Base() != 1 || tail.Bytes() != 0 {
		t.Errorf("an emptied tail begins at %d with %d bytes, want 1 and 0", tail.Base(), tail.Bytes())
	}
}

func TestTailEvictsNothingThatIsNotApplied(t *testing.T) {
	t.Parallel()
	var tail Tail
	tail.Start(1)
	for seq := range uint64(10) {
		tail.Append(message(seq+1, 1000))
	}
	one := tailSize(message(0, 1000))
	if freed := tail.Evict(0, 4); freed != 4*one || tail.Base() != 5 {
		t.Errorf("evicted %d bytes up to %d, want %d up to 5", freed, tail.Base(), 4*one)
	}
	if tail.Evict(6*one, 10) != 0 {
		t.Error("evicted although the limit holds exactly what there is")
	}
	if freed := tail.Evict(6*one-1, 10); freed != one || tail.Base() != 6 {
		t.Errorf("evicted %d bytes up to %d one byte past the limit, want %d up to 6", freed, tail.Base(), one)
	}
	tail.Drop(6)
	if tail.Evict(100*one, 10); tail.Base() != 7 {
		t.Errorf("begins at %d, want 7: leading empty entries go", tail.Base())
	}
}

// TestStoredShowsWhatTheStoreHasLost: the store may have applied a removal before the
// message is told of; whoever counts it must see it, since it is told of the removal, too.
func TestStoredShowsWhatTheStoreHasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{TailBytes: 1, InFlight: 2})
	s := w.create()
	shown := 0
	w.stored = func(s *Stream) {
		if s.Applied().LastSeq == 1 && s.Get(1) != nil {
			shown++
		}
	}
	w.store("jobs", "x", "")
	w.p.Flush()
	w.do(func(p *Planner) uint64 { s.Remove(1); return p.Tick() })
	w.p.Flush()
	for _, p := range w.queue { // applied both before either is told
		e, err := command.ParseEnvelope(p.Entry)
		if err != nil {
			t.Fatal(err)
		}
		w.apply(&e)
	}
	for len(w.queue) > 0 {
		w.refuse(nil)
	}
	if shown != 1 || len(w.removed) != 1 {
		t.Errorf("shown %d times, removed %v, want both once", shown, w.removed)
	}
}
