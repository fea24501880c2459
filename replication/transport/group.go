package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/lease"
)

// GroupTransport is one Raft instance's transport. A re-created instance needs a
// new one: its embargo starts anew.
type GroupTransport struct {
	t        *Transport
	cfg      GroupConfig
	consumer chan raft.RPC
	closed   chan struct{}
	wake     chan struct{} // the voters changed
	// gate is held from handing an RPC to Raft until its answer, so that what this
	// side knows of the leader is true when a take-over is judged. A channel, since
	// waiters must be able to give up.
	gate  chan struct{}
	users sync.WaitGroup // calls in progress; see enter
	lease atomic.Pointer[leaseView]

	mu sync.Mutex
	st struct { // guarded by mu
		closing bool
		embargo *embargo
		lease   *lease.Lease
		// written holds, for each transfer whose request was queued, the serial of its connection.
		written map[lease.Token]uint64
		peers   map[raft.ServerAddress]*peerState
		term    uint64 // of the newest append sent
		leader  leaderState
		fence   uint64 // appends of this term and older are not acknowledged; see serveAppend
		fenced  bool
	}
}

// leaderState is whom Raft accepted as leader by the last append, and where its
// frames come from.
type leaderState struct {
	addr raft.ServerAddress
	term uint64
	conn *conn
}

// leaseView is the lease as readers see it, without a lock.
type leaseView struct {
	term  uint64
	until time.Duration
	ok    bool
}

var (
	_ raft.Transport   = (*GroupTransport)(nil)
	_ raft.WithPreVote = (*GroupTransport)(nil)
	_ raft.WithClose   = (*GroupTransport)(nil)
)

// Group makes the transport of a group's new Raft instance. It fails with
// ErrGroupExists while an earlier one is open and with ErrQuarantined.
func (t *Transport) Group(cfg GroupConfig) (*GroupTransport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(t.cfg.NodeID); err != nil {
		return nil, err
	}
	g := &GroupTransport{
		t: t, cfg: cfg,
		consumer: make(chan raft.RPC), closed: make(chan struct{}),
		wake: make(chan struct{}, 1), gate: make(chan struct{}, 1),
	}
	g.st.embargo = newEmbargo(cfg.Boottime(), t.cfg.HeartbeatTimeout, string(cfg.Local))
	g.st.lease = lease.New(t.cfg.HeartbeatTimeout)
	g.st.written = map[lease.Token]uint64{}
	g.st.peers = map[raft.ServerAddress]*peerState{}
	g.SetVoters(cfg.Voters)
	t.mu.Lock()
	reason, quarantined := t.st.quarantine[cfg.ID]
	_, exists := t.st.groups[cfg.ID]
	switch {
	case quarantined:
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: group %d: %s", ErrQuarantined, cfg.ID, reason)
	case exists:
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: group %d", ErrGroupExists, cfg.ID)
	case t.st.stopped:
		t.mu.Unlock()
		return nil, ErrClosed
	}
	t.st.groups[cfg.ID] = g
	t.mu.Unlock()
	t.spawn(g.exchangeHellos)
	return g, nil
}

// Close ends the group's requests and waits until none is in progress and no
// method of its Source runs. Raft calls it when it has shut down; calling it
// before makes a shutdown that waits for peers quick. Idempotent.
func (g *GroupTransport) Close() error {
	g.mu.Lock()
	first := !g.st.closing
	g.st.closing = true
	g.mu.Unlock()
	if first {
		close(g.closed)
	}
	g.users.Wait()
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	if g.t.st.groups[g.cfg.ID] == g {
		delete(g.t.st.groups, g.cfg.ID)
	}
	return nil
}

// enter keeps Close waiting until leave; false when the group is closing.
func (g *GroupTransport) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.st.closing {
		return false
	}
	g.users.Add(1)
	return true
}

func (g *GroupTransport) leave() { g.users.Done() }

func (g *GroupTransport) lock(giveUp <-chan struct{}) bool {
	select {
	case g.gate <- struct{}{}:
		return true
	case <-g.closed:
		return false
	case <-giveUp:
		return false
	}
}

func (g *GroupTransport) unlock() { <-g.gate }

// Consumer returns the channel of RPCs for Raft; heartbeats come here like all others.
func (g *GroupTransport) Consumer() <-chan raft.RPC { return g.consumer }

// LocalAddr returns this replica's address.
func (g *GroupTransport) LocalAddr() raft.ServerAddress { return g.cfg.Local }

