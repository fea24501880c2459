package transport

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/lease"
)

// Progress is what a leader knows of one replica.
type Progress struct {
	Address raft.ServerAddress
	// Match is the last index that the replica acknowledged in the current term; 0 = none yet.
	Match uint64
	// Sent is when (CLOCK_BOOTTIME) the newest acknowledged append or heartbeat was
	// sent; 0 = none in the current term.
	Sent time.Duration
	// Contact is when the replica last answered anything; zero = never.
	Contact time.Time
	// OutOfService: since then, its node has said that it does not serve this replica: the group is quarantined there,
	// or the node has another replica in it.
	OutOfService bool
}

// Progress returns what is known of each replica that was ever contacted, by address.
func (g *GroupTransport) Progress() []Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Progress, 0, len(g.st.peers))
	for addr, p := range g.st.peers {
		out = append(out, Progress{
			Address: addr, Match: p.match, Sent: p.sent, Contact: p.contact, OutOfService: p.outOfService,
		})
	}
	slices.SortFunc(out, func(a, b Progress) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

// peerState is what this leader knows of one replica in the current term.
type peerState struct {
	append, heartbeat chan struct{} // one request of each at a time
	match             uint64
	sent              time.Duration // send time (BOOTTIME) of the newest acknowledged append
	acked             bool
	contact           time.Time
	outOfService      bool
}

// enterTerm starts the books of a new term; g.mu is held.
func (g *GroupTransport) enterTerm(term uint64) {
	if term <= g.st.term {
		return
	}
	g.st.term = term
	g.st.lease.Enter(term)
	clear(g.st.written)
	for _, p := range g.st.peers {
		p.match, p.sent, p.acked = 0, 0, false
	}
	g.publish()
}

// transfersBefore returns the transfers to addr whose request was queued before
// anything that is queued now on c: on c itself, or on a connection before it,
// which the peer has drained before it welcomed c.
func (g *GroupTransport) transfersBefore(addr raft.ServerAddress, c *conn) []lease.Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []lease.Token
	for _, t := range g.st.lease.Open(string(addr)) {
		if serial, ok := g.st.written[t]; ok && serial <= c.serial {
			out = append(out, t)
		}
	}
	return out
}

// refused keeps the books of an append that failed. Whoever is asked what a group can do without must know at once, and
// not when the last answer of the replica is long ago, that there will be none any more.
func (g *GroupTransport) refused(addr raft.ServerAddress, err error) {
	var r *refusal
	if !errors.As(err, &r) || r.status != statusQuarantine && r.status != statusReceiver {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peer(addr).outOfService = true
}

// answered keeps the time; g.mu is held.
func (p *peerState) answered() { p.contact, p.outOfService = time.Now(), false }

// acknowledged keeps the books of an answered append; it says whether the follower
// accepted it in the present term.
func (g *GroupTransport) acknowledged(
	addr raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
	sent time.Duration, after []lease.Token,
) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peer(addr)
	p.answered()
	if args.Term != g.st.term || resp.Term != args.Term || !resp.Success {
		return false
	}
	if !isHeartbeat(args) {
		p.match = max(p.match, lastOf(args))
	}
	if !p.acked || sent > p.sent {
		p.sent, p.acked = sent, true
	}
	g.st.lease.Acked(string(addr), args.Term, sent)
	for _, t := range after {
		g.st.lease.Settle(t)
		delete(g.st.written, t)
	}
	g.publish()
	return true
}

// installed keeps the books of a finished install.
func (g *GroupTransport) installed(
	addr raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peer(addr)
	p.answered()
	if resp.Success && resp.Term == args.Term && args.Term == g.st.term {
		p.match = max(p.match, args.LastLogIndex)
	}
}
