package plan

import (
	"container/list"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Stream is the plan of one stream's messages, counters and derived rows.
type Stream struct {
	// ID is the stream's id.
	ID record.StreamID

	p       *Planner
	applied record.StreamState
	state   record.StreamState
	tail    Tail
	ahead   []*stretch // the one read last at the end

	subjects Overlay[string, record.SubjectStat]
	dedup    Overlay[string, dedupEntry]
	deleted  Overlay[uint64, string] // sequence → subject

	touchedAt uint64 // tick of the last envelope with a change
	cutFrom   uint64 // first sequence that may still have a row below state.FirstSeq
	changed   []string
	removed   []removal
	puts      []command.IndexEntry
	drops     []command.IndexEntry
	gone      bool

	ids      bool  // it may have message ids
	trimmed  int64 // no message id older than this is left
	looked   idLookup
	deadTick uint64 // of the last purge of everything in flight
	dead     bool   // such a purge is applied, its rows are not swept

	counted countMemo
	passed  gap // of the last search of the index

	inTails *list.Element // in Planner.tails
	tailed  int           // bytes of the tail as Planner.tailBytes counts them
}

type removal struct {
	seq     uint64
	subject string
}

// Open returns the plan of a stream, loading its counters on first touch. It
// returns record.ErrNotFound for a stream that the group does not hold.
func (p *Planner) Open(id record.StreamID) (*Stream, error) {
	if s, ok := p.streams[id]; ok {
		if s.gone {
			return nil, fmt.Errorf("stream %d is being deleted: %w", id, record.ErrNotFound)
		}
		return s, nil
	}
	st, err := p.store.StreamState(id)
	if err != nil {
		if !errors.Is(err, record.ErrNotFound) {
			p.Fatal(err)
		}
		return nil, err
	}
	s := &Stream{ID: id, p: p, applied: st, state: st, cutFrom: st.FirstSeq, ids: true}
	s.tail.Start(st.LastSeq + 1)
	p.streams[id] = s
	return s, nil
}

// Create plans a new stream with its description and first sequence (at least 1).
func (p *Planner) Create(id record.StreamID, description []byte, first uint64) *Stream {
	st := record.StreamState{FirstSeq: first, LastSeq: first - 1}
	s := &Stream{ID: id, p: p, applied: st, state: st, cutFrom: first}
	s.tail.Start(first)
	p.streams[id] = s
	p.b.PutStream(id, description)
	p.touch(s)
	return s
}

// Describe plans a new description of the stream.
func (s *Stream) Describe(description []byte) {
	s.p.b.PutStream(s.ID, description)
	s.p.touch(s)
}

// Delete plans the removal of the stream with all its rows.
func (s *Stream) Delete() {
	s.p.touch(s)
	s.gone = true
	s.p.b.DeleteStream(s.ID)
}

// Forget drops the plan of a stream that is gone, or that nobody needs loaded.
func (p *Planner) Forget(id record.StreamID) {
	if s := p.streams[id]; s != nil {
		p.dropTail(s)
		s.forgetAhead()
		delete(p.streams, id)
	}
}

// State is the planned counters.
func (s *Stream) State() record.StreamState { return s.state }

// Applied is the applied counters.
func (s *Stream) Applied() record.StreamState { return s.applied }

// Rests is the tick that an answer about the planned state of s rests on.
func (s *Stream) Rests() uint64 { return s.touchedAt }

// NewConsumer plans the use of the next consumer id.
func (s *Stream) NewConsumer() record.ConsumerID {
	s.p.touch(s)
	s.state.NextConsumer++
	return s.state.NextConsumer
}

// SubjectStat returns the planned row of a subject; a Count of 0 means none.
func (s *Stream) SubjectStat(subject string) record.SubjectStat {
	st, ok := s.subjects.Get(subject)
	if !ok {
		var err error
		if st, ok, err = s.p.store.SubjectStat(s.ID, subject); err != nil {
			s.p.Fatal(err)
		}
	}
	if !ok || st.Last < s.state.FirstSeq {
		return record.SubjectStat{} // absent, or dead: its messages went with a prefix
	}
	return st
}

// SubjectRows calls f for the planned rows of the subjects that start with
// prefix, in no order, until f returns false. It reads the applied rows in one
// go: the caller bounds it by the prefix.
func (s *Stream) SubjectRows(prefix string, f func(string, record.SubjectStat) bool) {
	stop := false
	err := s.p.store.Subjects(s.ID, prefix, "", func(subject string, st record.SubjectStat) bool {
		if _, ok := s.subjects.Get(subject); ok || st.Last < s.state.FirstSeq {
			return true
		}
		stop = !f(subject, st)
		return !stop
	})
	if err != nil {
		s.p.Fatal(err)
	}
	if stop {
		return
	}
	s.subjects.All(func(subject string, st record.SubjectStat) bool {
		if len(subject) < len(prefix) || subject[:len(prefix)] != prefix || st.Count == 0 || st.Last < s.state.FirstSeq {
			return true
		}
		return f(subject, st)
	})
}

func (s *Stream) putStat(subject string, st record.SubjectStat) {
	if s.subjects.Put(subject, st, s.p.tick) {
		s.changed = append(s.changed, subject)
	}
}

// NextTime is the time the next message gets: cluster time, but later than the last message's.
func (s *Stream) NextTime() int64 { return max(s.state.LastTime+1, s.p.Now()) }

// Store plans the next message and returns it. header and payload are kept, not
// copied. id, if not empty, is remembered for duplicates.
func (s *Stream) Store(subject string, header, payload []byte, id string) *record.Message {
	m := &record.Message{
		Seq: s.state.LastSeq + 1, Time: s.NextTime(), Subject: subject, Header: header, Payload: payload,
	}
	it := command.Item{Seq: m.Seq, Hash: record.SubjectHash(subject), MsgID: id}
	s.p.touch(s)
	if id != "" {
		s.useID(id, m)
	}
	s.p.b.Store(s.ID, &it, m)
	s.p.cur.messages++
	s.state.LastSeq, s.state.LastTime = m.Seq, m.Time
	if s.state.Messages == 0 {
		s.state.FirstSeq, s.state.FirstTime = m.Seq, m.Time
	}
	s.state.Messages++
	s.state.Bytes += StoredSize(subject, header, payload)
	st := s.SubjectStat(subject)
	if st.Count == 0 {
		st.First = m.Seq
		s.state.Subjects++
	}
	st.Count++
	st.Last = m.Seq
	s.putStat(subject, st)
	s.tail.Append(m)
	return m
}

// StoredSize is what a message counts in max_bytes and in the stream's bytes:
// the accounting of a JetStream file store.
func StoredSize(subject string, header, payload []byte) uint64 {
	n := 30 + len(subject) + len(header) + len(payload)
	if len(header) > 0 {
		n += 4
	}
	return uint64(n)
}

// Planned returns the message of seq in the planned state, nil if there is none.
func (s *Stream) Planned(seq uint64) *record.Message {
	if seq < s.state.FirstSeq || seq > s.state.LastSeq {
		return nil
	}
	if _, gone := s.deleted.Get(seq); gone {
		return nil
	}
	return s.get(seq)
}

// Get returns the message of seq in the applied state, nil if there is none. A
// removal in flight does not hide it: it may come to nothing.
func (s *Stream) Get(seq uint64) *record.Message {
	if seq < s.applied.FirstSeq || seq > s.applied.LastSeq {
		return nil
	}
	return s.get(seq)
}

func (s *Stream) get(seq uint64) *record.Message {
	if m, known := s.tail.Get(seq); known {
		return m
	}
	if m := s.aheadGet(seq); m != nil {
		return m
	}
	m, err := s.p.store.Message(s.ID, seq)
	if err != nil {
		if !errors.Is(err, record.ErrNotFound) {
			s.p.Fatal(err)
		}
		return nil
	}
	return &m
}

func (s *Stream) parse(seq uint64, b []byte) *record.Message {
	m, err := record.ParseMessage(seq, b)
	if err != nil {
		s.p.Fatal(err)
		return nil
	}
	return &m
}

// Remove plans the removal of the message of seq; false if there is none.
func (s *Stream) Remove(seq uint64) bool {
	m := s.Planned(seq)
	if m == nil || s.p.phase != planning {
		return false
	}
	s.p.touch(s)
	s.deleted.Put(seq, m.Subject, s.p.tick)
	s.removed = append(s.removed, removal{seq, m.Subject})
	s.p.cur.messages++
	s.state.Messages--
	s.state.Bytes -= min(s.state.Bytes, StoredSize(m.Subject, m.Header, m.Payload))
	st := s.SubjectStat(m.Subject)
	switch {
	case st.Count <= 1:
		st = record.SubjectStat{}
		s.state.Subjects--
	default:
		st.Count--
		if st.Last == seq {
			st.Last = s.prev(m.Subject, seq-1, st.First)
		}
		if st.First == seq {
			st.First++
		}
	}
	s.putStat(m.Subject, st)
	if seq == s.state.FirstSeq {
		s.advance(seq + 1)
	}
	return true
}

// advance moves the first sequence to the first message at or above from.
func (s *Stream) advance(from uint64) {
	if s.state.Messages == 0 {
		s.state.FirstSeq, s.state.FirstTime = s.state.LastSeq+1, 0
		return
	}
	m := s.next(from, s.state.LastSeq)
	if m == nil {
		return // a failed read, told by Fatal
	}
	s.state.FirstSeq, s.state.FirstTime = m.Seq, m.Time
}

// Next returns the first message at or above from in the planned state, nil if none.
func (s *Stream) Next(from uint64) *record.Message {
	return s.next(max(from, s.state.FirstSeq), s.state.LastSeq)
}

func (s *Stream) next(from, last uint64) *record.Message {
	var found *record.Message
	if from < s.tail.Base() {
		err := s.p.store.Scan(s.ID, from, func(seq uint64, b []byte) bool {
			if seq >= s.tail.Base() || seq > last {
				return false
			}
			if _, ok := s.deleted.Get(seq); ok {
				return true
			}
			found = s.parse(seq, slices.Clone(b))
			return false
		})
		if err != nil {
			s.p.Fatal(err)
		}
		from = s.tail.Base()
	}
	for seq := from; found == nil && seq <= last; seq++ {
		if _, ok := s.deleted.Get(seq); ok {
			continue
		}
		m, known := s.tail.Get(seq)
		if !known {
			break
		}
		found = m
	}
	return found
}

// prev returns the sequence of the last planned message of subject from low to upTo, 0 if none.
func (s *Stream) prev(subject string, upTo, low uint64) uint64 {
	low = max(low, s.state.FirstSeq, 1)
	for seq := upTo; seq >= max(s.tail.Base(), low); seq-- {
		m, _ := s.tail.Get(seq)
		if m == nil || m.Subject != subject {
			continue
		}
		if _, ok := s.deleted.Get(seq); !ok {
			return seq
		}
	}
	return s.prevStored(subject, min(upTo, s.tail.Base()-1), low)
}

// FirstOf returns the sequence of the oldest planned message of exactly this
// subject at or above from, 0 if none.
func (s *Stream) FirstOf(subject string, from uint64) uint64 {
	from = max(from, s.state.FirstSeq)
	for from < s.tail.Base() {
		seq, ok, err := s.p.store.NextBySubject(s.ID, subject, from)
		if err != nil {
			s.p.Fatal(err)
			return 0
		}
		if !ok || seq >= s.tail.Base() {
			from = s.tail.Base()
			break
		}
		if _, gone := s.deleted.Get(seq); !gone {
			return seq
		}
		from = seq + 1
	}
	for seq := from; seq <= s.state.LastSeq; seq++ {
		m, known := s.tail.Get(seq)
		if !known {
			return 0
		}
		if _, gone := s.deleted.Get(seq); m != nil && !gone && m.Subject == subject {
			return seq
		}
	}
	return 0
}

// PurgeAll plans the removal of every message: O(1), the rows below the new
// first sequence are dead until they are swept (TakeDead, Sweep). It returns how
// many messages there were.
func (s *Stream) PurgeAll() uint64 {
	n := s.state.Messages
	s.p.touch(s)
	if n > 0 {
		s.PutSweep(SweepDead, nil)
		s.deadTick = s.p.tick
	}
	s.state.FirstSeq, s.state.FirstTime = s.state.LastSeq+1, 0
	s.state.Messages, s.state.Bytes, s.state.Subjects = 0, 0, 0
	return n // the rows of subjects stay, dead: the sweep finds by them what else is dead
}

// Due plans a due row: what falls due at bucket (nanoseconds) under a ticket.
func (s *Stream) Due(kind uint8, bucket int64, ticket uint64) {
	s.p.touch(s)
	s.puts = append(s.puts, command.IndexEntry{
		Kind: command.IndexDue, Value: kind, Stream: s.ID, Seq: ticket, Time: uint64(bucket),
	})
}

// DropDue plans the removal of a due row.
func (p *Planner) DropDue(stream record.StreamID, bucket int64, ticket uint64) {
	p.b.Index(nil, []command.IndexEntry{{
		Kind: command.IndexDue, Stream: stream, Seq: ticket, Time: uint64(bucket),
	}})
}
