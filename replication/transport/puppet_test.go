package transport

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

// puppet is a replica whose Raft is played by the test.
type puppet struct {
	t     *testing.T
	fab   *memnet.Fabric
	id    string
	addr  raft.ServerAddress
	tr    *Transport
	g     *GroupTransport
	src   *source
	start time.Time
	done  chan struct{}
	quit  chan struct{} // ends the player

	mu   sync.Mutex
	seen []any
	play func(cmd any) (any, error)
}

// source is a HelloSource with settable answers.
type source struct {
	mu     sync.Mutex
	hello  Hello
	err    error
	judged []raft.ServerAddress
	held   chan struct{} // CheckHello waits for it, if set
	beats  []Beat

	matches []match
}

type match struct {
	peer        raft.ServerAddress
	term, index uint64
}

func (s *source) LocalHello() Hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

func (s *source) CheckHello(peer raft.ServerAddress, _ Hello) error {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judged = append(s.judged, peer)
	return s.err
}

func (s *source) LocalBeat() Beat { return s.LocalHello().Beat }

func (s *source) ObserveMatch(peer raft.ServerAddress, term, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.matches = append(s.matches, match{peer, term, index})
}

func (s *source) ObserveBeat(_ raft.ServerAddress, _ bool, b Beat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats = append(s.beats, b)
}

// hold makes CheckHello wait until the channel is closed.
func (s *source) hold() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(chan struct{})
	return s.held
}

func (s *source) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// newPuppet starts a node with one group; edit may change its configuration.
func newPuppet(t *testing.T, fab *memnet.Fabric, id string, edit func(*Config)) *puppet {
	t.Helper()
	p := &puppet{
		t:     t,
		fab:   fab,
		id:    id,
		addr:  Address(id, "i1"),
		src:   &source{},
		start: time.Now(),
		play:  accept,
	}
	cfg := Config{
		NodeID: id, Network: fab.Host(id), Listen: id + ":1",
		Resolve: func(id string) (string, bool) { return id + ":1", true },
	}
	if edit != nil {
		edit(&cfg)
	}
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.tr, p.done = tr, make(chan struct{})
	go func() {
		defer close(p.done)
		if err := tr.Run(context.Background()); err != nil {
			t.Errorf("run %s: %v", id, err)
		}
	}()
	synctest.Wait() // Run is under way
	p.open()
	t.Cleanup(func() {
		p.close()
		tr.Close()
		<-p.done
	})
	return p
}

// open makes the group's transport and plays its Raft.
func (p *puppet) open(voters ...raft.ServerAddress) {
	p.t.Helper()
	g, err := p.tr.Group(GroupConfig{
		ID: testGroup, Local: p.addr, Source: p.src, Voters: voters,
		Boottime: func() time.Duration { return time.Since(p.start) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.g, p.quit = g, make(chan struct{})
	go func(quit chan struct{}) {
		for {
			select {
			case <-quit:
				return
			case rpc := <-g.Consumer():
				p.mu.Lock()
				p.seen = append(p.seen, rpc.Command)
				play := p.play
				p.mu.Unlock()
				rpc.Respond(play(rpc.Command))
			}
		}
	}(p.quit)
}

func (p *puppet) close() {
	if p.g != nil {
		p.g.Close()
		close(p.quit)
		p.g = nil
	}
}

func (p *puppet) plays(f func(cmd any) (any, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.play = f
}

func (p *puppet) took() []any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]any(nil), p.seen...)
}

// accept says yes to everything, as a follower of the sender would.
func accept(cmd any) (any, error) {
	switch c := cmd.(type) {
	case *raft.AppendEntriesRequest:
		return &raft.AppendEntriesResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3},
			Term:      c.Term,
			Success:   true,
		}, nil
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3},
			Term:      c.Term,
			Granted:   true,
		}, nil
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3},
			Term:      c.Term,
			Granted:   true,
		}, nil
	case *raft.TimeoutNowRequest:
		return &raft.TimeoutNowResponse{}, nil
	default:
		return nil, raft.ErrUnsupportedProtocol
	}
}

// beat sends a heartbeat of a term to a peer.
func (p *puppet) beat(to *puppet, term uint64) (raft.AppendEntriesResponse, error) {
	return p.send(to.addr, &raft.AppendEntriesRequest{RPCHeader: p.header(), Term: term})
}

// at is an empty append of term 1 with a log position.
func (p *puppet) at(index, term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: p.header(), Term: 1, PrevLogEntry: index, PrevLogTerm: term}
}

func (p *puppet) header() raft.RPCHeader { return route{version: 3, from: p.addr}.header() }

func (p *puppet) send(
	to raft.ServerAddress,
	a *raft.AppendEntriesRequest,
) (raft.AppendEntriesResponse, error) {
	var resp raft.AppendEntriesResponse
	err := p.g.AppendEntries(raft.ServerID(to), to, a, &resp)
	return resp, err
}

func (p *puppet) vote(to *puppet, term uint64) (bool, error) {
	var resp raft.RequestVoteResponse
	err := p.g.RequestVote(
		raft.ServerID(to.addr),
		to.addr,
		&raft.RequestVoteRequest{RPCHeader: p.header(), Term: term},
		&resp,
	)
	return resp.Granted, err
}

func (p *puppet) preVote(to *puppet, term uint64) (bool, error) {
	var resp raft.RequestPreVoteResponse
	err := p.g.RequestPreVote(
		raft.ServerID(to.addr),
		to.addr,
		&raft.RequestPreVoteRequest{RPCHeader: p.header(), Term: term},
		&resp,
	)
	return resp.Granted, err
}

func (p *puppet) timeoutNow(to *puppet) error {
	var resp raft.TimeoutNowResponse
	return p.g.TimeoutNow(
		raft.ServerID(to.addr),
		to.addr,
		&raft.TimeoutNowRequest{RPCHeader: p.header()},
		&resp,
	)
}