// EncodePeer returns the address as it is: it is logical.
func (g *GroupTransport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte {
	return []byte(addr)
}

// DecodePeer is the inverse of EncodePeer.
func (g *GroupTransport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing: heartbeats that are handled beside Raft's main
// loop can change the term under it and make replicas diverge.
func (g *GroupTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline always returns raft.ErrPipelineReplicationNotSupported: a
// pipeline that saw one refusal can leave a follower without entries for ever.
func (g *GroupTransport) AppendEntriesPipeline(
	raft.ServerID,
	raft.ServerAddress,
) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// SetVoters replaces the voters of the latest configuration, committed or not. The
// owner calls it before Raft starts and after every change.
func (g *GroupTransport) SetVoters(voters []raft.ServerAddress) {
	names := make([]string, len(voters))
	for i, v := range voters {
		names[i] = string(v)
	}
	g.mu.Lock()
	g.st.embargo.setVoters(names)
	g.st.lease.SetVoters(string(g.cfg.Local), names)
	g.publish()
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// publish makes the lease visible to readers; g.mu is held.
func (g *GroupTransport) publish() {
	until, ok := g.st.lease.Until()
	g.lease.Store(&leaseView{term: g.st.term, until: until, ok: ok})
}

// LeaseValid says whether no other replica can have been elected since this one
// leads in term. It takes no lock: it is meant to be called right before an
// effect, after the check that Raft leads in term.
func (g *GroupTransport) LeaseValid(term uint64) bool {
	v := g.lease.Load()
	if !v.ok || (v.until != lease.Always && v.term != term) {
		return false
	}
	return g.cfg.Boottime() < v.until
}

// Lease returns how the lease stands. An owner that sees it void for longer than
// two election timeouts re-creates the Raft instance.
func (g *GroupTransport) Lease() lease.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.st.lease.Status(g.cfg.Boottime())
}

// mayVote says whether the embargo is over.
func (g *GroupTransport) mayVote() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.st.embargo.over(g.cfg.Boottime())
}

// Embargoed says whether this replica may not yet ask for votes or give them.
func (g *GroupTransport) Embargoed() bool { return !g.mayVote() }

// judge lets the source judge a peer's hello and keeps the outcome.
func (g *GroupTransport) judge(peer raft.ServerAddress, h Hello) error {
	err := g.cfg.Source.CheckHello(peer, h)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.t.count.HelloRefused.Add(1)
		g.st.embargo.refused(string(peer))
		return fmt.Errorf("%w: %s: %w", ErrHello, peer, err)
	}
	g.st.embargo.hello(string(peer))
	return nil
}

// newerTerm forgets a leader of an older term before Raft learns of term.
func (g *GroupTransport) newerTerm(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if term > g.st.leader.term {
		g.setLeader(leaderState{})
	}
}

// accepted records that Raft took an append of term from leader.
func (g *GroupTransport) accepted(c *conn, leader raft.ServerAddress, term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLeader(leaderState{addr: leader, term: term, conn: c})
}

// campaign records that this replica asks for votes: it follows no leader.
func (g *GroupTransport) campaign() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLeader(leaderState{})
}

func (g *GroupTransport) setLeader(l leaderState) {
	g.st.leader = l
	g.st.embargo.leads(string(l.addr))
}

// ledBy says whether from leads in term and its appends come by c.
func (g *GroupTransport) ledBy(c *conn, from raft.ServerAddress, term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.st.leader == leaderState{addr: from, term: term, conn: c}
}

// fence stops acknowledging appends of term and older terms.
func (g *GroupTransport) fence(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.st.fence, g.st.fenced = max(g.st.fence, term), true
}

func (g *GroupTransport) fenced(term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.st.fenced && term <= g.st.fence
}

// peer returns the state of a replica; g.mu is held.
func (g *GroupTransport) peer(addr raft.ServerAddress) *peerState {
	p := g.st.peers[addr]
	if p == nil {
		p = &peerState{append: make(chan struct{}, 1), heartbeat: make(chan struct{}, 1)}
		g.st.peers[addr] = p
	}
	return p
}

// exchangeHellos keeps asking the voters for hellos until the embargo is over:
// when no leader is there, nobody else would.
func (g *GroupTransport) exchangeHellos(ctx context.Context) {
	every := time.NewTicker(g.t.cfg.HeartbeatTimeout / 4)
	defer every.Stop()
	busy := make(chan string, maxVoters)
	asking := map[string]bool{}
	for {
		for _, v := range g.missing() {
			if asking[v] || len(asking) == maxVoters {
				continue
			}
			asking[v] = true
			g.t.spawn(func(context.Context) {
				g.askHello(raft.ServerAddress(v))
				busy <- v
			})
		}
		select {
		case v := <-busy:
			delete(asking, v)
			select { // no faster than the ticker
			case <-every.C:
			case <-g.closed:
				return
			case <-ctx.Done():
				return
			}
		case <-every.C:
		case <-g.wake:
		case <-g.closed:
			return
		case <-ctx.Done():
			return
		}
		if g.mayVote() {
			return
		}
	}
}

// maxVoters bounds the hellos asked for at the same time.
const maxVoters = 16

// missing returns the voters that hellos were not exchanged with.
func (g *GroupTransport) missing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, v := range g.st.embargo.voters {
		if v != string(g.cfg.Local) && !g.st.embargo.hellos[v] {
			out = append(out, v)
		}
	}
	return out
}

func (g *GroupTransport) askHello(peer raft.ServerAddress) {
	if !g.enter() {
		return
	}
	defer g.leave()
	w, stop := newWait(g.t.cfg.HeartbeatTimeout, g.closed)
	defer stop()
	_, _ = g.greet(peer, w) // what matters is whether judge saw the hello
}
