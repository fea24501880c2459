package plan

import (
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// LiteralPrefix returns the part of a filter before its first wildcard token.
func LiteralPrefix(filter string) string {
	for i := 0; i < len(filter); {
		token := filter[i:]
		end := strings.IndexByte(token, '.')
		if end >= 0 {
			token = token[:end]
		}
		if token == "*" || token == ">" {
			return filter[:i]
		}
		if end < 0 {
			break
		}
		i += end + 1
	}
	return filter
}

// SubjectCount is a subject with the number of its messages.
type SubjectCount struct {
	Subject string
	Count   uint64
}

// AppliedSubjects returns the subjects of the applied state that match a filter, in order.
func (s *Stream) AppliedSubjects(filter string) []SubjectCount {
	var out []SubjectCount
	err := s.p.store.Subjects(s.ID, LiteralPrefix(filter), "", func(subject string, st record.SubjectStat) bool {
		if st.Count > 0 && st.Last >= s.applied.FirstSeq && jsapi.SubjectMatches(filter, subject) {
			out = append(out, SubjectCount{subject, st.Count})
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return out
}

// MaxGaps bounds the deleted sequences that AppliedGaps returns.
const MaxGaps = 1 << 20

// AppliedGaps returns the sequences between the first and the last message of
// the applied state that have none, at most MaxGaps.
func (s *Stream) AppliedGaps() []uint64 {
	var out []uint64
	want := s.applied.FirstSeq
	err := s.p.store.ScanKeys(s.ID, want, func(seq uint64) bool {
		for ; want < seq && len(out) < MaxGaps; want++ {
			out = append(out, want)
		}
		want = seq + 1
		return len(out) < MaxGaps
	})
	if err != nil {
		s.p.Fatal(err)
	}
	for ; want <= s.applied.LastSeq && len(out) < MaxGaps; want++ {
		out = append(out, want)
	}
	return out
}

// AppliedLast returns the sequence of the last message whose subject matches.
func (s *Stream) AppliedLast(filter string) (uint64, bool) {
	last := uint64(0)
	look := func(subject string, st record.SubjectStat) {
		if st.Count == 0 || st.Last < s.applied.FirstSeq {
			return
		}
		if st.Last > s.applied.LastSeq { // the store is ahead of what was told
			st.Last, _ = s.AppliedLastOf(subject, s.applied.LastSeq)
		}
		last = max(last, st.Last)
	}
	if !jsapi.HasWildcards(filter) {
		st, ok, err := s.p.store.SubjectStat(s.ID, filter)
		if err != nil {
			s.p.Fatal(err)
		}
		if ok {
			look(filter, st)
		}
		return last, last != 0
	}
	err := s.p.store.Subjects(s.ID, LiteralPrefix(filter), "", func(subject string, st record.SubjectStat) bool {
		if jsapi.SubjectMatches(filter, subject) {
			look(subject, st)
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return last, last != 0
}

// AppliedNext returns the first applied message at or above from whose subject matches.
func (s *Stream) AppliedNext(from uint64, filter string) *record.Message {
	for {
		m, next := s.Search(from, []string{filter}, 1<<20)
		if m != nil || next > s.applied.LastSeq {
			return m
		}
		from = next
	}
}

// AppliedAt returns the sequence of the first applied message at or after a time.
// Times rise with sequences, so it is a search by halves.
func (s *Stream) AppliedAt(at int64) (uint64, bool) {
	low, high := s.applied.FirstSeq, s.applied.LastSeq+1
	for low < high {
		mid := low + (high-low)/2
		m, _ := s.Search(mid, nil, 1<<20)
		switch {
		case m == nil || m.Seq >= high:
			high = mid
		case m.Time >= at:
			high = mid
		default:
			low = m.Seq + 1
		}
	}
	m, _ := s.Search(low, nil, 1<<20)
	if m == nil {
		return 0, false
	}
	return m.Seq, true
}

// Search returns the first message at or above from in the applied state that
// matches one of the filters (none = every message). After looking at limit
// messages it returns nil and the sequence to go on from; one above the last
// sequence means that there is none.
func (s *Stream) Search(from uint64, filters []string, limit int) (*record.Message, uint64) {
	from = max(from, s.applied.FirstSeq)
	last := s.applied.LastSeq
	if from > last {
		return nil, last + 1
	}
	for from < s.tail.Base() {
		m, next, more := s.searchStore(from, filters, limit)
		if m != nil || more {
			return m, next
		}
		from = max(next, s.tail.Base())
	}
	for seq := from; seq <= last; seq++ {
		m, known := s.tail.Get(seq)
		if !known {
			break
		}
		if m != nil && matches(filters, m.Subject) {
			return m, seq + 1
		}
	}
	return nil, last + 1
}

func matches(filters []string, subject string) bool {
	if len(filters) == 0 {
		return true
	}
	for _, f := range filters {
		if jsapi.SubjectMatches(f, subject) {
			return true
		}
	}
	return false
}

// NthFromEnd returns the sequence below the newest keep messages that match the
// filter ("" = all), in the planned state; 0 if there are not more than that.
func (s *Stream) NthFromEnd(filter string, keep uint64) uint64 {
	count := s.state.Messages
	if filter != "" {
		count = 0
		s.SubjectRows(LiteralPrefix(filter), func(subject string, st record.SubjectStat) bool {
			if jsapi.SubjectMatches(filter, subject) {
				count += st.Count
			}
			return true
		})
	}
	if count <= keep {
		return 0
	}
	drop, seq := count-keep, uint64(0)
	if filter == "" && count == s.state.LastSeq-s.state.FirstSeq+1 {
		return s.state.FirstSeq + drop - 1 // no gaps
	}
	for m := s.Next(1); m != nil && drop > 0; m = s.Next(m.Seq + 1) {
		if filter == "" || jsapi.SubjectMatches(filter, m.Subject) {
			drop--
			seq = m.Seq
		}
	}
	return seq
}

// SubjectsAbove returns subjects after a cursor with more than n planned messages,
// looking at up to rows of them; next is the cursor to go on from, and end says that
// there is nothing beyond it.
func (s *Stream) SubjectsAbove(n uint64, after string, rows int) (over []string, next string, end bool) {
	next, end = after, true
	err := s.p.store.Subjects(s.ID, "", after, func(subject string, _ record.SubjectStat) bool {
		if rows == 0 {
			end = false
			return false
		}
		rows--
		next = subject
		if s.SubjectStat(subject).Count > n {
			over = append(over, subject)
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	if end { // those that are not stored yet
		s.subjects.All(func(subject string, st record.SubjectStat) bool {
			if st.Count > n && st.Last >= s.state.FirstSeq && !slices.Contains(over, subject) {
				over = append(over, subject)
			}
			return true
		})
	}
	return over, next, end
}

// AppliedLastOf returns the last applied sequence at or below upTo that holds a
// message of exactly this subject.
func (s *Stream) AppliedLastOf(subject string, upTo uint64) (uint64, bool) {
	upTo = min(upTo, s.applied.LastSeq)
	for seq := upTo; seq >= max(s.tail.Base(), s.applied.FirstSeq, 1); seq-- {
		if m, _ := s.tail.Get(seq); m != nil && m.Subject == subject {
			return seq, true
		}
	}
	upTo = min(upTo, s.tail.Base()-1)
	if upTo < s.applied.FirstSeq {
		return 0, false
	}
	seq, ok, err := s.p.store.PrevBySubject(s.ID, subject, s.applied.FirstSeq, upTo)
	if err != nil {
		s.p.Fatal(err)
	}
	return seq, ok
}

// AppliedLowestLast returns, of the last messages of all subjects that match one
// of the filters (none = all), the lowest sequence.
func (s *Stream) AppliedLowestLast(filters []string) (low uint64, ok bool) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, f := range filters {
		err := s.p.store.Subjects(s.ID, LiteralPrefix(f), "", func(subject string, st record.SubjectStat) bool {
			if st.Count > 0 && st.Last >= s.applied.FirstSeq && jsapi.SubjectMatches(f, subject) && (!ok || st.Last < low) {
				low, ok = st.Last, true
			}
			return true
		})
		if err != nil {
			s.p.Fatal(err)
		}
	}
	return low, ok
}
