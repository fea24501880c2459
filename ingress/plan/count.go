package plan

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// AppliedCount counts the applied messages at or above from that match one of the
// filters (none = all). Where counters tell, nothing else is read; otherwise it reads
// the sequences of the subjects that match and have some on both sides of from, or,
// without filters and with gaps, the sequences of the shorter side.
//
// The store may be ahead of the applied state, which moves when an outcome is told:
// what is in flight is therefore taken from the overlay, so that a removal told
// later was counted before.
func (s *Stream) AppliedCount(from uint64, filters []string) uint64 {
	st := &s.applied
	from = max(from, st.FirstSeq)
	switch {
	case from > st.LastSeq || st.Messages == 0:
		return 0
	case len(filters) > 0:
		return s.countMatches(from, filters)
	case from == st.FirstSeq:
		return st.Messages
	case st.Messages == st.LastSeq-st.FirstSeq+1:
		return st.LastSeq - from + 1
	}
	return s.countAll(from)
}

// countMemo is the last count without filters, for the next one above it: the
// consumers of a stream are loaded in the order of their cursors.
type countMemo struct {
	applied uint64 // tick that it was made after
	from, n uint64
}

func (s *Stream) countAll(from uint64) uint64 {
	st := &s.applied
	var n uint64
	switch memo := &s.counted; {
	case memo.applied == s.p.applied && memo.from >= st.FirstSeq && memo.from > 0 && memo.from <= from:
		n = memo.n - min(memo.n, s.countRange(memo.from, from))
	case from-st.FirstSeq < st.LastSeq-from:
		n = st.Messages - min(st.Messages, s.countRange(st.FirstSeq, from))
	default:
		n = s.countRange(from, st.LastSeq+1)
	}
	s.counted = countMemo{s.p.applied, from, n}
	return n
}

// countRange counts the applied messages from low to below high.
func (s *Stream) countRange(low, high uint64) uint64 {
	n := uint64(0)
	for seq := max(low, s.tail.Base()); seq < high; seq++ {
		if m, _ := s.tail.Get(seq); m != nil {
			n++
		}
	}
	end := min(high, s.tail.Base())
	if low >= end {
		return n
	}
	err := s.p.store.ScanKeys(s.ID, low, func(seq uint64) bool {
		if seq >= end {
			return false
		}
		if _, gone := s.deleted.Get(seq); !gone {
			n++
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	s.deleted.All(func(seq uint64, _ string) bool {
		if seq >= low && seq < end {
			n++
		}
		return true
	})
	return n
}

// countMatches counts the planned messages by the rows of their subjects, then takes
// back what is in flight.
func (s *Stream) countMatches(from uint64, filters []string) uint64 {
	n, seen := uint64(0), map[string]bool{}
	count := func(subject string, st record.SubjectStat) bool {
		if !seen[subject] {
			seen[subject] = true
			n += s.countSubject(subject, st, from)
		}
		return true
	}
	for _, f := range filters {
		if !jsapi.HasWildcards(f) {
			count(f, s.SubjectStat(f))
			continue
		}
		s.SubjectRows(LiteralPrefix(f), func(subject string, st record.SubjectStat) bool {
			return !jsapi.SubjectMatches(f, subject) || count(subject, st)
		})
	}
	for seq := max(s.applied.LastSeq+1, s.state.FirstSeq); seq <= s.state.LastSeq; seq++ {
		if _, gone := s.deleted.Get(seq); gone {
			continue
		}
		if m, _ := s.tail.Get(seq); m != nil && matches(filters, m.Subject) {
			n--
		}
	}
	s.deleted.All(func(seq uint64, subject string) bool {
		if seq >= from && seq <= s.applied.LastSeq && matches(filters, subject) {
			n++
		}
		return true
	})
	return n
}

// countSubject counts the planned messages of a subject at or above from.
func (s *Stream) countSubject(subject string, st record.SubjectStat, from uint64) uint64 {
	switch {
	case st.Count == 0 || st.Last < from:
		return 0
	case st.First >= from:
		return st.Count
	}
	n, low := uint64(0), max(from, s.state.FirstSeq)
	if low < s.tail.Base() {
		err := s.p.store.ScanSubject(s.ID, subject, low, func(seq uint64) bool {
			if seq >= s.tail.Base() {
				return false
			}
			if _, gone := s.deleted.Get(seq); !gone {
				n++
			}
			return true
		})
		if err != nil {
			s.p.Fatal(err)
		}
	}
	for seq := max(low, s.tail.Base()); seq <= s.state.LastSeq; seq++ {
		if m, _ := s.tail.Get(seq); m != nil && m.Subject == subject {
			if _, gone := s.deleted.Get(seq); !gone {
				n++
			}
		}
	}
	return n
}
