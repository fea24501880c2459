package plan

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// AppliedCount counts the applied messages at or above from that match one of the
// filters (none = all). Where counters tell, nothing else is read; otherwise the
// messages on the shorter side of from are.
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
	case from == st.FirstSeq:
		return s.appliedTotal(filters)
	case len(filters) == 0 && st.Messages == st.LastSeq-st.FirstSeq+1:
		return st.LastSeq - from + 1
	case from-st.FirstSeq < st.LastSeq-from:
		total := s.appliedTotal(filters)
		return total - min(total, s.countRange(st.FirstSeq, from-1, filters))
	}
	return s.countRange(from, st.LastSeq, filters)
}

// appliedTotal counts all applied messages that match, by counters: what is
// planned, without what is in flight.
func (s *Stream) appliedTotal(filters []string) uint64 {
	if len(filters) == 0 {
		return s.applied.Messages
	}
	n, seen := uint64(0), map[string]bool{}
	for _, f := range filters {
		s.SubjectRows(LiteralPrefix(f), func(subject string, st record.SubjectStat) bool {
			if jsapi.SubjectMatches(f, subject) && !seen[subject] {
				seen[subject] = true
				n += st.Count
			}
			return true
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
		if seq >= s.applied.FirstSeq && seq <= s.applied.LastSeq && matches(filters, subject) {
			n++
		}
		return true
	})
	return n
}

// countRange counts the applied messages from low to high that match.
func (s *Stream) countRange(low, high uint64, filters []string) uint64 {
	n := uint64(0)
	for seq := max(low, s.tail.Base()); seq <= high; seq++ {
		if m, _ := s.tail.Get(seq); m != nil && matches(filters, m.Subject) {
			n++
		}
	}
	if low >= s.tail.Base() {
		return n
	}
	last := min(high, s.tail.Base()-1)
	n += s.countStored(low, last, filters)
	s.deleted.All(func(seq uint64, subject string) bool {
		if seq >= low && seq <= last && matches(filters, subject) {
			n++
		}
		return true
	})
	return n
}

// countStored counts the stored messages from low to high that match and whose
// removal is not in flight.
func (s *Stream) countStored(low, high uint64, filters []string) uint64 {
	n := uint64(0)
	count := func(seq uint64) {
		if _, gone := s.deleted.Get(seq); !gone {
			n++
		}
	}
	if len(filters) == 0 {
		if err := s.p.store.ScanKeys(s.ID, low, func(seq uint64) bool {
			if seq <= high {
				count(seq)
			}
			return seq < high
		}); err != nil {
			s.p.Fatal(err)
		}
		return n
	}
	err := s.p.store.Scan(s.ID, low, func(seq uint64, b []byte) bool {
		if seq > high {
			return false
		}
		subject, err := record.MessageSubject(b)
		if err != nil {
			s.p.Fatal(err)
			return false
		}
		if matches(filters, string(subject)) {
			count(seq)
		}
		return seq < high
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return n
}
