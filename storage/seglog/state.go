package seglog

import (
	"bytes"
	"slices"
	"sort"
)

// termRun says that the entries from first on, up to the next run, have the given term.
type termRun struct {
	first uint64
	term  uint64
}

// state is what the records say, in memory. Replay and the running log change it through the same methods,
// so that a restart cannot see another log than the one that was running.
type state struct {
	// segs are the live segments, oldest first; the last one is written to.
	segs []*segment

	// first and last are 0 when the log is empty.
	first, last uint64
	// terms covers [first, last] in ascending runs.
	terms []termRun

	vote      vote
	truncTerm uint64
	payload   []byte
}

func (s *state) active() *segment { return s.segs[len(s.segs)-1] }

func (s *state) lastTerm() uint64 { return s.termOf(s.last) }

// termOf returns the term of a live entry, 0 for other indexes.
func (s *state) termOf(index uint64) uint64 {
	if index == 0 || index < s.first || index > s.last {
		return 0
	}
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].first > index })
	if i == 0 {
		return 0
	}
	return s.terms[i-1].term
}

// head is the record that opens the next segment.
func (s *state) head() head {
	return head{
		first: s.first, last: s.last, lastTerm: s.lastTerm(),
		vote: s.vote, truncTerm: s.truncTerm, payload: s.payload,
	}
}

// agrees tells whether a head found behind other segments repeats what they say. The payload is left out: a
// seal may have carried a newer one than the batches did.
func (s *state) agrees(h *head) bool {
	return h.first == s.first && h.last == s.last && h.lastTerm == s.lastTerm() &&
		h.truncTerm == s.truncTerm && h.vote.term == s.vote.term && h.vote.votedTerm == s.vote.votedTerm &&
		bytes.Equal(h.vote.candidate, s.vote.candidate)
}

// start takes over the head of the oldest segment. Its entries may be gone already, if a later truncation
// says so; check finds out.
func (s *state) start(h *head) {
	s.first, s.last, s.terms = h.first, h.last, nil
	if h.last > 0 {
		s.terms = []termRun{{first: h.last, term: h.lastTerm}}
	}
	s.vote, s.truncTerm, s.payload = h.vote, h.truncTerm, h.payload
}

// follows tells whether an entry with this index may come next: any in an empty log, else the next one.
func (s *state) follows(index uint64) bool {
	return index > 0 && (s.last == 0 || index == s.last+1)
}

func (s *state) push(seg *segment, index, term uint64, offset int64) {
	if s.last == 0 {
		s.first = index
	}
	s.last = index
	if n := len(s.terms); n == 0 || s.terms[n-1].term != term {
		s.terms = append(s.terms, termRun{first: index, term: term})
	}
	seg.push(index, offset)
}

func (s *state) empty() {
	s.first, s.last, s.terms = 0, 0, nil
	for _, seg := range s.segs {
		seg.first, seg.offsets = 0, nil
	}
}

// truncateSuffix drops the entries >= from, in the given term.
func (s *state) truncateSuffix(from, term uint64) {
	s.truncTerm = term
	if from > s.last {
		return
	}
	if from <= s.first {
		s.empty()
		return
	}
	s.last = from - 1
	for _, seg := range s.segs {
		seg.cutFrom(from)
	}
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].first >= from })
	s.terms = s.terms[:i]
}

// truncatePrefix drops the entries < first.
func (s *state) truncatePrefix(first uint64) {
	if first <= s.first {
		return
	}
	if first > s.last {
		s.empty()
		return
	}
	s.first = first
	for _, seg := range s.segs {
		seg.cutBelow(first)
	}
	i := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].first > first })
	if i > 1 {
		s.terms = slices.Clone(s.terms[i-1:])
	}
}

// reset drops all entries, in the given term.
func (s *state) reset(term uint64) {
	s.truncTerm = term
	s.empty()
}

// droppable is the number of oldest segments that hold no live entry. The last segment stays.
func (s *state) droppable() int {
	for i, seg := range s.segs {
		if len(seg.offsets) > 0 || i == len(s.segs)-1 {
			return i
		}
	}
	return 0
}

// locate finds the segment of a live entry, and the file range in which its record lies: from the four bytes
// of the chain value before it to the start of the next live entry or the segment's end.
func (s *state) locate(index uint64) (seg *segment, from, to int64) {
	// From the back: readers mostly want recent entries, and segments without live entries may lie between.
	i := len(s.segs) - 1
	for i >= 0 && (len(s.segs[i].offsets) == 0 || s.segs[i].first > index) {
		i--
	}
	if i < 0 || index > s.segs[i].last() {
		return nil, 0, 0
	}
	seg = s.segs[i]
	k := index - seg.first
	from, to = int64(seg.offsets[k])-recordTrailer, seg.end
	if k+1 < uint64(len(seg.offsets)) {
		to = int64(seg.offsets[k+1])
	}
	return seg, from, to
}

// covered returns the first live index that no segment holds, or ok.
func (s *state) covered() (missing uint64, ok bool) {
	want := s.first
	for _, seg := range s.segs {
		if len(seg.offsets) == 0 {
			continue
		}
		if seg.first != want {
			return want, false
		}
		want = seg.last() + 1
	}
	if s.last > 0 && want != s.last+1 {
		return want, false
	}
	return 0, true
}

func (s *state) bytes() int64 {
	var n int64
	for _, seg := range s.segs {
		n += seg.liveBytes()
	}
	return n
}
