package jepsen

import (
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchTimeout bounds the search for an order of one register's operations.
const searchTimeout = 10 * time.Second

// What happens to a message of a queue.
type queueEvent int

const (
	put queueEvent = iota
	deliver
	settle
)

// Where a message of a queue is.
type queueState int

const (
	absent queueState = iota
	queued
	gone
)

// queueModel is one message of a work queue: it is put once, delivered while it is
// queued, and never after a settlement. A delivery happens between the pull that it
// answers and its arrival, which allows for copies that were on their way.
func queueModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return absent },
		Step: func(state, input, _ any) (bool, any) {
			at, _ := state.(queueState)
			switch e, _ := input.(queueEvent); e {
			case put:
				return at == absent, queued
			case deliver:
				return at == queued, queued
			case settle:
				return at != absent, gone
			default:
				return false, at
			}
		},
	}
}

// checkQueue looks for an order of events, message by message.
func checkQueue(h *History, f *Finding) {
	events := make(map[string][]porcupine.Operation)
	add := func(id string, e queueEvent, from, to Moment) {
		events[id] = append(events[id], porcupine.Operation{
			ClientId: len(events[id]), Input: e, Call: int64(from), Return: int64(to),
		})
	}
	for _, p := range h.Publishes {
		switch {
		case p.Stream != streamWork, p.Outcome == Refused:
		case p.Outcome == Acked:
			add(p.ID, put, p.Invoke, p.Return)
		default:
			add(p.ID, put, p.Invoke, Never)
		}
	}
	for _, d := range h.Deliveries {
		add(d.ID, deliver, d.Asked, d.At)
	}
	for _, s := range h.Settles {
		to := s.Return
		if !s.Confirmed {
			to = Never
		}
		add(s.ID, settle, s.Invoke, to)
	}
	model := queueModel()
	for _, id := range slices.Sorted(maps.Keys(events)) {
		if !porcupine.CheckOperations(model, events[id]) {
			f.add("%s: %d events", id, len(events[id]))
		}
	}
}

// registerModel is one subject whose state is its last sequence.
func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			at, _ := state.(uint64)
			switch op, _ := input.(RegisterOp); {
			case op.ID == "": // read
				return at == op.Seq, at
			case op.Outcome == Refused:
				return at == op.Seq && at != op.Expected, at
			default:
				return at == op.Expected, op.Seq
			}
		},
	}
}

// landed are the sequences of writes of registers, as the stream says at the end; false if nobody could read it.
func (h *History) landed() (map[string]uint64, bool) {
	landed, readable := make(map[string]uint64), false
	for _, r := range h.Reads {
		if r.Stream == streamReg {
			readable = true
			for _, e := range r.Entries {
				landed[e.ID] = e.Seq
			}
		}
	}
	return landed, readable
}

// checkRegisters looks for an order of operations, subject by subject. Writes of
// unknown outcome have one where the stream says so: what is not in it did not happen.
// If nobody could read it, nothing is said of subjects with such writes.
func checkRegisters(h *History, v *RegisterVerdict) {
	landed, readable := h.landed()
	bySubject, open := make(map[string][]porcupine.Operation), make(map[string]bool)
	for _, op := range h.Registers {
		v.Operations++
		if op.ID == "" {
			v.Reads++
		}
		to := op.Return
		open[op.Subject] = open[op.Subject] || op.Outcome == Unknown && !readable
		if op.Outcome == Unknown {
			seq, ok := landed[op.ID]
			if !ok {
				continue
			}
			op.Seq, to = seq, Never
		}
		list := bySubject[op.Subject]
		bySubject[op.Subject] = append(list, porcupine.Operation{
			ClientId: len(list), Input: op, Call: int64(op.Invoke), Return: int64(to),
		})
	}
	v.Subjects = len(bySubject)
	model := registerModel()
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		if open[subject] {
			v.Undetermined++
			continue
		}
		switch porcupine.CheckOperationsTimeout(model, bySubject[subject], searchTimeout) {
		case porcupine.Illegal:
			v.Nonlinear.add("%s: %d operations", subject, len(bySubject[subject]))
		case porcupine.Unknown:
			v.Undetermined++
		case porcupine.Ok:
		}
	}
}
