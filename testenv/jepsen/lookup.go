package jepsen

import (
	"cmp"
	"slices"
	"time"
)

// known is what a register held at some time.
type known struct {
	at   Moment // by then
	seq  uint64
	what string
}

// register is what clients that do not wait found out of one register.
type register struct {
	known  []known           // in order of time, each with the highest sequence up to then
	writes map[uint64]Moment // when the writes of sequences were invoked
	open   bool              // there are writes of which nobody can say what they did
}

// checkLookups judges answers to reads by themselves: the last sequence of a subject only grows, so a read shows no
// less than what was acked, or shown to somebody else, before it was invoked, and nothing that was not being
// written when it was answered. A search for an order, as of the other operations, would not end: a read that
// waits for a minute may come before or after everything else.
func checkLookups(h *History, v *RegisterVerdict) {
	all := h.registers()
	for _, l := range h.Lookups {
		v.Lookups++
		if l.Return-l.Invoke > callTimeout {
			v.Late++
		}
		r := all[l.Subject]
		if r == nil {
			r = &register{}
		}
		if floor, ok := r.before(l.Invoke); ok && l.Seq < floor.seq {
			v.Stale.add("%s through %s: asked at %v, answered at %v with %d; %s %d at %v", l.Subject, l.Node,
				l.Invoke.Round(time.Millisecond), l.Return.Round(time.Millisecond), l.Seq, floor.what, floor.seq,
				floor.at.Round(time.Millisecond))
		}
		if l.Seq == 0 || r.open {
			continue
		}
		if begun, ok := r.writes[l.Seq]; !ok || begun > l.Return {
			v.Invented.add("%s through %s: answered at %v with %d, which nobody had written", l.Subject, l.Node,
				l.Return.Round(time.Millisecond), l.Seq)
		}
	}
}

// before is the most that was known before a moment.
func (r *register) before(at Moment) (known, bool) {
	k, _ := slices.BinarySearchFunc(r.known, at, func(e known, at Moment) int { return cmp.Compare(e.at, at) })
	if k == 0 {
		return known{}, false
	}
	return r.known[k-1], true
}

// registers collects what is known of each register.
func (h *History) registers() map[string]*register {
	landed, readable := h.landed()
	out := make(map[string]*register)
	of := func(subject string) *register {
		if out[subject] == nil {
			out[subject] = &register{writes: make(map[uint64]Moment)}
		}
		return out[subject]
	}
	for _, op := range h.Registers {
		r := of(op.Subject)
		switch {
		case op.ID == "":
			r.known = append(r.known, known{op.Return, op.Seq, "a read had shown"})
		case op.Outcome == Refused:
			r.known = append(r.known, known{op.Return, op.Seq, "a refusal had shown"})
		case op.Outcome == Acked:
			r.known = append(r.known, known{op.Return, op.Seq, "acked was"})
			r.writes[op.Seq] = op.Invoke
		default:
			r.open = r.open || !readable
			if seq, ok := landed[op.ID]; ok {
				r.writes[seq] = op.Invoke
			}
		}
	}
	for _, l := range h.Lookups {
		r := of(l.Subject)
		r.known = append(r.known, known{l.Return, l.Seq, "another one had shown"})
	}
	for _, r := range out {
		slices.SortStableFunc(r.known, func(a, b known) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(r.known); i++ {
			if before := r.known[i-1]; before.seq > r.known[i].seq {
				r.known[i].seq, r.known[i].what = before.seq, before.what
			}
		}
	}
	return out
}
