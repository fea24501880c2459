package plan

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Kinds of sweeps.
const (
	// SweepDead removes rows which a purge left dead; its cursor is a SweepCursor.
	SweepDead uint8 = 1
	// SweepLimits removes the messages that lowered limits do not allow; its cursor is
	// a SweepCursor, Seq 1 when the limits of all subjects are applied.
	SweepLimits uint8 = 2
	// SweepPurge and the SweepPurges-1 kinds after it are purges of a part of a stream,
	// one each; their cursor is a PurgeCursor.
	SweepPurge  uint8 = 64
	SweepPurges int   = 128
)

// maxCursor is what a Sweep command holds.
const maxCursor = 1<<16 - 1

// PutSweep plans the row that stands for long work that is not done, with its cursor.
// One that is too long is left out: the next leader begins anew.
func (s *Stream) PutSweep(kind uint8, cursor []byte) {
	if len(cursor) > maxCursor {
		cursor = nil
	}
	s.p.touch(s)
	s.p.b.Sweep(&command.SweepStep{Stream: s.ID, Kind: kind, Cursor: cursor})
}

// EndSweep plans the removal of the row of long work that is done.
func (s *Stream) EndSweep(kind uint8) {
	s.p.touch(s)
	s.p.b.Sweep(&command.SweepStep{Stream: s.ID, Kind: kind, Done: true})
}

// SweepCursor is how far a sweep has come. First go the rows of messages in the index of
// subjects: those before Seq of Subject are done, and with a Seq and no Subject all of
// them. Then go the counters of subjects: those up to After are done.
type SweepCursor struct {
	After, Subject string
	Seq            uint64
}

func (c SweepCursor) rowsDone() bool { return c.Subject == "" && c.Seq > 0 }

// Encode returns the cursor as its row holds it.
func (c SweepCursor) Encode() []byte {
	b := appendString(nil, c.After)
	b = appendString(b, c.Subject)
	return binary.AppendUvarint(b, c.Seq)
}

// ParseSweepCursor reads what Encode wrote; an empty one is the begin. Errors wrap
// record.ErrFormat.
func ParseSweepCursor(b []byte) (SweepCursor, error) {
	if len(b) == 0 {
		return SweepCursor{}, nil
	}
	r := cursorReader{b: b}
	c := SweepCursor{After: r.text(), Subject: r.text(), Seq: r.number()}
	return c, r.end("sweep cursor")
}

// PurgeCursor is a purge of a part of a stream, and how far it has come.
type PurgeCursor struct {
	// Filter is the subject that is purged, empty for all.
	Filter string
	// From is where the next step begins, UpTo the last sequence that may go.
	From, UpTo uint64
	// Purged counts the messages that went.
	Purged uint64
	// Reply is where the answer goes, until Deadline (nanoseconds since 1970).
	Reply    string
	Deadline int64
}

// Encode returns the cursor as its row holds it.
func (c *PurgeCursor) Encode() []byte {
	b := appendString(nil, c.Filter)
	b = binary.AppendUvarint(b, c.From)
	b = binary.AppendUvarint(b, c.UpTo)
	b = binary.AppendUvarint(b, c.Purged)
	b = appendString(b, c.Reply)
	return binary.AppendUvarint(b, uint64(c.Deadline))
}

// ParsePurgeCursor reads what Encode wrote. Errors wrap record.ErrFormat.
func ParsePurgeCursor(b []byte) (PurgeCursor, error) {
	r := cursorReader{b: b}
	c := PurgeCursor{
		Filter: r.text(), From: r.number(), UpTo: r.number(), Purged: r.number(), Reply: r.text(),
		Deadline: int64(r.number()),
	}
	return c, r.end("purge cursor")
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// cursorReader reads the parts of a cursor; after an error it reads zeros.
type cursorReader struct {
	b   []byte
	bad bool
}

func (r *cursorReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *cursorReader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *cursorReader) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", record.ErrFormat, what)
	}
	return nil
}

// TakeDead says that a purge of everything was applied since the last call, and
// left dead rows to sweep.
func (s *Stream) TakeDead() bool {
	dead := s.dead
	s.dead = false
	return dead
}

// SweepLimit bounds one step of a sweep: the rows that it removes, and the subjects
// that it looks at and leaves.
type SweepLimit struct{ Rows, Subjects int }

func (l SweepLimit) spent() bool { return l.Rows <= 0 || l.Subjects <= 0 }

// Sweep plans the removal of rows of messages below the first sequence, which a
// purge of everything left behind: those in the index of subjects, and the counters
// of subjects that have no message any more. The index is read by itself: the
// counters of a subject go with its last message, its dead rows do not. A step goes
// on from a cursor, and returns the next one and whether there is more to do. The
// sweep's own row is planned with it, so that another leader can go on; a step that
// only looked writes none.
func (s *Stream) Sweep(at SweepCursor, limit SweepLimit) (next SweepCursor, more bool) {
	left := limit
	if next = at; !at.rowsDone() {
		next, more = s.sweepRows(at, &left)
	}
	if !more {
		next.After, more = s.sweepCounters(next.After, &left)
	}
	switch {
	case more && left.Rows == limit.Rows:
		return next, true
	case s.dead || s.deadTick != 0: // another purge waits to be swept, from the begin
		s.PutSweep(SweepDead, nil)
	case more:
		s.PutSweep(SweepDead, next.Encode())
	default:
		s.EndSweep(SweepDead)
	}
	return next, more
}

func (s *Stream) sweepRows(at SweepCursor, left *SweepLimit) (next SweepCursor, more bool) {
	first := s.state.FirstSeq
	next = SweepCursor{After: at.After, Seq: 1}
	err := s.p.store.SubjectRows(s.ID, at.Subject, at.Seq, first, func(subject string, seq uint64) bool {
		switch {
		case left.spent():
			next.Subject, next.Seq, more = subject, seq, true
			return false
		case seq >= first:
			left.Subjects--
		default:
			left.Rows--
			s.drops = append(s.drops, command.IndexEntry{
				Kind: command.IndexSubject, Stream: s.ID, Name: subject, Seq: seq,
			})
		}
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return next, more
}

func (s *Stream) sweepCounters(after string, left *SweepLimit) (next string, more bool) {
	next = after
	err := s.p.store.Subjects(s.ID, "", after, func(subject string, st record.SubjectStat) bool {
		if more = left.spent(); more {
			return false
		}
		if _, planned := s.subjects.Get(subject); planned || st.Last >= s.state.FirstSeq {
			left.Subjects--
		} else {
			left.Rows--
			s.putStat(subject, record.SubjectStat{})
		}
		next = subject
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	return next, more
}
