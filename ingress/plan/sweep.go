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

// SweepCursor is how far a sweep has come: subjects up to After are done, and the
// rows of Subject below Seq.
type SweepCursor struct {
	After, Subject string
	Seq            uint64
}

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

// Sweep plans the removal of rows of messages below the first sequence, which a
// purge of everything left behind: subject rows, and the rows of subjects that
// have no message any more. It removes at most limit rows from a cursor on and
// returns the next cursor, and whether there is more to do. The sweep's own row is
// planned with it, so that another leader can go on.
func (s *Stream) Sweep(at SweepCursor, limit int) (next SweepCursor, more bool) {
	s.p.touch(s)
	first, n := s.state.FirstSeq, 0
	next = SweepCursor{After: at.After}
	err := s.p.store.Subjects(s.ID, "", at.After, func(subject string, st record.SubjectStat) bool {
		from := uint64(0)
		if subject == at.Subject {
			from = at.Seq
		}
		for ; n < limit; n++ {
			seq, ok, err := s.p.store.NextBySubject(s.ID, subject, from)
			if err != nil {
				s.p.Fatal(err)
				return false
			}
			if !ok || seq >= first {
				break
			}
			s.drops = append(s.drops, command.IndexEntry{
				Kind: command.IndexSubject, Stream: s.ID, Name: subject, Seq: seq,
			})
			from = seq + 1
		}
		if n >= limit {
			more, next.Subject, next.Seq = true, subject, from
			return false
		}
		if _, planned := s.subjects.Get(subject); !planned && st.Last < first {
			s.putStat(subject, record.SubjectStat{})
			n++
		}
		next.After = subject
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	switch {
	case s.dead || s.deadTick != 0: // another purge waits to be swept, from the begin
		s.PutSweep(SweepDead, nil)
	case more:
		s.PutSweep(SweepDead, next.Encode())
	default:
		s.EndSweep(SweepDead)
	}
	return next, more
}
