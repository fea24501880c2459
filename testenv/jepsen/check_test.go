package jepsen

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// second makes histories readable.
const second = time.Second

// good is a small history in which nothing is wrong.
func good() *History {
	h := &History{Drained: true}
	for i := range 4 {
		h.Publishes = append(h.Publishes, published(streamLog, 0, i, uint64(i+1), Acked))
	}
	h.Publishes = append(h.Publishes,
		published(streamWork, 1, 0, 1, Acked), published(streamWork, 1, 1, 2, Acked),
		published(streamReg, 2, 0, 1, Acked),
	)
	for _, node := range []string{"n1", "n2", "n3"} {
		h.Reads = append(h.Reads,
			Reads{Node: node, Stream: streamLog, Leader: node, Entries: []Entry{{1, "0-0"}, {2, "0-1"}, {3, "0-2"}, {4, "0-3"}}},
			Reads{Node: node, Stream: streamReg, Leader: node, Entries: []Entry{{1, "2-0"}}})
		for group := range 2 {
			h.Replicas = append(h.Replicas, Replica{Node: node, Group: group})
			h.Hashes = append(h.Hashes, Hash{Node: node, Group: group, Index: 9, Rows: 3, Sum: "aa"})
		}
	}
	for i, id := range []string{"1-0", "1-1"} {
		at := time.Duration(10+i) * second
		h.Deliveries = append(h.Deliveries, Delivery{ID: id, Seq: uint64(i + 1), Count: 1, Asked: at - second, At: at})
		h.Settles = append(h.Settles, Settle{ID: id, Seq: uint64(i + 1), Invoke: at, Return: at + second/10, Confirmed: true})
	}
	h.Registers = append(h.Registers, RegisterOp{
		Subject: "reg.0.0", ID: "2-0", Invoke: 0, Return: second, Outcome: Acked, Seq: 1,
	}, RegisterOp{Subject: "reg.0.0", Invoke: 2 * second, Return: 3 * second, Outcome: Acked, Seq: 1})
	h.Lookups = append(h.Lookups, Lookup{Subject: "reg.0.0", Node: "n1", Invoke: 2 * second, Return: 20 * second, Seq: 1})
	return h
}

// published is a publish that took from second counter to half a second later.
func published(stream string, writer, counter int, seq uint64, o Outcome) Publish {
	at := time.Duration(counter) * second
	return Publish{
		ID: id(writer, counter), Stream: stream, Writer: writer, Counter: counter, Invoke: at, Return: at + second/2,
		Outcome: o, Seq: seq,
	}
}

func id(writer, counter int) string {
	return string(rune('0'+writer)) + "-" + string(rune('0'+counter))
}

// problems are names and counts, as lines.
func problems(v *Verdict, k Kind) []string {
	var out []string
	for _, p := range v.Problems(k) {
		out = append(out, p.What+": "+string(rune('0'+p.Finding.Count)))
	}
	return out
}

