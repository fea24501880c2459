package replication

import (
	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport"
)

// source is a group's side of hellos and beats.
type source struct{ g *Group }

// LocalHello implements transport.HelloSource.
func (s source) LocalHello() transport.Hello {
	log := s.g.logs.log
	term, _, _ := log.Vote()
	h := transport.Hello{Term: term, TruncTerm: log.TruncationTerm(), Beat: s.LocalBeat()}
	h.LastIndex, h.LastTerm = log.Last()
	if p := s.g.store.Pointer().Snapshot; p.Index > h.LastIndex {
		h.LastIndex, h.LastTerm = p.Index, p.Term
	}
	return h
}

// CheckHello implements transport.HelloSource. Whether a mark puts one of the two
// below what it once acknowledged is judged here; there are no marks yet.
func (s source) CheckHello(peer raft.ServerAddress, h transport.Hello) error {
	s.g.clock.hello(peer, h.Beat)
	return nil
}

// LocalBeat implements transport.HelloSource.
func (s source) LocalBeat() transport.Beat { return s.g.clock.beat() }

// ObserveBeat implements transport.HelloSource.
//
//nolint:revive // the interface's flag
func (s source) ObserveBeat(peer raft.ServerAddress, leading bool, b transport.Beat) {
	s.g.clock.ObserveWall(string(peer), b.Wall)
	if leading {
		s.g.clock.follow(b)
	}
}
