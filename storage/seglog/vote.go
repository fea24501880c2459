package seglog

import (
	"bytes"
	"fmt"
	"slices"
)

// SetVote stores, in one durable record, that candidate got the vote in term, and raises the current term to
// it. A term below the current one is refused with ErrOutOfOrder. Storing what is stored writes nothing.
func (l *Log) SetVote(term uint64, candidate []byte) error {
	if len(candidate) > MaxCandidate {
		return fmt.Errorf("%w: candidate has %d bytes, the limit is %d",
			ErrTooLarge, len(candidate), MaxCandidate)
	}
	return l.setVote(func(vote) vote {
		return vote{term: term, votedTerm: term, candidate: slices.Clone(candidate)}
	})
}

// SetTerm durably raises the current term and keeps the last vote. A term below the current one is refused
// with ErrOutOfOrder; the current one again writes nothing.
func (l *Log) SetTerm(term uint64) error {
	return l.setVote(func(v vote) vote {
		v.term = term
		return v
	})
}

func (l *Log) setVote(change func(vote) vote) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	old := l.view.st.vote
	v := change(old)
	if v.term < old.term {
		return fmt.Errorf("%w: term %d after term %d", ErrOutOfOrder, v.term, old.term)
	}
	if v.term == old.term && v.votedTerm == old.votedTerm && bytes.Equal(v.candidate, old.candidate) {
		return nil
	}
	return l.control(func(b *batch) { b.vote(&v) }, func(st *state) { st.vote = v })
}

// Vote returns the current term, and the term and candidate of the last vote (0 and nil before the first).
func (l *Log) Vote() (term, votedTerm uint64, candidate []byte) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	v := l.view.st.vote
	return v.term, v.votedTerm, slices.Clone(v.candidate)
}

// Position is what the log holds at one moment.
type Position struct {
	// First, Last and LastTerm are 0 for an empty log.
	First, Last, LastTerm uint64
	// Term is the current term, TruncTerm what TruncationTerm returns.
	Term, TruncTerm uint64
}

// Position returns the ends of the log and its terms as they were together.
func (l *Log) Position() Position {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	st := &l.view.st
	return Position{
		First: st.first, Last: st.last, LastTerm: st.lastTerm(),
		Term: st.vote.term, TruncTerm: st.truncTerm,
	}
}
