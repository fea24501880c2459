package replication

import (
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/marks"
	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// source is a replica's side of hellos and beats.
type source struct {
	g *Group
	r *replica
}

// LocalHello implements transport.HelloSource.
func (s source) LocalHello() transport.Hello {
	beat := s.LocalBeat() // first: what the log holds is then no older than the marks
	p := s.r.position()
	return transport.Hello{
		Term: p.Term, LastIndex: p.LastIndex, LastTerm: p.LastTerm, TruncTerm: p.TruncTerm, Beat: beat,
	}
}

// CheckHello implements transport.HelloSource. It takes over the peer's marks and judges
// both replicas by what is known then: one that is below its mark is damaged. The peer
// judges the same, since it is told this replica's marks.
func (s source) CheckHello(peer raft.ServerAddress, h transport.Hello) error {
	if slices.Contains(s.g.host.GivenUp(), string(peer)) {
		return fmt.Errorf("%w: %s was given up when %s was recovered", record.ErrRefused, peer, s.r.server)
	}
	if err := s.r.marks.merge(h.Beat.Marks); err != nil {
		return err
	}
	if err := s.checkSelf(); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrBelow, err)
	}
	theirs := marks.Position{Term: h.Term, LastIndex: h.LastIndex, LastTerm: h.LastTerm, TruncTerm: h.TruncTerm}
	if m := s.r.marks.of(string(peer)); !plantedBelowMark && theirs.Below(m) {
		return fmt.Errorf(
			"%w: %s holds entries up to %d of term %d in term %d, and once acknowledged %d in term %d",
			transport.ErrBelow, peer, h.LastIndex, h.LastTerm, h.Term, m.Index, m.Term)
	}
	s.r.clock.hello(peer, h.Beat)
	return nil
}

// checkSelf takes this replica out of service if it is below its own mark.
func (s source) checkSelf() error {
	err := s.r.below()
	if err != nil && s.g.rep.Load() == s.r {
		s.g.damaged(err)
	}
	return err
}

// LocalBeat implements transport.HelloSource.
func (s source) LocalBeat() transport.Beat {
	s.markOwn()
	b := s.r.clock.beat()
	b.Marks = s.r.marks.vector()
	return b
}

// markOwn makes the leader's mark of itself. What was stored last is read between two
// looks at the term: in between nobody else can have changed the log.
func (s source) markOwn() {
	in := s.g.inst.Load()
	if in == nil || in.rep != s.r || in.raft.State() != raft.Leader {
		return
	}
	term, tip := in.raft.CurrentTerm(), s.r.logs.tip.Load()
	if in.raft.State() == raft.Leader && in.raft.CurrentTerm() == term && tip > 0 {
		s.r.marks.raise(string(s.r.server), marks.Mark{Term: term, Index: tip})
	}
}

// ObserveMatch implements transport.HelloSource.
func (s source) ObserveMatch(peer raft.ServerAddress, term, index uint64) {
	s.r.marks.raise(string(peer), marks.Mark{Term: term, Index: index})
}

// ObserveBeat implements transport.HelloSource.
//
//nolint:revive // the interface's flag
func (s source) ObserveBeat(peer raft.ServerAddress, leading bool, b transport.Beat) {
	s.r.clock.ObserveWall(string(peer), b.Wall)
	if !leading {
		return
	}
	s.r.clock.follow(b)
	if s.r.marks.merge(b.Marks) == nil {
		_ = s.checkSelf() // it has acted on it
	}
}
