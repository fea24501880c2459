package deliver

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Source is the applied state of the stream that a consumer reads: what it does
// not hold at or below Last has left the stream for good. Messages that it returns must stay
// unchanged until the actions of the call are done with.
type Source interface {
	// Next returns the first message at or above from that matches one of the
	// filters (none = every message). Without one it returns nil and the
	// sequence below which it has looked: above Last it is the end of the
	// stream, otherwise the search went on for long enough and is continued by
	// another call. It never returns a next below from.
	Next(from uint64, filters []string) (m *record.Message, next uint64)
	// Message returns the message of a sequence.
	Message(seq uint64) (*record.Message, bool)
	// LastOf returns the highest sequence at or below upTo that holds a message of exactly this subject.
	LastOf(subject string, upTo uint64) (uint64, bool)
	// First and Last are the stream's first and last sequence; First is Last+1 when it is empty.
	First() uint64
	Last() uint64
}

// Interest says whether somebody listens on a reply subject. since is when the
// request that named it came: interest may travel slower than the request, so
// the owner says yes while a request is young.
type Interest func(reply string, since int64) bool

// Positions answers where a new consumer starts, over applied state.
type Positions interface {
	First() uint64
	Last() uint64
	// LastMatch returns the sequence of the last message that matches one of the filters.
	LastMatch(filters []string) (uint64, bool)
	// FirstMatch returns the sequence of the first message that matches one of the filters.
	FirstMatch(filters []string) (uint64, bool)
	// LowestLast returns, of the last messages of all subjects that match, the lowest sequence.
	LowestLast(filters []string) (uint64, bool)
	// AtTime returns the first sequence with a message at or after a time, in nanoseconds.
	AtTime(t int64) (uint64, bool)
}

// Start is what a new consumer's configuration says about its start.
type Start struct {
	Policy  jsapi.DeliverPolicy
	Seq     uint64 // by_start_sequence
	Time    int64  // by_start_time, nanoseconds
	Filters []string
	// OnePerSubject: the stream keeps one message per subject, so that
	// last_per_subject is all.
	OnePerSubject bool
}

// Begin returns the cursor of a new consumer.
//
//	all                first sequence
//	last               last match, else first sequence: nothing there matches
//	new                last sequence + 1
//	by_start_sequence  that sequence, not below the first; it may be in the future
//	by_start_time      first message at or after the time, else new; if nothing before it matches and something
//	                   between it and the last sequence does, the first of that
//	last_per_subject   last sequence if nothing matches, else lowest of the last messages of the matching
//	                   subjects; up to the last sequence of now only messages that are the last of their
//	                   subject there are delivered
func Begin(p Positions, s Start) record.ConsumerState {
	var st record.ConsumerState
	first, last := p.First(), p.Last()
	next := last + 1
	found := func(seq uint64, ok bool) {
		if ok {
			next = seq
		}
	}
	switch s.Policy {
	case jsapi.DeliverLast:
		next = first
		found(p.LastMatch(s.Filters))
	case jsapi.DeliverByStartSequence:
		next = s.Seq
	case jsapi.DeliverByStartTime:
		found(p.AtTime(s.Time))
		if seq, ok := p.FirstMatch(s.Filters); ok && len(s.Filters) > 0 && seq > next && seq < last {
			next = seq
		}
	case jsapi.DeliverLastPerSubject:
		if s.OnePerSubject {
			next = first
			break
		}
		if seq, ok := p.LowestLast(s.Filters); ok {
			next, st.SkipTo = seq, last
		} else {
			next = last
		}
	case jsapi.DeliverNew:
	default:
		next = first
	}
	st.Next = max(next, first, 1)
	st.DeliveredStream = st.Next - 1
	st.AckFloorStream = st.Next - 1
	return st
}

// CountPending walks a source and counts the messages at or above the cursor that
// match the filters and, in the history of a last_per_subject consumer, are the last of
// their subject. Its cost is that of reading all of them; an owner that keeps counts does better.
func CountPending(src Source, st *record.ConsumerState, filters []string) uint64 {
	var n uint64
	for from := st.Next; from <= src.Last(); {
		m, next := src.Next(from, filters)
		if m == nil {
			from = max(next, from+1)
			continue
		}
		if inHistory(src, st.SkipTo, m.Seq, m.Subject) {
			n++
		}
		from = m.Seq + 1
	}
	return n
}

// inHistory says whether a message is delivered by a last_per_subject consumer
// whose history ends at skipTo.
func inHistory(src Source, skipTo, seq uint64, subject string) bool {
	if seq > skipTo {
		return true
	}
	last, ok := src.LastOf(subject, skipTo)
	return ok && last == seq
}
