package plan

import (
	"math"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

type dedupEntry struct {
	seq uint64 // 0 = removed
	at  int64
}

// idLookup is the last message id that was looked up in the store.
type idLookup struct {
	id  string
	row dedupEntry // seq 0 = it has none
}

// Dedup returns the sequence under which a message id was stored and when; ok is
// false when the id is not known. That its time is within the window is the
// caller's to judge.
func (s *Stream) Dedup(id string) (seq uint64, at int64, ok bool) {
	if e, ok := s.dedup.Get(id); ok {
		return e.seq, e.at, e.seq != 0
	}
	seq, at, ok, err := s.p.store.Dedup(s.ID, id)
	if err != nil {
		s.p.Fatal(err)
	}
	s.looked = idLookup{id: id}
	if ok {
		s.looked.row = dedupEntry{seq, at}
	}
	return seq, at, ok
}

// useID plans the row of the id of m. A row that is there, expired and not trimmed
// yet, goes first: its twin in the order of time would take the new one with it.
func (s *Stream) useID(id string, m *record.Message) {
	old, planned := s.dedup.Get(id)
	if !planned {
		if s.looked.id != id {
			s.Dedup(id)
		}
		old = s.looked.row
	}
	if old.seq != 0 {
		s.p.b.Index(nil, []command.IndexEntry{{
			Kind: command.IndexDedup, Stream: s.ID, Name: id, Time: uint64(old.at),
		}})
	}
	s.looked = idLookup{}
	s.dedup.Put(id, dedupEntry{m.Seq, m.Time}, s.p.tick)
	s.ids = true
}

// HasIDs says that the stream may hold message ids: TrimDedup has something to do
// at some time.
func (s *Stream) HasIDs() bool { return s.ids }

// TrimDedup plans the removal of up to limit message ids that are not newer than
// the time. It returns how many, and the time of the oldest that is left, 0 if
// none is known.
func (s *Stream) TrimDedup(until int64, limit int) (n int, next int64) {
	var drops []command.IndexEntry
	err := s.p.store.DedupUntil(s.ID, s.trimmed, math.MaxInt64, func(at int64, id string) bool {
		if e, ok := s.dedup.Get(id); ok && e.at != at {
			return true // stored anew, or its removal is in flight
		}
		if at > until || n == limit {
			next = at
			return false
		}
		s.trimmed = at
		drops = append(drops, command.IndexEntry{
			Kind: command.IndexDedup, Stream: s.ID, Name: id, Time: uint64(at),
		})
		s.dedup.Put(id, dedupEntry{}, s.p.tick)
		n++
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	if n > 0 {
		s.p.touch(s)
		s.p.b.Index(nil, drops) // now: the same id may be used again in this envelope
	}
	s.ids = next != 0 || s.dedup.Len() > n
	return n, next
}
