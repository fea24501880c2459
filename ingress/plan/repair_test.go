package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestIDUsedAgainAfterItsWindow: the row of an expired id goes before the new one
// comes, in the same envelope too; a trim afterwards must not find the old one.
func TestIDUsedAgainAfterItsWindow(t *testing.T) {
	t.Parallel()
	for name, trimFirst := range map[string]bool{"not trimmed yet": false, "trimmed in the same envelope": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Config{})
			s := w.create()
			w.store("a", "x", "id")
			w.p.Flush()
			w.commitAll()
			_, old, _ := s.Dedup("id")
			w.now += 1000
			if trimFirst {
				w.do(func(p *Planner) uint64 {
					s.TrimDedup(old, 10)
					return p.Tick()
				})
			}
			w.store("a", "y", "id")
			w.p.Flush()
			var order []string
			e, err := command.ParseEnvelope(w.queue[0].Entry)
			if err != nil {
				t.Fatal(err)
			}
			_ = e.Each(func(typ command.Type, body []byte) error {
				switch typ {
				case command.Index:
					_, dels, _ := command.ParseIndex(body)
					for _, d := range dels {
						order = append(order, fmt.Sprintf("delete %s@%d", d.Name, d.Time-uint64(old)))
					}
				case command.StoreBatch:
					order = append(order, "store")
				default:
				}
				return nil
			})
			if want := []string{"delete id@0", "store"}; !slices.Equal(order, want) {
				t.Fatalf("envelope %q, want %q", order, want)
			}
			w.commitAll()
			if seq, _, ok := s.Dedup("id"); !ok || seq != 2 {
				t.Fatalf("id is of %d, %v, want 2", seq, ok)
			}
		})
	}
}

func TestTrimTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := w.create()
	for i := range 5 {
		w.now += 100
		w.store("a", "x", fmt.Sprint("id", i))
	}
	w.p.Flush()
	w.commitAll()
	trim := func(until int64, limit int) (n int, next int64) {
		w.do(func(p *Planner) uint64 {
			n, next = s.TrimDedup(until, limit)
			return s.Rests()
		})
		w.p.Flush()
		w.commitAll()
		return n, next
	}
	_, at2, _ := s.Dedup("id2")
	_, at4, _ := s.Dedup("id4")
	if n, next := trim(at2, 2); n != 2 || next != at2 || !s.HasIDs() {
		t.Fatalf("trimmed %d, next %d, want the limit 2 and then the one at %d", n, next, at2)
	}
	if n, next := trim(at2, 2); n != 1 || next <= at2 || !s.HasIDs() {
		t.Fatalf("trimmed %d, next %d, want 1 and something later", n, next)
	}
	if n, next := trim(at4, 9); n != 2 || next != 0 || s.HasIDs() {
		t.Fatalf("trimmed %d, next %d, more %v, want the last 2", n, next, s.HasIDs())
	}
	w.store("a", "x", "new")
	if !s.HasIDs() {
		t.Fatal("a new id is not noticed")
	}
}

// TestNoLeaderAckBehindARefusedEnvelope: the second envelope is on the leader's
// disk and will be a no-op, so nothing of it may be called durable.
func TestNoLeaderAckBehindARefusedEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.create()
	a, _ := w.store("a", "one", "")
	w.p.Flush()
	first := w.p.Tick() - 1
	b, _ := w.store("a", "two", "")
	w.p.Flush()
	second := w.p.Tick() - 1
	if ops := w.p.Durable(second); len(ops) != 0 {
		t.Fatalf("%d operations durable, the first envelope is not", len(ops))
	}
	if ops := w.p.Durable(first); len(ops) != 2 || ops[0] != Op(a) || ops[1] != Op(b) {
		t.Fatalf("durable: %v, want both in order", ops)
	}
	if ops := w.p.Durable(second); len(ops) != 0 {
		t.Fatalf("%d operations told twice", len(ops))
	}
	w.commitAll()

	w.store("a", "three", "")
	w.p.Flush()
	w.store("a", "four", "")
	w.p.Flush()
	w.refuse(record.ErrRefused)
	if ops := w.p.Durable(w.p.Tick() - 1); len(ops) != 0 {
		t.Fatalf("%d operations durable behind a refused envelope", len(ops))
	}
}

func TestStreamBeingDeletedIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	s := w.create()
	w.do(func(p *Planner) uint64 {
		s.Delete()
		return p.Tick()
	})
	if _, err := w.p.Open(1); err == nil {
		t.Fatal("a stream whose deletion is planned can be opened: its rows would come back")
	}
}

