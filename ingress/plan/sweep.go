package plan

import (
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Kinds of sweeps.
const (
	// SweepDead removes rows which a purge left dead.
	SweepDead uint8 = 1
	// SweepLimits removes the messages that lowered limits do not allow.
	SweepLimits uint8 = 2
)

// MarkSweep plans the row that stands for long work that is not done, or its removal.
func (s *Stream) MarkSweep(kind uint8, done bool) {
	s.p.touch(s)
	s.p.b.Sweep(&command.SweepStep{Stream: s.ID, Kind: kind, Done: done})
}

// SweepCursor is how far a sweep has come: subjects up to After are done, and the
// rows of Subject below Seq.
type SweepCursor struct {
	After, Subject string
	Seq            uint64
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
	done := !more && !s.dead && s.deadTick == 0 // not while another purge waits to be swept
	s.MarkSweep(SweepDead, done)
	return next, more
}
