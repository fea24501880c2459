package plan

import (
	"cmp"
	"container/list"
	"errors"
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

const (
	// maxStretch and maxStretchBytes bound what one read ahead brings into memory.
	maxStretch      = 256
	maxStretchBytes = 256 << 10
	// maxStretches bounds the stretches of one stream: so many consumers read it
	// at different places without disturbing each other.
	maxStretches = 32
	// stretchGrowth is how much longer the stretch is that follows on another.
	// The first is one message, so that a single read costs no more than itself.
	stretchGrowth = 4
)

// A stretch is a part of the applied state below the tail that one scan read:
// all messages with low ≤ sequence < high that match the filters, without those
// removed since. Consumers go through a stream in order, and an iterator of
// the store costs as much as hundreds of messages do.
type stretch struct {
	s         *Stream
	filters   []string
	low, high uint64
	msgs      []*record.Message // by sequence
	size      int               // messages asked for
	bytes     int
	place     *list.Element // in Planner.ahead
}

func (r *stretch) search(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(r.msgs, seq, func(m *record.Message, seq uint64) int { return cmp.Compare(m.Seq, seq) })
}

// first returns the first message at or above from, nil if the stretch has none.
func (r *stretch) first(from uint64) *record.Message {
	if i, _ := r.search(from); i < len(r.msgs) {
		return r.msgs[i]
	}
	return nil
}

func (r *stretch) add(m *record.Message) (full bool) {
	r.msgs = append(r.msgs, m)
	r.bytes += tailSize(m)
	return len(r.msgs) >= r.size || r.bytes >= maxStretchBytes
}

// keepAhead keeps a stretch as the one used last, and drops those that were not
// used for longest while there are too many of them.
func (p *Planner) keepAhead(r *stretch) {
	s := r.s
	r.place = p.ahead.PushBack(r)
	p.aheadBytes += r.bytes
	s.ahead = append(s.ahead, r)
	if len(s.ahead) > maxStretches {
		p.dropAhead(s.ahead[0])
	}
	for p.aheadBytes > p.cfg.AheadBytes && p.ahead.Len() > 1 {
		oldest, _ := p.ahead.Front().Value.(*stretch)
		p.dropAhead(oldest)
	}
}

func (p *Planner) dropAhead(r *stretch) {
	p.ahead.Remove(r.place)
	p.aheadBytes -= r.bytes
	i := slices.Index(r.s.ahead, r)
	r.s.ahead = slices.Delete(r.s.ahead, i, i+1)
}

// forgetAhead drops all stretches of the stream.
func (s *Stream) forgetAhead() {
	for len(s.ahead) > 0 {
		s.p.dropAhead(s.ahead[0])
	}
}

// aheadAt returns the newest stretch of these filters that reaches from.
func (s *Stream) aheadAt(filters []string, from uint64) *stretch {
	for _, r := range slices.Backward(s.ahead) {
		if r.low <= from && from <= r.high && slices.Equal(r.filters, filters) {
			return r
		}
	}
	return nil
}

// aheadGet returns the message of seq if a stretch holds it.
func (s *Stream) aheadGet(seq uint64) *record.Message {
	for _, r := range slices.Backward(s.ahead) {
		if r.low <= seq && seq < r.high {
			if i, ok := r.search(seq); ok {
				return r.msgs[i]
			}
		}
	}
	return nil
}

// aheadRemoved forgets the message of seq.
func (s *Stream) aheadRemoved(seq uint64) {
	for _, r := range s.ahead {
		if r.low <= seq && seq < r.high {
			if i, ok := r.search(seq); ok {
				r.bytes -= tailSize(r.msgs[i])
				s.p.aheadBytes -= tailSize(r.msgs[i])
				r.msgs = slices.Delete(r.msgs, i, i+1)
			}
		}
	}
}

// searchStore is Search for what is below the tail. more says that it looked at
// limit messages and goes on at next; otherwise nothing below the tail matches
// if it returns no message.
func (s *Stream) searchStore(from uint64, filters []string, limit int) (m *record.Message, next uint64, more bool) {
	size := 1
	for r := s.aheadAt(filters, from); r != nil; r = s.aheadAt(filters, from) {
		s.p.ahead.MoveToBack(r.place)
		if m := r.first(from); m != nil {
			return m, m.Seq + 1, false
		}
		size = min(r.size*stretchGrowth, maxStretch)
		if from == r.high {
			break
		}
		from = r.high
	}
	if from >= s.tail.Base() {
		return nil, s.tail.Base(), false
	}
	r := &stretch{s: s, filters: slices.Clone(filters), low: from, size: size}
	if len(filters) == 1 && !jsapi.HasWildcards(filters[0]) {
		r.high = s.readSubject(r, filters[0])
	} else {
		r.high, more = s.read(r, limit)
	}
	if len(r.msgs) == 0 {
		return nil, r.high, more
	}
	s.p.keepAhead(r)
	return r.msgs[0], r.msgs[0].Seq + 1, false
}

// read fills a stretch by one scan of the messages and returns where it ends; more
// says that it looked at limit messages.
func (s *Stream) read(r *stretch, limit int) (high uint64, more bool) {
	high = s.tail.Base()
	looked := 0
	err := s.p.store.Scan(s.ID, r.low, func(seq uint64, b []byte) bool {
		if seq >= s.tail.Base() {
			return false
		}
		if looked++; looked > limit {
			high, more = seq, true
			return false
		}
		subject, err := record.MessageSubject(b)
		if err != nil {
			s.p.Fatal(err)
			return false
		}
		if len(r.filters) > 0 && !matches(r.filters, string(subject)) {
			return true
		}
		m := s.parse(seq, slices.Clone(b))
		if m == nil {
			return false
		}
		if r.add(m) {
			high = seq + 1
			return false
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return high, more
}

// readSubject fills a stretch with the messages of one subject, by its index, and returns where it ends.
func (s *Stream) readSubject(r *stretch, subject string) (high uint64) {
	high = s.tail.Base()
	var seqs []uint64
	err := s.p.store.ScanSubject(s.ID, subject, r.low, func(seq uint64) bool {
		if seq >= s.tail.Base() || len(seqs) == r.size {
			high = min(high, seq)
			return false
		}
		seqs = append(seqs, seq)
		return true
	})
	if err != nil {
		s.p.Fatal(err)
		return high
	}
	for _, seq := range seqs {
		m, err := s.p.store.Message(s.ID, seq)
		switch {
		case errors.Is(err, record.ErrNotFound):
		case err != nil:
			s.p.Fatal(err)
			return high
		case r.add(&m) && seq < seqs[len(seqs)-1]:
			return seq + 1
		}
	}
	return high
}