// TestCheckFindsEachViolation changes a good history in one way each.
func TestCheckFindsEachViolation(t *testing.T) {
	t.Parallel()
	drop := func(id string, from ...int) func(h *History) {
		return func(h *History) {
			for i := range h.Reads {
				if len(from) > 0 && h.Reads[i].Node != h.Reads[from[0]].Node {
					continue
				}
				var kept []Entry
				for _, e := range h.Reads[i].Entries {
					if e.ID != id {
						kept = append(kept, e)
					}
				}
				h.Reads[i].Entries = kept
			}
		}
	}
	everywhere := func(stream string, e Entry) func(h *History) {
		return func(h *History) {
			for i := range h.Reads {
				if h.Reads[i].Stream == stream {
					h.Reads[i].Entries = append(h.Reads[i].Entries, e)
				}
			}
		}
	}
	late := func(h *History, asked, at Moment) {
		h.Deliveries = append(h.Deliveries, Delivery{ID: "1-0", Seq: 1, Count: 2, Asked: asked, At: at})
	}
	tests := []struct {
		name   string
		change func(h *History)
		want   []string
	}{
		{"nothing", func(*History) {}, nil},
		{"lost", drop("0-1"), []string{"JEPSEN: acked and lost: 1"}},
		{"lost through one node", drop("0-3", 2), []string{"JEPSEN: acked and not to be read through n2: 1"}},
		{
			"lost work", func(h *History) { h.Deliveries, h.Settles = h.Deliveries[1:], h.Settles[1:] },
			[]string{"WORK: acked and lost: 1"},
		},
		{"unexpected", everywhere(streamLog, Entry{5, "7-7"}), []string{"JEPSEN: read and never attempted: 1"}},
		{"refused and stored", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamLog, 0, 4, 0, Refused))
			everywhere(streamLog, Entry{5, "0-4"})(h)
		}, []string{"JEPSEN: refused and stored: 1"}},
		{"unknown and stored", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamLog, 0, 4, 0, Unknown))
			everywhere(streamLog, Entry{5, "0-4"})(h)
		}, nil},
		{"unknown and not stored", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamLog, 0, 4, 0, Unknown))
		}, nil},
		{"stored twice", everywhere(streamLog, Entry{5, "0-3"}), []string{"JEPSEN: stored twice: 1"}},
		{
			"another sequence", func(h *History) { h.Publishes[3].Seq = 7 },
			[]string{"JEPSEN: another sequence than acked: 1"},
		},
		{"one sequence for two", func(h *History) {
			h.Publishes[3].Seq = 3
			drop("0-3")(h)
		}, []string{"JEPSEN: acked and lost: 1", "JEPSEN: another sequence than acked: 1"}},
		{"sequences against time", func(h *History) {
			h.Publishes[0].Seq, h.Publishes[1].Seq = 2, 1
			for i := range h.Reads {
				if e := h.Reads[i].Entries; len(e) == 4 {
					e[0].ID, e[1].ID = e[1].ID, e[0].ID
				}
			}
		}, []string{"JEPSEN: sequences against the order of acks: 1"}},
		{"sequences of two at once", func(h *History) {
			h.Publishes[0].Seq, h.Publishes[1].Seq = 2, 1
			h.Publishes[0].Return = 5 * second
			for i := range h.Reads {
				if e := h.Reads[i].Entries; len(e) == 4 {
					e[0].ID, e[1].ID = e[1].ID, e[0].ID
				}
			}
		}, nil},
		{"read out of order", func(h *History) {
			e := h.Reads[0].Entries
			e[0], e[1] = e[1], e[0]
		}, []string{"JEPSEN: read out of order: 1"}},
		{"differs between nodes", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamLog, 0, 4, 0, Unknown))
			h.Reads[0].Entries[3].ID = "0-4"
			h.Publishes[3].Outcome = Unknown
		}, []string{"JEPSEN: differs between nodes: 1"}},
		{"delivered after a confirmed ack", func(h *History) { late(h, 12*second, 13*second) }, []string{
			"delivered after a confirmed ack: 1", "deliveries and acks that no queue explains: 1",
		}},
		{"a late copy on its way", func(h *History) { late(h, 10*second, 11*second) }, nil},
		{"a copy that took too long", func(h *History) { late(h, 10*second, 13*second) }, []string{
			"delivered after a confirmed ack: 1",
		}},
		{"a copy that a pause held up", func(h *History) {
			late(h, 10*second, 20*second)
			h.Excused = []Interval{{"pause", 9 * second, 18 * second}}
		}, nil},
		{"a copy long after a pause", func(h *History) {
			late(h, 10*second, 21*second)
			h.Excused = []Interval{{"pause", 9 * second, 18 * second}}
		}, []string{"delivered after a confirmed ack: 1"}},
		{"a copy for a pull that was sent when the node was held", func(h *History) {
			late(h, 10*second, 20*second)
			h.Excused = []Interval{{"pause", 7 * second, 18 * second}}
		}, []string{"delivered after a confirmed ack: 1"}},
		{"a copy from a node that was held later in the fault", func(h *History) {
			late(h, 10*second, 20*second)
			h.Excused, h.Held = []Interval{{"pause-kill", 5 * second, 18 * second}}, []Moment{5 * second, 9 * second}
		}, nil},
		{"a copy that came before the node was held", func(h *History) {
			late(h, 10*second, 12*second)
			h.Excused, h.Held = []Interval{{"pause-kill", 5 * second, 18 * second}}, []Moment{5 * second, 13 * second}
		}, []string{"delivered after a confirmed ack: 1"}},
		{"a copy of what was acked long before the pause", func(h *History) {
			late(h, 10*second, 20*second)
			h.Excused = []Interval{{"pause", 12 * second, 18 * second}}
		}, []string{"delivered after a confirmed ack: 1"}},
		{"a copy that two pauses explain only together", func(h *History) {
			late(h, 10*second, 20*second)
			h.Excused = []Interval{{"pause", 9 * second, 15 * second}, {"pause", 19 * second, 21 * second}}
		}, []string{"delivered after a confirmed ack: 1"}},
		{"delivered before it was published", func(h *History) {
			h.Deliveries[0].Asked, h.Deliveries[0].At = -2*second, -second
		}, []string{"deliveries and acks that no queue explains: 1"}},
		{"not drained", func(h *History) { h.Drained = false }, []string{"the work queue could not be drained: 1"}},
		{"a stale read", func(h *History) { h.Registers[1].Seq = 0 }, []string{"registers that are not linearizable: 1"}},
		{"a lost update", func(h *History) {
			h.Registers = append(h.Registers, RegisterOp{
				Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 0, Outcome: Acked, Seq: 2,
			})
		}, []string{"registers that are not linearizable: 1"}},
		{"a write refused without cause", func(h *History) {
			h.Registers = append(h.Registers, RegisterOp{
				Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 1, Outcome: Refused, Seq: 2,
			})
		}, []string{"registers that are not linearizable: 1"}},
		{"a write refused with cause", func(h *History) {
			h.Registers = append(h.Registers, RegisterOp{
				Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 0, Outcome: Refused, Seq: 1,
			})
		}, nil},
		{"an unknown write that shows later", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamReg, 2, 1, 0, Unknown))
			everywhere(streamReg, Entry{2, "2-1"})(h)
			h.Registers = append(h.Registers,
				RegisterOp{Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 1, Outcome: Unknown},
				RegisterOp{Subject: "reg.0.0", Invoke: 8 * second, Return: 9 * second, Outcome: Acked, Seq: 2})
		}, nil},
		{"a write that shows and goes again", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamReg, 2, 1, 0, Unknown))
			h.Registers = append(h.Registers,
				RegisterOp{Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 1, Outcome: Unknown},
				RegisterOp{Subject: "reg.0.0", Invoke: 8 * second, Return: 9 * second, Outcome: Acked, Seq: 2})
		}, []string{"registers that are not linearizable: 1"}},
		{"unreadable", func(h *History) {
			h.Reads = slices.DeleteFunc(h.Reads, func(r Reads) bool { return r.Stream == streamLog })
		}, []string{"JEPSEN: acked, and the stream cannot be read: 4"}},
		{"unreadable, with an unknown write that somebody saw", func(h *History) {
			h.Publishes = append(h.Publishes, published(streamReg, 2, 1, 0, Unknown))
			h.Reads = slices.DeleteFunc(h.Reads, func(r Reads) bool { return r.Stream == streamReg })
			h.Registers = append(h.Registers,
				RegisterOp{Subject: "reg.0.0", ID: "2-1", Invoke: 4 * second, Return: 5 * second, Expected: 1, Outcome: Unknown},
				RegisterOp{Subject: "reg.0.0", Invoke: 8 * second, Return: 9 * second, Outcome: Acked, Seq: 2})
		}, []string{"REG: acked, and the stream cannot be read: 1"}},
		{"unreadable, and not linearizable as far as is known", func(h *History) {
			h.Reads = slices.DeleteFunc(h.Reads, func(r Reads) bool { return r.Stream == streamReg })
			h.Registers[1].Seq = 0
		}, []string{"REG: acked, and the stream cannot be read: 1", "registers that are not linearizable: 1"}},
		{"gone", func(h *History) {
			for i := range h.Reads {
				h.Reads[i].Entries = nil
			}
		}, []string{"JEPSEN: acked and lost: 4", "REG: acked and lost: 1"}},
		{"other rows", func(h *History) { h.Hashes[3].Sum = "bb" }, []string{"replicas differ: 1"}},
		{"other index", func(h *History) { h.Hashes[4].Index = 8 }, []string{"replicas differ: 1"}},
		{"one replica less", func(h *History) { h.Hashes = h.Hashes[1:] }, []string{"replicas that could not be compared: 1"}},
		{"a node less", func(h *History) { h.Hashes = h.Hashes[:4] }, []string{"replicas that could not be compared: 2"}},
		{"a group less", func(h *History) {
			h.Hashes = slices.DeleteFunc(h.Hashes, func(s Hash) bool { return s.Group == 1 })
		}, []string{"replicas that could not be compared: 3"}},
		{"a group more, on one node only", func(h *History) {
			h.Hashes = append(h.Hashes, Hash{Node: "n2", Group: 2, Index: 1, Sum: "cc"})
		}, []string{"replicas that could not be compared: 2"}},
		{"no states at all", func(h *History) { h.Hashes = nil }, []string{"replicas that could not be compared: 6"}},
		{"no states where nobody tells any", func(h *History) { h.Hashes, h.Replicas = nil, nil }, nil},
		{"did not come back", func(h *History) { h.Unready = "n2 is down" }, []string{"the cluster did not come back: 1"}},
		{"no ack confirmed", func(h *History) {
			for i := range h.Settles {
				h.Settles[i].Confirmed = false
			}
		}, []string{"no ack was confirmed, so none was tested: 1"}},
		{"no register read", func(h *History) { h.Registers = h.Registers[:1] }, []string{
			"no register was read, so no read was tested: 1",
		}},
		{"no patient read answered", func(h *History) { h.Lookups = nil }, []string{
			"no patient read was answered, so none was tested: 1",
		}},
		{"a stale answer that comes late", func(h *History) { h.Lookups[0].Seq = 0 }, []string{
			"reads that show less than was acked before them: 1",
		}},
		{"an answer of what nobody wrote", func(h *History) { h.Lookups[0].Seq = 9 }, []string{
			"reads that show what nobody had written: 1",
		}},
		{"nothing acked", func(h *History) {
			h.Publishes[6].Outcome = Unknown
		}, []string{"REG: nothing was acked, so nothing was tested: 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			tt.change(h)
			if diff := cmp.Diff(tt.want, problems(Check(h), Holdfast)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			weak := slices.DeleteFunc(slices.Clone(tt.want), allowedBelowQuorum)
			for _, k := range []Kind{HoldfastLeader, HoldfastNone} {
				if diff := cmp.Diff(weak, problems(Check(h), k), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("problems of %s (-want +got):\n%s", k, diff)
				}
			}
		})
	}
}

