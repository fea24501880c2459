package plan

import (
	"container/list"
	"errors"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// seal writes what the forming envelope changes beside its messages.
func (s *Stream) seal(p *Planner) {
	if s.gone {
		return
	}
	var d command.Deletes
	if s.state.FirstSeq > s.cutFrom {
		d.Ranges = []command.Range{{Stream: s.ID, First: s.cutFrom, Last: s.state.FirstSeq - 1}}
		s.cutFrom = s.state.FirstSeq
	}
	for _, r := range s.removed {
		if r.seq >= s.state.FirstSeq {
			d.Keys = append(d.Keys, command.Key{Stream: s.ID, Seq: r.seq})
		}
		d.Index = append(d.Index, command.IndexEntry{
			Kind: command.IndexSubject, Stream: s.ID, Name: r.subject, Seq: r.seq,
		})
	}
	if len(d.Keys)+len(d.Ranges)+len(d.Index) > 0 {
		p.b.Delete(&d)
	}
	if len(s.puts)+len(s.drops) > 0 {
		p.b.Index(s.puts, s.drops)
	}
	rows := make([]command.SubjectRow, 0, len(s.changed))
	for _, subject := range s.changed {
		st, _ := s.subjects.Get(subject)
		rows = append(rows, command.SubjectRow{Subject: subject, Stat: st})
	}
	p.b.Counters(s.ID, &s.state, rows)
	s.changed, s.removed = s.changed[:0], s.removed[:0]
	s.puts, s.drops = s.puts[:0], s.drops[:0]
}

func (s *Stream) apply(p *Planner, tick uint64, st *record.StreamState) {
	s.applied = *st
	if s.deadTick != 0 && s.deadTick <= tick {
		s.dead, s.deadTick = true, 0
	}
	s.subjects.Applied(tick, nil)
	s.dedup.Applied(tick, nil)
	s.deleted.Applied(tick, func(seq uint64, subject string) {
		s.tail.Drop(seq)
		s.aheadRemoved(seq)
		p.hear.Removed(s, seq, subject)
	})
}

// evict bounds the tail, after the listener was shown what is new: the store may be
// ahead, without a message whose removal is told later.
func (s *Stream) evict(p *Planner) {
	s.tail.Evict(p.cfg.TailBytes, s.applied.LastSeq)
	p.keepTail(s)
}

// rebuild drops the planned state; false if the stream is not there any more.
func (s *Stream) rebuild(p *Planner) bool {
	st, err := p.store.StreamState(s.ID)
	if err != nil {
		if !errors.Is(err, record.ErrNotFound) {
			p.Fatal(err)
		}
		return false
	}
	s.applied, s.state, s.cutFrom = st, st, st.FirstSeq
	// Of two purges the first may be applied, which waited for the other to be swept with.
	s.dead, s.deadTick = s.dead || s.deadTick != 0, 0
	s.subjects.Reset()
	s.dedup.Reset()
	s.deleted.Reset()
	s.forgetAhead()
	s.tail.Cut(st.LastSeq)
	s.changed, s.removed, s.puts, s.drops = nil, nil, nil, nil
	s.touchedAt, s.trimmed, s.gone, s.ids, s.looked = 0, 0, false, true, idLookup{}
	s.counted, s.passed = countMemo{}, gap{}
	p.keepTail(s)
	return true
}

// keepTail counts the tail of s as the one used last, and empties the tails that
// were not used for longest while all of them together are too large.
func (p *Planner) keepTail(s *Stream) {
	p.tailBytes += s.tail.Bytes() - s.tailed
	s.tailed = s.tail.Bytes()
	switch {
	case s.tailed == 0:
		p.dropTail(s)
	case s.inTails == nil:
		s.inTails = p.tails.PushBack(s)
	default:
		p.tails.MoveToBack(s.inTails)
	}
	for at := p.tails.Front(); p.tailBytes > p.cfg.TailsBytes && at != nil; {
		old, next := tailOf(at), at.Next()
		p.tailBytes -= old.tail.Evict(0, old.applied.LastSeq)
		old.tailed = old.tail.Bytes()
		if old.tailed == 0 {
			p.dropTail(old)
		}
		at = next
	}
}

func tailOf(e *list.Element) *Stream {
	s, _ := e.Value.(*Stream)
	return s
}

func (p *Planner) dropTail(s *Stream) {
	p.tailBytes -= s.tailed
	s.tailed = 0
	if s.inTails != nil {
		p.tails.Remove(s.inTails)
		s.inTails = nil
	}
}