func TestEnvelopesGoOnWhileThereIsSomethingToGather(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{InFlight: 3})
	w.create()
	left := 2
	w.gather = func(uint64) {
		if left > 0 {
			left--
			w.p.Builder().Sweep(&command.SweepStep{Stream: 1, Kind: 9})
		}
	}
	w.p.Flush()
	if left != 0 || len(w.queue) != 2 {
		t.Fatalf("%d envelopes, %d changes left, want 2 and 0", len(w.queue), left)
	}
}

// TestTailsOfAllStreamsAreBounded fills the tails of many streams.
func TestTailsOfAllStreamsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{TailBytes: 4000, TailsBytes: 10_000})
	const streams = 20
	for id := record.StreamID(1); id <= streams; id++ {
		w.do(func(p *Planner) uint64 {
			s := p.Create(id, []byte("d"), 1)
			for range 4 {
				s.Store("a", nil, make([]byte, 500), "")
			}
			return p.Tick()
		})
		w.p.Flush()
		w.commitAll()
	}
	sum := 0
	for _, s := range w.p.streams {
		sum += s.tail.Bytes()
	}
	if sum > 10_000 || sum != w.p.tailBytes {
		t.Fatalf("tails hold %d bytes, counted as %d, at most 10,000", sum, w.p.tailBytes)
	}
	for id := record.StreamID(1); id <= streams; id++ {
		s, err := w.p.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq <= 4; seq++ {
			if m := s.Get(seq); m == nil || len(m.Payload) != 500 {
				t.Fatalf("stream %d: message %d is %v", id, seq, m)
			}
		}
		w.p.Forget(id)
	}
	if w.p.tailBytes != 0 || w.p.tails.Len() != 0 {
		t.Fatalf("%d bytes in %d tails of streams that are forgotten", w.p.tailBytes, w.p.tails.Len())
	}
}

// TestCountsWhileTheStoreIsAhead compares AppliedCount and AppliedLast with what
// was told, while the store already holds what is not told yet.
func TestCountsWhileTheStoreIsAhead(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t, Config{InFlight: 4, TailBytes: 600})
	s := w.create()
	told := map[uint64]string{} // the messages of the applied state
	var untold []command.Envelope
	filters := [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {">"}, {"*"}, {"none"}}
	for range 1500 {
		switch rng.IntN(8) {
		case 0, 1, 2:
			w.store(string(rune('a'+rng.IntN(3))), "payload", "")
		case 3:
			w.do(func(p *Planner) uint64 {
				if st := s.State(); st.Messages > 0 {
					s.Remove(st.FirstSeq + uint64(rng.IntN(int(st.LastSeq-st.FirstSeq+1))))
				}
				return s.Rests()
			})
		case 4:
			w.p.Flush()
		case 5, 6: // applied in the store, not told
			if len(w.queue) > 0 {
				p := w.take()
				e, err := command.ParseEnvelope(p.Entry)
				if err != nil {
					t.Fatal(err)
				}
				w.apply(&e)
				w.fence = e.Fence
				untold = append(untold, e)
				p.Done(nil)
			}
		default:
			if len(w.ended) > 0 {
				r := w.ended[0]
				w.ended = w.ended[1:]
				w.p.Ended(r)
				tell(t, told, &untold[0])
				untold = untold[1:]
			}
		}
		last := s.Applied().LastSeq
		from := uint64(1)
		if last > 0 {
			from += uint64(rng.IntN(int(last)))
		}
		for _, f := range filters {
			want, high := uint64(0), uint64(0)
			for seq, subject := range told {
				if len(f) == 0 || slices.ContainsFunc(f, func(x string) bool { return jsapi.SubjectMatches(x, subject) }) {
					if seq >= from {
						want++
					}
					high = max(high, seq)
				}
			}
			if got := s.AppliedCount(from, f); got != want {
				t.Fatalf("from %d of %d, filters %v: %d, want %d", from, last, f, got, want)
			}
			// What was removed since is found by neither; what was stored since must not hide the last.
			if len(f) == 1 {
				if got, ok := s.AppliedLast(f[0]); ok && got > last || got > high {
					t.Fatalf("last of %v is %d, the applied state ends at %d with %d", f, got, last, high)
				}
			}
		}
	}
}

// tell applies the messages of an envelope to a map of sequence to subject.
func tell(t *testing.T, told map[uint64]string, e *command.Envelope) {
	t.Helper()
	err := e.Each(func(typ command.Type, body []byte) error {
		switch typ {
		case command.StoreBatch:
			return command.EachItem(body, func(_ record.StreamID, it *command.Item) error {
				subject, err := record.MessageSubject(it.Body)
				told[it.Seq] = string(subject)
				return err
			})
		case command.DeleteBatch:
			d, err := command.ParseDeletes(body)
			for _, k := range d.Keys {
				delete(told, k.Seq)
			}
			for _, r := range d.Ranges {
				for seq := range told {
					if seq >= r.First && seq <= r.Last {
						delete(told, seq)
					}
				}
			}
			return err
		default:
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