// allowedBelowQuorum says whether a problem is none where writers ask for a weaker level. Registers are written at quorum
// in any case.
func allowedBelowQuorum(problem string) bool {
	if strings.HasPrefix(problem, streamReg) {
		return false
	}
	return slices.ContainsFunc([]string{"acked and lost", "another sequence", "against the order"}, func(s string) bool {
		return strings.Contains(problem, s)
	})
}

// TestLossIsPlaced says where in a writer's messages a loss is.
func TestLossIsPlaced(t *testing.T) {
	t.Parallel()
	h := good()
	for i := range h.Reads {
		if h.Reads[i].Stream == streamLog {
			h.Reads[i].Entries = []Entry{{2, "0-1"}}
		}
	}
	h.Publishes = append(h.Publishes, published(streamLog, 3, 0, 5, Acked)) // of whom nothing is there
	got := Check(h).Streams[0]
	if got.Lost.Count != 4 || got.Prefix != 1 || got.Middle != 0 || got.Postfix != 3 {
		t.Errorf("lost %d, prefix %d, middle %d, postfix %d; want 4, 1, 0, 3", got.Lost.Count, got.Prefix, got.Middle, got.Postfix)
	}
	h = good()
	for i := range h.Reads {
		if h.Reads[i].Stream == streamLog {
			h.Reads[i].Entries = []Entry{{1, "0-0"}, {4, "0-3"}}
		}
	}
	if got := Check(h).Streams[0]; got.Middle != 2 || got.Lost.Count != 2 {
		t.Errorf("middle %d of %d lost, want 2 of 2", got.Middle, got.Lost.Count)
	}
}

