package plan

import (
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// SweepDead is the kind of the sweep that removes rows which a purge left dead.
const SweepDead = 1

// Sweep plans the removal of rows of messages below the first sequence, which a
// purge of everything left behind: subject rows, and the rows of subjects that
// have no message any more. It looks at the subjects after a cursor, removes at
// most limit rows and returns the next cursor, and whether there is more to do.
// The sweep's own row is planned with it, so that another leader can go on.
func (s *Stream) Sweep(after string, limit int) (next string, more bool) {
	s.p.touch(s)
	first, n := s.state.FirstSeq, 0
	next = after
	err := s.p.store.Subjects(s.ID, "", after, func(subject string, st record.SubjectStat) bool {
		for from := uint64(0); n < limit; n++ {
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
			more = true
			return false
		}
		if _, planned := s.subjects.Get(subject); !planned && st.Last < first {
			s.putStat(subject, record.SubjectStat{})
			n++
		}
		next = subject
		return true
	})
	if err != nil {
		s.p.Fatal(err)
	}
	s.p.b.Sweep(&command.SweepStep{Stream: s.ID, Kind: SweepDead, Done: !more})
	return next, more
}
