package jepsen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// Grace is how long after a confirmed ack a copy may still be read that was sent before it.
	Grace = time.Second
	// excuseAfter is how long after a pause or cut ends copies may come that it held up.
	excuseAfter = 2 * time.Second
	// leaseOver is how long after the begin of a pause or cut a node may still hold itself to be the leader.
	leaseOver = 2 * time.Second
	// examples is how many of its cases a finding names.
	examples = 5
)

// Finding is one kind of observation.
type Finding struct {
	Count    int      `json:"count"`
	Examples []string `json:"examples,omitempty"`
}

func (f *Finding) add(format string, args ...any) {
	f.Count++
	if len(f.Examples) < examples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// StreamVerdict is what became of the publishes to one stream.
type StreamVerdict struct {
	Stream    string `json:"stream"`
	Attempted int    `json:"attempted"`
	Acked     int    `json:"acked"`
	Unknown   int    `json:"unknown"`
	Refused   int    `json:"refused"`
	// Read are the different messages that anybody read; Recovered those of them whose outcome was unknown.
	Read      int `json:"read"`
	Recovered int `json:"recovered"`

	// Lost were acked, and nobody could read them. Prefix, Middle and Postfix say where, seen
	// from their writers' other messages: before, between or after those that are there.
	Lost    Finding `json:"lost"`
	Prefix  int     `json:"prefix"`
	Middle  int     `json:"middle"`
	Postfix int     `json:"postfix"`
	// Unreadable are acked messages of a stream that no node could be read through.
	Unreadable int `json:"unreadable"`
	// LostBy are those that could not be read through one node, by node.
	LostBy map[string]int `json:"lost_by,omitempty"`

	Unexpected Finding `json:"unexpected"` // read, and never attempted
	Stored     Finding `json:"stored"`     // refused, and read
	Duplicates Finding `json:"duplicates"` // one publish at two sequences
	Changed    Finding `json:"changed"`    // another sequence than the PubAck said, or two for one
	Disorder   Finding `json:"disorder"`   // published after the ack of one that has a higher sequence
	Rewound    Finding `json:"rewound"`    // read in another order than that of sequences
	Differs    Finding `json:"differs"`    // a sequence that holds something else on another node
}

// WorkVerdict is what became of deliveries and acks of the work queue.
type WorkVerdict struct {
	Deliveries  int `json:"deliveries"`
	Redelivered int `json:"redelivered"`
	Confirmed   int `json:"confirmed"`
	Unconfirmed int `json:"unconfirmed"`
	// AfterAck were delivered more than Grace after a double ack was confirmed. Excused are
	// those while a node was paused or cut off, or right after.
	AfterAck Finding `json:"after_ack"`
	Excused  Finding `json:"excused"`
	// LowCount are deliveries that count no more deliveries than an earlier one of the message.
	LowCount Finding `json:"low_count"`
	// Queue are messages whose deliveries and acks no order of events explains (queueModel).
	Queue   Finding `json:"queue"`
	Drained bool    `json:"drained"`
}

// RegisterVerdict is what became of the registers.
type RegisterVerdict struct {
	Operations int     `json:"operations"`
	Reads      int     `json:"reads"` // of the operations
	Subjects   int     `json:"subjects"`
	Nonlinear  Finding `json:"nonlinear"`
	// Lookups are answers to reads that wait for long, Late those after more than callTimeout. Stale show less than
	// was known before they were asked for, Invented what nobody had written.
	Lookups  int     `json:"lookups"`
	Late     int     `json:"late"`
	Stale    Finding `json:"stale"`
	Invented Finding `json:"invented"`
	// Undetermined are those whose search took too long, or that had writes of unknown outcome and were not read.
	Undetermined int `json:"undetermined"`
}

// Verdict is what a history shows.
type Verdict struct {
	Streams   []StreamVerdict `json:"streams"`
	Work      WorkVerdict     `json:"work"`
	Registers RegisterVerdict `json:"registers"`
	// Replicas are states that differ at the same applied index, or were not at one index. Absent are
	// those that nobody could ask for: states of which one is missing say nothing of it.
	Replicas Finding `json:"replicas"`
	Absent   Finding `json:"absent"`
	Unready  string  `json:"unready,omitempty"`
	// Misread are readers that could not be placed on their node.
	Misread Finding `json:"misread"`
}

// Check judges a history.
func Check(h *History) *Verdict {
	v := &Verdict{Unready: h.Unready}
	for _, stream := range streams() {
		v.Streams = append(v.Streams, checkStream(h, stream))
	}
	checkWork(h, &v.Work)
	checkRegisters(h, &v.Registers)
	checkLookups(h, &v.Registers)
	checkHashes(h.Hashes, &v.Replicas)
	checkAbsent(h.Hashes, h.Replicas, &v.Absent)
	for _, r := range h.Reads {
		if r.Leader != r.Node {
			v.Misread.add("%s was read through %s instead of %s", r.Stream, r.Leader, r.Node)
		}
	}
	return v
}

// Problem is something that must not be.
type Problem struct {
	What    string
	Finding Finding
}

// Problems are all that a system must not show that promises what Holdfast does. With a weaker ack level than quorum
// messages may be lost, and their sequences given to others; everything else holds all the same.
func (v *Verdict) Problems(k Kind) []Problem {
	var out []Problem
	must := func(what string, f Finding) {
		if f.Count > 0 {
			out = append(out, Problem{what, f})
		}
	}
	for _, s := range v.Streams {
		if s.Acked == 0 {
			must(s.Stream+": nothing was acked, so nothing was tested", Finding{Count: 1})
		}
		must(s.Stream+": acked, and the stream cannot be read", Finding{Count: s.Unreadable})
		for _, node := range slices.Sorted(maps.Keys(s.LostBy)) {
			must(s.Stream+": acked and not to be read through "+node, Finding{Count: s.LostBy[node]})
		}
		must(s.Stream+": read and never attempted", s.Unexpected)
		must(s.Stream+": refused and stored", s.Stored)
		must(s.Stream+": stored twice", s.Duplicates)
		must(s.Stream+": read out of order", s.Rewound)
		must(s.Stream+": differs between nodes", s.Differs)
		if k.level() != "" && s.Stream != streamReg { // registers are written at quorum
			continue
		}
		must(s.Stream+": acked and lost", s.Lost)
		must(s.Stream+": another sequence than acked", s.Changed)
		must(s.Stream+": sequences against the order of acks", s.Disorder)
	}
	if v.Work.Confirmed == 0 {
		must("no ack was confirmed, so none was tested", Finding{Count: 1})
	}
	if v.Registers.Reads == 0 {
		must("no register was read, so no read was tested", Finding{Count: 1})
	}
	must("delivered after a confirmed ack", v.Work.AfterAck)
	must("deliveries and acks that no queue explains", v.Work.Queue)
	if !v.Work.Drained {
		must("the work queue could not be drained", Finding{Count: 1})
	}
	must("registers that are not linearizable", v.Registers.Nonlinear)
	if v.Registers.Lookups == 0 {
		must("no patient read was answered, so none was tested", Finding{Count: 1})
	}
	must("reads that show less than was acked before them", v.Registers.Stale)
	must("reads that show what nobody had written", v.Registers.Invented)
	must("replicas differ", v.Replicas)
	must("replicas that could not be compared", v.Absent)
	if v.Unready != "" {
		must("the cluster did not come back", Finding{Count: 1, Examples: []string{v.Unready}})
	}
	return out
}

// checkStream judges the publishes of a stream against what was read of it, or
// delivered, if it is the work queue.
func checkStream(h *History, stream string) StreamVerdict {
	v := StreamVerdict{Stream: stream, LostBy: map[string]int{}}
	byNode, sequences := observed(h, stream, &v)
	all := make(map[string]bool)
	for _, ids := range byNode {
		maps.Copy(all, ids)
	}
	v.Read = len(all)
	attempted := make(map[string]bool)
	var acked []Publish
	for _, p := range h.Publishes {
		if p.Stream != stream {
			continue
		}
		attempted[p.ID] = true
		v.Attempted++
		switch p.Outcome {
		case Acked:
			acked = append(acked, p)
		case Unknown:
			v.Unknown++
			if all[p.ID] {
				v.Recovered++
			}
		case Refused:
			v.Refused++
			if all[p.ID] {
				v.Stored.add("%s, refused with %q", p.ID, p.Error)
			}
		}
	}
	v.Acked = len(acked)
	for id := range all {
		if !attempted[id] {
			v.Unexpected.add("%q", id)
		}
	}
	if len(byNode) == 0 {
		v.Unreadable = v.Acked
		return v
	}
	v.lost(acked, all, byNode)
	v.sequences(acked, sequences)
	return v
}

// observed collects who read what: ids by node, and the sequences of each id.
func observed(h *History, stream string, v *StreamVerdict) (map[string]map[string]bool, map[string][]uint64) {
	byNode := make(map[string]map[string]bool)
	sequences := make(map[string][]uint64)
	holder := make(map[uint64]string)
	note := func(node string, e Entry) {
		if byNode[node] == nil {
			byNode[node] = make(map[string]bool)
		}
		byNode[node][e.ID] = true
		if !slices.Contains(sequences[e.ID], e.Seq) {
			sequences[e.ID] = append(sequences[e.ID], e.Seq)
		}
		if was, ok := holder[e.Seq]; ok && was != e.ID {
			v.Differs.add("sequence %d holds %s and %s", e.Seq, was, e.ID)
		}
		holder[e.Seq] = e.ID
	}
	if stream == streamWork {
		byNode[""] = make(map[string]bool)
		for _, d := range h.Deliveries {
			note("", Entry{Seq: d.Seq, ID: d.ID})
		}
		return byNode, sequences
	}
	for _, r := range h.Reads {
		if r.Stream != stream {
			continue
		}
		byNode[r.Node] = make(map[string]bool)
		last := uint64(0)
		for _, e := range r.Entries {
			if e.Seq <= last {
				v.Rewound.add("through %s: %d after %d", r.Node, e.Seq, last)
			}
			last = e.Seq
			note(r.Node, e)
		}
	}
	return byNode, sequences
}

// lost finds what was acked and is not there.
func (v *StreamVerdict) lost(acked []Publish, all map[string]bool, byNode map[string]map[string]bool) {
	type span struct{ first, last int }
	there := make(map[int]span) // of each writer's messages that are there
	for _, p := range acked {
		if !all[p.ID] {
			continue
		}
		s, ok := there[p.Writer]
		if !ok {
			s = span{p.Counter, p.Counter}
		}
		there[p.Writer] = span{min(s.first, p.Counter), max(s.last, p.Counter)}
	}
	for _, p := range acked {
		for node, ids := range byNode {
			if !ids[p.ID] && all[p.ID] {
				v.LostBy[node]++
			}
		}
		if all[p.ID] {
			continue
		}
		v.Lost.add("%s, acked as %d after %v", p.ID, p.Seq, p.Return.Round(time.Millisecond))
		switch s, ok := there[p.Writer]; {
		case !ok || p.Counter > s.last:
			v.Postfix++
		case p.Counter < s.first:
			v.Prefix++
		default:
			v.Middle++
		}
	}
}

// sequences compares the sequences of PubAcks with those read, and with each other.
func (v *StreamVerdict) sequences(acked []Publish, read map[string][]uint64) {
	for id, seqs := range read {
		if len(seqs) > 1 {
			v.Duplicates.add("%s at %v", id, seqs)
		}
	}
	given := make(map[uint64]string)
	for _, p := range acked {
		if seqs := read[p.ID]; len(seqs) > 0 && !slices.Contains(seqs, p.Seq) {
			v.Changed.add("%s was acked as %d and is %v", p.ID, p.Seq, seqs)
		}
		if was, twice := given[p.Seq]; twice {
			v.Changed.add("%s and %s were both acked as %d", was, p.ID, p.Seq)
		}
		given[p.Seq] = p.ID
	}
	sorted := slices.SortedFunc(slices.Values(acked), func(a, b Publish) int { return cmp.Compare(b.Seq, a.Seq) })
	earliest := Publish{Return: Never}
	for _, p := range sorted {
		if p.Invoke > earliest.Return && p.Seq < earliest.Seq {
			v.Disorder.add("%s was published after %s was acked, and has %d before %d", p.ID, earliest.ID, p.Seq,
				earliest.Seq)
		}
		if p.Return < earliest.Return {
			earliest = p
		}
	}
}

// checkWork judges deliveries by the acks that were confirmed before them.
func checkWork(h *History, v *WorkVerdict) {
	v.Drained = h.Drained
	confirmed := make(map[string]Moment)
	for _, s := range h.Settles {
		if !s.Confirmed {
			v.Unconfirmed++
			continue
		}
		v.Confirmed++
		if at, ok := confirmed[s.ID]; !ok || s.Return < at {
			confirmed[s.ID] = s.Return
		}
	}
	count := make(map[string]uint64)
	sorted := slices.SortedFunc(slices.Values(h.Deliveries), func(a, b Delivery) int { return cmp.Compare(a.At, b.At) })
	for _, d := range sorted {
		v.Deliveries++
		if before, again := count[d.ID]; again {
			v.Redelivered++
			if d.Count <= before {
				v.LowCount.add("%s: delivery %d after %d", d.ID, d.Count, before)
			}
		}
		count[d.ID] = max(count[d.ID], d.Count)
		at, ok := confirmed[d.ID]
		if !ok || d.At <= at+Grace {
			continue
		}
		f := &v.AfterAck
		if h.excused(d, at) {
			f = &v.Excused
		}
		f.add("%s came at %v, its ack was confirmed at %v", d.ID, d.At.Round(time.Millisecond), at.Round(time.Millisecond))
	}
	checkQueue(h, &v.Queue)
}

// excused says whether a pause or cut may have held up a copy that was sent before the ack was confirmed. The node that
// sent it led then: so it had the pull, and nobody had confirmed the ack, when it was held, or soon after.
func (h *History) excused(d Delivery, confirmed Moment) bool {
	held := func(by Moment) bool { return d.At >= by && d.Asked <= by+leaseOver && confirmed >= by-Grace }
	return slices.ContainsFunc(h.Excused, func(i Interval) bool {
		if d.At < i.Begin || d.At > i.End+excuseAfter {
			return false
		}
		within := func(m Moment) bool { return m >= i.Begin && m <= i.End && held(m) }
		return held(i.Begin) || slices.ContainsFunc(h.Held, within)
	})
}