// TestCountsAreReported looks at what is counted and not judged.
func TestCountsAreReported(t *testing.T) {
	t.Parallel()
	h := good()
	h.Publishes = append(h.Publishes,
		published(streamLog, 0, 4, 0, Unknown), published(streamLog, 0, 5, 0, Unknown), published(streamLog, 0, 6, 0, Refused))
	h.Reads[0].Entries = append(h.Reads[0].Entries, Entry{5, "0-4"})
	h.Deliveries = append(h.Deliveries, Delivery{ID: "1-0", Seq: 1, Count: 1, Asked: 9 * second, At: 10*second + second/2})
	h.Settles = append(h.Settles, Settle{ID: "1-0", Seq: 1, Invoke: 11 * second, Return: 16 * second})
	v := Check(h)
	s := v.Streams[0]
	if s.Attempted != 7 || s.Acked != 4 || s.Unknown != 2 || s.Refused != 1 || s.Recovered != 1 || s.Read != 5 {
		t.Errorf("stream: %+v", s)
	}
	w := v.Work
	if w.Deliveries != 3 || w.Redelivered != 1 || w.LowCount.Count != 1 || w.Confirmed != 2 || w.Unconfirmed != 1 {
		t.Errorf("work: %+v", w)
	}
	if r := v.Registers; r.Operations != 2 || r.Subjects != 1 {
		t.Errorf("registers: %+v", r)
	}
	if p := problems(v, Holdfast); p != nil {
		t.Errorf("problems: %s", strings.Join(p, "; "))
	}
}
